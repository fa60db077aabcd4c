//! Flash that offers the parity in its spare areas: later duplicates are found with it, without reading data.

use crate::harness::{Sector, assert_sound, read, tiny};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::flash::BatchError;
use vellum_base::{
    Avoided, BlockAddr, BlockDevice, BlockReport, Done, Flash, FlashCounters, FlashError, FlashOp, Geometry,
    IoClass, Lba, Nvram, PageAddr, Parity, RealEnv, Result, SECTOR_BYTES, Scrambling,
};
use vellum_codes::ecc::{Code, Rate};
use vellum_codes::pattern::Pattern;
use vellum_disk::{DedupMode, DedupWhen, Disk, Format, Options};
use vellum_media::nand::{Nand, NandParams};

/// Flash with a code of its own, which counts the data slots read, and the pages of parity read.
struct Keeper {
    nand: Nand,
    code: &'static Code,
    data_read: AtomicU64,
    parity_read: AtomicU64,
    /// Parity is available but wrong: its bits are not checked against anything.
    parity_rots: bool,
}

impl Flash for Keeper {
    fn geometry(&self) -> &Geometry {
        self.nand.geometry()
    }
    fn submit(&self, class: IoClass, ops: &mut [FlashOp<'_>]) -> std::result::Result<Done, BatchError> {
        for op in ops.iter() {
            if let FlashOp::Read { data, .. } = op {
                self.data_read.fetch_add((data.len() / SECTOR_BYTES) as u64, Relaxed);
            }
        }
        self.nand.submit(class, ops)
    }
    fn report(&self, block: BlockAddr) -> BlockReport {
        self.nand.report(block)
    }
    fn counters(&self) -> FlashCounters {
        self.nand.counters()
    }
    fn sync(&self) -> std::result::Result<(), FlashError> {
        self.nand.sync()
    }
    fn nvram(&self) -> Option<&dyn Nvram> {
        self.nand.nvram()
    }
    fn parity(&self) -> Option<&dyn Parity> {
        Some(self)
    }
}

impl Parity for Keeper {
    fn scramble(&self, _seed: u64, _sector: &mut [u8]) {}

    fn code(&self) -> &'static str {
        self.code.name()
    }
    fn scrambling(&self) -> Scrambling {
        Scrambling::Off
    }
    fn bytes(&self) -> usize {
        self.code.parity_bytes_of(SECTOR_BYTES)
    }
    fn of_data(&self, sector: &[u8], parity: &mut [u8]) {
        self.code.encode(sector, parity);
    }
    fn of_page(&self, class: IoClass, page: PageAddr, parity: &mut [u8]) -> Result<Done, FlashError> {
        self.parity_read.fetch_add(1, Relaxed);
        let mut data = vec![0; self.geometry().page_bytes as usize];
        let done = self.nand.read(class, page, 0, &mut data, &mut [])?;
        self.code.encode(&data, parity);
        if self.parity_rots {
            parity.iter_mut().step_by(50).for_each(|byte| *byte ^= 4);
        }
        Ok(done)
    }
}

fn unique(id: u64) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    Pattern::unique(id).fill(&mut sector);
    sector
}

/// 100 contents, 40 of them twice, found later. Returns slots and pages of parity read for that, and copies found.
fn found_later(code: &'static Code, parity_rots: bool) -> (u64, u64, u64) {
    let nand = Nand::ram(tiny(16384), NandParams::default()).unwrap();
    let count = AtomicU64::default;
    let flash = Arc::new(Keeper { nand, code, data_read: count(), parity_read: count(), parity_rots });
    let format = Format { dedup: DedupMode::Ecc, ..Format::new(1500) };
    Disk::format(flash.clone(), RealEnv::new(), &format).unwrap();
    let options = Options { dedup_when: DedupWhen::Offline, ..Options::default() };
    let disk = Disk::open(flash.clone(), RealEnv::new(), options).unwrap();
    (0..140).for_each(|i| disk.write(Lba(i), &unique(i % 100), false).unwrap());
    disk.flush().unwrap();
    let (data, parity) = (flash.data_read.load(Relaxed), flash.parity_read.load(Relaxed));
    while disk.dedup_some(16).unwrap() > 0 {}
    let spent = (flash.data_read.load(Relaxed) - data, flash.parity_read.load(Relaxed) - parity);
    (0..140).for_each(|i| assert!(read(&disk, i) == unique(i % 100)));
    assert_sound(&disk);
    (spent.0, spent.1, disk.ledger().avoided_by(Avoided::DuplicateOffline) / SECTOR_BYTES as u64)
}

#[test]
fn copies_are_found_in_spare_areas_with_any_code() {
    for code in [Code::paper(), Code::new(4096, Rate::R8_9).unwrap(), Code::new(2048, Rate::R16_17).unwrap()]
    {
        let (data, parity, found) = found_later(code, false);
        assert_eq!((data, parity, found), (2 * 40, 140, 40), "{code:?}: both sides of each match are read");
    }
}

#[test]
fn parity_that_rots_is_a_hint_like_any_other() {
    // Equal contents rot equally here, and are compared as usual; with parity computed from data nothing would match.
    let (_, parity, found) = found_later(Code::paper(), true);
    assert_eq!((parity, found), (140, 40));
}
