//! Checkpoints: a consistent copy of a store on another medium. Tables are linked or copied, memtables are written as
//! tables. The manifest comes last: without it there is no store.

use crate::journal::{Area, COMPARATOR, Edit, Previous, TableMeta, Wal};
use crate::key::Stamp;
use crate::lsm::compaction::{Sweep, TableSink};
use crate::lsm::core::{Core, View};
use crate::lsm::kept_log::KeptLog;
use crate::lsm::memtable::{Memtable, MemtableCursor};
use crate::lsm::merge::Stream;
use crate::lsm::table::{Table, TableStream};
use crate::lsm::version::Version;
use crate::manifest::Manifest;
use crate::media::{AreaWriter, Intent, Media, check_empty, copy};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering;
use vellum_base::{IoClass, Result};

impl Core {
    /// See [`crate::Map::checkpoint`].
    pub(crate) fn checkpoint(&self, into: &Arc<dyn Media>) -> Result<()> {
        check_empty(&**into)?;
        // With the lock held no batch is partly applied.
        let writer = self.writer.lock();
        let (view, last_seq) = (self.view.load_full(), writer.next_seq - 1);
        drop(writer);
        let mut whole = view.version.whole();
        whole.added.clear();
        if into.keeps_areas() {
            self.copy_logs(&view.version, into)?;
        }
        for (level, tables) in view.version.levels.iter().enumerate() {
            for table in tables {
                let copies = self.copy_table(table, level, into)?;
                whole.added.extend(copies.into_iter().map(|meta| (level as u8, meta)));
            }
        }
        whole.added.extend(self.memtables_as_tables(&view, last_seq, into)?);
        whole.last_seq = Some(last_seq);
        // An empty log, from which on logs are replayed. Those that tables point into must never be, even after the
        // tables are gone.
        let (store, log) = (self.env.random(), self.number());
        Wal::new(store, Previous::default(), None).begin(&**into, log, last_seq + 1)?;
        whole.log_floor = Some(log);
        whole.next_number = Some(self.next_number.load(Ordering::Relaxed));
        let mut manifest = Manifest::new(into.clone(), store, COMPARATOR, None);
        manifest.append(&Edit::default(), || whole, || self.number())
    }

    /// Copies the logs that tables point into.
    fn copy_logs(&self, version: &Version, into: &Arc<dyn Media>) -> Result<()> {
        let logs: BTreeMap<u64, &Arc<KeptLog>> = version.logs().map(|log| (log.number, log)).collect();
        logs.into_values().try_for_each(|log| {
            let area = Area::log(log.number);
            match self.media.area_path(area) {
                Some(path) if into.adopt_area(area, &path)? => Ok(()),
                _ => copy_log(log, &*into.create_area(area)?),
            }
        })
    }

    /// Copies a table. It is rewritten, perhaps as several, if the other medium has smaller tables or larger units, or
    /// cannot keep the logs that it points into.
    fn copy_table(&self, table: &Arc<Table>, level: usize, into: &Arc<dyn Media>) -> Result<Vec<TableMeta>> {
        let meta = &table.meta;
        if meta.points() && !into.keeps_areas() {
            return self.split_table(table, level, into);
        }
        if let Some(path) = self.media.table_path(meta.number)
            && into.adopt_table(meta.number, &path)?
        {
            return Ok(vec![meta.clone()]);
        }
        if !(table.unit_bytes as u64).is_multiple_of(into.shape().unit_bytes) {
            return self.split_table(table, level, into);
        }
        let mut writer = into.create_table(meta.number, Intent::COPY)?;
        if meta.bytes > writer.capacity() {
            drop(writer);
            return self.split_table(table, level, into);
        }
        copy(meta.bytes, |at, piece| table.read_raw(at, piece), |_, piece| writer.append(piece))?;
        writer.finish(0).map(|()| vec![meta.clone()])
    }

    fn split_table(&self, table: &Arc<Table>, level: usize, into: &Arc<dyn Media>) -> Result<Vec<TableMeta>> {
        let mut entry = TableStream::new(table.clone(), IoClass::Background);
        let mut sink =
            TableSink::on(&**into, &self.next_number, &self.options, Intent::COPY).for_level(level);
        entry.first()?;
        while entry.is_valid() {
            entry.load()?;
            sink.add(entry.key(), entry.stamp(), entry.value())?;
            entry.next()?;
        }
        sink.finish()
    }

    /// Writes the entries of the memtables up to `last_seq` as tables.
    fn memtables_as_tables(
        &self,
        view: &View,
        last_seq: u64,
        into: &Arc<dyn Media>,
    ) -> Result<Vec<(u8, TableMeta)>> {
        let mut added = Vec::new();
        for memtable in std::iter::once(&view.active).chain(&view.frozen) {
            let dead = view.version.keyspaces.dead().collect();
            let tables = self.memtable_as_tables(memtable, Stamp::visible_at(last_seq), dead, into)?;
            added.extend(tables.into_iter().map(|meta| (0, meta)));
        }
        Ok(added)
    }

    fn memtable_as_tables(
        &self,
        memtable: &Arc<Memtable>,
        visible: Stamp,
        dead: Vec<u8>,
        into: &Arc<dyn Media>,
    ) -> Result<Vec<TableMeta>> {
        let mut entry = MemtableCursor::new(memtable.clone());
        // Only the newest version of each key: the copy has no snapshots.
        let mut sweep = Sweep::new(Vec::new(), dead);
        let mut sink = TableSink::on(&**into, &self.next_number, &self.options, Intent::COPY);
        entry.first()?;
        while entry.is_valid() {
            if entry.stamp() <= visible && sweep.keeps(entry.key(), entry.stamp(), || false) {
                sink.add(entry.key(), entry.stamp(), entry.value())?;
            }
            entry.next()?;
        }
        sink.finish()
    }
}

fn copy_log(log: &KeptLog, to: &dyn AreaWriter) -> Result<()> {
    copy(log.bytes, |at, piece| log.read(at, piece), |at, piece| to.append(at, piece))?;
    to.sync()
}
