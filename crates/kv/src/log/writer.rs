//! The path of a write: look up its keys, then log, open segment, index.
//!
//! Looking up keys may read the medium, so it is done before the lock is taken, and repeated with the lock only if the
//! index has changed.
//!
//! Invariants
//! 1. The open segment holds exactly the records of its logs.
//! 2. Every record states whether another key with the same hash existed when it was written. Only if one does can two
//!    records with one hash belong to two existing keys (`rebuild.rs`).
//! 3. While `moves` is held nobody else changes pointers of the index.

use super::core::Core;
use super::entry::{Entry, find_twins};
use super::index::Change;
use super::open_segment::OpenSegment;
use super::record::Record;
use super::segment::Segment;
use crate::batch::Batch;
use crate::durable::Durable;
use crate::key::EntryKind;
use crate::options::Durability;
use vellum_base::Result;
use vellum_base::sync::MutexGuard;
use vellum_base::sync::atomic::Ordering::Relaxed;

/// State that belongs to the task that writes.
pub(crate) struct Writer {
    pub next_seq: u64,
    pub open: Option<OpenSegment>,
}

impl Core {
    /// Applies a batch.
    pub(crate) fn write(&self, batch: &Batch, durability: Durability) -> Result<()> {
        self.state.check_writable()?;
        self.limits.check_batch(batch)?;
        self.env.charge(self.options.cpu.put);
        let mut entries = self.entries(batch);
        entries.iter_mut().try_for_each(|entry| self.look(entry))?;
        if !entries.iter().any(Entry::does_something) {
            return self.settle(durability);
        }
        let mut writer = self.writer.lock();
        let written = self.write_locked(&mut writer, entries, batch.only_deletes(), durability)?;
        drop(writer);
        let Some(upto) = written else { return self.settle(durability) };
        self.counts.user_bytes.fetch_add(batch.user_bytes() as u64, Relaxed);
        match durability {
            Durability::Sync => self.sync_upto(upto),
            _ => Ok(()),
        }
    }

    /// Returns up to where the log is to be synced for it; `None` if nothing is left to be done.
    fn write_locked(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        mut entries: Vec<Entry<'_>>,
        only_deletes: bool,
        durability: Durability,
    ) -> Result<Option<u64>> {
        let bytes = entries.iter().map(Entry::bytes).sum();
        self.make_room(writer, bytes, entries.len(), only_deletes)?;
        self.state.check_writable()?; // it may have failed since this one began
        let moves = self.moves.lock();
        self.look_again(&mut entries)?;
        // A batch may hold two keys whose hashes collide.
        if entries.len() > 1 {
            find_twins(&mut entries);
        }
        entries.retain(Entry::does_something);
        if entries.is_empty() {
            return Ok(None);
        }
        let mut payload = Vec::with_capacity(bytes);
        let mut changes = Vec::with_capacity(entries.len());
        let Writer { next_seq, open: Some(open) } = &mut **writer else { unreachable!("a segment is open") };
        let from = open.segment.data_bytes();
        for (at, entry) in entries.iter().enumerate() {
            let offset = from + payload.len() as u64;
            let (more, twin) = (at + 1 < entries.len(), entry.found.twin);
            Record { kind: entry.kind, key: entry.key, value: entry.value, more, twin }.write(&mut payload);
            let new = (entry.kind == EntryKind::Put).then(|| self.format.pointer(open.segment.slot, offset));
            changes.push(Change { hash: entry.hash, old: entry.found.record.map(|(old, _)| old), new });
        }
        let appended = self.with_room(|| self.wal.lock().append(&payload, *next_seq, durability));
        let upto = appended.map_err(|error| self.state.refused_or_poisoned(error))?;
        *next_seq += entries.len() as u64;
        open.records += entries.len() as u64;
        open.buffer.write().extend_from_slice(&payload);
        self.index.change_all(&changes);
        self.book(&open.segment, &entries)?;
        drop(moves);
        Ok(Some(upto))
    }

    /// Keeps account of what became garbage.
    fn book(&self, open: &Segment, entries: &[Entry<'_>]) -> Result<()> {
        let view = self.view.load();
        for entry in entries {
            let bytes = entry.bytes() as u64;
            match entry.kind {
                EntryKind::Put => open.account.live.fetch_add(bytes, Relaxed),
                EntryKind::Delete => open.account.deletes.fetch_add(bytes, Relaxed),
            };
            if let Some((old, bytes)) = entry.found.record {
                view.segment(self.format.slot(old))?.account.live.fetch_sub(bytes as u64, Relaxed);
            }
        }
        Ok(())
    }
}
