//! A consistent copy of a store on another medium.

use crate::journal::{COMPARATOR, Edit, TableMeta};
use crate::key::Stamp;
use crate::lsm::compaction::TableSink;
use crate::lsm::core::{Core, View};
use crate::lsm::memtable::{Memtable, MemtableCursor};
use crate::lsm::merge::Stream;
use crate::lsm::store::Store;
use crate::lsm::table::{Table, TableStream};
use crate::manifest::Manifest;
use crate::media::{Intent, Media, Parallelism, TableWriter};
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering;
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
        whole.added.clear();
        for (level, tables) in view.version.levels.iter().enumerate() {
            for table in tables {
                let copies = core.copy_table(table, level, into)?;
                whole.added.extend(copies.into_iter().map(|meta| (level as u8, meta)));
            }
        }
        whole.added.extend(core.memtables_as_tables(&view, last_seq, into)?);
        whole.last_seq = Some(last_seq);
        whole.next_number = Some(core.next_number.load(Ordering::Relaxed));
        let mut manifest = Manifest::new(into.clone(), None, core.env.random(), COMPARATOR);
        manifest.append(&Edit::default(), || whole, || core.number())
    }
}

impl Core {
    /// Copies a table, into several where the other medium's are smaller.
    fn copy_table(&self, table: &Arc<Table>, level: usize, into: &Arc<dyn Media>) -> Result<Vec<TableMeta>> {
        let meta = &table.meta;
        if let Some(path) = self.media.table_path(meta.number)
            && into.adopt_table(meta.number, &path)?
        {
            return Ok(vec![meta.clone()]);
        }
        let writer = into.create_table(meta.number, INTENT)?;
        if meta.bytes > writer.capacity() {
            drop(writer);
            return self.split_table(table, level, into);
        }
        copy_bytes(table, writer).map(|()| vec![meta.clone()])
    }

    fn split_table(&self, table: &Arc<Table>, level: usize, into: &Arc<dyn Media>) -> Result<Vec<TableMeta>> {
        let mut entry = TableStream::new(table.clone(), IoClass::Background);
        let mut sink = TableSink::on(&**into, &self.next_number, &self.options, INTENT).for_level(level);
        entry.first()?;
        while entry.is_valid() {
            sink.add(entry.key(), entry.stamp(), entry.value())?;
            entry.next()?;
        }
        sink.finish()
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

fn copy_bytes(table: &Table, mut writer: Box<dyn TableWriter>) -> Result<()> {
    let (mut at, bytes) = (0, table.meta.bytes);
    while at < bytes {
        let mut piece = vec![0; COPY_BYTES.min((bytes - at) as usize)];
        table.read_raw(at, &mut piece)?;
        writer.append(&piece)?;
        at += piece.len() as u64;
    }
    writer.finish(0)
}
