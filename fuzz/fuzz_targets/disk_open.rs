//! A small disk whose flash, out-of-band bytes and NVRAM were changed as the input says, with checksums put right
//! or not: opening, reading, checking, dumping and repairing never panic, and every size stays in bounds.
#![no_main]

#[path = "../../crates/disk/tests/soft.rs"]
#[allow(dead_code)]
mod soft;

use libfuzzer_sys::fuzz_target;
use soft::{Soft, SoftBlock, seal_image};
use std::io::sink;
use std::sync::{Arc, OnceLock};
use vellum_base::{BlockDevice, Geometry, Lba, RealEnv, SECTOR_BYTES};
use vellum_disk::tools::{RepairOptions, dump, inspect, repair};
use vellum_disk::{Disk, Format, Options};

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    dies_per_channel: 1,
    blocks_per_die: 10,
    pages_per_block: 4,
    page_bytes: 8192,
    oob_bytes: 64,
};
const SECTORS: u64 = 40;
const NVRAM_BYTES: usize = 32 << 10;
const AREA_BYTES: usize = 16 << 10;

fn options() -> Options {
    Options { journals: Some(vec![Lba(0)..Lba(8)]), checkpoint_events: 60, ..Options::default() }
}

/// A disk in use: shared, packed, trimmed and plain sectors, several roots, a page and a log slot in NVRAM.
fn base() -> &'static Soft {
    static BASE: OnceLock<Soft> = OnceLock::new();
    BASE.get_or_init(|| {
        let blocks = vec![SoftBlock::default(); GEOMETRY.blocks() as usize];
        let flash = Arc::new(Soft::new(GEOMETRY, blocks, vec![0; NVRAM_BYTES]));
        Disk::format(flash.clone(), RealEnv::new(), &Format::new(SECTORS)).expect("a disk fits");
        let disk = Disk::open(flash.clone(), RealEnv::new(), options()).expect("a new disk opens");
        for i in 0..150u64 {
            let mut sector = [0; SECTOR_BYTES];
            sector[(i as usize * 64) % SECTOR_BYTES] = i as u8 + 1;
            if i % 3 == 0 {
                sector.fill(i as u8 + 1);
            }
            disk.write(Lba(i % 8), &sector, false).expect("journal write");
            disk.write(Lba(8 + i % 32), &sector, i % 20 == 0).expect("home write");
            if i % 17 == 0 {
                disk.trim(Lba(10), 3).expect("trim");
            }
        }
        disk.flush().expect("flush");
        drop(disk);
        flash.fork()
    })
}

/// One change: what, where, offset and value, nine bytes of input.
fn change(flash: &Soft, step: &[u8; 9]) {
    let [what, page_low, page_high, slot, at_low, at_high, value @ ..] = *step;
    let pages = flash.pages();
    let page = pages[usize::from(u16::from_le_bytes([page_low, page_high])) % pages.len()];
    let at = usize::from(u16::from_le_bytes([at_low, at_high]));
    let put = |bytes: &mut [u8], wanted: usize| {
        let wanted = wanted % bytes.len();
        let end = (wanted + value.len()).min(bytes.len());
        bytes[wanted..end].copy_from_slice(&value[..end - wanted]);
    };
    let slot = usize::from(slot) % GEOMETRY.slots_per_page() as usize;
    match what % 8 {
        0 => flash.edit(page, |data, _| put(data, at)),
        1 => flash.edit(page, |_, oob| put(oob, at)),
        2 | 3 => flash.forge(page, slot, |data, _| put(data, at)),
        4 => flash.forge(page, slot, |data, _| put(data, at % 128)),
        5 => flash.forge(page, slot, |_, oob| put(oob, at % 18)),
        6 => flash.edit_nvram(|nvram| put(nvram, at)),
        _ => flash.edit_nvram(|nvram| {
            let area = &mut nvram[slot * AREA_BYTES..][..AREA_BYTES];
            put(area, at % 512);
            seal_image(area);
        }),
    }
}

fuzz_target!(|input: &[u8]| {
    let flash = base().fork();
    input.as_chunks::<9>().0.iter().for_each(|step| change(&flash, step));
    let tools = Arc::new(flash.fork());
    if let Ok(disk) = Disk::open(Arc::new(flash), RealEnv::new(), options()) {
        let sectors = disk.info().sectors;
        assert!(sectors <= GEOMETRY.slots());
        let mut sector = [0; SECTOR_BYTES];
        (0..sectors).for_each(|lba| drop(disk.read(Lba(lba), &mut sector)));
        let _ = disk.check(true, |_, _| {});
        for lba in 0..10 {
            let _ = disk.write(Lba(lba % sectors), &[lba as u8 + 1; SECTOR_BYTES], lba % 4 == 0);
        }
        let _ = disk.trim(Lba(0), sectors);
        let _ = disk.close();
    }
    let _ = inspect(&*tools);
    let _ = dump(tools.clone(), RealEnv::new(), &mut sink(), |_, _| {});
    if let Ok(report) =
        repair(tools.clone(), RealEnv::new(), &RepairOptions { write: true, identity: None }, |_, _| {})
    {
        assert!(report.written && report.sectors <= GEOMETRY.slots());
        Disk::open(tools, RealEnv::new(), options()).expect("what was repaired opens");
    }
});
