//! Derives the shape of the flash from the size of the disk.

use crate::config::Config;
use vellum_base::size::format_size;
use vellum_base::{Error, Geometry, Result, SECTOR_BYTES};
use vellum_disk::sectors_max;

/// Out-of-band bytes for each sector-sized slot of a page.
const OOB_BYTES_PER_SLOT: u32 = 32;
/// Pages per erase block of an ordinary disk; small ones have fewer, huge ones more.
const PAGES_PER_BLOCK: u32 = 256;
const PAGES_PER_BLOCK_MIN: u32 = 16;
const PAGES_PER_BLOCK_MAX: u32 = 1 << 16;
/// More erase blocks than this make tables long without improving collection.
const BLOCKS_MAX: u64 = 1 << 20;
/// The largest size that one root can list, with room for the nodes of the log (docs/formats/disk.md).
const SIZE_BYTES_MAX: u64 = 3 << 40;
/// Over-provisioning beyond this is considered a mistake.
const OVER_PROVISIONING_MAX: f64 = 10.0;

/// The geometry for `config`: room for the logical size and its over-provisioning, and for what a disk keeps in reserve
/// on each die.
///
/// ```
/// let geometry = vellum::shape::geometry(&vellum::Config::ram(1 << 30))?;
/// assert!(vellum::disk::sectors_max(&geometry, 0) * 4096 >= (1 << 30) * 112 / 100);
/// # Ok::<(), vellum::base::Error>(())
/// ```
pub fn geometry(config: &Config) -> Result<Geometry> {
    let sectors = sectors(config)?;
    let share = config.flash.over_provisioning.0;
    if !(0.0..=OVER_PROVISIONING_MAX).contains(&share) {
        return Err(Error::invalid(format!(
            "over-provisioning of {} is not possible: choose 0% to 1000%",
            config.flash.over_provisioning
        )));
    }
    let needed = (sectors as f64 * (1.0 + share)).ceil() as u64;
    let sizes = match config.flash.pages_per_block {
        Some(pages) => vec![pages],
        None => pages_per_block(needed * SECTOR_BYTES as u64 / config.flash.page.0.max(1)),
    };
    let mut found = None;
    for pages_per_block in sizes {
        let geometry = smallest(config, pages_per_block, needed)?;
        let reserve = geometry.slots() - needed.min(geometry.slots());
        found = Some(geometry);
        if reserve <= sectors / 8 {
            break; // blocks are small enough that the reserve is small relative to the disk
        }
    }
    Ok(found.expect("there is at least one block size to try"))
}

/// Block sizes to try for a disk of this many pages, best first.
fn pages_per_block(pages: u64) -> Vec<u32> {
    let mut size = PAGES_PER_BLOCK;
    while pages / u64::from(size) > BLOCKS_MAX && size < PAGES_PER_BLOCK_MAX {
        size *= 2;
    }
    if size > PAGES_PER_BLOCK {
        return vec![size];
    }
    std::iter::successors(Some(size), |size| Some(size / 2))
        .take_while(|size| *size >= PAGES_PER_BLOCK_MIN)
        .collect()
}

/// The logical size in sectors.
pub fn sectors(config: &Config) -> Result<u64> {
    let bytes = config.size.0;
    if bytes == 0 || !bytes.is_multiple_of(SECTOR_BYTES as u64) {
        return Err(Error::invalid(format!(
            "a disk of {} is not possible: the size must be a multiple of 4KiB and not zero",
            config.size.exact()
        )));
    }
    if bytes > SIZE_BYTES_MAX {
        let (asked, most) = (format_size(bytes), format_size(SIZE_BYTES_MAX));
        return Err(Error::invalid(format!("a disk of {asked} is too large: at most {most}")));
    }
    Ok(bytes / SECTOR_BYTES as u64)
}

/// The geometry with the fewest blocks per die into which `sectors` fit.
fn smallest(config: &Config, pages_per_block: u32, sectors: u64) -> Result<Geometry> {
    let flash = &config.flash;
    let page_bytes = u32::try_from(flash.page.0)
        .map_err(|_| Error::invalid(format!("a page of {} is too large: at most 64KiB", flash.page)))?;
    let with_blocks = |blocks_per_die: u32| Geometry {
        channels: flash.channels,
        dies_per_channel: flash.dies_per_channel,
        blocks_per_die,
        pages_per_block,
        page_bytes,
        oob_bytes: page_bytes / SECTOR_BYTES as u32 * OOB_BYTES_PER_SLOT,
    };
    with_blocks(1).validate()?;
    let fits = |blocks: u32| sectors_max(&with_blocks(blocks), 0) >= sectors;
    let row = u64::from(with_blocks(1).dies()) * u64::from(with_blocks(1).slots_per_block());
    // Using every slot would be too few; a few more rows are always enough.
    let mut blocks = u32::try_from(sectors.div_ceil(row)).unwrap_or(u32::MAX);
    with_blocks(blocks).validate()?;
    while !fits(blocks) {
        blocks += 1;
        with_blocks(blocks).validate()?;
    }
    Ok(with_blocks(blocks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Share, Size};

    #[test]
    fn every_size_fits_and_little_is_kept_in_reserve() {
        for bytes in [4096, 16 << 20, 64 << 20, 1 << 30, 16 << 30, 1 << 40, 3 << 40] {
            for share in [0.0, 0.07, 0.12] {
                let mut config = Config::ram(bytes);
                config.flash.over_provisioning = Share(share);
                let geometry = geometry(&config).unwrap();
                let most = sectors_max(&geometry, 0);
                assert!(most as f64 >= bytes as f64 / 4096.0 * (1.0 + share));
                if bytes >= 64 << 20 {
                    let raw = geometry.capacity_bytes() as f64 / bytes as f64;
                    assert!(raw < 1.16 + share, "{bytes} bytes take {raw} times the flash");
                    assert!(u64::from(geometry.blocks()) < 2 * BLOCKS_MAX);
                }
            }
        }
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let ok = Config::ram(1 << 30);
        let flash = |change: fn(&mut Config)| {
            let mut config = ok.clone();
            change(&mut config);
            geometry(&config)
        };
        assert!(geometry(&Config::ram(0)).is_err());
        assert!(geometry(&Config::ram(5000)).is_err());
        assert!(geometry(&Config::ram(1 << 60)).is_err());
        assert!(flash(|c| c.flash.channels = 0).is_err());
        assert!(flash(|c| c.flash.channels = u32::MAX).is_err());
        assert!(flash(|c| c.flash.page = Size(5000)).is_err());
        assert!(flash(|c| c.flash.page = Size(1 << 40)).is_err());
        assert!(flash(|c| c.flash.pages_per_block = Some(0)).is_err());
        assert!(flash(|c| c.flash.over_provisioning = Share(1e9)).is_err());
    }
}
