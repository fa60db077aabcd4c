//! The same workload on the engine itself: `vellum-array` as it runs in production, in virtual time, on the disks and
//! the SSD that `timed` models (docs/decisions/0023-array-cache.md).
//!
//! 1. Members are modelled drives that process one call at a time, in order of arrival. NVRAM takes no time
//!    ([`Nvram`]).
//! 2. Contents are real: any two versions of a sector differ in the same number of bytes, which no codec can compress
//!    ([`DeltaModel::Same`](super::DeltaModel::Same)).
//!
//! `below` has the devices, `clients` issues requests, `cut` cuts the power between two halves of a workload.

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

/// A workload on the engine in some mode.
pub struct EngineRun<'a> {
    /// Mode of the cache.
    pub mode: Mode,
    /// Requests of whole sectors.
    pub workload: &'a Arc<Workload>,
    /// Number of bytes in which versions of a sector differ.
    pub changed_bytes: usize,
    /// Approximate size of the cache, in pages.
    pub pages: u32,
    /// The devices.
    pub hardware: &'a Hardware,
    /// Number of clients; each issues its next request when the last one is answered.
    pub clients: usize,
    /// Seed for everything random.
    pub seed: u64,
}

/// What the engine did.
#[derive(Clone, Copy, Debug)]
pub struct Ran {
    /// Response times.
    pub times: Times,
    /// Pages written to flash.
    pub flash_pages: u64,
    /// Share of reads and writes that hit.
    pub hit_ratio: f64,
    /// Shape of the array as created: the one to model.
    pub shape: Shape,
    /// Pages of its cache as created.
    pub pages: u32,
}

impl EngineRun<'_> {
    /// Runs the workload, with the array's log in NVRAM as in the paper.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn run(&self) -> Result<Ran> {
        self.run_filled(fill)
    }

    /// [`EngineRun::run`], with other contents.
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

/// What a cache has done since it was opened.
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

    /// Odd sectors change by noise, even ones by digits, whose deltas are shortened by the codec's second attempt.
    fn fill_of_two_classes(lba: u64, version: u64, changed_bytes: usize, sector: &mut [u8]) {
        fill(lba, version, changed_bytes, sector);
        if lba.is_multiple_of(2) {
            sector[..changed_bytes].iter_mut().for_each(|byte| *byte = b'0' + *byte % 10);
        }
    }

    /// Deltas of recorded contents, if these are the engine's own, are the deltas that the engine writes.
    #[test]
    fn recorded_contents_write_what_the_engine_writes() {
        let (changed, pages) = (700, 600);
        let mut rng = Seeded::new(3);
        let requests: Vec<Request> = (0..12_000u64)
            .map(|i| {
                // Each sector is written once first: the initial contents of the array are not in the trace.
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
            // The engine cleans concurrently with requests, so a row may be cleaned a few requests earlier or later.
            assert!((totals.hit_ratio() - ran.hit_ratio).abs() < 0.003, "{}", mode.name);
        }
    }
}
