//! What is asked for, and what the medium makes of it.
//!
//! It is looked up when a store is opened. A medium may say later that it cannot after all; then nothing is left empty
//! for it any more until the store is opened again.

use super::Caps;
use crate::media::{Media, Sharing};
use crate::options::Reuse;
use vellum_base::{Error, Kind, Result};

/// Larger units would be larger than what anything below has in one piece.
pub(crate) const UNIT_BYTES_MAX: u64 = 64 << 10;
/// A table has at least so many: a leaf, its filter, index, root and foot, and some to spare.
const UNITS_MIN: u64 = 16;

/// What the options of an engine say.
pub(crate) struct Asked {
    pub reuse: Reuse,
    pub caps: Caps,
    pub unit_bytes: Option<u64>,
    pub island_bytes_min: Option<u64>,
}

impl Asked {
    /// What is done where the medium can share bytes in its way, which is looked up only if that is wanted.
    pub(crate) fn settle(self, media: &dyn Media, read_only: bool) -> Result<(Asked, Sharing)> {
        self.caps.check()?;
        let unit_bytes = units(media, self.unit_bytes)?;
        let asks = matches!(self.reuse, Reuse::Relink | Reuse::Auto) && !read_only;
        let sharing = match if asks { media.sharing(unit_bytes) } else { Ok(Sharing::None) } {
            // There is no room to try it out: what only may be done is not.
            Err(e) if self.reuse == Reuse::Auto && e.kind() == Kind::NoSpace => Sharing::None,
            found => found?,
        };
        let reuse = match (self.reuse, sharing) {
            (Reuse::Auto, Sharing::None) => Reuse::Off,
            (Reuse::Auto, _) => Reuse::Relink,
            (said, _) => said,
        };
        let island_bytes_min = self.island_bytes_min.unwrap_or(sharing.island_bytes_min());
        Ok((Asked { reuse, island_bytes_min: Some(island_bytes_min), ..self }, sharing))
    }
}

/// Bytes of the units that something kept is made of: those of the medium, or larger ones.
fn units(media: &dyn Media, asked: Option<u64>) -> Result<u64> {
    let shape = media.shape();
    let (least, most) = (shape.unit_bytes, UNIT_BYTES_MAX.min(shape.table_bytes / UNITS_MIN));
    match asked {
        None => Ok(least),
        Some(bytes) if bytes.is_power_of_two() && (least..=most).contains(&bytes) => Ok(bytes),
        Some(bytes) => Err(Error::invalid(format!(
            "units of {bytes} bytes cannot be had here: a power of two from {least} to {most} can"
        ))),
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
/// ([`crate::Options::unit_bytes`]). A store pads for it anyway: whoever wants it refused asks this before anything is
/// made.
pub fn check_sharing(media: &dyn Media, reuse: Reuse, unit_bytes: Option<u64>) -> Result<()> {
    let unit_bytes = units(media, unit_bytes)?;
    match reuse == Reuse::Relink && media.sharing(unit_bytes)? == Sharing::None {
        true => Err(Error::new(Kind::Unsupported, "relink: nothing can be in two tables at once here")),
        false => Ok(()),
    }
}
