//! Small, odd, full and worn disks; read-only ones; and the same seed twice.

use crate::harness::{Shape, assert_sound, content, read, tiny};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::{BlockAddr, BlockDevice, Env, Flash, Geometry, Kind, Lba, Nanos, RealEnv};
use vellum_codes::HashKind;
use vellum_disk::{DedupMode, Disk, Format, GcPolicy, Options, sectors_max};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::timing::{Timed, Timing};
use vellum_sim::{Sim, SimEnv};

/// Channels, dies per channel, blocks per die, pages per block, slots per page.
const ODD: [[u32; 5]; 7] = [
    [1, 1, 20, 16, 1],
    [1, 1, 12, 8, 4],
    [3, 1, 15, 7, 1],
    [1, 3, 13, 5, 2],
    [5, 2, 9, 4, 1],
    [1, 1, 16, 16, 16],
    [2, 1, 12, 3, 16],
];

fn geometry([channels, dies_per_channel, blocks_per_die, pages_per_block, slots]: [u32; 5]) -> Geometry {
    Geometry {
        channels,
        dies_per_channel,
        blocks_per_die,
        pages_per_block,
        page_bytes: 4096 * slots,
        oob_bytes: 32 * slots,
    }
}

/// Random requests compared with an array, then a reopening.
fn model(flash: &Arc<Nand>, sectors: u64, options: &Options, seed: u64, steps: u32, context: &str) {
    let open = || Disk::open(flash.clone(), RealEnv::new(), options.clone());
    let disk = open().unwrap_or_else(|e| panic!("{context}: {e}"));
    let mut oracle = vec![0; sectors as usize];
    let mut rng = SmallRng::seed_from_u64(seed);
    for n in 0..steps {
        let (lba, id) = (rng.random_range(0..sectors), rng.random_range(0..9000));
        let done = match rng.random_range(0..12) {
            0 => disk.flush(),
            1 => {
                oracle[lba as usize] = 0;
                disk.trim(Lba(lba), 1)
            }
            2..5 => {
                let slot = rng.random_range(0..sectors.min(8));
                (oracle[slot as usize], oracle[lba as usize]) = (id, id);
                disk.write(Lba(slot), &content(id), false)
                    .and_then(|()| disk.write(Lba(lba), &content(id), false))
            }
            _ => {
                oracle[lba as usize] = id;
                disk.write(Lba(lba), &content(id), false)
            }
        };
        done.unwrap_or_else(|e| panic!("{context}, step {n}: {e}"));
    }
    let check = |disk: &Disk| {
        for (lba, id) in (0..).zip(&oracle) {
            assert!(read(disk, lba) == content(*id), "{context}: sector {lba}");
        }
        assert_sound(disk);
    };
    check(&disk);
    disk.close().unwrap();
    drop(disk);
    check(&open().unwrap_or_else(|e| panic!("{context}: {e}")));
}

#[test]
fn odd_geometries_work_full_or_are_refused() {
    vellum_sim::check(0..14, |seed| {
        let odd = ODD[seed as usize % ODD.len()];
        let geometry = geometry(odd);
        let most = sectors_max(&geometry, 0);
        for dedup in [DedupMode::Journal, DedupMode::Strong(HashKind::Sha1)] {
            let flash = Arc::new(Nand::ram(geometry, NandParams::default()).unwrap());
            let format = |sectors| {
                let format = Format { dedup, uuid: [1; 16], ..Format::new(sectors) };
                Disk::format(flash.clone(), RealEnv::new(), &format)
            };
            let refused = format(most + 1).unwrap_err();
            assert_eq!(refused.kind(), Kind::NoSpace);
            assert!(refused.to_string().contains(&format!("{most} sectors")), "{refused}");
            format(most).unwrap_or_else(|e| panic!("{odd:?}: {e}"));
            let journals = Some(vec![Lba(0)..Lba(most.min(8))]);
            for gc in [GcPolicy::Greedy, GcPolicy::CostBenefit] {
                let options =
                    Options { journals: journals.clone(), gc, checkpoint_events: 100, ..Options::default() };
                format(most).unwrap();
                model(&flash, most, &options, seed, 2500, &format!("{odd:?} {dedup:?} {gc:?}, seed {seed}"));
            }
        }
    });
}

#[test]
fn flash_too_small_for_any_disk_is_refused() {
    let geometry = Geometry { blocks_per_die: 6, ..tiny(4096) };
    assert_eq!(sectors_max(&geometry, 0), 0);
    let flash = Arc::new(Nand::ram(geometry, NandParams::default()).unwrap());
    assert_eq!(Disk::format(flash, RealEnv::new(), &Format::new(1)).unwrap_err().kind(), Kind::NoSpace);
    let narrow = Geometry { oob_bytes: 16, ..tiny(4096) };
    let flash = Arc::new(Nand::ram(narrow, NandParams::default()).unwrap());
    assert_eq!(Disk::format(flash, RealEnv::new(), &Format::new(1)).unwrap_err().kind(), Kind::Invalid);
}

#[test]
fn requests_beyond_the_end_are_refused_and_change_nothing() {
    let shape = Shape::all()[2];
    let flash = shape.flash(1);
    shape.format(&flash);
    let disk = shape.open(&flash).unwrap();
    let end = shape.sectors();
    let refused = [
        disk.write(Lba(end), &content(3), false),
        disk.write(Lba(end - 1), &[content(3), content(5)].concat(), false),
        disk.write(Lba(u64::MAX), &content(3), false),
        disk.write(Lba(0), &[1; 100], false),
        disk.trim(Lba(end - 1), 2),
        disk.write_zeroes(Lba(5), u64::MAX, false),
        disk.read(Lba(end), &mut [0; 4096]),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().kind(), Kind::Invalid);
    }
    assert!(read(&disk, end - 1) == content(0));
    assert_sound(&disk);
}

/// Spread of erase counts of the worst die after a workload that hits one sector in ten.
fn spread_with(wear_spread_max: u32) -> u32 {
    let geometry = tiny(4096);
    let flash = Arc::new(Nand::ram(geometry, NandParams::default()).unwrap());
    let sectors = sectors_max(&geometry, 0);
    let format = Format { dedup: DedupMode::None, uuid: [1; 16], ..Format::new(sectors) };
    Disk::format(flash.clone(), RealEnv::new(), &format).unwrap();
    let options = Options { wear_spread_max, checkpoint_events: 2000, ..Options::default() };
    let disk = Disk::open(flash.clone(), RealEnv::new(), options).unwrap();
    (0..sectors).for_each(|lba| disk.write(Lba(lba), &content(lba as u32 * 8 + 5), false).unwrap());
    let mut rng = SmallRng::seed_from_u64(1);
    for n in 0..60_000u32 {
        let lba = rng.random_range(0..sectors / 10);
        disk.write(Lba(lba), &content(n * 8 + 3), false).unwrap();
    }
    for lba in sectors / 10..sectors {
        assert!(read(&disk, lba) == content(lba as u32 * 8 + 5), "cold sector {lba}");
    }
    let erases = |block: BlockAddr| flash.report(block).erase_count;
    let spread = |die: u32| {
        let blocks = (0..geometry.blocks_per_die).map(|i| geometry.block_on(die, i));
        let (low, high) = (blocks.clone().map(erases).min().unwrap(), blocks.map(erases).max().unwrap());
        high - low
    };
    (0..geometry.dies()).map(spread).max().unwrap()
}

#[test]
fn cold_data_is_moved_so_that_wear_stays_even() {
    const MAX: u32 = 16;
    let (levelled, not) = (spread_with(MAX), spread_with(u32::MAX));
    assert!(levelled <= 2 * MAX + 16, "erase counts differ by {levelled}");
    assert!(not > 2 * levelled, "without levelling they differ by {not}, with it by {levelled}");
}

#[test]
fn the_map_costs_at_most_16_bytes_a_sector() {
    let geometry = Geometry { blocks_per_die: 256, pages_per_block: 256, ..tiny(4096) };
    let flash = Arc::new(Nand::ram(geometry, NandParams::default()).unwrap());
    let sectors = geometry.slots() * 100 / 112;
    Disk::format(flash.clone(), RealEnv::new(), &Format::new(sectors)).unwrap();
    let disk = Disk::open(flash, RealEnv::new(), Options::default()).unwrap();
    let memory = disk.stat().memory;
    assert!(memory.map_bytes_per_sector <= 16.0, "{}", memory.map_bytes_per_sector);
    assert!(memory.map_bytes as u64 >= 8 * sectors, "all of it must be counted");
}

#[test]
fn a_read_only_disk_refuses_writes_and_writes_nothing() {
    for shape in Shape::all() {
        let flash = shape.flash(1);
        shape.format(&flash);
        let disk = shape.open(&flash).unwrap();
        (0..200).for_each(|n| disk.write(Lba(n), &content(n as u32 * 3), false).unwrap());
        disk.flush().unwrap();
        drop(disk);
        let before = flash.counters();
        let options = Options { read_only: true, ..shape.options() };
        let disk = Disk::open(flash.clone(), RealEnv::new(), options).unwrap();
        assert!(disk.info().read_only);
        let refused = [
            disk.write(Lba(1), &content(3), true),
            disk.trim(Lba(1), 1),
            disk.write_zeroes(Lba(1), 1, false),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().kind(), Kind::Unsupported);
        }
        (0..200).for_each(|n| assert!(read(&disk, n) == content(n as u32 * 3)));
        disk.flush().unwrap();
        disk.close().unwrap();
        let after = flash.counters();
        assert_eq!(
            (before.pages_programmed, before.blocks_erased),
            (after.pages_programmed, after.blocks_erased)
        );
    }
}

#[test]
fn the_policy_is_kept_across_openings() {
    let modes = [
        DedupMode::None,
        DedupMode::Journal,
        DedupMode::Strong(HashKind::Md5),
        DedupMode::Strong(HashKind::Blake3),
        DedupMode::WojPaper(HashKind::Head64),
    ];
    for dedup in modes {
        let shape = Shape { page_bytes: 4096, nvram: false, dedup };
        let flash = shape.flash(1);
        shape.format(&flash);
        for _ in 0..3 {
            let disk = shape.open(&flash).unwrap();
            assert_eq!(disk.dedup(), dedup);
            disk.write(Lba(50), &content(3), true).unwrap();
        }
    }
}

/// Four writers on timed flash; everything they observe is logged. Returns the hash of the log.
fn log_hash(seed: u64) -> u64 {
    let shape = Shape::all()[1];
    let nand = Arc::new(Nand::ram(tiny(shape.page_bytes), shape.params(1)).unwrap());
    shape.format(&nand);
    let sim = Sim::new(seed);
    let env: Arc<SimEnv> = sim.env();
    let timing = Timing {
        read: Nanos::from_us(50),
        program: Nanos::from_us(600),
        erase: Nanos::from_ms(3),
        suspend: Nanos::from_us(20),
        channel_bytes_per_second: 400_000_000,
    };
    let flash = Arc::new(Timed::new(nand, timing, env.clone()));
    sim.run(|| {
        let disk = Arc::new(Disk::open(flash, env.clone(), shape.options()).unwrap());
        let writer = |number: u64| {
            let (disk, env) = (disk.clone(), env.clone());
            let task_env = env.clone();
            env.spawn(
                "writer",
                Box::new(move || {
                    for n in 0..200 {
                        let draw = task_env.random();
                        let lba = 24 + draw % 200;
                        disk.write(Lba(draw % 24), &content(draw as u32), false).unwrap();
                        disk.write(Lba(lba), &content(draw as u32), n % 50 == number).unwrap();
                        task_env.note_number(task_env.now().0);
                    }
                }),
            )
        };
        let tasks: Vec<_> = (0..4).map(writer).collect();
        tasks.into_iter().for_each(vellum_base::Task::join);
        env.note_number(disk.ledger().programmed_total());
        assert_sound(&disk);
    });
    sim.log_hash()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let first = log_hash(1);
    assert_eq!(first, log_hash(1));
    assert_ne!(first, log_hash(2));
}

/// With the default interval: the log alone must not fill a small disk.
#[test]
fn rewriting_one_sector_for_ever_never_fills_the_disk() {
    for shape in Shape::all() {
        let flash = shape.flash(1);
        shape.format(&flash);
        let disk = Disk::open(flash.clone(), RealEnv::new(), Options::default()).unwrap();
        for sector in 0..shape.sectors() {
            disk.write(Lba(sector), &content(8 * sector as u32 + 5), false).unwrap();
        }
        for round in 0..20_000u32 {
            // Mostly zeros: packed into the log.
            let written = disk.write(Lba(3), &content(8 * round + 1 + round % 2), false);
            written
                .and_then(|()| if round % 8 == 0 { disk.flush() } else { Ok(()) })
                .unwrap_or_else(|e| panic!("{shape:?}, round {round}: {e}"));
        }
        assert_sound(&disk);
    }
}
