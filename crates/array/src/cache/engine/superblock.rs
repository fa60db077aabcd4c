//! The superblock of a cache: the array that it belongs to, and its layout (docs/formats/array.md).

use super::nvram::{HALF_BYTES_MAX, HALF_BYTES_MIN, Whose};
use super::options::CacheFormat;
use crate::cache::metalog::log_pages_min;
use crate::cache::policy::{Scheme, segment_pages};
use crate::cache::shape::SEGMENTS_MIN;
use crate::superblock::{Id, id_at, is_sealed, seal, u32_at, u64_at};
use vellum_base::size::format_size;
use vellum_base::{Error, Kind, Result, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"VLMCACHE";
const VERSION: u32 = 4;
/// The oldest version that is read: its deltas are not packed. Before version 4 pages have no checksums.
const VERSION_MIN: u32 = 2;
/// Most pages per set, and per segment.
pub(super) const WAYS_MAX: u32 = 1 << 14;
/// Most pages, so that with those in memory their numbers fit into 32 bits.
const PAGES_MAX: u32 = u32::MAX - 2 - (1 << 14);
/// Pages begin at a multiple of this many sectors: 1 MiB.
const ALIGNMENT: u64 = 256;
/// Share of the SSD that is used for the log (kdd.txt, IV.A).
const LOG_SHARE: f64 = 0.0059;

/// The superblock of a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSuperblock {
    /// The array that the cache belongs to.
    pub array: Id,
    /// Random; changes whenever the cache is emptied.
    pub tag: u64,
    /// The copy with the greater generation is valid.
    pub generation: u64,
    /// Random, chosen when the cache was opened or closed with the array. The array's superblocks have the same number
    /// as long as nothing has changed without the cache; while it is open, only if there is an NVRAM.
    pub bond: u64,
    /// The previous bond: members may still have it if the power was lost before they were updated.
    pub bond_before: u64,
    /// The policy.
    pub scheme: Scheme,
    /// The cache has an NVRAM.
    pub nvram: bool,
    /// Sectors of a half of the NVRAM; 0: as many as its device has room for.
    pub nvram_half: u32,
    /// The cache was closed: log and delta pages have its whole state.
    pub clean: bool,
    /// Layout of the SSD.
    pub plot: CachePlot,
    /// Bytes that may be written to the SSD per day; 0: no budget.
    pub budget: u64,
    /// What is left of the budget once all bytes counted in `written` are written; may be negative.
    pub budget_left: i64,
    /// Bytes written to the SSD; while it is in use, and after a crash, up to a step more.
    pub written: u64,
}

/// Layout of a cache's SSD, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachePlot {
    /// Pages per set; with segments, all pages.
    pub ways: u32,
    /// Pages per segment; 0: pages are written in place.
    pub segment_pages: u32,
    /// Number of pages, a multiple of `ways`.
    pub pages: u32,
    /// Pages of the metadata log, which begins at sector 1.
    pub log_pages: u32,
    /// Sector of page 0.
    pub data_start: u64,
    /// Used size of the SSD.
    pub ssd_sectors: u64,
}

impl CachePlot {
    /// First sector of the log.
    pub(super) const LOG: u64 = 1;

    /// Sector of a log page.
    pub(super) fn log_sector(&self, sequence: u64) -> u64 {
        CachePlot::LOG + sequence % u64::from(self.log_pages)
    }

    /// Divides an SSD that is written in place.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if it is too small.
    pub fn divide(ssd_sectors: u64, ways: u16) -> Result<CachePlot> {
        let most = ssd_sectors.min(u32::MAX.into()) as u32;
        let log_pages = log_pages_min(most).max((f64::from(most) * LOG_SHARE) as u32);
        let data_start = (CachePlot::LOG + u64::from(log_pages)).next_multiple_of(ALIGNMENT);
        let room = ssd_sectors.saturating_sub(data_start + 1).min(u64::from(PAGES_MAX)) as u32;
        let ways = u32::from(ways).min(room).max(1);
        let (pages, segment_pages) = (room / ways * ways, 0);
        let plot = CachePlot { ways, segment_pages, pages, log_pages, data_start, ssd_sectors };
        match plot.is_sound() {
            true => Ok(plot),
            false => Err(Error::invalid(format!(
                "an SSD of {} is too small for a cache: it needs {}KiB or more",
                format_size(ssd_sectors.saturating_mul(SECTOR_BYTES as u64)),
                ((data_start + 5) * SECTOR_BYTES as u64) >> 10
            ))),
        }
    }

    /// Divides an SSD that is written in segments, each of which begins at a multiple of its size.
    ///
    /// # Errors
    /// [`Kind::Invalid`] if it is too small.
    pub fn in_segments(ssd_sectors: u64, format: &CacheFormat) -> Result<CachePlot> {
        let plot = CachePlot::divide(ssd_sectors, 1)?;
        let segment_pages = format.segment_pages.unwrap_or_else(|| segment_pages(plot.pages));
        if segment_pages == 0 {
            return CachePlot::divide(ssd_sectors, format.ways);
        }
        let data_start = plot.data_start.next_multiple_of(segment_pages.into());
        let room = ssd_sectors.saturating_sub(data_start + 1).min(plot.pages.into()) as u32;
        let pages = room / segment_pages * segment_pages;
        let plot = CachePlot { ways: pages, segment_pages, pages, data_start, ..plot };
        match plot.is_sound() {
            true => Ok(plot),
            false => Err(Error::invalid(format!(
                "an SSD of {} is too small for a cache with segments of {}: it has at least {SEGMENTS_MIN}",
                format_size(ssd_sectors.saturating_mul(SECTOR_BYTES as u64)),
                format_size(u64::from(segment_pages) * SECTOR_BYTES as u64)
            ))),
        }
    }

    fn is_sound(&self) -> bool {
        let log_end = CachePlot::LOG + u64::from(self.log_pages);
        let is_divided = match self.segment_pages {
            0 => (1..=WAYS_MAX).contains(&self.ways),
            segment => self.ways == self.pages && segment <= WAYS_MAX && self.pages.is_multiple_of(segment),
        };
        (4..=PAGES_MAX).contains(&self.pages)
            && is_divided
            && self.segment_pages <= self.pages / SEGMENTS_MIN
            && self.pages.is_multiple_of(self.ways)
            && self.log_pages >= log_pages_min(self.pages)
            && self.data_start.is_multiple_of(ALIGNMENT)
            && self.data_start >= log_end
            && self.data_start.checked_add(u64::from(self.pages)).is_some_and(|end| end < self.ssd_sectors)
    }
}

impl CacheSuperblock {
    /// Identification of the cache in its NVRAM.
    pub(super) fn whose(&self) -> Whose {
        Whose { array: self.array, tag: self.tag }
    }

    /// Begins the next session. Members with the previous bond stay valid until they are updated.
    pub(super) fn begin_session(&mut self, bond: u64) {
        self.generation += 1;
        (self.bond_before, self.bond) = (self.bond, bond);
    }

    /// Encodes the superblock into a sector.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; SECTOR_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[12..16].copy_from_slice(&VERSION.to_le_bytes());
        out[16..32].copy_from_slice(&self.array);
        out[32..40].copy_from_slice(&self.tag.to_le_bytes());
        out[40..48].copy_from_slice(&self.generation.to_le_bytes());
        out[48..56].copy_from_slice(&self.bond.to_le_bytes());
        out[56] = number_of(self.scheme);
        out[57] = self.nvram.into();
        out[58] = self.clean.into();
        out[60..64].copy_from_slice(&self.plot.ways.to_le_bytes());
        out[64..68].copy_from_slice(&self.plot.pages.to_le_bytes());
        out[68..72].copy_from_slice(&self.plot.log_pages.to_le_bytes());
        out[72..80].copy_from_slice(&self.plot.data_start.to_le_bytes());
        out[80..88].copy_from_slice(&self.plot.ssd_sectors.to_le_bytes());
        out[88..96].copy_from_slice(&self.budget.to_le_bytes());
        out[96..104].copy_from_slice(&self.budget_left.to_le_bytes());
        out[104..112].copy_from_slice(&self.written.to_le_bytes());
        out[112..120].copy_from_slice(&self.bond_before.to_le_bytes());
        out[120..124].copy_from_slice(&self.plot.segment_pages.to_le_bytes());
        out[124..128].copy_from_slice(&self.nvram_half.to_le_bytes());
        seal(&mut out);
        out
    }

    /// Decodes a sector; the error says what is wrong with it.
    pub fn decode(sector: &[u8]) -> Result<CacheSuperblock> {
        if sector.len() != SECTOR_BYTES || &sector[..8] != MAGIC {
            return Err(Error::corrupt("it has no superblock of an array's cache"));
        }
        let version = u32_at(sector, 12);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            let why = format!(
                "its cache superblock has version {version}, this program knows {VERSION}: go on without it by force, \
                 and make it the array's cache anew"
            );
            return Err(Error::new(Kind::Unsupported, why));
        }
        if !is_sealed(sector) {
            return Err(Error::corrupt("the checksum of its cache superblock is wrong"));
        }
        CacheSuperblock::fields(sector).ok_or_else(|| Error::corrupt("its cache superblock makes no sense"))
    }

    fn fields(sector: &[u8]) -> Option<CacheSuperblock> {
        let plot = CachePlot {
            ways: u32_at(sector, 60),
            segment_pages: u32_at(sector, 120),
            pages: u32_at(sector, 64),
            log_pages: u32_at(sector, 68),
            data_start: u64_at(sector, 72),
            ssd_sectors: u64_at(sector, 80),
        };
        let scheme = Scheme::ALL.into_iter().find(|s| number_of(*s) == sector[56])?;
        let nvram_half = u32_at(sector, 124);
        let half_bytes = u64::from(nvram_half) * SECTOR_BYTES as u64;
        let is_sound = u64_at(sector, 40) < u64::MAX / 2
            && plot.is_sound()
            && scheme != Scheme::NoSsd
            && sector[57] < 2
            && (nvram_half == 0 || (HALF_BYTES_MIN..=HALF_BYTES_MAX).contains(&half_bytes))
            && sector[58] < 2;
        is_sound.then(|| CacheSuperblock {
            array: id_at(sector, 16),
            tag: u64_at(sector, 32),
            generation: u64_at(sector, 40),
            bond: u64_at(sector, 48),
            scheme,
            nvram: sector[57] == 1,
            nvram_half,
            clean: sector[58] == 1,
            plot,
            budget: u64_at(sector, 88),
            budget_left: u64_at(sector, 96) as i64,
            written: u64_at(sector, 104),
            bond_before: u64_at(sector, 112),
        })
    }
}

fn number_of(scheme: Scheme) -> u8 {
    match scheme {
        Scheme::NoSsd => 0,
        Scheme::WriteAround => 1,
        Scheme::WriteThrough => 2,
        Scheme::Leavo => 3,
        Scheme::KddPaper => 4,
        Scheme::Kdd => 5,
        Scheme::Larc => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> CacheSuperblock {
        CacheSuperblock {
            array: [7; 16],
            tag: 5,
            generation: 6,
            bond: 9,
            bond_before: 8,
            scheme: Scheme::Kdd,
            nvram: true,
            nvram_half: 64,
            clean: true,
            plot: CachePlot::in_segments(2000, &CacheFormat::new(Scheme::Kdd)).unwrap(),
            budget: 1 << 30,
            budget_left: -4096,
            written: 77 << 20,
        }
    }

    #[test]
    fn it_comes_back_as_it_was_and_no_bit_may_differ() {
        let stored = sample().encode();
        assert_eq!(CacheSuperblock::decode(&stored).unwrap(), sample());
        for byte in 0..128 {
            let mut wrong = stored.clone();
            wrong[byte] ^= 4;
            assert!(CacheSuperblock::decode(&wrong).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn a_cache_of_an_earlier_version_becomes_one_of_now() {
        let mut stored = sample().encode();
        for (version, is_known) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
            stored[12] = version;
            seal(&mut stored);
            let read = CacheSuperblock::decode(&stored);
            assert_eq!(read.as_ref().ok(), is_known.then(sample).as_ref(), "version {version}");
            assert!(is_known || read.unwrap_err().to_string().contains("this program knows 4"));
        }
    }

    #[test]
    fn an_ssd_is_divided_or_refused() {
        let plot = CachePlot::divide(1 << 20, 512).unwrap();
        assert!(plot.pages > (1 << 20) - 8000 && plot.data_start > u64::from(plot.log_pages), "{plot:?}");
        assert!(CachePlot::divide(260, 512).unwrap_err().to_string().contains("or more"));
        assert_eq!(CachePlot::divide(261, 512).unwrap().pages, 4);
        let huge = CachePlot::divide(1 << 40, 512).unwrap();
        assert!(huge.pages.is_multiple_of(512));
    }

    #[test]
    fn segments_begin_at_multiples_of_their_size_and_are_small_where_the_ssd_is() {
        let format = CacheFormat::new(Scheme::Kdd);
        let plot = CachePlot::in_segments(1 << 20, &format).unwrap();
        assert_eq!((plot.segment_pages, plot.ways), (512, plot.pages));
        assert!(plot.data_start.is_multiple_of(512) && plot.pages.is_multiple_of(512), "{plot:?}");
        let small = CachePlot::in_segments(256 + 200, &format).unwrap();
        assert_eq!((small.segment_pages, small.pages), (4, 196));
        let in_place = CachePlot::in_segments(256 + 101, &format).unwrap();
        assert_eq!((in_place.segment_pages, in_place.ways), (0, 100));
        let wanted = CacheFormat { segment_pages: Some(64), ..format };
        assert!(CachePlot::in_segments(400, &wanted).unwrap_err().to_string().contains("segments of 256KiB"));
    }
}
