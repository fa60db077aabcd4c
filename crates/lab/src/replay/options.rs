//! Options of a replay.

use super::Mode;
use std::ops::Range;
use vellum_base::{Lba, Nanos, SECTOR_BYTES};
use vellum_codes::HashKind;
use vellum_disk::{CpuModel, DedupMode, DedupWhen};
use vellum_media::Preset;
use vellum_trace::models::ContentModel;
use vellum_trace::{ByteLen, DeviceId};

/// The flash device that `replay` uses by default.
pub const DEFAULT_PRESET: &str = "tlc-modern";

/// Options of a replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// The modes to compare, one run each.
    pub modes: Vec<Mode>,
    /// The flash device; resized to what the trace and `op_share` need.
    pub preset: Preset,
    /// Over-provisioning: raw flash beyond the logical size, as a share of the logical size.
    pub op_share: f64,
    /// Seed for everything random.
    pub seed: u64,
    /// When requests are issued.
    pub pace: Pace,
    /// The core that computes fingerprints.
    pub core: Core,
    /// How to treat the devices of a multi-device trace.
    pub devices: Devices,
    /// Logical size; `None`: as the trace states or needs.
    pub device_bytes: Option<ByteLen>,
    /// Location of the journals if the host names them; `None`: found by reading the disk.
    pub journals: Option<Vec<Range<Lba>>>,
    /// Contents of writes that have none in the trace.
    pub contents: ContentModel,
    /// Contents of the disk before the replay.
    pub precondition: Precondition,
    /// How `ecc` and `ecc-paper` search for copies.
    pub search: Search,
}

/// How the modes that fingerprint by parity search for copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// While a sector is written, later, or both. Later is after the replay, and only with `scan_after`.
    pub when: DedupWhen,
    /// Entries of the fingerprint table, as a share of the number of sectors.
    pub table_share: f64,
    /// Share of a core that the search during writes may take, if it is limited (`both`).
    pub core_share: f64,
    /// Longest time that a write waits for what it is compared with, if the search is limited.
    pub wait_max: Nanos,
    /// Time to fingerprint a sector, instead of what the core needs for parity.
    pub fingerprint: Option<Nanos>,
    /// After the replay all sectors are compared, as by `disk scrub --dedup`.
    pub scan_after: bool,
}

impl Default for Search {
    /// In-line search only: shows what a table finds, and its cost.
    fn default() -> Search {
        let usual = vellum_disk::Options::default();
        Search {
            when: DedupWhen::Inline,
            table_share: usual.dedup_table_share,
            core_share: usual.dedup_core_share,
            wait_max: usual.dedup_wait_max,
            fingerprint: None,
            scan_after: false,
        }
    }
}

impl ReplayOptions {
    /// `modes` on `preset` with 12 % over-provisioning, 32 requests in flight, the paper's 3 GHz core, an empty disk.
    pub fn new(modes: Vec<Mode>, preset: Preset) -> ReplayOptions {
        ReplayOptions {
            modes,
            preset,
            op_share: 0.12,
            seed: 1,
            pace: Pace::Closed { queue_depth: 32 },
            core: Core::Host3GHz,
            devices: Devices::Single,
            device_bytes: None,
            journals: None,
            contents: ContentModel::Unique,
            precondition: Precondition::default(),
            search: Search::default(),
        }
    }
}

/// How to treat the devices of a multi-device trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// The trace must have one device; a second is an error that names the alternatives.
    #[default]
    Single,
    /// Only requests of this device are replayed.
    Only(DeviceId),
    /// All are laid out side by side on the disk.
    SideBySide,
}

/// When requests are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as the disk accepts them, `queue_depth` at a time, in the order of the trace. A flush, or a write with
    /// FUA, waits for all earlier requests and holds back all later ones, as if one thread syncs.
    Closed {
        /// Requests in flight.
        queue_depth: u32,
    },
    /// At the times of the trace, `speed` times as fast. A flush waits for earlier writes. Latency counts from the time
    /// in the trace.
    Open {
        /// 1 is the speed of the trace.
        speed: f64,
    },
}

/// The core that computes fingerprints, inline, one sector after another. Rates: woj.txt, Table 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Core {
    /// Xeon E5-2680v3 at 3.0 GHz: the paper's prototype, which hashed on the host.
    #[default]
    Host3GHz,
    /// The same at 1.2 GHz, which represents a controller's core in the paper.
    Controller1200MHz,
    /// ARM at 400 MHz in a drive: SHA-256 of 8 KiB in 226.5 us (ses-dedup.txt, Table I), other hashes in proportion to
    /// the core of 1.2 GHz.
    Controller400MHz,
    /// Hashing takes no time.
    Free,
}

impl Core {
    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Core::Host3GHz => "3.0GHz",
            Core::Controller1200MHz => "1.2GHz",
            Core::Controller400MHz => "400MHz",
            Core::Free => "free",
        }
    }

    /// MiB/s of a hash over whole sectors. BLAKE3 is not in the table; it is given SHA-1's rate.
    fn mib_per_second(self, hash: HashKind) -> f64 {
        let (fast, slow) = match hash {
            HashKind::Md5 => (526.1, 215.3),
            HashKind::Sha1 | HashKind::Blake3 => (470.1, 172.5),
            HashKind::Sha256 => (204.1, 79.2),
            HashKind::Head64 => (5715.4, 2285.2),
        };
        match self {
            Core::Host3GHz => fast,
            Core::Controller400MHz => slow * (8192.0 / 226.5e-6 / f64::from(1 << 20)) / 79.2,
            Core::Controller1200MHz | Core::Free => slow,
        }
    }

    fn hash_time(self, hash: HashKind, bytes: usize) -> Nanos {
        let rate = self.mib_per_second(hash) * f64::from(1 << 20);
        Nanos((bytes as f64 * 1e9 / rate).round() as u64)
    }

    /// Time to descramble a sector's parity: 14.5 us for 8 KiB at 400 MHz (ses-dedup.txt, section V.A), and in
    /// proportion on faster cores. The parity itself is computed by the drive anyway.
    fn unmask_time(self) -> Nanos {
        let mhz = match self {
            Core::Host3GHz => 3000.0,
            Core::Controller400MHz => 400.0,
            Core::Controller1200MHz | Core::Free => 1200.0,
        };
        Nanos((14_500.0 * SECTOR_BYTES as f64 / 8192.0 * 400.0 / mhz).round() as u64)
    }

    /// Costs of a mode for each sector that it fingerprints. `journal` is charged xxHash over the whole sector, and the
    /// same again for comparing bytes, whether needed or not.
    pub fn model(self, dedup: DedupMode) -> CpuModel {
        let hash = match dedup {
            _ if self == Core::Free => Nanos::ZERO,
            DedupMode::None => Nanos::ZERO,
            DedupMode::Journal => self.hash_time(HashKind::Head64, 2 * SECTOR_BYTES),
            DedupMode::Strong(HashKind::Head64) | DedupMode::WojPaper(HashKind::Head64) => {
                self.hash_time(HashKind::Head64, 64)
            }
            DedupMode::Strong(hash) | DedupMode::WojPaper(hash) => self.hash_time(hash, SECTOR_BYTES),
            DedupMode::Ecc | DedupMode::EccPaper => self.unmask_time(),
        };
        CpuModel { hash, request: Nanos::ZERO }
    }
}

/// Contents of the disk before the replay. Both shares are of its size; these writes are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Precondition {
    /// This much is written, from the start, with contents that do not occur again.
    pub fill_share: f64,
    /// Then this much of it is overwritten at random places, so that garbage collection is active.
    pub overwrite_share: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashing_costs_what_table_1_says() {
        let ns = |core: Core, dedup| core.model(dedup).hash.0;
        assert_eq!(ns(Core::Host3GHz, DedupMode::Strong(HashKind::Sha1)), 8_309);
        assert_eq!(ns(Core::Controller1200MHz, DedupMode::Strong(HashKind::Sha256)), 49_321);
        assert_eq!(ns(Core::Controller400MHz, DedupMode::Strong(HashKind::Sha256)), 226_500 / 2);
        assert_eq!(ns(Core::Host3GHz, DedupMode::WojPaper(HashKind::Head64)), 11);
        assert_eq!(ns(Core::Host3GHz, DedupMode::Journal), 1_367);
        assert_eq!(ns(Core::Free, DedupMode::Journal) + ns(Core::Host3GHz, DedupMode::None), 0);
    }
}
