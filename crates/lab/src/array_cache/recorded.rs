//! Deltas of recorded contents: those of the codec, between the version that a policy has cached and the one written.
//!
//! 1. The versions in the array and in pages follow from the policy's steps, in order: a page receives what the array
//!    holds at that step.
//! 2. What a sector held before the trace wrote to it is unknown, and gives no delta. Assuming zeros would be wrong:
//!    sectors never written are rarely read, so a base that was read has content from before the trace.
//! 3. A fingerprint says which contents are equal, and where their zeros are. How a codec would compress the rest is
//!    unknown, so it counts uncompressed: the pattern that represents it would compress to almost nothing.

use super::written::{Version, Written};
use serde::Serialize;
use std::sync::Arc;
use vellum_array::cache::{DELTA_BYTES_MAX, PageNo, Step, Steps, encode_delta};
use vellum_base::hash::FixedMap;
use vellum_base::{Lba, SECTOR_BYTES};
use vellum_codes::delta;
use vellum_trace::Content;

/// Statistics of writes to sectors for which the cache had a base.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Made {
    /// Number of such writes.
    pub bases: u64,
    /// Those without a delta: it does not fit a delta page, or its contents are unknown.
    pub none: u64,
    /// Mean length of the deltas, as a share of a sector; None if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_share: Option<f64>,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Recorded {
    written: Arc<Written>,
    /// Versions in the array, for sectors that the trace has written.
    array: FixedMap<u64, Version>,
    /// Sector and version in each page.
    pages: Vec<(Lba, Version)>,
    /// The write in progress.
    next: (Lba, Version),
    bases: u64,
    none: u64,
    bytes: u64,
    old_sector: Vec<u8>,
    new_sector: Vec<u8>,
    coded: Vec<u8>,
}

impl Recorded {
    pub fn new(written: Arc<Written>) -> Recorded {
        Recorded {
            written,
            array: FixedMap::default(),
            pages: Vec::new(),
            next: (Lba(0), Version::UNKNOWN),
            bases: 0,
            none: 0,
            bytes: 0,
            old_sector: vec![0; SECTOR_BYTES],
            new_sector: vec![0; SECTOR_BYTES],
            coded: Vec::new(),
        }
    }

    /// Length of the delta of a write to the n-th sector of a request, given the policy's base; None if there is no
    /// delta.
    pub fn write(&mut self, lba: Lba, request: usize, nth: usize, base: Option<PageNo>) -> Option<usize> {
        let new = self.written.version(request, nth);
        self.next = (lba, new);
        let (of, old) = self.pages[base?.0 as usize];
        assert_eq!(of, lba, "the base of a sector is a version of it");
        let bytes = self.length(old, new);
        self.bases += 1;
        self.none += u64::from(bytes.is_none());
        self.bytes += bytes.unwrap_or(0) as u64;
        bytes
    }

    fn length(&mut self, old: Version, new: Version) -> Option<usize> {
        let (old_content, new_content) = (self.written.content(old)?, self.written.content(new)?);
        if old == new {
            return Some(0);
        }
        old_content.fill(&mut self.old_sector);
        new_content.fill(&mut self.new_sector);
        self.coded.clear();
        let fits = if [old_content, new_content].iter().any(|c| matches!(c, Content::Pattern(_))) {
            delta::encode_once(&self.old_sector, &self.new_sector, &mut self.coded);
            self.coded.len() <= DELTA_BYTES_MAX
        } else {
            encode_delta(&self.old_sector, &self.new_sector, &mut self.coded)
        };
        fits.then_some(self.coded.len())
    }

    /// Follows the steps of a request.
    pub fn follow(&mut self, steps: &Steps) {
        for step in &steps.list {
            match *step {
                Step::WriteArray(lba) | Step::WriteWithoutParity(lba) => {
                    let (of, version) = self.next;
                    assert_eq!(of, lba, "what is written is what was asked for");
                    self.array.insert(lba.0, version);
                }
                Step::WritePage { page, lba, .. } | Step::Hold { page, lba } => self.hold(page, lba),
                Step::Promote { from, to, .. } => self.put(to, self.pages[from.0 as usize]),
                Step::Refresh(page) => self.hold(page, self.pages[page.0 as usize].0),
                _ => {}
            }
        }
    }

    /// Notes that a sector was trimmed or zeroed.
    pub fn forget(&mut self, lba: Lba) {
        self.array.insert(lba.0, Version::ZERO);
    }

    /// Copies into a page what the array holds of a sector.
    fn hold(&mut self, page: PageNo, lba: Lba) {
        self.put(page, (lba, self.array.get(&lba.0).copied().unwrap_or(Version::UNKNOWN)));
    }

    fn put(&mut self, page: PageNo, what: (Lba, Version)) {
        let at = page.0 as usize;
        if at >= self.pages.len() {
            self.pages.resize(at + 1, (Lba(0), Version::UNKNOWN));
        }
        self.pages[at] = what;
    }

    pub fn made(&self) -> Made {
        let Recorded { bases, none, bytes, .. } = *self;
        let deltas = bases - none;
        let mean = || bytes as f64 / (deltas * SECTOR_BYTES as u64) as f64;
        Made { bases, none, mean_share: (deltas > 0).then(mean) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array_cache::Mode;
    use crate::array_cache::written::Gather;
    use vellum_array::cache::{Newest, Staged, Why};
    use vellum_array::{Level, Shape};
    use vellum_base::Nanos;
    use vellum_codes::pattern::Pattern;
    use vellum_trace::Request;
    use vellum_trace::generate::Seeded;

    const LBA: Lba = Lba(7);
    const PAGE: PageNo = PageNo(3);

    /// The same text for any `bytes`, except for that many bytes, one in every eight.
    fn text(bytes: usize) -> Vec<u8> {
        let mut sector: Vec<u8> = (0..SECTOR_BYTES).map(|i| b"recorded contents "[i % 18]).collect();
        (0..bytes).for_each(|i| sector[i * 8] ^= bytes as u8 | 1);
        sector
    }

    /// The n-th of some texts that differ in a few bytes.
    fn numbered(n: u32) -> Vec<u8> {
        let mut sector = text(0);
        sector[100..104].copy_from_slice(&n.to_le_bytes());
        sector
    }

    /// Versions of one sector, one per request.
    fn recorded(contents: impl IntoIterator<Item = Content>) -> Recorded {
        let mut gather = Gather::new();
        for content in contents {
            gather.add(&Request::write(Nanos(0), LBA, vec![content], false));
        }
        Recorded::new(Arc::new(gather.done()))
    }

    fn steps(list: &[Step]) -> Steps {
        Steps { list: list.to_vec(), ..Steps::default() }
    }

    fn codec(old: &[u8], new: &[u8]) -> usize {
        let mut out = Vec::new();
        assert!(encode_delta(old, new, &mut out));
        out.len()
    }

    const MISSED: [Step; 2] =
        [Step::WriteArray(LBA), Step::WritePage { page: PAGE, lba: LBA, why: Why::Allocate }];

    #[test]
    fn deltas_are_the_codec_s_between_base_and_new_version() {
        let versions = [text(0), text(20), text(400), text(21)];
        let mut recorded = recorded(versions.iter().map(|version| Content::all_bytes(version)));
        assert_eq!(recorded.write(LBA, 0, 0, None), None, "a miss has no base");
        recorded.follow(&steps(&MISSED));
        let staged = Step::Stage(Staged { base: PAGE, lba: LBA, bytes: 9, offset: 0 });
        let put_off = steps(&[Step::ReadPage(PAGE), Step::WriteWithoutParity(LBA), staged]);
        for (at, version) in versions.iter().enumerate().skip(1) {
            let expected = codec(&versions[0], version);
            assert_eq!(
                recorded.write(LBA, at, 0, Some(PAGE)),
                Some(expected),
                "of the page, not of what came before"
            );
            recorded.follow(&put_off);
        }
        let made = recorded.made();
        assert!(
            made.bases == 3 && made.none == 0 && (0.01..0.3).contains(&made.mean_share.unwrap()),
            "{made:?}"
        );
    }

    /// Pages that are updated with their delta, promoted to the SSD, and rewritten.
    #[test]
    fn the_base_follows_the_steps() {
        let versions = [text(0), text(20), text(400), text(21)];
        let (memory, flash) = (PageNo(90), PageNo(4));
        let mut recorded = recorded(versions.iter().map(|version| Content::all_bytes(version)));
        recorded.write(LBA, 0, 0, None);
        recorded.follow(&steps(&[Step::WriteArray(LBA), Step::Hold { page: memory, lba: LBA }]));
        recorded.write(LBA, 1, 0, Some(memory));
        recorded.follow(&steps(&[Step::WriteWithoutParity(LBA), Step::Refresh(memory)]));
        assert_eq!(recorded.write(LBA, 2, 0, Some(memory)), Some(codec(&versions[1], &versions[2])));
        // A refresh before the write gets the previous version.
        recorded.follow(&steps(&[Step::Refresh(memory), Step::WriteWithoutParity(LBA)]));
        assert_eq!(recorded.write(LBA, 3, 0, Some(memory)), Some(codec(&versions[1], &versions[3])));
        recorded.follow(&steps(&[Step::WriteWithoutParity(LBA), Step::Refresh(memory)]));
        recorded.follow(&steps(&[Step::Promote { from: memory, to: flash, lba: LBA }]));
        assert_eq!(recorded.write(LBA, 2, 0, Some(flash)), Some(codec(&versions[3], &versions[2])));
        assert_eq!(recorded.write(LBA, 3, 0, Some(flash)), Some(0), "the same content again");
        // A promotion copies the page, whatever the array holds by then.
        recorded.write(LBA, 1, 0, Some(flash));
        recorded.follow(&steps(&[Step::WriteWithoutParity(LBA)]));
        recorded.follow(&steps(&[Step::Promote { from: flash, to: memory, lba: LBA }]));
        assert_eq!(recorded.write(LBA, 3, 0, Some(memory)), Some(0));
    }

    #[test]
    fn lengths_are_of_the_deltas_that_there_are() {
        let (old, new) = (text(0), text(20));
        let unlike = Content::Pattern(Pattern::unique(1));
        let mut recorded = recorded([Content::all_bytes(&old), unlike, Content::all_bytes(&new)]);
        assert_eq!(recorded.made(), Made::default());
        recorded.write(LBA, 0, 0, None);
        recorded.follow(&steps(&MISSED));
        assert_eq!(recorded.write(LBA, 1, 0, Some(PAGE)), None);
        assert_eq!(recorded.made(), Made { bases: 1, none: 1, mean_share: None });
        let bytes = recorded.write(LBA, 2, 0, Some(PAGE)).unwrap();
        let mean_share = Some(bytes as f64 / SECTOR_BYTES as f64);
        assert_eq!(recorded.made(), Made { bases: 2, none: 1, mean_share });
    }

    #[test]
    fn what_nobody_knows_makes_no_delta_and_what_was_trimmed_is_zeros() {
        let mut recorded = recorded([Content::all_bytes(&text(0)), Content::Zero]);
        let filled = steps(&[Step::ReadArray(LBA), Step::WritePage { page: PAGE, lba: LBA, why: Why::Fill }]);
        recorded.follow(&filled);
        assert_eq!(recorded.write(LBA, 0, 0, Some(PAGE)), None, "what it held before is not known");
        recorded.follow(&steps(&[Step::Discard(PAGE), Step::WriteArray(LBA)]));
        recorded.forget(LBA);
        recorded.follow(&filled);
        assert_eq!(recorded.write(LBA, 1, 0, Some(PAGE)), Some(0));
        assert_eq!(recorded.made(), Made { bases: 2, none: 1, mean_share: Some(0.0) });
    }

    /// The pattern for different contents in a trace repeats every eight bytes, unlike the contents themselves.
    #[test]
    fn fingerprints_are_not_packed() {
        let patterns = [1, 2].map(|n| Content::Pattern(Pattern::unique(n)));
        let half = |n: u64| {
            Content::Pattern(Pattern::new(n.wrapping_mul(0x9E37_79B9_7F4A_7C15), 0, 0xFFFF_FFFF_0000_0000))
        };
        let [first, second] = patterns;
        let mut recorded = recorded([first.clone(), second, first, half(5), half(9)]);
        let mut next = |at| {
            let bytes = recorded.write(LBA, at, 0, (at > 0).then_some(PAGE));
            recorded.follow(&steps(&MISSED));
            bytes
        };
        assert_eq!([0, 1, 2].map(&mut next), [None; 3], "they fit no delta page");
        next(3);
        let half = next(4).unwrap();
        assert!((1024..=2100).contains(&half), "zeros are known to be alike: {half}");
    }

    /// For any policy: a page that it calls the newest version equals the array, and the base of a delta is an earlier
    /// version.
    #[test]
    fn pages_have_what_policies_say() {
        let shape = Shape { level: Level::Raid5, members: 5, chunk_sectors: 4, rows: 40 };
        for (mode, pages) in Mode::ALL.iter().flat_map(|mode| [16, 64, 512].map(|pages| (mode, pages))) {
            let mut recorded = recorded((0..6000).map(|i| Content::all_bytes(&numbered(i))));
            let mut policy = mode.recipe(pages).build(&shape).unwrap();
            let (mut rng, mut steps) = (Seeded::new(5), Steps::default());
            for request in 0..6000 {
                let lba = Lba(rng.below(25).pow(2));
                steps.clear();
                let kind = rng.below(12);
                match kind {
                    0 => policy.forget(lba, &mut steps),
                    1..4 => drop(policy.read(lba, &mut steps)),
                    _ => {
                        let delta = recorded.write(lba, request, 0, policy.base(lba));
                        policy.write(lba, delta, &mut steps);
                    }
                }
                recorded.follow(&steps);
                if kind == 0 {
                    recorded.forget(lba);
                }
                for lba in (0..25).map(|i| Lba(i * i)) {
                    let newest = recorded.array.get(&lba.0).copied().unwrap_or(Version::UNKNOWN);
                    match policy.newest(lba) {
                        Newest::Array => {}
                        Newest::Page(page) => assert_eq!(recorded.pages[page.0 as usize], (lba, newest)),
                        Newest::Changed(page, _) => {
                            let (of, base) = recorded.pages[page.0 as usize];
                            assert!(of == lba && base != newest && base != Version::UNKNOWN, "{lba:?}");
                        }
                    }
                }
            }
            assert_eq!(recorded.made().bases > 500, mode.name.starts_with("kdd"), "{}", mode.name);
        }
    }
}
