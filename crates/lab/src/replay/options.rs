//! How a replay is set up.

use super::Mode;
use std::ops::Range;
use vellum_base::{Lba, Nanos, SECTOR_BYTES};
use vellum_codes::HashKind;
use vellum_disk::{CpuModel, DedupMode, DedupWhen};
use vellum_media::Preset;
use vellum_trace::models::ContentModel;
use vellum_trace::{ByteLen, DeviceId};

/// Which flash device `replay` takes if none is named.
pub const DEFAULT_PRESET: &str = "tlc-modern";

/// How a replay is set up.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// What is compared, one run each.
    pub modes: Vec<Mode>,
    /// The flash device; it is made as large as the trace and `op_share` need.
    pub preset: Preset,
    /// Over-provisioning: raw flash beyond the logical size, as a share of the logical size.
    pub op_share: f64,
    /// Decides everything random.
    pub seed: u64,
    /// When requests are issued.
    pub pace: Pace,
    /// Which core computes fingerprints.
    pub core: Core,
    /// What becomes of the devices of a multi-device trace.
    pub devices: Devices,
    /// Logical size; `None`: what the trace says, or needs.
    pub device_bytes: Option<ByteLen>,
    /// Where the journals lie, if the host names them; `None`: they are found by reading the disk.
    pub journals: Option<Vec<Range<Lba>>>,
    /// Contents of writes for which the trace has none.
    pub contents: ContentModel,
    /// What the disk holds before the replay.
    pub precondition: Precondition,
    /// How `ecc` and `ecc-paper` look for copies.
    pub search: Search,
}

/// How the modes that fingerprint by parity look for copies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Search {
    /// While a sector is written, later or both. Later is after the replay, and only with `scan_after`.
    pub when: DedupWhen,
    /// Entries of the fingerprint table, as a share of the sectors.
    pub table_share: f64,
    /// Share of a core that looking while writing may take, where it is limited (`both`).
    pub core_share: f64,
    /// A write waits no longer for what it is compared with, where it is limited.
    pub wait_max: Nanos,
    /// What fingerprinting a sector takes, instead of what the core needs for parity.
    pub fingerprint: Option<Nanos>,
    /// After the replay everything is compared with everything, as `disk scrub --dedup` does.
    pub scan_after: bool,
}

impl Default for Search {
    /// All in-line: what a table catches, and what that costs.
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
    /// `modes` on `preset` with 12 % over-provisioning, 32 requests at a time, the paper's 3 GHz core, an empty
    /// disk.
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

/// What becomes of the devices of a multi-device trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Devices {
    /// The trace has one; a second is an error that says what to choose.
    #[default]
    Single,
    /// Only requests of this one are replayed.
    Only(DeviceId),
    /// All lie side by side on the disk.
    SideBySide,
}

/// When requests are issued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As fast as the disk takes them, `queue_depth` at a time, in the order of the trace. A flush, and a write with
    /// FUA, waits for all before it and holds back all behind it, as for one thread that syncs.
    Closed {
        /// Requests at a time.
        queue_depth: u32,
    },
    /// At the times of the trace, `speed` times as fast. A flush waits for the writes before it. Latency counts from
    /// the time of the trace.
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
    /// The same at 1.2 GHz: the paper's stand-in for a controller's core.
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

    /// MiB/s of a hash over whole sectors. BLAKE3 is not in the table: SHA-1's rate stands for it.
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

    /// Undoing the scrambler in a sector's parity: 14.5 us for 8 KiB at 400 MHz (ses-dedup.txt, section V.A), and in
    /// proportion on faster cores. The parity itself the drive computes anyway.
    fn unmask_time(self) -> Nanos {
        let mhz = match self {
            Core::Host3GHz => 3000.0,
            Core::Controller400MHz => 400.0,
            Core::Controller1200MHz | Core::Free => 1200.0,
        };
        Nanos((14_500.0 * SECTOR_BYTES as f64 / 8192.0 * 400.0 / mhz).round() as u64)
    }

    /// What a mode costs for each sector it fingerprints. `journal` is charged xxHash over the whole sector, and the
    /// same again for the byte compare, whether one is needed or not.
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

/// What the disk holds before the replay. Both are shares of its size; what they write is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Precondition {
    /// This much is written, from the start, with contents that never come again.
    pub fill_share: f64,
    /// Then this much of it is overwritten at random places, so that garbage collection is at work.
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
