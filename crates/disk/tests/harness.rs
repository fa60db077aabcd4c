//! A disk, the flash below it, and a simple oracle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_base::{BlockDevice, Env, Flash, Geometry, Lba, LedgerSnapshot, Nanos, SECTOR_BYTES, Task};
use vellum_codes::pattern::Pattern;
use vellum_disk::{DedupMode, DedupWhen, Disk, Format, Options};
use vellum_media::coded::{Coded, Coding};
use vellum_media::nand::{Nand, NandParams};

pub(crate) type Sector = [u8; SECTOR_BYTES];

/// 2 dies × 20 blocks × 16 pages: small enough that collection and checkpoints happen all the time.
pub(crate) fn tiny(page_bytes: u32) -> Geometry {
    Geometry {
        channels: 2,
        dies_per_channel: 1,
        blocks_per_die: 20,
        pages_per_block: 16,
        page_bytes,
        oob_bytes: 32 * page_bytes / 4096,
    }
}

/// Time does not advance, and random numbers come from a seed, so that tests are reproducible.
pub(crate) struct Steady(AtomicU64);

impl Steady {
    pub(crate) fn new(seed: u64) -> Arc<Steady> {
        Arc::new(Steady(AtomicU64::new(seed)))
    }
}

impl Env for Steady {
    fn now(&self) -> Nanos {
        Nanos::ZERO
    }

    fn sleep_until(&self, time: Nanos) {
        assert_eq!(time, Nanos::ZERO, "plain media are never late");
    }

    fn charge(&self, _: Nanos) {}

    fn spawn(self: Arc<Self>, name: &str, _: Box<dyn FnOnce() + Send>) -> Task {
        panic!("{name}: no tasks where time stands still")
    }

    fn random(&self) -> u64 {
        vellum_codes::fingerprint::seeded64(self.0.fetch_add(1, Ordering::Relaxed), b"random")
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) page_bytes: u32,
    pub(crate) nvram: bool,
    pub(crate) dedup: DedupMode,
}

impl Shape {
    pub(crate) fn all() -> Vec<Shape> {
        let mut shapes = Vec::new();
        for page_bytes in [4096, 16384] {
            for nvram in [false, true] {
                for dedup in
                    [DedupMode::None, DedupMode::Journal, DedupMode::Strong(vellum_codes::HashKind::Sha1)]
                {
                    shapes.push(Shape { page_bytes, nvram, dedup });
                }
            }
        }
        for (page_bytes, nvram) in [(4096, false), (4096, true), (16384, false), (16384, true)] {
            shapes.push(Shape { page_bytes, nvram, dedup: DedupMode::Ecc });
        }
        shapes
    }

    pub(crate) fn sectors(&self) -> u64 {
        vellum_disk::sectors_max(&tiny(self.page_bytes), 0)
    }

    pub(crate) fn params(&self, seed: u64) -> NandParams {
        NandParams { seed, nvram_bytes: if self.nvram { 64 << 10 } else { 0 }, ..NandParams::default() }
    }

    pub(crate) fn flash(&self, seed: u64) -> Arc<Nand> {
        let nand = Nand::ram(tiny(self.page_bytes), self.params(seed)).unwrap();
        Arc::new(nand)
    }

    /// The host names the journal: the first 24 sectors.
    pub(crate) fn options(&self) -> Options {
        Options {
            journals: Some(vec![Lba(0)..Lba(24)]),
            checkpoint_events: 300,
            dedup_when: self.dedup_when(),
            ..Options::default()
        }
    }

    /// With parity, half of the shapes find copies only later.
    pub(crate) fn dedup_when(&self) -> DedupWhen {
        if (self.page_bytes == 4096) == self.nvram { DedupWhen::Offline } else { DedupWhen::Inline }
    }

    /// The same with coded pages.
    pub(crate) fn coded_flash(&self, seed: u64, coding: Option<Coding>) -> Coded<Nand> {
        let Some(coding) = coding else { return Coded::plain(Arc::into_inner(self.flash(seed)).unwrap()) };
        let geometry = tiny(self.page_bytes);
        let nand = Nand::ram(coding.geometry_below(&geometry).unwrap(), self.params(seed)).unwrap();
        Coded::new(nand, geometry.oob_bytes, coding).unwrap()
    }

    pub(crate) fn format<F: Flash + 'static>(&self, flash: &Arc<F>) {
        let format = Format { dedup: self.dedup, uuid: [1; 16], ..Format::new(self.sectors()) };
        Disk::format(flash.clone(), Steady::new(1), &format).unwrap();
    }

    pub(crate) fn open<F: Flash + 'static>(&self, flash: &Arc<F>) -> vellum_base::Result<Disk> {
        Disk::open(flash.clone(), Steady::new(1), self.options())
    }
}

/// Contents, including many repeats, zeros and nearly empty sectors.
pub(crate) fn content(id: u32) -> Sector {
    let mut sector = [0; SECTOR_BYTES];
    match id % 8 {
        0 => {}
        1 | 2 => {
            sector[100..104].copy_from_slice(&id.to_le_bytes());
            sector[4000] = 1;
        }
        _ => Pattern::unique(u64::from(id)).fill(&mut sector),
    }
    sector
}

pub(crate) fn read(disk: &Disk, lba: u64) -> Sector {
    let mut out = [0xEE; SECTOR_BYTES];
    disk.read(Lba(lba), &mut out).unwrap_or_else(|e| panic!("sector {lba}: {e}"));
    out
}

/// Checks that map, rings and valid counts are right, everything can be read, and the ledger equals the device.
pub(crate) fn assert_sound(disk: &Disk) -> LedgerSnapshot {
    let report = disk.check(true, |_, _| {}).unwrap();
    assert!(report.is_clean(), "{report:?}");
    disk.ledger()
}
