//! Verification of a whole store.

use crate::journal::{Area, AreaKind, Ending, LEVELS, Records, TableMeta};
use crate::lsm::core::Core;
use crate::lsm::keyspace::Keyspaces;
use crate::lsm::recover::state_of;
use crate::lsm::replay::read_logs;
use crate::lsm::table::{Library, Table};
use crate::lsm::version::Version;
use crate::manifest::{self, Current};
use crate::map::Verified;
use crate::media::Media;
use std::sync::Arc;
use vellum_base::{Error, Result};

impl Core {
    /// Reads every table twice, sequentially and through its index, and checks checksums, order, filters, counts and
    /// bounds. Also checks that tables of a level do not overlap, the logs, and that the manifest agrees with the
    /// current version.
    pub(crate) fn verify(&self) -> Result<Verified> {
        let mut seen = Verified::default();
        seen.note(self.verify_manifest())?;
        let store = Some(self.manifest.lock().store());
        for area in self.media.areas()?.into_iter().filter(|area| area.kind == AreaKind::Log) {
            // After the current end of the open log there may be zeros, and records being appended.
            let open = self.wal.lock().handed_over().filter(|(log, _)| *log == area.number);
            let result = verify_log(&*self.media, area, store, open.map(|(_, bytes)| bytes));
            // Logs below the floor are no longer needed, and may be removed meanwhile.
            if area.number >= self.state.lock().floors.log_floor {
                seen.logs += 1;
                seen.note(result)?;
            }
        }
        if self.options.read_only {
            seen.note_strict(self.verify_logs_strictly())?;
        }
        seen.problems.extend(self.media.problems());
        // Held, so that no table of it is erased meanwhile.
        let version = self.view.load().version.clone();
        let library = Library::without_cache(self.env.clone());
        for (level, tables) in version.levels.iter().enumerate() {
            seen.problems.extend(overlaps(&version, level));
            for table in tables {
                (seen.tables, seen.bytes) = (seen.tables + 1, seen.bytes + table.meta.bytes);
                let result = verify_table(&*self.media, &library, table, &version.keyspaces);
                seen.entries += if result.is_ok() { table.meta.entries } else { 0 };
                seen.note(result)?;
            }
        }
        Ok(seen)
    }
}

fn verify_table(
    media: &dyn Media,
    library: &Arc<Library>,
    table: &Table,
    keyspaces: &Keyspaces,
) -> Result<()> {
    Table::on(library, media, table.meta.clone())?.verify(|keyspace| keyspaces.knows(keyspace))
}

/// Neighbours in a sorted level may share one key, but not overlap further.
fn overlaps(version: &Version, level: usize) -> Vec<String> {
    let tables = if level == 0 { &[] } else { &version.levels[level][..] };
    let pairs = tables.windows(2).filter(|pair| pair[0].meta.largest > pair[1].meta.smallest);
    let say = |pair: &[Arc<Table>]| {
        format!("level {level}: tables {} and {} overlap", pair[0].meta.number, pair[1].meta.number)
    };
    pairs.map(say).collect()
}

/// As far as `bytes_max`, if that is said.
fn verify_log(media: &dyn Media, area: Area, store: Option<u64>, bytes_max: Option<u64>) -> Result<()> {
    let mut bytes = media.read_area(area)?;
    bytes.truncate(bytes_max.map_or(usize::MAX, |bytes| bytes as usize));
    let Some(mut records) = Records::open(area, store, &bytes)? else { return Ok(()) };
    while records.next()?.is_some() {}
    Ok(())
}

impl Core {
    /// An error if a log ends though something follows.
    fn verify_logs_strictly(&self) -> Result<()> {
        let Some(current) = Current::of(&*self.media)? else { return Ok(()) };
        let state = state_of(manifest::read(&*self.media, current)?)?;
        let how = (Some(current.store), Ending::Strict);
        read_logs(&*self.media, &self.media.areas()?, &state, how).map(drop)
    }

    /// Compares the manifest with the current version.
    fn verify_manifest(&self) -> Result<()> {
        let held = self.manifest.lock();
        let current = Current::of_store(&*self.media)?;
        let state = state_of(manifest::read(&*self.media, current)?)?;
        let version = self.view.load().version.clone();
        drop(held);
        for level in 0..LEVELS {
            let mut says: Vec<_> = state.levels[level].iter().collect();
            let mut is: Vec<_> = version.levels[level].iter().map(|table| &table.meta).collect();
            says.sort_by_key(|meta| meta.number);
            is.sort_by_key(|meta| meta.number);
            let agrees =
                |(says, is): (&&TableMeta, &&TableMeta)| says == is || **says == (*is).clone().brief();
            if says.len() != is.len() || !says.iter().zip(&is).all(agrees) {
                return Err(Error::corrupt(format!("the manifest says other things of level {level}")));
            }
        }
        Ok(())
    }
}
