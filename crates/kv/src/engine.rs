//! Which engine a store is of. Its manifest remembers: whoever opens it need not be told.

use crate::journal::{AreaKind, Edit, UNORDERED};
use crate::log::{holds_records, is_segment};
use crate::manifest::{self, Current};
use crate::media::Media;
use vellum_base::Result;

/// The engines.
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

    /// The engine of the store on a medium; `None` if there is no store, or none yet.
    pub fn of(media: &dyn Media) -> Result<Option<Engine>> {
        let Some(current) = media.current()? else { return Ok(None) };
        manifest::read(media, Current::decode(&current)?).map(|edits| Some(Engine::said_by(&edits)))
    }

    /// The engine of a manifest with these edits.
    pub(crate) fn said_by(edits: &[Edit]) -> Engine {
        let is_log = edits.first().and_then(|first| first.comparator.as_deref()) == Some(UNORDERED);
        if is_log { Engine::Log } else { Engine::Lsm }
    }

    /// The engine of a store of which something is left on a medium: what is there is looked at, however damaged it is.
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
