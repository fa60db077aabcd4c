//! Deltas turn each version into the other, are small if little changed, and hostile ones are rejected.

use proptest::prelude::*;
use vellum_codes::delta::{self, Malformed, OVERHEAD_MAX};

fn encoded(old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(delta::encode(old, new, usize::MAX, &mut out));
    out
}

/// Start of a packed delta.
const PACKED: [u8; 3] = [0, 0, 1];

fn packed(pairs: &[u8]) -> Vec<u8> {
    [&PACKED[..], &zstd::bulk::compress(pairs, 1).unwrap()].concat()
}

fn runs(delta: &[u8], bytes: usize) -> Vec<(usize, Vec<u8>)> {
    let mut runs = Vec::new();
    delta::for_each_run(delta, bytes, |at, literals| runs.push((at, literals.to_vec()))).unwrap();
    runs
}

/// Two versions that differ in some runs, long and short, at any position.
fn versions() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let run = (0usize..5000, 1usize..300, 1u8..=255);
    (1usize..5000, prop::collection::vec(run, 0..40)).prop_map(|(bytes, runs)| {
        let old: Vec<u8> = (0..bytes).map(|i| ((i * 31) >> 3) as u8).collect();
        let mut new = old.clone();
        for (at, length, change) in runs {
            let at = at % bytes;
            let end = (at + length).min(bytes);
            new[at..end].iter_mut().enumerate().for_each(|(i, byte)| *byte ^= change.wrapping_add(i as u8));
        }
        (old, new)
    })
}

proptest! {
    #[test]
    fn a_delta_leads_there_and_back((old, new) in versions()) {
        let delta = encoded(&old, &new);
        prop_assert!(delta.len() <= old.len() + OVERHEAD_MAX);
        let mut page = old.clone();
        delta::apply(&delta, &mut page).unwrap();
        prop_assert!(page == new);
        delta::apply(&delta, &mut page).unwrap();
        prop_assert!(page == old);
        // Applied to zeros, as for parity, the delta is the XOR of the versions.
        let mut both = vec![0; old.len()];
        delta::apply(&delta, &mut both).unwrap();
        prop_assert!(both.iter().zip(&old).zip(&new).all(|((delta, old), new)| delta ^ old == *new));
    }

    #[test]
    fn a_limit_is_kept_and_leaves_nothing_behind((old, new) in versions(), limit in 0usize..3000) {
        let whole = encoded(&old, &new);
        let mut out = vec![1, 2, 3];
        let fits = delta::encode(&old, &new, limit, &mut out);
        prop_assert_eq!(fits, whole.len() <= limit);
        prop_assert_eq!(&out[3..], if fits { &whole[..] } else { &[] });
    }

    #[test]
    fn a_second_try_makes_nothing_longer_and_tells_the_same_runs((old, new) in versions()) {
        let (mut once, twice) = (Vec::new(), encoded(&old, &new));
        delta::encode_once(&old, &new, &mut once);
        prop_assert!(twice.len() <= once.len());
        prop_assert!(once.len() > old.len() / 8 || twice == once, "short ones are as they were");
        prop_assert_eq!(runs(&twice, old.len()), runs(&once, old.len()));
    }

    #[test]
    fn anything_may_be_applied(bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0usize..300) {
        let mut page = vec![0; length];
        let _ = delta::apply(&bytes, &mut page);
        let _ = delta::apply(&[&PACKED[..], &bytes].concat(), &mut page);
        let _ = delta::apply(&packed(&bytes), &mut page);
    }
}

#[test]
fn equal_pages_have_the_empty_delta_and_a_byte_costs_three() {
    let page = [5; 4096];
    assert!(encoded(&page, &page).is_empty());
    let mut changed = page;
    changed[100] ^= 1;
    assert_eq!(encoded(&page, &changed), [100, 1, 1]);
    changed[104] ^= 2;
    assert_eq!(encoded(&page, &changed), [100, 5, 1, 0, 0, 0, 2], "three zeros are cheaper as literals");
    changed[109] ^= 4;
    assert_eq!(encoded(&page, &changed), [100, 5, 1, 0, 0, 0, 2, 4, 1, 4], "four are not");
}

#[test]
fn what_reaches_beyond_the_page_or_is_cut_off_is_refused() {
    let mut page = [0; 16];
    for bad in
        [&[0][..], &[0, 0], &[16, 1, 1], &[15, 2, 1, 1], &[0, 3, 1, 1], &[0xff, 0xff, 0xff, 0xff, 0xff, 1, 1]]
    {
        assert_eq!(delta::apply(bad, &mut page), Err(Malformed), "{bad:?}");
    }
    assert_eq!(delta::apply(&[15, 1, 9], &mut page), Ok(()));
}

/// A line of text replaced by another, as in a page of rows.
#[test]
fn what_is_long_and_repeats_is_packed() {
    let line = |word: &str| word.bytes().cycle().take(4096).collect::<Vec<u8>>();
    let (old, new) = (line("from time to time "), line("twice as long as that "));
    let delta = encoded(&old, &new);
    assert!(delta.starts_with(&PACKED) && delta.len() < 1000, "{} bytes", delta.len());
    let mut page = old.clone();
    delta::apply(&delta, &mut page).unwrap();
    assert!(page == new);
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    let noise: Vec<u8> = (0..4096).map(|_| next()).collect();
    assert!(encoded(&[0; 4096], &noise).len() >= 4096, "what does not get shorter is left as it is");
}

#[test]
fn packed_deltas_that_are_none_are_refused() {
    let apply = |delta: &[u8]| delta::apply(delta, &mut [0; 16]);
    assert_eq!(apply(&packed(&[15, 1, 9])), Ok(()));
    assert_eq!(apply(&packed(&[])), Ok(()), "no difference");
    let (twice, cut) = (packed(&packed(&[15, 1, 9])), packed(&[15, 1, 9]));
    let bomb = packed(&[1; 1 << 20]);
    for bad in [&twice[..], &cut[..cut.len() - 1], &bomb, &packed(&[16, 1, 9]), &PACKED, &[0, 0, 2, 1]] {
        assert_eq!(apply(bad), Err(Malformed), "{bad:?}");
    }
}

/// Runs and gaps at every alignment: the shortcut for whole words must not skip a byte that does not differ.
#[test]
fn runs_end_where_zeros_begin_at_any_alignment() {
    for start in 0..16 {
        for length in 1..40 {
            for gap in 0..8 {
                let old = vec![0; 80];
                let mut new = old.clone();
                new[start..start + length].fill(0x80);
                new[start + length + gap..][..9].fill(0x01);
                let mut page = old.clone();
                let delta = encoded(&old, &new);
                delta::apply(&delta, &mut page).unwrap();
                assert!(page == new, "{start} {length} {gap}");
                let runs = if gap < 4 { 1 } else { 2 };
                let mut count = 0;
                delta::for_each_run(&delta, 80, |_, _| count += 1).unwrap();
                assert_eq!(count, runs, "{start} {length} {gap}");
            }
        }
    }
}
