//! The compared stores, each composed of our own parts: engine, media, file system, FTL.
//!
//! Our choices where the paper is silent:
//! 1. *LevelDB*, and FlashKV, which is built on it, are our engine under LevelDB's rules (`Rules::LevelDb`) with its
//!    numbers: compaction at 4 tables of level 0, writers slowed down at 8 and stopped at 12 (`db/dbformat.h`), 10 MiB
//!    in level 1 and ten times as much in each level below (`db/version_set.cc`). Compaction reads through the page
//!    cache with the kernel's read-ahead, and its output stays there.
//! 2. *Original* sizes are 2 MiB tables and 4 MiB memtables; with superblocks of less than 64 MiB they shrink in
//!    proportion, to a quarter at most. All other stores have tables and memtables of a superblock, "for fairness";
//!    "the other parameters stay the same".
//! 3. *PBlk* is `vellum-disk` on one log over all channels, collected by superblock; its map is in the device's NVRAM,
//!    its buffer has eight pages per channel. *ParaFS* is the same on erase blocks, with discards of all deletions.
//! 4. *Vellum* is what we ship, on the media of FlashKV, with the same memory. *Vellum-reuse* is the same with `--reuse
//!    auto`: leaves that a merge need not change stay where they are on flash, and tables list them.
//! 5. *Units*: in all systems, parts of tables begin at multiples of 64 bytes, as LevelDB's blocks begin anywhere; a
//!    file takes whole sectors.
//! 6. *Processor*: 6 cores. A get takes 5 us, a put 3, a merged entry 2 and 4 us/KiB, a request through file system and
//!    kernel 10, through PBlk 3 more.

use super::board::{Board, Driver, View};
use super::fs::{FsKind, FsMedia, Layout};
use std::sync::Arc;
use vellum_base::{Cause, Env, Flash, Nanos, Result, SECTOR_BYTES};
use vellum_disk::{
    CpuModel as DiskCpu, DedupMode, Disk, Format, GcPolicy, Options as DiskOptions, sectors_max,
};
use vellum_kv::media::Schedule;
use vellum_kv::{CachePolicy, Compression, CpuModel, FlashMedia, Media, Options, Reuse, Rules};
use vellum_media::Timed;
use vellum_media::nand::Nand;

/// Unit of tables of every system; it is the unit of tables on flash.
const UNIT_BYTES: u64 = 64;
/// Cores of the paper's host.
pub(super) const CORES: usize = 6;
const FS_CPU: Nanos = Nanos::from_us(10);
const FTL_CPU: Nanos = Nanos::from_us(3);
const KV_CPU: CpuModel = CpuModel {
    get: Nanos::from_us(5),
    put: Nanos::from_us(3),
    merge: Nanos::from_us(2),
    merge_kib: Nanos::from_us(4),
};
/// Superblock size for which LevelDB's own sizes are intended.
const PAPERS_SUPERBLOCK: u64 = 64 << 20;

/// One of LevelDB's sizes, scaled to superblocks. At least a quarter: the cost of an `fsync` does not shrink.
fn own(bytes: u64, board: &Board) -> u64 {
    let superblock = board.superblock_bytes().clamp(PAPERS_SUPERBLOCK / 4, PAPERS_SUPERBLOCK);
    bytes / (PAPERS_SUPERBLOCK / superblock)
}

/// A store with the layers below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum System {
    /// LevelDB with small tables, on ext4 on PBlk.
    Original,
    /// LevelDB with tables of superblock size, on ext4 on PBlk.
    Ext4,
    /// The same on F2FS on PBlk.
    F2fs,
    /// The same on ParaFS.
    ParaFs,
    /// FlashKV with only its layout.
    Raw,
    /// FlashKV whose compaction reads through an LRU cache.
    Lru,
    /// FlashKV that serves requests in order of arrival.
    Noop,
    /// FlashKV with one compaction task, without adaptive parallelism.
    OneThread,
    /// FlashKV with two compaction tasks, without adaptive parallelism.
    TwoThreads,
    /// FlashKV.
    FlashKv,
    /// Our own store on the same media.
    Vellum,
    /// Our own store with tables that share leaves that need not change.
    VellumReuse,
}

impl System {
    pub(crate) const ALL: [System; 12] = [
        System::Original,
        System::Ext4,
        System::F2fs,
        System::ParaFs,
        System::Raw,
        System::Lru,
        System::Noop,
        System::OneThread,
        System::TwoThreads,
        System::FlashKv,
        System::Vellum,
        System::VellumReuse,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Original => "LevelDB-original",
            System::Ext4 => "LevelDB-ext4",
            System::F2fs => "LevelDB-F2FS",
            System::ParaFs => "LevelDB-ParaFS",
            System::Raw => "FlashKV-raw",
            System::Lru => "FlashKV-LRU",
            System::Noop => "FlashKV-NOOP",
            System::OneThread => "FlashKV-1thread",
            System::TwoThreads => "FlashKV-2threads",
            System::FlashKv => "FlashKV",
            System::Vellum => "Vellum",
            System::VellumReuse => "Vellum-reuse",
        }
    }

    fn is_flashkv(self) -> bool {
        !matches!(self, System::Original | System::Ext4 | System::F2fs | System::ParaFs)
    }

    pub(super) fn options(self, board: &Board, cache_bytes: usize) -> Options {
        let tuned = self.is_flashkv() && self != System::Raw;
        let options = Options {
            cache_bytes,
            filter_bits_per_key: 10,
            compaction_bytes: usize::MAX, // batches of 2 MiB, as in the paper
            // As much as fills a table.
            memtable_bytes: usize::MAX,
            compression: [Compression::None; _],
            compaction_tasks: if tuned && self != System::OneThread { 2 } else { 1 },
            adaptive_parallelism: tuned && !matches!(self, System::OneThread | System::TwoThreads),
            cache_policy: match tuned && self != System::Lru {
                true => CachePolicy::CompactionAware,
                false => CachePolicy::Lru,
            },
            cpu: KV_CPU,
            ..Options::default()
        };
        match self {
            System::Vellum => options,
            System::VellumReuse => Options { reuse: Reuse::Auto.into(), ..options },
            System::Original => Options {
                memtable_bytes: own(4 << 20, board) as usize,
                level1_bytes: own(10 << 20, board),
                ..as_leveldb(options)
            },
            _ => Options {
                level1_bytes: (10 << 20) * board.superblock_bytes() / PAPERS_SUPERBLOCK,
                ..as_leveldb(options)
            },
        }
    }
}

/// Options with LevelDB's rules and numbers, which FlashKV does not change (section 4.1).
pub(in crate::experiment) fn as_leveldb(options: Options) -> Options {
    Options {
        rules: Rules::LevelDb,
        memtables_max: 1,
        level0_compact: 4,
        level0_slow: 8,
        level0_stop: 12,
        level_factor: 10,
        ..options
    }
}

/// A system on a new board.
pub(super) struct Machine {
    pub board: Arc<Timed<Nand>>,
    pub media: Arc<dyn Media>,
    disk: Option<Arc<Disk>>,
}

impl Machine {
    /// Makes a machine. Must be called in a task.
    pub(super) fn new(system: System, size: &Board, env: Arc<dyn Env>, seed: u64) -> Result<Machine> {
        if system.is_flashkv() {
            // For logs of six memtables, and manifests.
            let nvram = 8 * size.superblock_bytes() as usize + (4 << 20);
            let board = size.make(env.clone(), nvram, seed)?;
            let flash = Arc::new(Driver::new(board.clone(), View::Channels));
            FlashMedia::format(&*flash)?;
            let schedule = match system {
                System::Raw | System::Noop => Schedule::Noop,
                _ => Schedule::Priority,
            };
            let media = FlashMedia::open_scheduled(flash, env, schedule)?;
            return Ok(Machine { board, media, disk: None });
        }
        let board = size.make(env.clone(), 1 << 20, seed)?;
        let view = if system == System::ParaFs { View::Channels } else { View::OneLog };
        let flash = Arc::new(Driver::new(board.clone(), view));
        let disk = Arc::new(disk(flash, env.clone(), system, size)?);
        // As large as a table of FlashKV, or LevelDB's own size.
        let superblock = size.superblock_bytes();
        let table_bytes = match system {
            System::Original => own(2 << 20, size),
            _ => superblock - superblock / u64::from(size.pages_per_block) * 2,
        };
        let layout = match system {
            // A segment is as large as an erase block: 2 MiB on the paper's board.
            System::F2fs => {
                let segment_bytes = u64::from(size.pages_per_block) * 8192;
                Layout::Log { segment_sectors: segment_bytes / SECTOR_BYTES as u64 }
            }
            _ => Layout::Extents,
        };
        // Neither ext4 nor, before Linux 4.19, F2FS issues discards by default.
        let discard = system == System::ParaFs;
        let kind = FsKind { layout, unit_bytes: UNIT_BYTES, discard, request_cpu: FS_CPU };
        let media = FsMedia::new(disk.clone(), env, kind, table_bytes);
        Ok(Machine { board, media, disk: Some(disk) })
    }

    /// Bytes moved by garbage collection of the FTL and of the file system.
    pub(super) fn moved_bytes(&self) -> u64 {
        let disk = self.disk.as_ref().map_or(0, |disk| disk.ledger().programmed_by(Cause::Gc));
        disk + self.media.ledger().programmed_by(Cause::Gc)
    }

    /// Ends work in progress.
    pub(super) fn close(self) -> Result<()> {
        self.disk.map_or(Ok(()), |disk| disk.close())
    }
}

fn disk(flash: Arc<Driver>, env: Arc<dyn Env>, system: System, size: &Board) -> Result<Disk> {
    let geometry = *flash.geometry();
    // PBlk reserves at least a tenth.
    let sectors = sectors_max(&geometry, 0).min(geometry.slots() / 10 * 9);
    let format = Format { dedup: DedupMode::None, ..Format::new(sectors) };
    Disk::format(flash.clone(), env.clone(), &format)?;
    let request = if system == System::ParaFs { Nanos::ZERO } else { FTL_CPU };
    let options = DiskOptions {
        gc: GcPolicy::Greedy,
        pack: Some(false),
        elide: false,
        journals: Some(Vec::new()),
        write_buffer_pages_per_die: 8 * size.channels / geometry.dies(),
        wear_spread_max: u32::MAX,
        cpu: DiskCpu { hash: Nanos::ZERO, request },
        ..DiskOptions::default()
    };
    Disk::open(flash, env, options)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::IoClass;
    use vellum_kv::media::{Intent, Parallelism};
    use vellum_sim::Sim;

    const BOARD: Board = Board { channels: 8, pages_per_block: 32, blocks_per_die: 60 };
    const INTENT: Intent =
        Intent { cause: Cause::Flush, class: IoClass::Background, parallelism: Parallelism::Full };

    #[test]
    fn tables_of_every_system_are_made_as_finely() {
        let sim = Sim::new(1);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            for system in System::ALL {
                let machine = Machine::new(system, &BOARD, env.clone(), 1).unwrap();
                assert_eq!(machine.media.shape().unit_bytes, UNIT_BYTES, "{}", system.name());
                let bytes: Vec<u8> = (0..1001 * 64u32).map(|at| (at / 64 * 7 + at) as u8).collect();
                let mut writer = machine.media.create_table(1, INTENT).unwrap();
                bytes.chunks(192).for_each(|part| writer.append(part).unwrap());
                writer.finish(0).unwrap();
                let reader = machine.media.open_table(1).unwrap();
                for (offset, length) in [(0, 64_064), (64, 64), (4032, 128), (8192, 4096), (63_936, 128)] {
                    let mut out = vec![0; length];
                    reader.read(offset as u64, &mut out, IoClass::Foreground).unwrap();
                    assert!(out == bytes[offset..][..length], "{}, {offset}", system.name());
                }
                assert!(machine.media.ledger().programmed_by(Cause::Padding) < 8192, "{}", system.name());
                machine.close().unwrap();
            }
        });
    }
}
