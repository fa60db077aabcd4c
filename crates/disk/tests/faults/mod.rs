//! Faults of the device below: failing programs and erases, rot, devices that lie, hosts that refuse.
//!
//! The promise: no sector ever reads as something it does not hold. It holds the last version written (after a crash,
//! one since the last flush), or reading it reports damage.

mod damage;
mod failing;
mod host;

use crate::harness::{Sector, Shape, assert_sound, content, read, tiny};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use vellum_base::flash::BatchError;
use vellum_base::{
    BlockAddr, BlockDevice, BlockReport, BlockState, Done, Flash, FlashCounters, FlashError, FlashOp,
    Geometry, IoClass, Kind, Lba, Nvram, PageAddr, RealEnv, Result, SECTOR_BYTES,
};
use vellum_disk::{Disk, Format, Options};
use vellum_media::nand::{BitErrors, Fault, Nand, NandParams, Wear};

/// Size of the disks here: what ten bad blocks leave.
fn sectors(shape: Shape) -> u64 {
    vellum_disk::sectors_max(&tiny(shape.page_bytes), 10)
}

fn format(shape: Shape, flash: &Arc<Nand>) {
    let format = Format { dedup: shape.dedup, uuid: [1; 16], ..Format::new(sectors(shape)) };
    Disk::format(flash.clone(), RealEnv::new(), &format).unwrap();
}

/// The versions that each sector may hold, oldest first.
#[derive(Clone)]
struct Oracle {
    versions: Vec<Vec<u32>>,
}

impl Oracle {
    fn new(shape: Shape) -> Oracle {
        Oracle { versions: vec![vec![0]; sectors(shape) as usize] }
    }

    fn write(&mut self, disk: &Disk, lba: u64, id: u32) -> Result<()> {
        self.versions[lba as usize].push(id);
        disk.write(Lba(lba), &content(id), false)
    }

    fn trim(&mut self, disk: &Disk, lba: u64, count: u64) -> Result<()> {
        (lba..lba + count).for_each(|l| self.versions[l as usize].push(0));
        disk.trim(Lba(lba), count)
    }

    fn flushed(&mut self) {
        self.versions.iter_mut().for_each(|v| drop(v.drain(..v.len() - 1)));
    }

    /// Every sector holds its newest version.
    fn assert_newest(&self, disk: &Disk, context: &str) {
        for (lba, ids) in self.versions.iter().enumerate() {
            let newest = content(*ids.last().unwrap());
            assert!(read(disk, lba as u64) == newest, "{context}: sector {lba}");
        }
    }

    /// Checks that every sector holds one of its versions, which is the only one from now on.
    fn settle(&mut self, disk: &Disk, context: &str) {
        for (lba, ids) in self.versions.iter_mut().enumerate() {
            let found = read(disk, lba as u64);
            let holds = ids.iter().rev().find(|id| content(**id) == found).copied();
            *ids = vec![holds.unwrap_or_else(|| panic!("{context}: sector {lba} holds none of {ids:?}"))];
        }
    }

    /// Every sector holds its newest version or is damaged. Returns the damaged ones.
    fn damaged(&self, disk: &Disk, context: &str) -> BTreeSet<u64> {
        let mut damaged = BTreeSet::new();
        for (lba, ids) in (0..).zip(&self.versions) {
            let mut found: Sector = [0xEE; SECTOR_BYTES];
            match disk.read(Lba(lba), &mut found) {
                Ok(()) => assert!(found == content(*ids.last().unwrap()), "{context}: sector {lba} lies"),
                Err(e) if e.kind() == Kind::Corrupt => drop(damaged.insert(lba)),
                Err(e) => panic!("{context}: sector {lba}: {e}"),
            }
        }
        damaged
    }
}

/// One random request.
fn step(disk: &Disk, oracle: &mut Oracle, rng: &mut SmallRng) -> Result<()> {
    let id = rng.random_range(1..5000);
    let end = oracle.versions.len() as u64;
    let lba = rng.random_range(24..end);
    match rng.random_range(0..20) {
        0..9 => oracle.write(disk, lba, id),
        9..15 => {
            oracle.write(disk, rng.random_range(0..24), id)?;
            oracle.write(disk, lba, id)
        }
        15 => oracle.trim(disk, lba, rng.random_range(1..20).min(end - lba)),
        16 | 17 => {
            disk.flush()?;
            oracle.flushed();
            Ok(())
        }
        18 => disk.refill_some(id % 16).and_then(|_| disk.dedup_some(id % 16)).map(drop),
        _ => oracle.write(disk, lba, id | 7),
    }
}

fn written_pages(flash: &Nand) -> Vec<PageAddr> {
    let pages = |block: BlockAddr| (0..flash.report(block).pages_written).map(move |p| block.page(p));
    (0..flash.geometry().blocks()).map(BlockAddr).flat_map(pages).collect()
}

fn bad_blocks(flash: &Nand) -> usize {
    let blocks = (0..flash.geometry().blocks()).map(BlockAddr);
    blocks.filter(|b| flash.report(*b).state == BlockState::Bad).count()
}

fn shape_of(seed: u64) -> Shape {
    let shapes = Shape::all();
    shapes[seed as usize % shapes.len()]
}

/// A disk with a history, everything flushed.
fn lived(shape: Shape, seed: u64, steps: usize) -> (Arc<Nand>, Disk, Oracle) {
    let flash = shape.flash(seed);
    format(shape, &flash);
    let disk = shape.open(&flash).unwrap();
    let mut oracle = Oracle::new(shape);
    let mut rng = SmallRng::seed_from_u64(seed);
    (0..steps).for_each(|_| step(&disk, &mut oracle, &mut rng).unwrap());
    disk.flush().unwrap();
    oracle.flushed();
    (flash, disk, oracle)
}
