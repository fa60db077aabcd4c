//! A consistent copy of a log store on another medium.

use super::core::Core;
use super::segment::{Home, Segment};
use super::store::Store;
use crate::journal::{Edit, SegmentMeta, UNORDERED};
use crate::manifest::Manifest;
use crate::media::{Intent, Media, Parallelism};
use std::sync::Arc;
use vellum_base::{Cause, Error, IoClass, Kind, Result};

/// Bytes copied at a time.
const COPY_BYTES: u64 = 1 << 20;
const INTENT: Intent =
    Intent { cause: Cause::Flush, class: IoClass::Background, parallelism: Parallelism::Full };

impl Store {
    /// Makes a store on `into`, which must be empty, that holds what this one holds now, or a little later. Tables are
    /// linked where both are directories of one file system of the host, else copied. Readers go on meanwhile; writers
    /// wait for what was written before to become a segment, and then go on, too. A checkpoint that was cut short is no
    /// store.
    pub fn checkpoint(&self, into: &Arc<dyn Media>) -> Result<()> {
        if into.current()?.is_some() || !into.tables()?.is_empty() || !into.areas()?.is_empty() {
            return Err(Error::invalid("a checkpoint goes where there is nothing yet"));
        }
        let core = &self.core;
        let (metas, view) = {
            // Nobody writes from the flush until it is known what is to be copied. Else a key that is overwritten
            // meanwhile could be missing: its new record is not in a table yet, and its old one may be collected.
            let mut writer = core.writer.lock();
            core.flush_locked(&mut writer)?;
            core.wait_for_seals()?;
            // With the lock held, what the manifest says is in the view.
            let told = core.manifest.lock();
            (told.segments.clone(), core.view.load_full())
        };
        for meta in &metas {
            let segment = view.segments.iter().flatten().find(|segment| segment.meta() == Some(meta));
            let segment = segment.ok_or_else(|| Error::corrupt("a segment of the manifest is not open"))?;
            core.copy(segment, meta, into)?;
        }
        let whole = || Edit {
            segments: metas.clone(),
            seed: Some(core.seed),
            next_number: Some(core.number()),
            last_seq: Some(core.state.lock().last_seq),
            ..Edit::default()
        };
        let mut manifest = Manifest::new(into.clone(), None, core.env.random(), UNORDERED);
        manifest.append(&Edit::default(), whole, || core.number())
    }
}

impl Core {
    fn copy(&self, segment: &Segment, meta: &SegmentMeta, into: &Arc<dyn Media>) -> Result<()> {
        let Home::Table(table, _) = &segment.home else { unreachable!("the manifest names tables") };
        if let Some(path) = self.media.table_path(meta.number)
            && into.adopt_table(meta.number, &path)?
        {
            return Ok(());
        }
        let mut writer = into.create_table(meta.number, INTENT)?;
        if writer.capacity() < meta.bytes {
            let what =
                format!("a segment of {} bytes does not fit into a table of the other medium", meta.bytes);
            return Err(Error::new(Kind::Unsupported, what));
        }
        let mut at = 0;
        while at < meta.bytes {
            let mut piece = vec![0; COPY_BYTES.min(meta.bytes - at) as usize];
            self.env.sleep_until(table.read(at, &mut piece, IoClass::Background)?);
            writer.append(&piece)?;
            at += piece.len() as u64;
        }
        writer.finish(0)
    }
}
