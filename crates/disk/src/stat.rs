//! Statistics of a disk: the ledger, SMART-log-like fields, wear. The JSON form is documented in docs/json/stat.md and
//! stable: fields are added, never renamed.

use crate::blocks::State;
use crate::disk::Disk;
use crate::ftl::Ftl;
use crate::options::Options;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;
use vellum_base::{
    Avoided, BlockAddr, BlockState, Cause, FlashCounters, Lba, LedgerSnapshot, Parity, Scrambling,
};

/// Share of spare blocks in percent below which a warning is set.
const SPARE_THRESHOLD_PERCENT: u32 = 10;
const HISTOGRAM_BINS: u32 = 16;

/// Everything `vellum disk stat` shows.
#[derive(Clone, Debug, Serialize)]
pub struct DiskStat {
    /// Identity, as 32 hexadecimal digits.
    pub uuid: String,
    /// Logical size in bytes.
    pub size_bytes: u64,
    /// Raw flash in bytes.
    pub flash_bytes: u64,
    /// Sectors that hold data (not holes, not zeros).
    pub mapped_bytes: u64,
    /// Flash that holds valid data and metadata.
    pub valid_bytes: u64,
    /// How duplicates are detected.
    pub dedup: &'static str,
    /// Sectors never shared because file systems keep redundant copies of their content on purpose (`--keep-copies`);
    /// null if not requested.
    pub kept_sectors: Option<u64>,
    /// Sectors programmed without looking for a copy, and marked for later; marks are lost when the disk is closed.
    pub dedup_waiting_sectors: u64,
    /// Sectors fingerprinted since opening, so that writes of the same content are found: those of the journals, with
    /// `strong` all contents, with `ecc` as many as idle time allowed.
    pub learned_sectors: u64,
    /// Why the disk accepts no more writes, after a durability failure.
    pub poisoned: Option<String>,
    /// Bytes written, programmed and avoided.
    pub ledger: LedgerStat,
    /// Fields of the NVMe SMART log, by their names there.
    pub smart: SmartLog,
    /// The error-correcting code of the flash, and what it corrected.
    pub code: CodeStat,
    /// Wear of the erase blocks.
    pub wear: WearStat,
    /// Memory in use.
    pub memory: MemoryStat,
    /// Journals found, and file systems without benefit, with the reason.
    pub file_systems: Vec<FileSystemStat>,
    /// Journals named by the host when the disk was opened: then none are discovered.
    pub named_journals: Vec<JournalStat>,
}

/// The ledger with named entries.
#[derive(Clone, Debug, Serialize)]
pub struct LedgerStat {
    /// Bytes the host read.
    pub host_read_bytes: u64,
    /// Bytes the host wrote.
    pub host_written_bytes: u64,
    /// Bytes programmed, all causes.
    pub programmed_bytes: u64,
    /// Bytes programmed as counted by the flash itself: equals `programmed_bytes`.
    pub device_programmed_bytes: u64,
    /// Bytes avoided, all reasons.
    pub avoided_bytes: u64,
    /// Bytes programmed for each byte the host wrote.
    pub write_amplification: f64,
    /// Bytes programmed by cause; causes that did not occur are left out.
    pub programmed: BTreeMap<&'static str, u64>,
    /// Bytes avoided by reason; reasons that did not occur are left out.
    pub avoided: BTreeMap<&'static str, u64>,
}

impl LedgerStat {
    /// A ledger with named entries, and the device's count.
    pub fn new(ledger: &LedgerSnapshot, device_programmed_bytes: u64) -> LedgerStat {
        let present =
            |pairs: Vec<(&'static str, u64)>| pairs.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
        LedgerStat {
            host_read_bytes: ledger.host_read_bytes,
            host_written_bytes: ledger.host_written_bytes,
            programmed_bytes: ledger.programmed_total(),
            device_programmed_bytes,
            avoided_bytes: ledger.avoided_total(),
            write_amplification: ledger.waf(),
            programmed: present(Cause::ALL.iter().map(|c| (c.name(), ledger.programmed_by(*c))).collect()),
            avoided: present(Avoided::ALL.iter().map(|r| (r.name(), ledger.avoided_by(*r))).collect()),
        }
    }
}

/// Field names as in `nvme smart-log -o json`, with the endurance group's media counter.
#[derive(Clone, Debug, Serialize)]
pub struct SmartLog {
    /// Bit 0: spare below threshold. Bit 2: reliability degraded. Bit 3: read-only.
    pub critical_warning: u8,
    /// Spare erase blocks left, percent of those set aside.
    pub avail_spare: u32,
    /// The warning threshold.
    pub spare_thresh: u32,
    /// Rated life used, percent; may exceed 100.
    pub percent_used: u32,
    /// Units of 1000 × 512 bytes.
    pub data_units_read: u64,
    /// Units of 1000 × 512 bytes.
    pub data_units_written: u64,
    /// Programmed to flash, units of 1000 × 512 bytes.
    pub media_units_written: u64,
    /// Requests served.
    pub host_commands: u64,
    /// Times opened.
    pub power_cycles: u64,
    /// Hours in service.
    pub power_on_hours: f64,
    /// Openings without a preceding clean close.
    pub unsafe_shutdowns: u64,
    /// Reads that could not be corrected.
    pub media_errors: u64,
}

/// The error-correcting code of the flash.
#[derive(Clone, Debug, Serialize)]
pub struct CodeStat {
    /// Its name; `None` if pages are not coded above what the flash itself does.
    pub name: Option<&'static str>,
    /// How data are scrambled: `off`, `lba` or `page`.
    pub scrambler: &'static str,
    /// Where scrambling is undone for deduplication: `host` or `device`; null if nothing is scrambled.
    pub unscrambled_by: Option<&'static str>,
    /// Sectors programmed plain since the disk was opened, because the host scrambles as well.
    pub sectors_plain: u64,
    /// Sectors programmed as noise nevertheless, because neighbouring cells would have been alike.
    pub sectors_noise: u64,
    /// Bits corrected since the flash was created.
    pub bits_corrected: u64,
    /// Uncorrectable reads since then.
    pub reads_uncorrectable: u64,
}

impl CodeStat {
    fn new(parity: Option<&dyn Parity>, counters: &FlashCounters, ftl: &Ftl) -> CodeStat {
        let is_scrambled = parity.is_some_and(|parity| parity.scrambling() != Scrambling::Off);
        CodeStat {
            name: parity.map(Parity::code),
            scrambler: match parity.map(Parity::scrambling) {
                None | Some(Scrambling::Off) => "off",
                Some(Scrambling::BySector) => "lba",
                Some(Scrambling::ByPage { .. }) => "page",
            },
            unscrambled_by: is_scrambled.then_some(match ftl.options.host_scrambles {
                true => "host",
                false => "device",
            }),
            sectors_plain: ftl.plain.plain,
            sectors_noise: ftl.plain.noise,
            bits_corrected: counters.bits_corrected,
            reads_uncorrectable: counters.reads_uncorrectable,
        }
    }
}

/// Wear of the erase blocks.
#[derive(Clone, Debug, Serialize)]
pub struct WearStat {
    /// Fewest erases of a usable block.
    pub erase_count_min: u32,
    /// Most erases of a usable block.
    pub erase_count_max: u32,
    /// Mean.
    pub erase_count_mean: f64,
    /// Usable blocks by erase count: upper bound of the bin, blocks in it.
    pub histogram: Vec<(u32, u32)>,
    /// Blocks that are bad.
    pub bad_blocks: u32,
    /// Rated erases of a block; 0 if unknown.
    pub rated_erases: u32,
    /// Rated endurance in bytes written by the host; 0 if unknown.
    pub tbw_bytes: u64,
    /// Days until the rated life is used up, at the average rate since the disk was created.
    pub projected_days_left: Option<f64>,
}

/// Memory in use.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryStat {
    /// Map, reverse map and content tags.
    pub map_bytes: usize,
    /// The same per sector.
    pub map_bytes_per_sector: f64,
    /// Fingerprint tables of the dedup policy.
    pub dedup_bytes: usize,
    /// Recently journaled sectors kept for comparing.
    pub verify_cache_bytes: usize,
    /// Erase blocks, log slots.
    pub other_bytes: usize,
}

/// A journal, or a part of one, named by the host.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct JournalStat {
    /// Its offset on the disk.
    pub offset_bytes: u64,
    /// Its length.
    pub bytes: u64,
}

/// A file system on the disk.
#[derive(Clone, Debug, Serialize)]
pub struct FileSystemStat {
    /// Its kind.
    pub kind: &'static str,
    /// Partition number, if it lies in one.
    pub partition: Option<u32>,
    /// The size of its journal in bytes, if writes to it save writes at home.
    pub journal_bytes: Option<u64>,
    /// Number of extents of the journal.
    pub journal_extents: usize,
    /// Why there is no benefit.
    pub no_benefit: Option<String>,
}

impl Disk {
    /// All statistics of the disk.
    pub fn stat(&self) -> DiskStat {
        let ledger = self.ledger();
        let counters = self.flash.counters();
        let file_systems = self.file_systems();
        let wear = self.wear(&ledger);
        let ftl = self.ftl.lock();
        let page_bytes = u64::from(ftl.geometry.page_bytes);
        let mapped = (0..ftl.map.sectors() as u32).filter(|s| ftl.map.place(*s).holds_bytes()).count();
        let blocks = (0..ftl.geometry.blocks()).map(BlockAddr);
        let valid: u64 = blocks.map(|b| u64::from(ftl.blocks.valid(b))).sum();
        let (dedup_bytes, verify_cache_bytes) = ftl.policy.memory_bytes();
        let map_bytes = ftl.map.memory_bytes();
        DiskStat {
            uuid: ftl.identity.uuid.iter().map(|b| format!("{b:02x}")).collect(),
            size_bytes: ftl.identity.sectors * 4096,
            flash_bytes: ftl.geometry.capacity_bytes(),
            mapped_bytes: mapped as u64 * 4096,
            valid_bytes: valid * 4096,
            dedup: ftl.identity.dedup.name(),
            kept_sectors: ftl.identity.keep_copies.then(|| ftl.keeping.sectors()),
            dedup_waiting_sectors: ftl.marks.count(),
            learned_sectors: ftl.learned_sectors,
            poisoned: ftl.poisoned.clone(),
            ledger: LedgerStat::new(&ledger, counters.pages_programmed * page_bytes),
            smart: SmartLog {
                critical_warning: critical_warning(&wear, ftl.identity.spare_blocks, ftl.poisoned.is_some()),
                avail_spare: spare_percent(wear.bad_blocks, ftl.identity.spare_blocks),
                spare_thresh: SPARE_THRESHOLD_PERCENT,
                percent_used: percent_used(&wear, &ledger),
                data_units_read: ledger.host_read_bytes.div_ceil(512_000),
                data_units_written: ledger.host_written_bytes.div_ceil(512_000),
                media_units_written: ledger.programmed_total().div_ceil(512_000),
                host_commands: ftl.life.host_commands,
                power_cycles: ftl.life.opened,
                power_on_hours: self.powered_ns() as f64 / 3.6e12,
                unsafe_shutdowns: ftl.life.unsafe_shutdowns,
                media_errors: counters.reads_uncorrectable,
            },
            code: CodeStat::new(self.flash.parity(), &counters, &ftl),
            memory: MemoryStat {
                map_bytes,
                map_bytes_per_sector: map_bytes as f64 / ftl.identity.sectors as f64,
                dedup_bytes: dedup_bytes + ftl.marks.memory_bytes(),
                verify_cache_bytes,
                other_bytes: ftl.blocks.memory_bytes() + ftl.log.memory_bytes(),
            },
            wear,
            file_systems,
            named_journals: named_journals(&ftl.options),
        }
    }

    fn wear(&self, ledger: &LedgerSnapshot) -> WearStat {
        let powered_ns = self.powered_ns();
        let ftl = self.ftl.lock();
        let blocks = (0..ftl.geometry.blocks()).map(BlockAddr);
        let (bad, usable): (Vec<_>, Vec<_>) = blocks.partition(|b| {
            self.flash.report(*b).state == BlockState::Bad || ftl.blocks.state(*b) == State::Bad
        });
        let counts: Vec<u32> = usable.iter().map(|b| ftl.blocks.erase_count(*b)).collect();
        let (min, max) =
            (counts.iter().min().copied().unwrap_or(0), counts.iter().max().copied().unwrap_or(0));
        let mean = counts.iter().map(|c| f64::from(*c)).sum::<f64>() / counts.len().max(1) as f64;
        let rated_erases = ftl.options.rated_erases;
        let tbw_bytes = ftl.identity.tbw_bytes;
        let used = life_used(mean, rated_erases, ledger.host_written_bytes, tbw_bytes);
        let days = powered_ns as f64 / 86_400e9;
        WearStat {
            erase_count_min: min,
            erase_count_max: max,
            erase_count_mean: mean,
            histogram: histogram(&counts, min, max),
            bad_blocks: bad.len() as u32,
            rated_erases,
            tbw_bytes,
            projected_days_left: used.filter(|u| *u > 0.0).map(|u| (days / u - days).max(0.0)),
        }
    }

    fn file_systems(&self) -> Vec<FileSystemStat> {
        use crate::discover::JournalState;
        let found = self.discovery().map(|d| d.file_systems).unwrap_or_default();
        let describe = |fs: crate::discover::FileSystem| {
            let (journal, no_benefit) = match fs.journal {
                JournalState::Found(j) => (Some(j), None),
                JournalState::NoBenefit { reason } => (None, Some(reason)),
            };
            FileSystemStat {
                kind: fs.kind.name(),
                partition: fs.partition,
                journal_bytes: journal.as_ref().map(|j| j.sectors() * 4096),
                journal_extents: journal.map_or(0, |j| j.extents.len()),
                no_benefit,
            }
        };
        found.into_iter().map(describe).collect()
    }
}

fn named_journals(options: &Options) -> Vec<JournalStat> {
    let named = options.journals.iter().flatten();
    let stat =
        |r: &Range<Lba>| JournalStat { offset_bytes: r.start.0 * 4096, bytes: (r.end.0 - r.start.0) * 4096 };
    named.map(stat).collect()
}

fn histogram(counts: &[u32], min: u32, max: u32) -> Vec<(u32, u32)> {
    let width = (max - min + 1).div_ceil(HISTOGRAM_BINS).max(1);
    let bins = (max - min) / width + 1;
    let upper = |bin: u32| min + (bin + 1) * width - 1;
    let mut found = vec![0; bins as usize];
    counts.iter().for_each(|c| found[((c - min) / width) as usize] += 1);
    (0..bins).map(upper).zip(found).collect()
}

/// Share of the rated life used: by host writes if rated in them, else by erases.
fn life_used(mean_erases: f64, rated_erases: u32, host_bytes: u64, tbw_bytes: u64) -> Option<f64> {
    match (rated_erases, tbw_bytes) {
        (0, 0) => None,
        (rated, 0) => Some(mean_erases / f64::from(rated)),
        (_, tbw) => Some(host_bytes as f64 / tbw as f64),
    }
}

fn percent_used(wear: &WearStat, ledger: &LedgerSnapshot) -> u32 {
    let used = life_used(wear.erase_count_mean, wear.rated_erases, ledger.host_written_bytes, wear.tbw_bytes);
    (used.unwrap_or(0.0) * 100.0).ceil().min(255.0) as u32
}

fn spare_percent(bad_blocks: u32, spare_blocks: u32) -> u32 {
    100 - (bad_blocks.min(spare_blocks) * 100).checked_div(spare_blocks).unwrap_or(100).min(100)
}

fn critical_warning(wear: &WearStat, spare_blocks: u32, poisoned: bool) -> u8 {
    let low = spare_percent(wear.bad_blocks, spare_blocks) < SPARE_THRESHOLD_PERCENT;
    u8::from(low) | u8::from(poisoned) << 3
}
