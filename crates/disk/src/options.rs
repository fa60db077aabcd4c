//! Parameters for creating and opening a disk.

use serde::Serialize;
use std::ops::Range;
use vellum_base::{Lba, Nanos};
use vellum_codes::HashKind;

/// How duplicates are detected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DedupMode {
    /// Not at all.
    None,
    /// Full index of a cryptographic hash, like dmdedup. Compares bytes unless [`Options::unverified`].
    Strong(HashKind),
    /// Home writes of a file system's journal, found by a seeded whole-page hash and a byte compare.
    #[default]
    Journal,
    /// Exactly the WOJ paper's rule (woj.txt, section 2.2). Can corrupt data: for the lab only.
    WojPaper(HashKind),
    /// Any content, as far as it is in a small table of fingerprints folded from ECC parity (ses-dedup.txt). Compares
    /// bytes.
    Ecc,
    /// The same with the paper's table (section V.B), for comparison. Compares bytes.
    EccPaper,
}

impl DedupMode {
    /// Stable name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            DedupMode::None => "none",
            DedupMode::Strong(_) => "strong",
            DedupMode::Journal => "journal",
            DedupMode::WojPaper(_) => "woj-paper",
            DedupMode::Ecc => "ecc",
            DedupMode::EccPaper => "ecc-paper",
        }
    }

    /// True if the fingerprint is the parity of the error-correcting code.
    pub fn uses_parity(self) -> bool {
        matches!(self, DedupMode::Ecc | DedupMode::EccPaper)
    }

    /// The mode of this name, optionally followed by a hash: `strong:sha256`.
    pub fn by_name(text: &str) -> Option<DedupMode> {
        let (name, hash) = match text.split_once(':') {
            Some((name, hash)) => (name, Some(HashKind::by_name(hash)?)),
            None => (text, None),
        };
        match (name, hash) {
            ("none", None) => Some(DedupMode::None),
            ("journal", None) => Some(DedupMode::Journal),
            ("ecc", None) => Some(DedupMode::Ecc),
            ("ecc-paper", None) => Some(DedupMode::EccPaper),
            ("strong", hash) => Some(DedupMode::Strong(hash.unwrap_or(HashKind::Sha1))),
            ("woj-paper", hash) => Some(DedupMode::WojPaper(hash.unwrap_or(HashKind::Head64))),
            _ => None,
        }
    }
}

/// When copies are looked for, if parity is the fingerprint. Other modes do so in-line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DedupWhen {
    /// While a sector is written, however long it takes.
    Inline,
    /// Later only: every write is programmed.
    Offline,
    /// While it is written as far as [`Options::dedup_core_share`] and [`Options::dedup_wait_max`] allow, and later for
    /// the rest.
    #[default]
    Both,
}

impl DedupWhen {
    /// Stable name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            DedupWhen::Inline => "inline",
            DedupWhen::Offline => "offline",
            DedupWhen::Both => "both",
        }
    }

    /// The value of this name.
    pub fn by_name(text: &str) -> Option<DedupWhen> {
        [DedupWhen::Inline, DedupWhen::Offline, DedupWhen::Both].into_iter().find(|when| when.name() == text)
    }
}

/// Parameters of [`crate::Disk::format`].
#[derive(Clone, Debug)]
pub struct Format {
    /// Logical size in sectors.
    pub sectors: u64,
    /// How duplicates are detected.
    pub dedup: DedupMode,
    /// Never share sectors that ext file systems keep redundantly on purpose (superblocks, group descriptors).
    pub keep_copies: bool,
    /// Rated endurance in bytes written by the host; 0 for none.
    pub tbw_bytes: u64,
    /// Identity of the disk; if all zero, a random one is drawn from the environment.
    pub uuid: [u8; 16],
}

impl Format {
    /// A disk of `sectors` with the default dedup.
    pub fn new(sectors: u64) -> Format {
        Format { sectors, dedup: DedupMode::default(), keep_copies: false, tbw_bytes: 0, uuid: [0; 16] }
    }
}

/// Properties that never change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub uuid: [u8; 16],
    pub sectors: u64,
    pub seed: u64,
    pub dedup: DedupMode,
    pub keep_copies: bool,
    pub spare_blocks: u32,
    pub tbw_bytes: u64,
}

/// How garbage collection chooses its victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GcPolicy {
    /// The block with the fewest valid slots.
    Greedy,
    /// The best ratio of space gained × age to copying cost (Rosenblum and Ousterhout's LFS).
    #[default]
    CostBenefit,
}

/// CPU time for a 4 KiB sector on the modelled controller. Zero in production.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuModel {
    /// The hash of the dedup mode, over the bytes it covers.
    pub hash: Nanos,
    /// All other CPU time of a write.
    pub request: Nanos,
}

/// Parameters of opening a disk.
#[derive(Clone, Debug)]
pub struct Options {
    /// Refuse writes.
    pub read_only: bool,
    /// How garbage collection chooses its victim.
    pub gc: GcPolicy,
    /// Pack sectors that are mostly zeros. `None`: only with [`DedupMode::Journal`].
    pub pack: Option<bool>,
    /// Skip all-zero sectors, and writes of bytes that the sector already holds. Off only for bare baselines.
    pub elide: bool,
    /// Trust fingerprints without comparing bytes: the paper's `strong` baseline. Never for valuable data.
    pub unverified: bool,
    /// Journals named by the host, instead of (not in addition to) those found by reading the disk.
    pub journals: Option<Vec<Range<Lba>>>,
    /// Programs in flight per die before writes wait.
    pub write_buffer_pages_per_die: u32,
    /// Maximum difference of erase counts before cold data is moved to worn blocks.
    pub wear_spread_max: u32,
    /// Events between two checkpoints; 0 chooses by size.
    pub checkpoint_events: u64,
    /// Number of recently journaled sectors kept in memory for the byte compare.
    pub verify_cache_sectors: u32,
    /// Entries of the fingerprint table of [`DedupMode::Ecc`], as a share of the sectors.
    pub dedup_table_share: f64,
    /// When copies are looked for by parity.
    pub dedup_when: DedupWhen,
    /// Share of a core that in-line lookups may take with [`DedupWhen::Both`].
    pub dedup_core_share: f64,
    /// Maximum time a write waits for bytes to compare with, with [`DedupWhen::Both`].
    pub dedup_wait_max: Nanos,
    /// Memory that [`crate::Disk::dedup_all`] may use; with less it reads spare areas several times.
    pub dedup_scan_bytes: u64,
    /// Rated erases of the flash below; 0 if unknown.
    pub rated_erases: u32,
    /// CPU costs in virtual time.
    pub cpu: CpuModel,
    /// The host has a scrambler as well ([`crate::ses`]): what it writes is stored plain.
    pub host_scrambles: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            read_only: false,
            gc: GcPolicy::default(),
            pack: None,
            elide: true,
            unverified: false,
            journals: None,
            write_buffer_pages_per_die: 8,
            wear_spread_max: 64,
            checkpoint_events: 0,
            verify_cache_sectors: 1024,
            dedup_table_share: 0.15,
            dedup_when: DedupWhen::default(),
            dedup_core_share: 0.5,
            dedup_wait_max: Nanos::from_ms(1),
            dedup_scan_bytes: 256 << 20,
            rated_erases: 0,
            cpu: CpuModel::default(),
            host_scrambles: false,
        }
    }
}
