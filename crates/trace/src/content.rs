//! Content of a written sector: enough to reproduce 4 KiB that behave like the real ones.
//!
//! Invariants:
//! 1. Equal contents in a trace are equal values here, whatever their class.
//! 2. Every value fills exactly one sector.

use crate::keep::keeps_bytes;
use std::sync::Arc;
use vellum_base::SECTOR_BYTES;
use vellum_codes::lines;
use vellum_codes::pattern::Pattern;
use xxhash_rust::xxh3::xxh3_64;

/// Content of a sector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Content {
    /// Zeros.
    Zero,
    /// A synthetic sector that keeps the equality structure of the real one (see [`Pattern`]).
    Pattern(Pattern),
    /// The real bytes.
    Verbatim(Verbatim),
}

impl Content {
    /// The real bytes of `sector`, unchanged.
    ///
    /// # Panics
    /// If `sector` is not 4096 bytes.
    pub fn verbatim(sector: &[u8]) -> Content {
        let mut packed = Vec::new();
        lines::pack(sector, &mut packed);
        Content::Verbatim(Verbatim { packed: packed.into() })
    }

    /// The content that a trace stores for `sector`: the real bytes if an engine may need to read them
    /// ([`crate::keep`]), otherwise a pattern made from hashes of the whole sector and of its first 64 bytes.
    ///
    /// # Panics
    /// If `sector` is not 4096 bytes.
    pub fn of_bytes(sector: &[u8]) -> Content {
        if vellum_codes::is_zero(sector) {
            return Content::Zero;
        }
        if let Some(pattern) = Pattern::recognise(sector) {
            return Content::Pattern(pattern);
        }
        if keeps_bytes(sector) {
            return Content::verbatim(sector);
        }
        let lines = lines::nonzero_lines(sector);
        let head = if lines & 1 == 1 { xxh3_64(&sector[..lines::LINE_BYTES]).max(1) } else { 0 };
        Content::Pattern(Pattern::new(xxh3_64(sector), head, lines))
    }

    /// The real bytes of `sector`, except that zeros become [`Content::Zero`].
    ///
    /// # Panics
    /// If `sector` is not 4096 bytes.
    pub fn all_bytes(sector: &[u8]) -> Content {
        if vellum_codes::is_zero(sector) { Content::Zero } else { Content::verbatim(sector) }
    }

    /// Writes the 4 KiB to `out`.
    ///
    /// # Panics
    /// If `out` is not 4096 bytes.
    pub fn fill(&self, out: &mut [u8]) {
        assert_eq!(out.len(), SECTOR_BYTES);
        match self {
            Content::Zero => out.fill(0),
            Content::Pattern(pattern) => pattern.fill(out),
            Content::Verbatim(bytes) => {
                lines::unpack(&bytes.packed, out).expect("a packed sector was checked when it was made");
            }
        }
    }
}

/// The real bytes of a sector, stored without its zero lines. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Verbatim {
    packed: Arc<[u8]>,
}

impl Verbatim {
    /// The packed form (`codes::lines`).
    pub fn packed(&self) -> &[u8] {
        &self.packed
    }

    /// Takes a packed sector from an untrusted source. `None` if it is not valid or not canonical (a zero line marked
    /// as non-zero would make equal sectors unequal).
    pub fn from_packed(packed: &[u8]) -> Option<Verbatim> {
        let mut sector = [0; SECTOR_BYTES];
        lines::unpack(packed, &mut sector).ok()?;
        let map = u64::from_le_bytes(*packed.first_chunk::<8>()?);
        (lines::nonzero_lines(&sector) == map).then(|| Verbatim { packed: packed.into() })
    }
}

/// Writes the bytes of several contents, one sector after the other.
pub fn fill_all(contents: &[Content], out: &mut Vec<u8>) {
    out.clear();
    out.resize(contents.len() * SECTOR_BYTES, 0);
    for (content, sector) in contents.iter().zip(out.chunks_exact_mut(SECTOR_BYTES)) {
        content.fill(sector);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_fills_a_sector() {
        let mut real = [0u8; SECTOR_BYTES];
        real[70] = 9;
        let contents =
            [Content::Zero, Content::Pattern(Pattern::unique(7)), Content::verbatim(&real), Content::Zero];
        let mut bytes = vec![0xAA; 3];
        fill_all(&contents, &mut bytes);
        assert_eq!(bytes.len(), 4 * SECTOR_BYTES);
        assert!(bytes[..4096].iter().all(|b| *b == 0) && bytes[12288..].iter().all(|b| *b == 0));
        assert_eq!(Pattern::recognise(&bytes[4096..8192]), Some(Pattern::unique(7)));
        assert_eq!(&bytes[8192..12288], &real);
    }

    #[test]
    fn only_the_one_true_packed_form_is_taken() {
        let mut good = 2u64.to_le_bytes().to_vec();
        good.extend([1; 64]);
        assert!(Verbatim::from_packed(&good).is_some());
        let mut zero_line = 2u64.to_le_bytes().to_vec();
        zero_line.extend([0; 64]);
        assert!(Verbatim::from_packed(&zero_line).is_none());
        assert!(Verbatim::from_packed(&good[..71]).is_none() && Verbatim::from_packed(&[]).is_none());
    }
}
