//! The modelled device: a preset reduced to the size that the workload needs, and the host's link to it.

use super::mode::Mode;
use super::options::ReplayOptions;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Env, Nanos, Result, SECTOR_BYTES};
use vellum_disk::{CpuModel, Disk, Format, Options, sectors_max};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::{Preset, Timed};

/// Minimum erase blocks per die: with fewer, open and reserved blocks would be a large share.
const BLOCKS_PER_DIE_MIN: u32 = 64;
/// Minimum size of erase blocks.
const PAGES_PER_BLOCK_MIN: u32 = 16;
/// Size of the NVRAM, for devices that are given one.
const NVRAM_BYTES: usize = 1 << 20;

/// A preset reduced in size.
#[derive(Clone, Copy)]
pub(super) struct Sized {
    pub preset: Preset,
    /// How many times smaller than the preset's the erase blocks are.
    pub divisor: u32,
}

impl Sized {
    /// Gives each die as many blocks as `sectors` and `op_share` need. Small devices would have too few; they get
    /// smaller erase blocks, with erase times in proportion, so that the erase time per byte stays the same.
    pub(super) fn new(mut preset: Preset, sectors: u64, op_share: f64) -> Result<Sized> {
        let raw = (sectors as f64 * SECTOR_BYTES as f64 * (1.0 + op_share)).ceil() as u64;
        let blocks_for = |p: &Preset| raw.div_ceil(p.geometry.block_bytes() * u64::from(p.geometry.dies()));
        let mut divisor = 1;
        while blocks_for(&preset) < u64::from(BLOCKS_PER_DIE_MIN)
            && preset.geometry.pages_per_block.is_multiple_of(2)
            && preset.geometry.pages_per_block / 2 >= PAGES_PER_BLOCK_MIN
        {
            preset.geometry.pages_per_block /= 2;
            preset.timing.erase = Nanos(preset.timing.erase.0 / 2);
            divisor *= 2;
        }
        let mut preset = preset.with_capacity(raw)?;
        while sectors_max(&preset.geometry, 0) < sectors {
            preset.geometry.blocks_per_die += 1;
            preset.geometry.validate()?;
        }
        Ok(Sized { preset, divisor })
    }
}

/// A fresh disk on a fresh device.
pub(super) struct Device {
    pub disk: Disk,
    pub flash: Arc<Timed<Nand>>,
    pub read_link: Link,
    pub write_link: Link,
}

impl Device {
    /// Makes a device. Must be called in a task.
    pub(super) fn new(
        sized: &Sized,
        sectors: u64,
        mode: &Mode,
        options: &ReplayOptions,
        env: Arc<dyn Env>,
    ) -> Result<Device> {
        let preset = &sized.preset;
        let params = NandParams {
            seed: options.seed,
            endurance: preset.endurance,
            nvram_bytes: match mode.nvram {
                None => preset.nvram_bytes,
                Some(true) => preset.nvram_bytes.max(NVRAM_BYTES),
                Some(false) => 0,
            },
            ..NandParams::default()
        };
        let nand = Arc::new(Nand::ram(preset.geometry, params)?);
        let flash = Arc::new(
            Timed::new(nand, preset.timing, env.clone())
                .with_protected_buffer(preset.protected_pages_per_die),
        );
        let format = Format { dedup: mode.dedup, ..Format::new(sectors) };
        Disk::format(flash.clone(), env.clone(), &format)?;
        // A device with its own buffer completes a write when it is buffered: the disk needs no other buffer.
        let write_buffer_pages_per_die = match preset.protected_pages_per_die {
            0 => Options::default().write_buffer_pages_per_die,
            _ => 0,
        };
        let disk_options = Options {
            write_buffer_pages_per_die,
            pack: Some(mode.pack),
            elide: mode.elide,
            unverified: !mode.verify,
            journals: options.journals.clone(),
            rated_erases: preset.endurance,
            cpu: cpu(mode, options),
            dedup_when: options.search.when,
            dedup_table_share: options.search.table_share,
            dedup_core_share: options.search.core_share,
            dedup_wait_max: options.search.wait_max,
            ..Options::default()
        };
        Ok(Device {
            disk: Disk::open(flash.clone(), env, disk_options)?,
            flash,
            read_link: Link::new(preset.link_read_bytes_per_second),
            write_link: Link::new(preset.link_write_bytes_per_second),
        })
    }
}

fn cpu(mode: &Mode, options: &ReplayOptions) -> CpuModel {
    let model = options.core.model(mode.dedup);
    match options.search.fingerprint {
        Some(hash) if mode.dedup.uses_parity() => CpuModel { hash, ..model },
        _ => model,
    }
}

/// One direction of the host's link: transfers one request after another.
pub(super) struct Link {
    bytes_per_second: u64,
    busy_until: Mutex<Nanos>,
}

impl Link {
    fn new(bytes_per_second: u64) -> Link {
        Link { bytes_per_second, busy_until: Mutex::new(Nanos::ZERO) }
    }

    /// Returns when the bytes have been transferred.
    pub(super) fn cross(&self, env: &dyn Env, bytes: u64) {
        let done = {
            let mut busy_until = self.busy_until.lock();
            *busy_until = (*busy_until).max(env.now()) + Nanos::transfer(bytes, self.bytes_per_second);
            *busy_until
        };
        env.sleep_until(done);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_fit_and_keep_their_shape() {
        for preset in Preset::all() {
            for sectors in [1, 1000, 1 << 18, 1 << 22] {
                let sized = Sized::new(*preset, sectors, 0.12).unwrap();
                let g = sized.preset.geometry;
                assert!(sectors_max(&g, 0) >= sectors, "{} {sectors}", preset.name);
                assert_eq!(g.dies(), preset.geometry.dies());
                assert_eq!(g.pages_per_block * sized.divisor, preset.geometry.pages_per_block);
                let erase = sized.preset.timing.erase.0 * u64::from(sized.divisor);
                assert!(preset.timing.erase.0 - erase < u64::from(sized.divisor));
                if sectors == 1 << 22 {
                    let share = g.slots() as f64 / sectors as f64;
                    assert!((1.12..1.16).contains(&share), "{} {share}", preset.name);
                }
            }
        }
    }
}
