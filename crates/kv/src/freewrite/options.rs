//! Options about reuse, and what the medium makes of them.
//!
//! This is settled when a store is opened. If the medium refuses sharing for good later, no more bubbles are written
//! until the store is opened again.

use super::Caps;
use crate::media::{Media, MediaShape, Sharing};
use crate::reason;
use vellum_base::{Error, Kind, Result};

/// No file system or device below shares larger blocks.
pub(crate) const UNIT_BYTES_MAX: u64 = 64 << 10;
/// Fewest units of a table or segment. A leaf, its filter, index, root and foot take at least one each, a bubble of a
/// segment up to one, and most units should hold users' data.
const UNITS_MIN: u64 = 16;

/// What merging and collecting do with data that they do not have to change, and what that may cost.
///
/// ```
/// use vellum_kv::{Options, Reuse};
/// let options = Options { reuse: Reuse::Relink.into(), ..Options::default() };
/// assert_eq!(options.reuse.unit_bytes, None);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct ReuseOptions {
    /// What they do with it.
    pub mode: Reuse,
    /// How much padding they may write for that.
    pub caps: Caps,
    /// Unit in bytes: leaves of new tables begin and end at multiples of it, and whole units of segments are kept. A
    /// power of two, at most 64 KiB and a sixteenth of a table; `None` is 4 KiB, or 64 bytes on flash that relinks. Set
    /// it to the block size of a file system that clones, or of a device below that deduplicates, if that is larger.
    /// Merges rewrite leaves of smaller units. It is an error if tables of this medium are never large enough for the
    /// unit; where they are too small only for want of room, a smaller unit is used.
    pub unit_bytes: Option<u64>,
    /// Shorter runs of unmodified bytes are rewritten, not shared. A larger value saves time where each sharing is a
    /// transaction of the file system; a smaller one saves wear. `None` for the default of the medium: 32 KiB with
    /// reflinks, else 0.
    pub island_bytes_min: Option<u64>,
}

impl From<Reuse> for ReuseOptions {
    /// With the caps and sizes that the mode has by default.
    fn from(mode: Reuse) -> ReuseOptions {
        ReuseOptions { mode, ..ReuseOptions::default() }
    }
}

/// What compaction does with leaves that it does not have to change (docs/decisions/0021).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reuse {
    /// Rewrites them, packed together with their neighbours.
    #[default]
    Off,
    /// Writes them byte for byte and aligned as before, so that a deduplicating device below recognises them. Where a
    /// bubble would exceed the caps, the whole island is rewritten (Freewrite, section 2). Acts as [`Reuse::Off`] where
    /// tables are superblocks of flash or zones: there no such device is below.
    Bubbles,
    /// Keeps them and tells the medium where they are stored already; it can then share the bytes between two tables
    /// instead of writing them. Where a bubble would exceed the caps, only one leaf more is rewritten, and the rest of
    /// the island judged again.
    Relink,
    /// [`Reuse::Relink`] where the medium can share bytes, else [`Reuse::Off`]. A device of another make that
    /// deduplicates cannot be detected: choose [`Reuse::Bubbles`] for it.
    Auto,
}

impl Reuse {
    /// Stable name, as in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Reuse::Off => "off",
            Reuse::Bubbles => "bubbles",
            Reuse::Relink => "relink",
            Reuse::Auto => "auto",
        }
    }
}

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
        let asks = matches!(self.mode, Reuse::Relink | Reuse::Auto) && !read_only;
        let sharing = match if asks { media.sharing(unit_bytes) } else { Ok(Sharing::None) } {
            // There is no room to try sharing out: `Auto` does without it.
            Err(e) if self.mode == Reuse::Auto && e.kind() == Kind::NoSpace => Sharing::None,
            found => found?,
        };
        let mode = match (self.mode, sharing) {
            (Reuse::Auto, Sharing::None) => Reuse::Off,
            (Reuse::Auto, _) => Reuse::Relink,
            // No device below profits from bubbles, and tables half full of them would leave no room for merges.
            (_, Sharing::None) if nobody_is_below(media) => Reuse::Off,
            (wanted, _) => wanted,
        };
        let island_bytes_min = self.island_bytes_min.unwrap_or(sharing.island_bytes_min());
        let settled = ReuseOptions {
            mode,
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

/// An error if these options cannot work on this medium: [`Reuse::Relink`] where nothing can be shared in units of
/// their size, or [`Reuse::Bubbles`] where no device below might deduplicate.
/// Opening a store does not fail for that reason: on files it writes bubbles all the same, on flash of its own it falls
/// back to [`Reuse::Off`]. Call this before a store is created, to refuse instead.
pub fn check_sharing(media: &dyn Media, reuse: &ReuseOptions) -> Result<()> {
    let unit_bytes = UnitBounds::of(&media.shape()).units(reuse.unit_bytes)?;
    let (what, reason) = match reuse.mode {
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
