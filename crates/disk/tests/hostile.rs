//! Flash and NVRAM that were damaged or forged. Opening results in a typed error, or in a disk that is sound except for
//! the damage it reports. Nothing panics, hangs or takes unbounded memory, in the engine and in the tools.
//!
//! Damage is detected by checksums: every sector then reads as one of its own versions, or as an error. Forgeries have
//! valid checksums: then nothing is promised of the contents.

use crate::harness::{Shape, content};
use crate::memory::peak_of;
use crate::soft::{Soft, seal_image};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::io::sink;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use vellum_base::{
    BlockAddr, BlockDevice, BlockReport, BlockState, Flash, Kind, Lba, PageAddr, RealEnv, SECTOR_BYTES,
};
use vellum_disk::Disk;
use vellum_disk::tools::{RepairOptions, dump, inspect, inspect_page, repair};

/// Opening a disk of about 500 sectors takes far less; a table with a forged size takes far more.
const MEMORY_MAX: usize = 8 << 20;

/// A disk that was not closed, and the versions of each sector.
struct Victim {
    shape: Shape,
    flash: Soft,
    versions: Vec<Vec<u32>>,
    /// Pages of each kind, with a slot of that kind in each.
    samples: BTreeMap<&'static str, Vec<(PageAddr, usize)>>,
}

impl Victim {
    fn new(shape: Shape) -> Victim {
        let nand = shape.flash(7);
        shape.format(&nand);
        let disk = shape.open(&nand).unwrap();
        let mut rng = SmallRng::seed_from_u64(7);
        let mut versions = vec![vec![0]; shape.sectors() as usize];
        for step in 0..900 {
            let (lba, id) = (rng.random_range(24..300u64), rng.random_range(1..5000));
            let at = if step % 3 == 0 { vec![rng.random_range(0..24), lba] } else { vec![lba] };
            for lba in at {
                disk.write(Lba(lba), &content(id), false).unwrap();
                versions[lba as usize].push(id);
            }
            if step % 40 == 0 {
                disk.trim(Lba(lba), 3).unwrap();
                (lba..lba + 3).for_each(|l| versions[l as usize].push(0));
                disk.flush().unwrap();
            }
        }
        disk.flush().unwrap();
        let flash = Soft::copy(&*nand);
        let mut samples: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for page in flash.pages() {
            for (index, slot) in inspect_page(&flash, page).unwrap().slots.iter().enumerate() {
                samples.entry(slot.kind).or_default().push((page, index));
            }
        }
        Victim { shape, flash, versions, samples }
    }

    fn all() -> Vec<Victim> {
        [1, 4, 7, 11].map(|i| Victim::new(Shape::all()[i])).into()
    }

    /// The newest slot of a kind, which is usually the valid one.
    fn newest(&self, kind: &str) -> (PageAddr, usize) {
        let seq =
            |(page, index): &(PageAddr, usize)| inspect_page(&self.flash, *page).unwrap().slots[*index].seq;
        *self.samples[kind].iter().max_by_key(|at| seq(at)).unwrap()
    }

    /// Damages a copy, and tries everything on it.
    fn damaged(&self, what: &str, damage: impl FnOnce(&Soft)) {
        self.tried(what, damage, |disk| {
            for (lba, ids) in self.versions.iter().enumerate() {
                let mut found = [0; SECTOR_BYTES];
                if disk.read(Lba(lba as u64), &mut found).is_ok() {
                    assert!(ids.iter().any(|id| content(*id) == found), "sector {lba} holds another's bytes");
                }
            }
            let report = disk.check(true, |_, _| {}).unwrap();
            assert!(report.problems.iter().all(|p| p.contains("metadata in slot")), "{report:?}");
            write_on(disk);
        });
    }

    /// The same with forgeries: any bytes may be read.
    fn forged(&self, what: &str, forge: impl FnOnce(&Soft)) {
        self.tried(what, forge, |disk| {
            let mut found = [0; SECTOR_BYTES];
            for lba in 0..disk.info().sectors {
                let _ = disk.read(Lba(lba), &mut found);
            }
            let _ = disk.check(true, |_, _| {});
            write_on(disk);
        });
    }

    fn tried(&self, what: &str, damage: impl FnOnce(&Soft), with: impl FnOnce(&Disk)) {
        let flash = self.flash.fork();
        damage(&flash);
        let flash = Arc::new(flash);
        let result = catch_unwind(AssertUnwindSafe(|| {
            let tools = Arc::new(flash.fork());
            let (opened, bytes) = peak_of(|| Disk::open(flash, RealEnv::new(), self.shape.options()));
            assert!(bytes < MEMORY_MAX, "opening took {bytes} bytes");
            match opened {
                Ok(disk) => with(&disk),
                Err(e) => assert!(
                    matches!(e.kind(), Kind::Corrupt | Kind::Io | Kind::NoSpace),
                    "{:?} {e}",
                    e.kind()
                ),
            }
            try_tools(tools);
        }));
        if let Err(panic) = result {
            eprintln!("{:?}: {what}", self.shape);
            resume_unwind(panic);
        }
    }
}

/// The disk continues, or refuses; it does not panic.
fn write_on(disk: &Disk) {
    for lba in 0..60 {
        if disk.write(Lba(lba * 7 % disk.info().sectors), &content(lba as u32 + 3), lba % 9 == 0).is_err() {
            break;
        }
    }
    let _ = disk.trim(Lba(0), disk.info().sectors.min(50));
    let _ = disk.close();
}

fn try_tools(flash: Arc<Soft>) {
    let (_, bytes) = peak_of(|| {
        let _ = inspect(&*flash);
        let _ = dump(flash.clone(), RealEnv::new(), &mut sink(), |_, _| {});
    });
    assert!(bytes < 2 * MEMORY_MAX, "a dump took {bytes} bytes");
    let (_, bytes) =
        peak_of(|| repair(flash, RealEnv::new(), &RepairOptions::default(), |_, _| {}).map(|_| ()));
    assert!(bytes < 4 * MEMORY_MAX, "a repair took {bytes} bytes");
}

const KINDS: [&str; 6] = ["data", "log", "map_node", "log_node", "directory", "root"];

#[test]
fn one_wrong_byte_anywhere() {
    for victim in Victim::all() {
        for kind in KINDS.iter().filter(|kind| victim.samples.contains_key(**kind)) {
            let (page, index) = victim.newest(kind);
            for byte in 0..24 {
                victim.damaged(&format!("byte {byte} of the entry of a {kind} slot"), |flash| {
                    flash.edit(page, |_, oob| oob[24 * index + byte] ^= 1 << (byte % 8));
                });
            }
            for byte in (0..16).chain((16..130).step_by(7)).chain((130..SECTOR_BYTES).step_by(397)) {
                victim.damaged(&format!("byte {byte} of a {kind} slot"), |flash| {
                    flash.edit(page, |data, _| data[SECTOR_BYTES * index + byte] ^= 0x81);
                });
            }
        }
        for byte in (0..64).chain((64..20_000).step_by(911)) {
            victim.damaged(&format!("byte {byte} of the NVRAM"), |flash| {
                flash.edit_nvram(|nvram| nvram[byte] ^= 0x10);
            });
        }
    }
}

#[test]
fn many_wrong_bytes() {
    let victims = Victim::all();
    vellum_sim::check(0..200, |seed| {
        let victim = &victims[seed as usize % victims.len()];
        victim.damaged(&format!("seed {seed}"), |flash| {
            let mut rng = SmallRng::seed_from_u64(seed);
            let pages = flash.pages();
            for _ in 0..rng.random_range(1..30) {
                let page = pages[rng.random_range(0..pages.len())];
                flash.edit(page, |data, oob| {
                    let bytes = if rng.random() { data } else { oob };
                    let from = rng.random_range(0..bytes.len());
                    let to = (from + rng.random_range(1..600)).min(bytes.len());
                    rng.fill(&mut bytes[from..to]);
                });
            }
            if rng.random() {
                flash.edit_nvram(|nvram| {
                    let at = rng.random_range(0..nvram.len() - 100);
                    rng.fill(&mut nvram[at..at + 100]);
                });
            }
        });
    });
}

#[test]
fn blocks_that_misreport() {
    for victim in Victim::all() {
        for block in (0..victim.flash.geometry().blocks()).map(BlockAddr) {
            let truth = victim.flash.report(block);
            let all = victim.flash.geometry().pages_per_block;
            for pages_written in [0, 1, truth.pages_written / 2, truth.pages_written.saturating_sub(1), all] {
                victim.forged(&format!("{block} reports {pages_written} pages"), |flash| {
                    flash.lie(block, BlockReport { pages_written, ..truth });
                });
            }
            for pages_written in [all + 1, u32::MAX] {
                victim.forged(&format!("{block} reports {pages_written} pages"), |flash| {
                    flash.lie(block, BlockReport { pages_written, ..truth });
                });
            }
            let others = [
                BlockReport { state: BlockState::Bad, ..truth },
                BlockReport { state: BlockState::Bad, pages_written: 0, erase_count: 0 },
                BlockReport { erase_count: u32::MAX, ..truth },
            ];
            for report in others {
                victim.forged(&format!("{block} reports {report:?}"), |flash| flash.lie(block, report));
            }
        }
    }
}

/// Values for which bounds checks are most often forgotten.
const NASTY: [u64; 12] =
    [0, 1, 63, 64, 1023, 1 << 16, (1 << 25) - 2, 1 << 31, 0xFFFF_FFFE, u32::MAX as u64, 1 << 62, u64::MAX];

fn put(bytes: &mut [u8], at: usize, size: usize, value: u64) {
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

#[test]
fn absurd_roots() {
    let fields =
        [(16, 8), (32, 8), (40, 8), (48, 8), (56, 8), (64, 4), (68, 4), (72, 1), (73, 1), (76, 4), (80, 8)]
            .into_iter()
            .chain((88..120).step_by(8).map(|at| (at, 8)))
            .chain([(120, 1)])
            .chain((128..448).step_by(72).map(|at| (at, 8)))
            .chain((448..464).step_by(4).map(|at| (at, 4)));
    let fields: Vec<(usize, usize)> = fields.collect();
    for victim in Victim::all() {
        let (page, index) = victim.newest("root");
        for (at, size) in &fields {
            for value in NASTY {
                victim.forged(&format!("{value:#x} at {at} of the root"), |flash| {
                    flash.forge(page, index, |root, _| put(root, *at, *size, value));
                });
            }
        }
    }
}

#[test]
fn absurd_entries_and_nodes() {
    for victim in Victim::all() {
        for kind in KINDS.iter().filter(|kind| victim.samples.contains_key(**kind)) {
            let (page, index) = victim.newest(kind);
            for value in NASTY {
                for (at, size) in [(0, 8), (8, 4), (16, 1), (17, 1)] {
                    victim.forged(&format!("{value:#x} at {at} of the entry of a {kind} slot"), |flash| {
                        flash.forge(page, index, |_, oob| put(oob, at, size, value));
                    });
                }
                for at in (0..64).step_by(4).chain([4000]) {
                    victim.forged(&format!("{value:#x} at {at} of a {kind} slot"), |flash| {
                        flash.forge(page, index, |data, _| put(data, at, 4, value));
                    });
                }
            }
            for other in 0..9u8 {
                victim.forged(&format!("a {kind} slot says it is kind {other}"), |flash| {
                    flash.forge(page, index, |_, oob| oob[16] = other);
                });
            }
        }
    }
}

#[test]
fn nodes_that_lead_in_circles_or_astray() {
    for victim in Victim::all() {
        let slot_of =
            |(page, index): (PageAddr, usize)| victim.flash.geometry().slot_of(page, index as u32).0;
        let kinds: Vec<&str> =
            KINDS.iter().copied().filter(|kind| victim.samples.contains_key(kind)).collect();
        for holder in kinds.iter().filter(|kind| **kind != "data" && **kind != "log") {
            let (page, index) = victim.newest(holder);
            let at = if *holder == "root" { 448 } else { 0 };
            for target in &kinds {
                let slot = slot_of(victim.newest(target));
                victim.forged(
                    &format!("the first entry of the {holder} leads to a {target} slot"),
                    |flash| {
                        flash.forge(page, index, |data, _| put(data, at, 4, slot.into()));
                    },
                );
                victim.forged(&format!("all entries of the {holder} lead to a {target} slot"), |flash| {
                    flash.forge(page, index, |data, _| {
                        data[at..]
                            .chunks_exact_mut(4)
                            .for_each(|entry| entry.copy_from_slice(&slot.to_le_bytes()));
                        if *holder == "root" {
                            put(data, 68, 4, 912);
                        }
                    });
                });
            }
        }
    }
}

/// Each log number of an unreadable slot once took the memory of a log slot full of packed sectors.
#[test]
fn log_numbers_that_name_an_unreadable_slot_cost_no_memory() {
    for victim in Victim::all().into_iter().filter(|v| v.samples.contains_key("log_node")) {
        let opening = |flash: Soft| {
            peak_of(|| Disk::open(Arc::new(flash), RealEnv::new(), victim.shape.options()).map(|_| ())).1
        };
        let honest = opening(victim.flash.fork());
        let forged = victim.flash.fork();
        let (unreadable, at) = victim.newest("data");
        let slot = forged.geometry().slot_of(unreadable, at as u32);
        forged.edit(unreadable, |data, _| data[at * SECTOR_BYTES] ^= 1);
        // Whichever of them counts: the newest may be of an incomplete checkpoint.
        for (node, index) in &victim.samples["log_node"] {
            forged.forge(*node, *index, |data, _| {
                data.chunks_exact_mut(4).for_each(|entry| entry.copy_from_slice(&slot.0.to_le_bytes()));
            });
        }
        let (page, index) = victim.newest("root");
        forged.forge(page, index, |root, _| put(root, 64, 4, 1024));
        let more = opening(forged).saturating_sub(honest);
        assert!(more < 200_000, "{more} bytes for 1024 numbers");
    }
}

#[test]
fn forged_nvram() {
    for victim in Victim::all().into_iter().filter(|v| v.shape.nvram) {
        let area_bytes = inspect(&victim.flash).unwrap().nvram.unwrap().area_bytes as usize;
        let fields =
            [(12, 4), (16, 8), (32, 8), (40, 8), (48, 4), (52, 4), (56, 2), (58, 2), (64, 8), (80, 8)];
        let staged = [(384, 8), (416, 8), (424, 4), (432, 1), (433, 1)];
        for (at, size) in fields.into_iter().chain(staged) {
            for value in NASTY {
                for both in [true, false] {
                    victim.forged(&format!("{value:#x} at {at} of the NVRAM image"), |flash| {
                        flash.edit_nvram(|nvram| {
                            for area in nvram.chunks_exact_mut(area_bytes).take(if both { 2 } else { 1 }) {
                                put(area, at, size, value);
                                seal_image(area);
                            }
                        });
                    });
                }
            }
        }
    }
}

#[test]
fn forged_at_random() {
    let victims = Victim::all();
    vellum_sim::check(0..600, |seed| {
        let victim = &victims[seed as usize % victims.len()];
        victim.forged(&format!("seed {seed}"), |flash| {
            let mut rng = SmallRng::seed_from_u64(seed);
            for _ in 0..rng.random_range(1..6) {
                let kinds: Vec<_> = victim.samples.values().collect();
                let slots = kinds[rng.random_range(0..kinds.len())];
                let (page, index) = slots[rng.random_range(0..slots.len())];
                flash.forge(page, index, |data, oob| {
                    for _ in 0..rng.random_range(1..5) {
                        let at = rng.random_range(0..SECTOR_BYTES / 4 - 1) * 4;
                        let value = match rng.random_range(0..3) {
                            0 => NASTY[rng.random_range(0..NASTY.len())],
                            1 => rng.random_range(0..2000),
                            _ => rng.random(),
                        };
                        match rng.random_range(0..4) {
                            0 => put(oob, [0, 8, 16][rng.random_range(0..3)], 1, value),
                            1 => put(data, at % 512, 4, value),
                            _ => put(data, at, 4, value),
                        }
                    }
                });
            }
        });
    });
}
