//! A consistent copy of a store on another medium.

use crate::compaction::TableSink;
use crate::core::{Core, View};
use crate::journal::{Edit, TableMeta};
use crate::key::Stamp;
use crate::manifest::Manifest;
use crate::media::{Intent, Media, Parallelism};
use crate::memtable::{Memtable, MemtableCursor};
use crate::merge::Stream;
use crate::store::Store;
use crate::table::Table;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vellum_base::{Cause, Error, IoClass, Result};

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;
const INTENT: Intent =
    Intent { cause: Cause::Flush, class: IoClass::Background, parallelism: Parallelism::Full };

impl Store {
    /// Makes a store on `into`, which must be empty, that holds what this one holds now. Tables are linked where both
    /// are directories of one file system of the host, else copied. Writers and readers go on meanwhile. A checkpoint
    /// that was cut short is no store.
    pub fn checkpoint(&self, into: &Arc<dyn Media>) -> Result<()> {
        if into.current()?.is_some() || !into.tables()?.is_empty() || !into.areas()?.is_empty() {
            return Err(Error::invalid("a checkpoint goes where there is nothing yet"));
        }
        let core = &self.core;
        // With the lock held no batch is half there.
        let writer = core.writer.lock();
        let (view, last_seq) = (core.view.load_full(), writer.next_seq - 1);
        drop(writer);
        let mut whole = view.version.whole();
        for table in view.version.levels.iter().flatten() {
            core.copy_table(table, into)?;
        }
        whole.added.extend(core.memtables_as_tables(&view, last_seq, into)?);
        whole.last_seq = Some(last_seq);
        whole.next_number = Some(core.next_number.load(Ordering::Relaxed));
        let mut manifest = Manifest::new(into.clone(), None, core.env.random());
        manifest.append(&Edit::default(), || whole, || core.number())
    }
}

impl Core {
    fn copy_table(&self, table: &Table, into: &Arc<dyn Media>) -> Result<()> {
        let meta = &table.meta;
        if let Some(path) = self.media.table_path(meta.number)
            && into.adopt_table(meta.number, &path)?
        {
            return Ok(());
        }
        let mut writer = into.create_table(meta.number, INTENT)?;
        if meta.bytes > writer.capacity() {
            let (bytes, room) = (meta.bytes, writer.capacity());
            return Err(Error::invalid(format!("a table of {bytes} bytes; the other medium takes {room}")));
        }
        let mut at = 0;
        while at < meta.bytes {
            let mut bytes = vec![0; COPY_BYTES.min((meta.bytes - at) as usize)];
            table.read_raw(at, &mut bytes)?;
            writer.append(&bytes)?;
            at += bytes.len() as u64;
        }
        writer.finish(0)
    }

    /// Writes what the memtables hold up to `last_seq`.
    fn memtables_as_tables(
        &self,
        view: &View,
        last_seq: u64,
        into: &Arc<dyn Media>,
    ) -> Result<Vec<(u8, TableMeta)>> {
        let mut added = Vec::new();
        for memtable in std::iter::once(&view.active).chain(&view.frozen) {
            let tables = self.memtable_as_tables(memtable, Stamp::visible_at(last_seq), into)?;
            added.extend(tables.into_iter().map(|meta| (0, meta)));
        }
        Ok(added)
    }

    fn memtable_as_tables(
        &self,
        memtable: &Arc<Memtable>,
        visible: Stamp,
        into: &Arc<dyn Media>,
    ) -> Result<Vec<TableMeta>> {
        let mut entry = MemtableCursor::new(memtable.clone());
        let mut sink = TableSink::on(&**into, &self.next_number, &self.options, INTENT);
        entry.first()?;
        while entry.is_valid() {
            if entry.stamp() <= visible {
                sink.add(entry.key(), entry.stamp(), entry.value())?;
            }
            entry.next()?;
        }
        sink.finish()
    }
}
