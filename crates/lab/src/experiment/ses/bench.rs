//! Writes a data set to a modelled drive, in several modes.
//!
//! Our choices where the paper is silent:
//! 1. *Queue.* FlashSim, its simulator, has no write buffer, and the paper's gains are those of summed latencies: a
//!    write of MLC-2 takes 226.5 / (1084.4 + 226.5) = 17.3 % of its time for SHA-256, the paper's worst loss. So one
//!    request is in flight at a time, and a write ends when its page is programmed ([`Queue::One`]). With
//!    [`Queue::Deep`], 32 at a time into a drive with a write buffer, programs run in parallel and a single core does
//!    not.
//! 2. *State.* The drive is new ([`State::New`]): what the paper finds in-line and off-line adds up to all duplicates
//!    of a data set, so each was written once, and its gains come from programs saved, not from collection. With
//!    [`State::Full`] every page was written once before, in order, with unique contents, so collection is active.
//!    Over-provisioning is 12 %.
//! 3. *Mapping.* It costs no time: the drive has capacitor-backed memory for what a flush has to save.
//! 4. *Budget.* In-line search may use a quarter of the core; copies missed for lack of time are found after the
//!    workload, by comparing everything.
//! 5. *Bytes.* Which pages are equal is that of the data set; the bytes themselves are noise.
//! 6. *Scale.* A package has one plane at the small scale, so small drives have as many blocks per plane as large ones.

use super::PAGE_BYTES;
use super::sets::DataSet;
use crate::contents::synthetic::shuffle;
use crate::experiment::{Scale, Setting};
use crate::replay::{self, Core, Mode, ModeResult, Pace, Precondition, ReplayOptions, Search};
use rand::RngCore;
use std::sync::Arc;
use vellum_base::{Lba, Nanos, Result, SECTOR_BYTES};
use vellum_codes::pattern::Pattern;
use vellum_media::Preset;
use vellum_trace::generate::Seeded;
use vellum_trace::{ByteLen, ByteOffset, Content, Request, RequestKind, RequestSource, source};

const SECTORS_PER_PAGE: u64 = PAGE_BYTES / SECTOR_BYTES as u64;

/// Separates the sequences of [`noise`] from others that are seeded with a number.
const NOISE: u64 = 0x5E5_DED0;

/// How requests are issued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    /// One at a time; a write ends when it is programmed.
    One,
    /// 32 at a time; a write ends when it is buffered.
    Deep,
}

/// Contents of the drive before the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nothing.
    New,
    /// A page everywhere.
    Full,
}

/// Order in which the pages of a data set are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Random, each to a place of its own.
    Random,
    /// Sequential, as when files are copied.
    Files,
}

/// A drive, and the workload on it.
#[derive(Clone, Copy)]
pub(super) struct Bench<'a> {
    pub setting: &'a Setting<'a>,
    /// Preset of the chip.
    pub chip: &'static str,
    pub queue: Queue,
    pub state: State,
    /// Share of reads among requests.
    pub read_share: f64,
    pub order: Order,
    pub core: Core,
    pub search: Search,
}

impl<'a> Bench<'a> {
    /// The paper's random writes to a new drive with this chip, where only flash takes time.
    pub(super) fn new(setting: &'a Setting<'a>, chip: &'static str) -> Bench<'a> {
        Bench {
            setting,
            chip,
            queue: Queue::One,
            state: State::New,
            read_share: 0.0,
            order: Order::Random,
            core: Core::Free,
            search: search(),
        }
    }
}

impl Bench<'_> {
    /// Writes the data set once in each mode.
    pub(super) fn run(&self, set: &DataSet, modes: &[&str]) -> Result<Vec<ModeResult>> {
        let modes = modes.iter().map(|mode| Mode::by_name(mode)).collect::<Result<Vec<_>>>()?;
        let bytes = if modes.iter().any(|m| m.dedup.uses_parity()) { noise } else { pattern };
        let open =
            || -> Result<Box<dyn RequestSource>> { Ok(Box::new(self.requests(set.pages.clone(), bytes))) };
        let options = ReplayOptions {
            seed: self.setting.seed,
            core: self.core,
            pace: Pace::Closed { queue_depth: if self.queue == Queue::One { 1 } else { 32 } },
            device_bytes: Some(ByteLen(set.pages.len() as u64 * PAGE_BYTES)),
            journals: Some(Vec::new()),
            precondition: Precondition {
                fill_share: if self.state == State::Full { 1.0 } else { 0.0 },
                overwrite_share: 0.0,
            },
            search: self.search,
            ..ReplayOptions::new(modes, self.preset()?)
        };
        Ok(replay::run(&open, &options, &())?.modes)
    }

    /// Writes of the pages in order, each to a place of its own, interleaved with reads of places already written.
    fn requests(&self, pages: Arc<[u32]>, bytes: fn(u64) -> Content) -> impl RequestSource + use<> {
        let (read_share, through) = (self.read_share, self.queue == Queue::One);
        let mut places: Vec<u32> = (0..pages.len() as u32).collect();
        let mut rng = Seeded::new(self.setting.seed);
        if self.order == Order::Random {
            shuffle(&mut places, &mut rng);
        }
        let mut next = 0;
        source::from_iter(std::iter::from_fn(move || {
            let (place, page) = (*places.get(next)?, pages[next]);
            if next > 0 && rng.chance(read_share) {
                let written = places[rng.below(next as u64) as usize];
                let offset = ByteOffset(u64::from(written) * PAGE_BYTES);
                return Some(Request::new(Nanos::ZERO, RequestKind::Read, offset, ByteLen(PAGE_BYTES)));
            }
            next += 1;
            let half = |i| bytes(u64::from(page) * SECTORS_PER_PAGE + i);
            let lba = Lba(u64::from(place) * SECTORS_PER_PAGE);
            Some(Request::write(Nanos::ZERO, lba, (0..SECTORS_PER_PAGE).map(half).collect(), through))
        }))
    }

    fn preset(&self) -> Result<Preset> {
        let mut preset = Preset::by_name(self.chip)?;
        if self.setting.scale == Scale::Small {
            preset.geometry.dies_per_channel = 1;
        }
        Ok(preset)
    }
}

/// In-line search only; a quarter of the core if that is limited.
pub(super) fn search() -> Search {
    Search { core_share: 0.25, ..Search::default() }
}

/// A sector different from those of other numbers, which modelled flash stores in a few bytes.
fn pattern(number: u64) -> Content {
    Content::Pattern(Pattern::unique(number))
}

/// The same without structure. Patterns have too much for a linear code: different ones have equal parity more often
/// than real bytes do.
fn noise(number: u64) -> Content {
    let mut sector = [0; SECTOR_BYTES];
    Seeded::new(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ NOISE).fill_bytes(&mut sector);
    Content::verbatim(&sector)
}

/// Share of host writes found to be copies: in-line, and after the workload.
pub(super) fn found(cell: &ModeResult) -> (f64, f64) {
    let of = |reason| cell.ledger.avoided.get(reason).copied().unwrap_or(0) as f64;
    let written = (cell.host_sectors_written * SECTOR_BYTES as u64).max(1) as f64;
    (of("duplicate") / written, of("duplicate_offline") / written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::each;
    use crate::experiment::ses::sets::Origin;
    use vellum_base::Error;
    use vellum_disk::DedupWhen;

    #[test]
    fn every_place_is_written_once_and_reads_come_between() {
        let pages: Arc<[u32]> = (0..500).map(|i| i % 100 + 1).collect();
        let setting = Setting { scale: Scale::Small, seed: 5, progress: &() };
        let bench = Bench { read_share: 0.3, ..Bench::new(&setting, "slc") };
        let all: Vec<Request> = bench.requests(pages, noise).map(|r| r.unwrap()).collect();
        let writes: Vec<_> = all.iter().filter(|r| r.kind == RequestKind::Write).collect();
        assert!((150..300).contains(&(all.len() - writes.len())), "{}", all.len());
        assert_eq!(writes.len(), 500);
        assert_eq!((&writes[0].contents, writes[0].fua), (&writes[100].contents, true));
        assert_ne!(writes[0].contents, writes[1].contents);
        let mut places: Vec<u64> = writes.iter().map(|r| r.offset.0 / PAGE_BYTES).collect();
        assert!(!places.is_sorted());
        places.sort_unstable();
        assert_eq!(places, (0..500).collect::<Vec<_>>());
    }

    #[test]
    fn all_duplicates_are_found_in_line_or_behind_the_workload() {
        let setting = Setting { scale: Scale::Small, seed: 5, progress: &() };
        let pages: Arc<[u32]> = (0..3000).map(|i| i % 2000 + 1).collect();
        let set = DataSet { name: "x".into(), origin: Origin::Real, pages };
        let find = |when, mode| {
            let search = Search { when, scan_after: true, ..Search::default() };
            found(&Bench { search, ..Bench::new(&setting, "slc") }.run(&set, &[mode]).unwrap()[0])
        };
        let (inline, offline) = find(DedupWhen::Offline, super::super::PAPERS);
        assert_eq!((inline, (offline * 3000.0).round()), (0.0, 1000.0));
        let (inline, offline) = find(DedupWhen::Inline, super::super::OURS);
        assert!(inline > 0.05 && ((inline + offline) * 3000.0).round() == 1000.0, "{inline} {offline}");
        assert_eq!(find(DedupWhen::Inline, super::super::NONE), (0.0, 0.0));
    }

    #[test]
    fn results_come_in_order_and_errors_are_told() {
        let setting = Setting { scale: Scale::Small, seed: 1, progress: &() };
        let jobs: Vec<u32> = (0..50).collect();
        assert_eq!(each("x", &jobs, &setting, |job| Ok(job * 2)).unwrap()[49], 98);
        let failing = |job: &u32| if *job == 7 { Err(Error::invalid("seven")) } else { Ok(()) };
        assert!(each("x", &jobs, &setting, failing).unwrap_err().to_string().contains("seven"));
    }
}
