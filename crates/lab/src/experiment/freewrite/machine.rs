//! The machines on which stores are compared: the paper's, and one with our own disk.
//!
//! *Paper* (section 4.1): LevelDB under its own rules on ext4 on dmdedup. Our `strong` disk represents dmdedup; like
//! it, it trusts its hash. The speed of dmdedup on a Samsung 840 EVO is unknown, but LevelDB filled a store of 1 GB
//! with mixed keys in 683 s on it (Figure 4). Our LevelDB takes as long with two dies as in the slower MLC drive of the
//! SES-Dedup paper, programmed in 1.19 ms instead of 1.08. This is fitted to the store without bubbles alone. The host
//! has memory for the whole store, so merges read from its page cache.
//!
//! *Collect*: the log store, which represents FAWN, on the same device. It has no cache: collection reads the device.
//!
//! *Disk*: our engine under its own rules, with tables on zones of a `disk` that remaps, and log and manifest in NVRAM.

use super::collect::segment_bytes;
use super::memory::Memory;
use crate::experiment::flashkv::{FsKind, FsMedia, Layout, as_leveldb};
use std::sync::Arc;
use vellum_base::{Env, Geometry, Nanos, Result, SECTOR_BYTES};
use vellum_codes::HashKind;
use vellum_disk::{CpuModel as DiskCpu, DedupMode, Disk, Format, Options as DiskOptions, sectors_max};
use vellum_kv::{CachePolicy, Compression, CpuModel, Directory, DirectoryOptions, Media, Options, ZoneMedia};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::zones::BlockZones;
use vellum_media::{Preset, Timed};

/// Processor costs. LevelDB 1.23 merges an entry in 0.17 us and a KiB in 1.11 us on a processor of 2023 (`python3
/// crates/vellum/benches/leveldb_merge.py 256`); the paper's is of 2014, which doubles them.
pub(super) const KV_CPU: CpuModel =
    CpuModel { get: Nanos::from_us(5), put: Nanos::from_us(3), merge: Nanos(340), merge_kib: Nanos(2_200) };
/// SHA-1 of 4 KiB on the host: twice the 4 us of `OPENSSL_ia32cap=:~0x20000000 openssl speed -bytes 4096 sha1`.
const HASH: Nanos = Nanos::from_us(8);
/// Program time of a page of the paper's device, see above.
const PROGRAM: Nanos = Nanos::from_us(1_190);
const REQUEST_CPU: Nanos = Nanos::from_us(10);
/// Size of the paper's store, to which LevelDB's sizes belong.
const PAPERS_BYTES: u64 = 1 << 30;

/// On our disk, smaller stores have two levels below level 0, and larger ones three, the last of them full.
const THREE_LEVELS_FROM: u64 = 32 << 20;

/// Which machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// LevelDB.
    Paper,
    /// The log store, on the same device.
    Collect,
    Disk,
}

/// The device and media of a store.
pub(super) struct Machine {
    pub media: Arc<dyn Media>,
    pub disk: Arc<Disk>,
    pub flash: Arc<Timed<Nand>>,
}

impl Machine {
    /// For a store of this many bytes of keys and values. Must be called in a task.
    pub(super) fn new(kind: Kind, bytes: u64, env: &Arc<dyn Env>, seed: u64) -> Result<Machine> {
        let (preset, sectors) = preset(kind, bytes)?;
        let nand =
            Nand::ram(preset.geometry, NandParams { seed, nvram_bytes: 1 << 20, ..NandParams::default() })?;
        let flash = Arc::new(Timed::new(Arc::new(nand), preset.timing, env.clone()));
        let dedup = match kind {
            Kind::Paper | Kind::Collect => DedupMode::Strong(HashKind::Sha1),
            Kind::Disk => DedupMode::None,
        };
        Disk::format(flash.clone(), env.clone(), &Format { dedup, ..Format::new(sectors) })?;
        let options = DiskOptions {
            pack: Some(false),
            journals: Some(Vec::new()),
            unverified: kind != Kind::Disk,
            cpu: DiskCpu { hash: if kind == Kind::Disk { Nanos::ZERO } else { HASH }, request: Nanos::ZERO },
            ..DiskOptions::default()
        };
        let disk = Arc::new(Disk::open(flash.clone(), env.clone(), options)?);
        let media: Arc<dyn Media> = match kind {
            Kind::Paper | Kind::Collect => {
                let table_bytes = match kind {
                    Kind::Collect => segment_bytes(bytes),
                    _ => papers(2 << 20, bytes),
                };
                // The disk deduplicates in sectors.
                let (layout, unit_bytes) = (Layout::Extents, SECTOR_BYTES as u64);
                let kind = FsKind { layout, unit_bytes, discard: true, request_cpu: REQUEST_CPU };
                FsMedia::new(disk.clone(), env.clone(), kind, table_bytes)
            }
            Kind::Disk => {
                let zones = Arc::new(BlockZones::new(disk.clone(), zone_bytes(bytes))?);
                let directory = Directory::on(Arc::new(Memory::default()), DirectoryOptions::default());
                ZoneMedia::format(&directory, &*zones, "disk", [7; 16], false)?;
                ZoneMedia::open(directory, zones)?
            }
        };
        Ok(Machine { media, disk, flash })
    }
}

/// How the store is opened, without the setting for unmodified leaves.
pub(super) fn options(kind: Kind, bytes: u64) -> Options {
    let common = Options { compression: [Compression::None; _], cpu: KV_CPU, ..Options::default() };
    match kind {
        Kind::Paper | Kind::Collect => as_leveldb(Options {
            memtable_bytes: papers(4 << 20, bytes) as usize,
            level1_bytes: papers(10 << 20, bytes),
            compaction_tasks: 1,
            adaptive_parallelism: false,
            cache_policy: CachePolicy::Lru,
            cache_bytes: 4 * bytes as usize,
            filter_bits_per_key: 10,
            ..common
        }),
        Kind::Disk => {
            let memtable_bytes = (zone_bytes(bytes) / 7 * 6) as usize;
            let level1_bytes = bytes / if bytes < THREE_LEVELS_FROM { 10 } else { 100 };
            Options {
                memtable_bytes,
                level0_compact: 4,
                level0_slow: 8,
                level0_stop: 12,
                level1_bytes,
                cache_bytes: bytes as usize / 8,
                ..common
            }
        }
    }
}

/// One of LevelDB's sizes, scaled to a store of this many bytes; at least what a table needs.
fn papers(size: u64, bytes: u64) -> u64 {
    (size * bytes / PAPERS_BYTES).next_multiple_of(SECTOR_BYTES as u64).max(96 << 10)
}

/// Size of zones, tables and memtables of the store on a disk: four make level 1, a hundredth of a large store.
fn zone_bytes(bytes: u64) -> u64 {
    (bytes / 400).next_multiple_of(SECTOR_BYTES as u64).max(256 << 10)
}

/// The device, and the number of sectors of its disk.
fn preset(kind: Kind, bytes: u64) -> Result<(Preset, u64)> {
    let (name, channels, dies, pages, room) = match kind {
        Kind::Paper | Kind::Collect => ("mlc-2", 1, 2, 64, 4 * bytes),
        // With four times as much, tables and the output of merges take all zones, and writers wait for one.
        Kind::Disk => ("tlc-modern", 4, 2, 32, 6 * bytes),
    };
    let mut preset = Preset::by_name(name)?;
    let whole = preset.geometry.pages_per_block;
    if kind != Kind::Disk {
        preset.timing.program = PROGRAM;
    }
    preset.timing.erase = Nanos(preset.timing.erase.0 * pages / u64::from(whole));
    preset.geometry =
        Geometry { channels, dies_per_channel: dies, pages_per_block: pages as u32, ..preset.geometry };
    let sectors = room / SECTOR_BYTES as u64;
    let mut preset = preset.with_capacity(room + room / 8)?;
    while sectors_max(&preset.geometry, 0) < sectors {
        preset.geometry.blocks_per_die += 1;
    }
    Ok((preset, sectors))
}
