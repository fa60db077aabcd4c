//! Named devices: geometry, latencies, bandwidths and endurance, with the source of each figure.
//!
//! Figures that no source gives are chosen, and the preset's `source` says so. For the three Intel drives the paper
//! gives only the sequential throughput. Their geometry follows reviews and data sheets of the parts, and two figures
//! are fitted to the paper's: a channel transfers its share of the sequential read rate (`read / channels`: the
//! controller's limit is attributed to the channels), and a program takes `dies * page / write`. Both planes of a die
//! count as dies, since they program in parallel.

use crate::timing::Timing;
use vellum_base::{Error, Geometry, Nanos, Result};

/// A named device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// A short description.
    pub about: &'static str,
    /// The source of the figures, and which are chosen.
    pub source: &'static str,
    /// Its geometry at its nominal capacity.
    pub geometry: Geometry,
    /// Its latencies and channel bandwidth.
    pub timing: Timing,
    /// Bandwidth of the host link for reads.
    pub link_read_bytes_per_second: u64,
    /// Bandwidth of the host link for writes.
    pub link_write_bytes_per_second: u64,
    /// Bytes of NVRAM; 0 for none.
    pub nvram_bytes: usize,
    /// Pages per die of a write buffer protected by capacitors; 0 for none ([`crate::Timed::with_protected_buffer`]).
    pub protected_pages_per_die: u32,
    /// Rated erases of a block.
    pub endurance: u32,
}

impl Preset {
    /// The preset of this name, at its nominal capacity.
    pub fn by_name(name: &str) -> Result<Preset> {
        PRESETS.iter().find(|p| p.name == name).copied().ok_or_else(|| {
            let names: Vec<_> = PRESETS.iter().map(|p| p.name).collect();
            Error::invalid(format!("no preset '{name}'; there are {}", names.join(", ")))
        })
    }

    /// All presets.
    pub fn all() -> &'static [Preset] {
        &PRESETS
    }

    /// The same device with enough blocks per die to hold at least `bytes` (raw, without out-of-band bytes).
    pub fn with_capacity(mut self, bytes: u64) -> Result<Preset> {
        let row = self.geometry.block_bytes() * self.geometry.dies() as u64;
        let blocks = bytes.div_ceil(row).max(1);
        self.geometry.blocks_per_die = blocks.try_into().unwrap_or(u32::MAX);
        self.geometry.validate()?;
        Ok(self)
    }
}

/// The SSD simulated in ses-dedup.txt, Table II, with the latencies of one row of Table I.
const fn ses_dedup(
    name: &'static str,
    about: &'static str,
    read_ns: u64,
    program_ns: u64,
    endurance: u32,
) -> Preset {
    Preset {
        name,
        about,
        source: "ses-dedup.txt, Tables I and II: latencies, 8 packages of 8 planes of 256 blocks of 256 pages of \
                 8 KiB, erase 1.8 ms. Chosen: a channel for each package, planes as dies, 400 MB/s a channel, \
                 256 + 256 out-of-band bytes (the paper's parity, and as much for the FTL), SATA link, endurance",
        geometry: Geometry {
            channels: 8,
            dies_per_channel: 8,
            blocks_per_die: 256,
            pages_per_block: 256,
            page_bytes: 8192,
            oob_bytes: 512,
        },
        timing: Timing {
            read: Nanos(read_ns),
            program: Nanos(program_ns),
            erase: Nanos::from_us(1_800),
            suspend: SUSPEND,
            channel_bytes_per_second: 400_000_000,
        },
        link_read_bytes_per_second: 550_000_000,
        link_write_bytes_per_second: 550_000_000,
        nvram_bytes: 0,
        protected_pages_per_die: 0,
        endurance,
    }
}

/// Time to suspend and resume a program or an erase. Chosen: the order of magnitude of suspend latencies in TLC data
/// sheets.
const SUSPEND: Nanos = Nanos::from_us(20);

const PRESETS: [Preset; 8] = [
    ses_dedup("slc", "SLC drive of the SES-Dedup paper, 32 GiB", 23_400, 262_600, 100_000),
    ses_dedup("mlc-1", "faster MLC drive of the SES-Dedup paper, 32 GiB", 33_500, 390_000, 10_000),
    ses_dedup("mlc-2", "slower MLC drive of the SES-Dedup paper, 32 GiB", 43_300, 1_084_400, 3_000),
    Preset {
        name: "tlc-modern",
        about: "NVMe drive with 3D TLC, 8 channels, 512 GiB",
        source: "CAES data sheet UT81NDQ512G8T (Micron B17A 3D TLC): 16 KiB + 2208 byte pages, four planes a die, \
                 51 us snap read, 3000 erases a typical TLC rating. Chosen, for parts since: one-pass program \
                 650 us a page, erase 3.5 ms, 1200 MT/s, 256 out-of-band bytes left to the FTL, 1024 pages a \
                 block, PCIe 3.0 x4 link, 1 MiB of capacitor-backed memory",
        geometry: Geometry {
            channels: 8,
            dies_per_channel: 8,
            blocks_per_die: 512,
            pages_per_block: 1024,
            page_bytes: 16384,
            oob_bytes: 256,
        },
        timing: Timing {
            read: Nanos::from_us(51),
            program: Nanos::from_us(650),
            erase: Nanos::from_us(3_500),
            suspend: SUSPEND,
            channel_bytes_per_second: 1_200_000_000,
        },
        link_read_bytes_per_second: 3_500_000_000,
        link_write_bytes_per_second: 3_500_000_000,
        nvram_bytes: 1 << 20,
        protected_pages_per_die: 0,
        endurance: 3_000,
    },
    Preset {
        name: "open-channel-34",
        about: "open-channel board of the FlashKV paper, 34 channels",
        source: "flashkv.txt, Table 1: 34 channels, 256 pages of 8 KiB in a 2 MiB block, 94.62 MB/s read and \
                 13.4 MB/s write a channel (the latter fixes the program time), PCIe 2.0 x8. Chosen: one die a \
                 channel, 512 blocks (34 GiB), sense 50 us, erase 3 ms, 128 out-of-band bytes, 1 MiB of NVRAM \
                 (the paper's NVM zone for log and manifest), endurance",
        geometry: Geometry {
            channels: 34,
            dies_per_channel: 1,
            blocks_per_die: 512,
            pages_per_block: 256,
            page_bytes: 8192,
            oob_bytes: 128,
        },
        timing: Timing {
            read: Nanos::from_us(50),
            program: Nanos(611_343),
            erase: Nanos::from_ms(3),
            suspend: SUSPEND,
            channel_bytes_per_second: 94_620_000,
        },
        link_read_bytes_per_second: 4_000_000_000,
        link_write_bytes_per_second: 4_000_000_000,
        nvram_bytes: 1 << 20,
        protected_pages_per_die: 0,
        endurance: 3_000,
    },
    Preset {
        name: "intel-750",
        about: "fast SSD of the WOJ paper, 432 GiB raw",
        source: "woj.txt, Table 2: 2200 MB/s read, 900 MB/s write. Nine channels in the 400 GB model (Tom's \
                 Hardware); 20 nm MLC, 16 KiB pages, 512 a block, two planes, 3 ms erase, 3000 erases (Micron \
                 MT29F128G08CBECB). Chosen: three dies of 16 GiB a channel, sense 75 us, 256 out-of-band bytes. \
                 Power-loss protection (product specification); chosen: for 8 pages a die, and 1 MiB beside",
        geometry: Geometry {
            channels: 9,
            dies_per_channel: 6,
            blocks_per_die: 1024,
            pages_per_block: 512,
            page_bytes: 16384,
            oob_bytes: 256,
        },
        timing: Timing {
            read: Nanos::from_us(75),
            program: Nanos(983_040),
            erase: Nanos::from_ms(3),
            suspend: SUSPEND,
            channel_bytes_per_second: 248_262_000,
        },
        link_read_bytes_per_second: 2_200_000_000,
        link_write_bytes_per_second: 2_200_000_000,
        nvram_bytes: 1 << 20,
        protected_pages_per_die: 8,
        endurance: 3_000,
    },
    Preset {
        name: "intel-520",
        about: "moderate SSD of the WOJ paper, 256 GiB raw",
        source: "woj.txt, Table 2: 550 MB/s read, 520 MB/s write. Eight channels, 25 nm MLC (guru3d); 8 KiB pages, \
                 256 a block, two planes, 3 ms erase, 3000 erases (Micron MT29F64G08CBAB). The rated write speed \
                 holds for data its controller can compress: the program time is the effective one. Chosen: 32 \
                 dies of 8 GiB, sense 50 us, 128 out-of-band bytes",
        geometry: Geometry {
            channels: 8,
            dies_per_channel: 8,
            blocks_per_die: 2048,
            pages_per_block: 256,
            page_bytes: 8192,
            oob_bytes: 128,
        },
        timing: Timing {
            read: Nanos::from_us(50),
            program: Nanos(1_008_246),
            erase: Nanos::from_ms(3),
            suspend: SUSPEND,
            channel_bytes_per_second: 69_820_000,
        },
        link_read_bytes_per_second: 550_000_000,
        link_write_bytes_per_second: 550_000_000,
        nvram_bytes: 0,
        protected_pages_per_die: 0,
        endurance: 3_000,
    },
    Preset {
        name: "intel-x25m",
        about: "slow SSD of the WOJ paper, 80 GiB raw",
        source: "woj.txt, Table 2: 250 MB/s read, 70 MB/s write. Ten channels, twenty dies (Tom's Hardware). \
                 Chosen, as usual for 34 nm MLC: 4 KiB pages, 256 a block, sense 50 us, erase 2 ms, 5000 \
                 erases, 64 out-of-band bytes",
        geometry: Geometry {
            channels: 10,
            dies_per_channel: 2,
            blocks_per_die: 4096,
            pages_per_block: 256,
            page_bytes: 4096,
            oob_bytes: 64,
        },
        timing: Timing {
            read: Nanos::from_us(50),
            program: Nanos(1_170_286),
            erase: Nanos::from_ms(2),
            suspend: SUSPEND,
            channel_bytes_per_second: 25_390_000,
        },
        link_read_bytes_per_second: 250_000_000,
        link_write_bytes_per_second: 250_000_000,
        nvram_bytes: 0,
        protected_pages_per_die: 0,
        endurance: 5_000,
    },
];
