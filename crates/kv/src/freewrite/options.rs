//! Turns the options about reuse into what the medium can do.
//!
//! This is settled when a store is opened. If the medium refuses sharing for good later, no more bubbles are written
//! until the store is opened again.

use super::Caps;
use crate::media::{Media, MediaShape, Sharing};
use crate::options::Reuse;
use crate::reason;
use vellum_base::{Error, Kind, Result};

/// No file system or device below shares larger blocks.
pub(crate) const UNIT_BYTES_MAX: u64 = 64 << 10;
/// Fewest units of a table or segment. A leaf, its filter, index, root and foot take at least one each, a bubble of a
/// segment up to one, and most units should hold users' data.
const UNITS_MIN: u64 = 16;

/// Sizes of an engine's tables or segments, which bound its units.
#[derive(Clone, Copy)]
pub(crate) struct UnitBounds {
    /// Bytes of its smallest unit.
    pub unit_bytes_min: u64,
    /// Most bytes of a table or segment, according to the options.
    pub asked_bytes: u64,
    /// The same, bounded by the size of the medium.
    pub bytes: u64,
}

/// The options of an engine about reuse.
pub(crate) struct ReuseOptions {
    pub reuse: Reuse,
    pub caps: Caps,
    pub unit_bytes: Option<u64>,
    pub island_bytes_min: Option<u64>,
}

impl ReuseOptions {
    /// The options in force on this medium, and how it shares bytes. It is asked for that only if relinking is wanted.
    pub(crate) fn settle(
        self,
        media: &dyn Media,
        bounds: UnitBounds,
        read_only: bool,
    ) -> Result<(ReuseOptions, Sharing)> {
        self.caps.check()?;
        let unit_bytes = bounds.units(self.unit_bytes)?;
        let asks = matches!(self.reuse, Reuse::Relink | Reuse::Auto) && !read_only;
        let sharing = match if asks { media.sharing(unit_bytes) } else { Ok(Sharing::None) } {
            // There is no room to try sharing out: `Auto` does without it.
            Err(e) if self.reuse == Reuse::Auto && e.kind() == Kind::NoSpace => Sharing::None,
            found => found?,
        };
        let reuse = match (self.reuse, sharing) {
            (Reuse::Auto, Sharing::None) => Reuse::Off,
            (Reuse::Auto, _) => Reuse::Relink,
            // No device below profits from bubbles, and tables half full of them would leave no room for merges.
            (_, Sharing::None) if nobody_is_below(media) => Reuse::Off,
            (wanted, _) => wanted,
        };
        let island_bytes_min = self.island_bytes_min.unwrap_or(sharing.island_bytes_min());
        let settled = ReuseOptions {
            reuse,
            unit_bytes: Some(unit_bytes),
            island_bytes_min: Some(island_bytes_min),
            ..self
        };
        Ok((settled, sharing))
    }
}

impl UnitBounds {
    /// For tables of the medium's full size.
    pub(crate) fn of(shape: &MediaShape) -> UnitBounds {
        let bytes = shape.table_bytes;
        UnitBounds { unit_bytes_min: shape.unit_bytes, asked_bytes: bytes, bytes }
    }

    /// Bytes of a unit: the smallest by default, else as asked for, or fewer if the medium is too small for that.
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

/// The mode in force now: [`Reuse::Off`] once the medium has refused sharing for good.
pub(crate) fn in_force(reuse: Reuse, media: &dyn Media) -> Reuse {
    match reuse {
        Reuse::Relink if media.sharing_refused() => Reuse::Off,
        settled => settled,
    }
}

/// An error if `reuse` cannot work on this medium: [`Reuse::Relink`] where nothing can be shared in units of
/// `unit_bytes` ([`crate::Options::unit_bytes`]), or [`Reuse::Bubbles`] where no device below might deduplicate.
/// Opening a store does not fail for that reason: on files it writes bubbles all the same, on flash of its own it falls
/// back to [`Reuse::Off`]. Call this before a store is created, to refuse instead.
pub fn check_sharing(media: &dyn Media, reuse: Reuse, unit_bytes: Option<u64>) -> Result<()> {
    let unit_bytes = UnitBounds::of(&media.shape()).units(unit_bytes)?;
    let (what, reason) = match reuse {
        Reuse::Relink if media.sharing(unit_bytes)? == Sharing::None => {
            let what = "relink: nothing can be in two tables at once here, in units of";
            (format!("{what} {unit_bytes} bytes"), Some(reason::SHARES_NOTHING))
        }
        Reuse::Bubbles if nobody_is_below(media) => {
            let what = "bubbles: the flash is the store's own, and nothing below deduplicates; auto relinks where that is \
                        possible";
            (what.to_string(), None)
        }
        _ => return Ok(()),
    };
    Err(Error::new(Kind::Unsupported, what).because(reason))
}

/// True if tables are superblocks or zones that the store has for itself, so no device below might deduplicate.
fn nobody_is_below(media: &dyn Media) -> bool {
    media.shape().whole_tables
}
