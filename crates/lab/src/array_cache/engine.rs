//! The same workload through the engine itself: `vellum-array` as it runs in production, in virtual time on the
//! disks and the SSD that `timed` models (docs/decisions/0023-array-cache.md).
//!
//! 1. Members are modelled drives, one call at a time in the order in which calls come. What is in NVRAM takes no
//!    time ([`Nvram`]).
//! 2. Contents are real: a version of a sector differs from any other by the same number of bytes, that no codec
//!    shortens ([`DeltaModel::Same`](super::DeltaModel::Same)).
//!
//! `below` is what an array lies on, `clients` ask, `cut` takes the power away between two halves of a workload.

mod below;
mod clients;
mod cut;

pub use self::below::Nvram;
pub use self::cut::{CutRun, Half};

use self::below::Below;
use self::clients::{Fill, closed_loop, fill};
use super::Mode;
use super::timed::{Hardware, Times};
use super::workload::Workload;
use std::sync::Arc;
use vellum_array::Shape;
use vellum_array::cache::engine::CachedArray;
use vellum_base::{Env, Result, SECTOR_BYTES};
use vellum_sim::Sim;

/// A workload through the engine in some mode.
pub struct EngineRun<'a> {
    /// The cache.
    pub mode: Mode,
    /// Requests of whole sectors.
    pub workload: &'a Arc<Workload>,
    /// By so many bytes versions of a sector differ.
    pub changed_bytes: usize,
    /// About so many pages has the cache.
    pub pages: u32,
    /// What it runs on.
    pub hardware: &'a Hardware,
    /// Each asks when it was answered.
    pub clients: usize,
    /// Decides what chance decides.
    pub seed: u64,
}

/// What the engine did.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// How long requests took.
    pub times: Times,
    /// Pages written to flash.
    pub flash_pages: u64,
    /// Share of reads and writes that hit.
    pub hit_ratio: f64,
    /// The array as it came out: the one to model.
    pub shape: Shape,
    /// Pages of its cache, likewise.
    pub pages: u32,
}

impl EngineRun<'_> {
    /// All of it, with the array's log in NVRAM as the paper has it.
    ///
    /// # Errors
    /// What the engine says.
    pub fn run(&self) -> Result<Ran> {
        self.run_filled(fill)
    }

    /// [`EngineRun::run`], with contents of another kind.
    fn run_filled(&self, fill: Fill) -> Result<Ran> {
        let sim = Sim::new(self.seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let below = Below::new(self, Nvram::ArrayLog, &env)?;
            let device = below.attach(self)?;
            let clocks = closed_loop(&device, self, 0..self.workload.requests.len(), 1, fill)?;
            let tally = Tally::of(&device);
            let ran = Ran {
                times: clocks[0].times(below.busy_s()),
                flash_pages: tally.flash_pages,
                hit_ratio: tally.hit_ratio(),
                shape: device.array().status().shape,
                pages: device.status().pages,
            };
            Arc::into_inner(device).expect("the clients are gone").close()?;
            Ok(ran)
        })
    }
}

/// What a cache did since it was opened.
#[derive(Clone, Copy, Default)]
struct Tally {
    hits: u64,
    misses: u64,
    flash_pages: u64,
}

impl Tally {
    fn of(device: &CachedArray) -> Tally {
        let status = device.status();
        Tally {
            hits: status.read_hits + status.write_hits,
            misses: status.read_misses + status.write_misses,
            flash_pages: status.ledger.programmed_total() / SECTOR_BYTES as u64,
        }
    }

    fn since(self, before: Tally) -> Tally {
        Tally {
            hits: self.hits - before.hits,
            misses: self.misses - before.misses,
            flash_pages: self.flash_pages - before.flash_pages,
        }
    }

    fn hit_ratio(self) -> f64 {
        self.hits as f64 / (self.hits + self.misses).max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array_cache::{DeltaModel, Deltas, count};
    use crate::replay::Devices;
    use vellum_array::Level;
    use vellum_base::{Lba, Nanos};
    use vellum_media::{HddModel, Preset};
    use vellum_trace::generate::Seeded;
    use vellum_trace::source::from_iter;
    use vellum_trace::{ByteLen, Content, Request, RequestSource};

    /// Odd sectors change by noise, even ones by digits: their deltas get shorter at the codec's second try.
    fn fill_of_two_classes(lba: u64, version: u64, changed_bytes: usize, sector: &mut [u8]) {
        fill(lba, version, changed_bytes, sector);
        if lba.is_multiple_of(2) {
            sector[..changed_bytes].iter_mut().for_each(|byte| *byte = b'0' + *byte % 10);
        }
    }

    /// What was recorded of the engine's own contents makes the deltas that the engine makes of them.
    #[test]
    fn recorded_contents_write_what_the_engine_writes() {
        let (changed, pages) = (700, 600);
        let mut rng = Seeded::new(3);
        let requests: Vec<Request> = (0..12_000u64)
            .map(|i| {
                // Each is written once first: what the array was filled with is not in the trace.
                let lba = if i < 2048 { i } else { rng.below(45) * rng.below(45) };
                let mut sector = vec![0; SECTOR_BYTES];
                fill_of_two_classes(lba, i + 1, changed, &mut sector);
                Request::write(Nanos(i), Lba(lba), vec![Content::all_bytes(&sector)], false)
            })
            .collect();
        let open =
            || -> Result<Box<dyn RequestSource>> { Ok(Box::new(from_iter(requests.clone().into_iter()))) };
        let workload = Arc::new(Workload::load_written(&open, Devices::Single, ByteLen(0)).unwrap());
        let shape = Shape { level: Level::Raid5, members: 5, chunk_sectors: 16, rows: 32 };
        let ssd = Preset::by_name("intel-520").unwrap();
        let hardware = Hardware { shape, disk: HddModel::SATA_1TB_PLAIN, ssd };
        for mode in ["kdd-25", "kdd"].map(|name| Mode::by_name(name).unwrap()) {
            let run = EngineRun {
                mode,
                workload: &workload,
                changed_bytes: changed,
                pages,
                hardware: &hardware,
                clients: 1,
                seed: 1,
            };
            let ran = run.run_filled(fill_of_two_classes).unwrap();
            let mut deltas = Deltas::new(DeltaModel::Recorded, 1, &workload).unwrap();
            let mut policy = mode.recipe(ran.pages).build(&ran.shape).unwrap();
            let totals = count(&mut *policy, &workload, &mut deltas, mode.partial);
            let ratio = totals.flash_pages() as f64 / ran.flash_pages as f64;
            let shortened = deltas.made().unwrap().mean_share.unwrap() * SECTOR_BYTES as f64 / changed as f64;
            assert!((0.5..0.9).contains(&shortened), "{}: {shortened}", mode.name);
            assert!((0.96..1.04).contains(&ratio), "{}: {ratio}", mode.name);
            // The engine cleans beside what is asked, so a row goes some requests earlier or later.
            assert!((totals.hit_ratio() - ran.hit_ratio).abs() < 0.003, "{}", mode.name);
        }
    }
}
