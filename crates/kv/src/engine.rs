//! Which engine a store belongs to. The manifest records it, so callers need not know it to open a store.

use crate::journal::{AreaKind, Edit, UNORDERED};
use crate::log::{holds_records, is_segment};
use crate::manifest::{self, Current};
use crate::media::Media;
use vellum_base::Result;

/// The two engines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// Ordered: [`crate::Store`].
    #[default]
    Lsm,
    /// Without order: [`crate::log::Store`].
    Log,
}

impl Engine {
    /// Stable name, as on the command line and in `--json`.
    pub const fn name(self) -> &'static str {
        match self {
            Engine::Lsm => "lsm",
            Engine::Log => "log",
        }
    }

    /// The engine of the store on a medium; `None` if there is no store.
    pub fn of(media: &dyn Media) -> Result<Option<Engine>> {
        let Some(current) = Current::of(media)? else { return Ok(None) };
        manifest::read(media, current).map(|edits| Some(Engine::of_edits(&edits)))
    }

    /// The engine of a manifest with these edits.
    pub(crate) fn of_edits(edits: &[Edit]) -> Engine {
        let is_log = edits.first().and_then(|first| first.comparator.as_deref()) == Some(UNORDERED);
        if is_log { Engine::Log } else { Engine::Lsm }
    }

    /// The engine of the possibly damaged store on a medium, guessed from whatever can still be read; `None` if the
    /// medium is empty.
    pub fn of_remains(media: &dyn Media) -> Result<Option<Engine>> {
        let (areas, tables) = (media.areas()?, media.tables()?);
        if areas.is_empty() && tables.is_empty() {
            return Ok(None);
        }
        let manifests = areas.iter().filter(|area| area.kind == AreaKind::Manifest);
        let store = manifest::store_of_remains(media, &areas)?;
        let edits = manifests.map(|area| manifest::read_what_can_be(media, area.number, store));
        let edits: Vec<Edit> = edits.collect::<Result<Vec<_>>>()?.concat();
        let is_of_log =
            |edit: &Edit| edit.comparator.as_deref() == Some(UNORDERED) || !edit.segments.is_empty();
        // A small store has nothing but logs.
        let mut logs = areas.iter().filter(|area| area.kind == AreaKind::Log);
        let is_log = edits.iter().any(is_of_log)
            || tables.iter().any(|table| is_segment(media, *table))
            || edits.iter().all(|edit| edit.comparator.is_none())
                && logs.any(|log| holds_records(media, *log, store));
        Ok(Some(if is_log { Engine::Log } else { Engine::Lsm }))
    }
}
