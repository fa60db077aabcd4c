//! Writing entries in order into as many tables as they need.

use crate::core::Core;
use crate::journal::TableMeta;
use crate::key::Stamp;
use crate::media::{Intent, Media, TableWriter};
use crate::options::{Compression, Options};
use crate::table::{Library, TableBuilder, UNIT_BYTES};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Error, Result};

/// Bytes handed to a writer at a time.
const CHUNK_BYTES: usize = 256 << 10;

/// See the module. Tables that were not handed out by [`TableSink::finish`] are given up when it is dropped.
pub(crate) struct TableSink<'a> {
    media: &'a dyn Media,
    /// Gives tables their numbers.
    numbers: &'a AtomicU64,
    options: &'a Options,
    /// Whose cache is warmed.
    library: Option<&'a Library>,
    /// Of an ingest ([`TableBuilder::ingesting`]).
    seq_floor: u64,
    compression: Compression,
    intent: Intent,
    open: Option<Open>,
    done: Vec<TableMeta>,
    finished: bool,
}

struct Open {
    number: u64,
    writer: Box<dyn TableWriter>,
    builder: TableBuilder,
}

impl<'a> TableSink<'a> {
    pub(crate) fn new(core: &'a Core, intent: Intent) -> TableSink<'a> {
        let mut sink = TableSink::on(&*core.media, &core.next_number, &core.options, intent);
        sink.library = Some(&core.library);
        sink
    }

    /// Writes to `media`.
    pub(crate) fn on(
        media: &'a dyn Media,
        numbers: &'a AtomicU64,
        options: &'a Options,
        intent: Intent,
    ) -> TableSink<'a> {
        let (open, done) = (None, Vec::new());
        let (library, compression) = (None, Compression::None);
        TableSink {
            media,
            numbers,
            options,
            library,
            seq_floor: 0,
            compression,
            intent,
            open,
            done,
            finished: false,
        }
    }

    /// Compresses as tables of `level` are.
    pub(crate) fn for_level(mut self, level: usize) -> TableSink<'a> {
        self.compression = self.options.compression[level];
        self
    }

    /// For entries that get their sequence number later, at least this.
    pub(crate) fn ingesting(mut self, seq_floor: u64) -> TableSink<'a> {
        self.seq_floor = seq_floor;
        self
    }

    /// Tables that are finished.
    pub(crate) fn done(&self) -> &[TableMeta] {
        &self.done
    }

    /// Bytes of the table being written, and how many it can have.
    pub(crate) fn fill(&self) -> Option<(u64, u64)> {
        self.open.as_ref().map(|open| (open.builder.bytes() as u64, open.writer.capacity()))
    }

    /// Clients read the entry that was added last, or what lies beside it.
    pub(crate) fn heat(&mut self) {
        if let Some(open) = &mut self.open {
            open.builder.heat();
        }
    }

    /// Adds the next entry.
    pub(crate) fn add(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) -> Result<()> {
        if let Some(open) = &self.open
            && open.builder.bytes_with(key, value) as u64 > open.writer.capacity()
        {
            self.cut()?;
        }
        if self.open.is_none() {
            let number = self.numbers.fetch_add(1, Relaxed);
            let writer = self.media.create_table(number, self.intent)?;
            let builder = TableBuilder::new(number, self.options.filter_bits_per_key)
                .ingesting(self.seq_floor)
                .packing(self.compression);
            self.open = Some(Open { number, writer, builder });
        }
        let open = self.open.as_mut().expect("just opened");
        if open.builder.is_empty() && open.builder.bytes_with(key, value) as u64 > open.writer.capacity() {
            return Err(Error::invalid("an entry is larger than a table"));
        }
        open.builder.add(key, stamp, value);
        if open.builder.pending().len() >= CHUNK_BYTES {
            open.hand_over(self.library)?;
        }
        Ok(())
    }

    /// Ends the table being written, so that the next entry begins another.
    pub(crate) fn cut(&mut self) -> Result<()> {
        let Some(Open { number, mut writer, builder }) = self.open.take() else { return Ok(()) };
        let finished = builder.finish();
        debug_assert!(finished.meta.bytes.is_multiple_of(UNIT_BYTES as u64));
        if let Some(library) = self.library {
            library.warm(number, finished.warm, &finished.tail, finished.tail_unit);
        }
        writer.append(&finished.tail)?;
        writer.finish()?;
        self.done.push(finished.meta);
        Ok(())
    }

    /// Ends the last table; all of them, in order.
    pub(crate) fn finish(mut self) -> Result<Vec<TableMeta>> {
        self.cut()?;
        self.finished = true;
        Ok(std::mem::take(&mut self.done))
    }
}

impl Open {
    fn hand_over(&mut self, library: Option<&Library>) -> Result<()> {
        let (pieces, first_unit) = self.builder.warm();
        if let Some(library) = library {
            library.warm(self.number, pieces, self.builder.pending(), first_unit);
        }
        self.writer.append(self.builder.pending())?;
        self.builder.taken();
        Ok(())
    }
}

impl Drop for TableSink<'_> {
    fn drop(&mut self) {
        if !self.finished {
            // What cannot be erased now is found and erased when the store is opened again.
            self.done.iter().for_each(|meta| drop(self.media.erase_table(meta.number)));
            if let Some(library) = self.library {
                let open = self.open.iter().map(|open| open.number);
                self.done.iter().map(|meta| meta.number).chain(open).for_each(|table| library.cool(table));
            }
        }
    }
}
