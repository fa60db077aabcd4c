//! What is asked for, and what the medium makes of it.
//!
//! It is looked up when a store is opened. A medium may say later that it cannot after all; then nothing is left empty
//! for it any more until the store is opened again.

use super::Caps;
use crate::media::{Media, MediaShape, Sharing};
use crate::options::Reuse;
use vellum_base::{Error, Kind, Result};

/// Larger units would be larger than what anything below has in one piece.
pub(crate) const UNIT_BYTES_MAX: u64 = 64 << 10;
/// A table or segment has at least so many: of a table a leaf, its filter, index, root and foot are some, of a segment
/// a bubble is nearly one, and most is to be what users wrote.
const UNITS_MIN: u64 = 16;

/// What an engine writes in one go, as far as it says which units there may be.
#[derive(Clone, Copy)]
pub(crate) struct Extent {
    /// Bytes of its smallest unit.
    pub unit_bytes_min: u64,
    /// Most bytes of a table, or of a segment, as they are asked for.
    pub asked_bytes: u64,
    /// The same with the room that there is.
    pub bytes: u64,
}

/// What the options of an engine say.
pub(crate) struct Asked {
    pub reuse: Reuse,
    pub caps: Caps,
    pub unit_bytes: Option<u64>,
    pub island_bytes_min: Option<u64>,
}

impl Asked {
    /// What is done where the medium can share bytes in its way, which is looked up only if that is wanted.
    pub(crate) fn settle(
        self,
        media: &dyn Media,
        extent: Extent,
        read_only: bool,
    ) -> Result<(Asked, Sharing)> {
        self.caps.check()?;
        let unit_bytes = extent.units(self.unit_bytes)?;
        let asks = matches!(self.reuse, Reuse::Relink | Reuse::Auto) && !read_only;
        let sharing = match if asks { media.sharing(unit_bytes) } else { Ok(Sharing::None) } {
            // There is no room to try it out: what only may be done is not.
            Err(e) if self.reuse == Reuse::Auto && e.kind() == Kind::NoSpace => Sharing::None,
            found => found?,
        };
        let reuse = match (self.reuse, sharing) {
            (Reuse::Auto, Sharing::None) => Reuse::Off,
            (Reuse::Auto, _) => Reuse::Relink,
            // Bubbles would be for nobody, and tables half full of them leave no room for merges.
            (_, Sharing::None) if nobody_is_below(media) => Reuse::Off,
            (said, _) => said,
        };
        let island_bytes_min = self.island_bytes_min.unwrap_or(sharing.island_bytes_min());
        let settled =
            Asked { reuse, unit_bytes: Some(unit_bytes), island_bytes_min: Some(island_bytes_min), ..self };
        Ok((settled, sharing))
    }
}

impl Extent {
    /// Of tables that are as large as the medium has them.
    pub(crate) fn of(shape: &MediaShape) -> Extent {
        let bytes = shape.table_bytes;
        Extent { unit_bytes_min: shape.unit_bytes, asked_bytes: bytes, bytes }
    }

    /// Bytes of the units that something kept is made of: the smallest, or larger ones as they are asked for; less than
    /// these where there is little room.
    fn units(self, asked: Option<u64>) -> Result<u64> {
        let least = self.unit_bytes_min;
        let most = |bytes: u64| 1 << (bytes / UNITS_MIN).clamp(least, UNIT_BYTES_MAX).ilog2();
        let asked_max: u64 = most(self.asked_bytes);
        match asked {
            None => Ok(least),
            Some(bytes) if bytes.is_power_of_two() && (least..=asked_max).contains(&bytes) => {
                Ok(bytes.min(most(self.bytes)))
            }
            Some(bytes) => Err(Error::invalid(format!(
                "units of {bytes} bytes cannot be had here: a power of two from {least} to {asked_max} can (at most a \
                 sixteenth of a table or segment)"
            ))),
        }
    }
}

/// What is done now: nothing of what a medium has refused for good.
pub(crate) fn in_force(reuse: Reuse, media: &dyn Media) -> Reuse {
    match reuse {
        Reuse::Relink if media.sharing_refused() => Reuse::Off,
        settled => settled,
    }
}

/// An error where [`Reuse::Relink`] is asked for and nothing can be shared in units of so many bytes
/// ([`crate::Options::unit_bytes`]), or [`Reuse::Bubbles`] where no device is below that may deduplicate. A store
/// pads files for either anyway, and flash of its own for neither: whoever wants it refused asks this before anything
/// is made.
pub fn check_sharing(media: &dyn Media, reuse: Reuse, unit_bytes: Option<u64>) -> Result<()> {
    let unit_bytes = Extent::of(&media.shape()).units(unit_bytes)?;
    let what = match reuse {
        Reuse::Relink if media.sharing(unit_bytes)? == Sharing::None => {
            format!("relink: nothing can be in two tables at once here, in units of {unit_bytes} bytes")
        }
        Reuse::Bubbles if nobody_is_below(media) => {
            "bubbles: the flash is the store's own, and nothing below deduplicates; auto relinks where that is possible"
                .to_string()
        }
        _ => return Ok(()),
    };
    Err(Error::new(Kind::Unsupported, what))
}

/// True if tables are superblocks of flash that the store has for itself: no device is below that might deduplicate.
fn nobody_is_below(media: &dyn Media) -> bool {
    media.shape().whole_tables
}
