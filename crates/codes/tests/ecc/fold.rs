//! Fingerprints from parity: which changes of a page they miss. All changes of one bit and of one byte are tried.

use super::oracle::{self, Random};
use vellum_codes::ecc::{Code, Fold};

const MIX: Fold = Fold::Mix { seed: 42 };

/// Shares of the changes of one bit, and of one byte, that this fingerprint of a codeword misses.
fn unseen(code: &Code, fold: Fold) -> (f64, f64) {
    let (_, parity) = oracle::random(code, &mut Random(1));
    let before = fold.fingerprint(&parity);
    let (mut bits, mut bytes) = (0, 0);
    for byte in 0..code.data_bytes() {
        let columns: Vec<_> = (0..8).map(|bit| oracle::column(code, 8 * byte + bit)).collect();
        for change in 1..=255u8 {
            let mut changed = parity.clone();
            for column in (0..8).filter(|bit| change >> bit & 1 == 1).map(|bit| &columns[bit]) {
                column.iter().for_each(|row| oracle::flip(&mut changed, *row));
            }
            let same = usize::from(fold.fingerprint(&changed) == before);
            bytes += same;
            bits += if change.is_power_of_two() { same } else { 0 };
        }
    }
    let count = code.data_bytes() as f64;
    (bits as f64 / (8.0 * count), bytes as f64 / (255.0 * count))
}

#[test]
fn truncation_misses_changes_that_mixing_sees() {
    for code in Code::all() {
        let (truncated, mixed) = (unseen(code, Fold::Truncate), unseen(code, MIX));
        let percent = |share| 100.0 * share;
        println!(
            "{}: first four bytes miss {:.1} % of changes of a bit and {:.2} % of changes of a byte, mixed {:.4} % and {:.4} %",
            code.name(),
            percent(truncated.0),
            percent(truncated.1),
            percent(mixed.0),
            percent(mixed.1)
        );
        assert!(truncated.0 > 0.3 && truncated.1 > 0.01, "{}: {truncated:?}", code.name());
        // 4 KiB have a million such changes, and one in 2^32 is missed.
        assert!(mixed.0 == 0.0 && mixed.1 < 1e-5, "{}: {mixed:?}", code.name());
    }
}

/// Typical changes by software: a counter, two lines or two words exchanged, bytes moved up by one.
#[test]
fn mixing_sees_ordinary_changes() {
    let (code, mut random) = (Code::paper(), Random(2));
    let digest = |data: &[u8]| {
        let mut parity = [0; 128];
        code.encode(data, &mut parity);
        MIX.digest(code, &parity)
    };
    let mut seen = std::collections::BTreeSet::new();
    let mut data = vec![0; 4096];
    random.fill(&mut data);
    let mut contents = vec![data.clone()];
    for counter in 0..2000u64 {
        data[800..808].copy_from_slice(&counter.to_le_bytes());
        contents.push(data.clone());
    }
    for unit in [8, 32, 64] {
        for first in (0..4096 - unit).step_by(unit) {
            let mut exchanged = data.clone();
            let (a, b) = exchanged[first..].split_at_mut(unit);
            a.swap_with_slice(&mut b[..unit]);
            contents.push(exchanged);
        }
    }
    for by in 1..64 {
        let mut moved = data.clone();
        moved.rotate_right(by);
        contents.push(moved);
    }
    contents.sort();
    contents.dedup();
    for content in &contents {
        assert!(seen.insert(digest(content)), "two of {} contents have one digest", contents.len());
    }
}

/// Changes that no fold detects, because the code does not: with an even number of words, a sector filled with one byte
/// has the same parity as one filled with the complement of that byte. No others share their parity.
#[test]
fn sectors_filled_with_one_byte_share_parity_with_the_complement_only() {
    for code in Code::all() {
        let parity = |byte| {
            let mut parity = vec![0xAA; code.parity_bytes()];
            code.encode(&vec![byte; code.data_bytes()], &mut parity);
            parity
        };
        let different: std::collections::BTreeSet<_> = (0..=255).map(parity).collect();
        assert_eq!(different.len(), 128, "{}", code.name());
        assert!((0..=255).all(|byte: u8| parity(byte) == parity(!byte)));
    }
}

#[test]
fn digests_are_made_of_the_first_bytes_or_of_all() {
    let code = Code::paper();
    let mut parity = [0; 128];
    Random(3).fill(&mut parity);
    let first: Vec<u8> = parity.chunks(32).flat_map(|p| p[..4].to_vec()).collect();
    assert_eq!(Fold::Truncate.digest(code, &parity).0.to_le_bytes(), first[..]);
    for byte in 0..128 {
        let mut changed = parity;
        changed[byte] ^= 1;
        assert_ne!(MIX.digest(code, &changed), MIX.digest(code, &parity));
        assert_eq!(
            Fold::Truncate.digest(code, &changed) == Fold::Truncate.digest(code, &parity),
            byte % 32 >= 4
        );
    }
    assert_ne!(MIX.digest(code, &parity), Fold::Mix { seed: 43 }.digest(code, &parity));
    assert_ne!(MIX.fingerprint(&parity), Fold::Mix { seed: 43 }.fingerprint(&parity));
}
