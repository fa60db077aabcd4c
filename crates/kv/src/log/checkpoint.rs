//! Checkpoints: a consistent copy of a log store on another medium. Segments are linked or copied, those in memory are
//! written as tables. The manifest comes last: without it there is no store.

use super::background::write_out;
use super::core::{Core, NewTable, View};
use super::foot::Origin;
use super::segment::{Home, Segment};
use crate::journal::{Edit, SegmentMeta, UNORDERED};
use crate::manifest::Manifest;
use crate::media::{Intent, Media, check_empty, copy};
use std::sync::Arc;
use vellum_base::{Error, IoClass, Kind, Result};

impl Core {
    /// See [`crate::Map::checkpoint`]. Writers wait for what was written before to become a segment.
    pub(crate) fn checkpoint(&self, into: &Arc<dyn Media>) -> Result<()> {
        check_empty(&**into)?;
        let (mut metas, view) = self.settled()?;
        for meta in &metas {
            let segment = view.segments.iter().flatten().find(|segment| segment.meta() == Some(meta));
            let segment = segment.ok_or_else(|| Error::corrupt("a segment of the manifest is not open"))?;
            self.copy(segment, meta, into)?;
        }
        if self.options.read_only {
            // Nobody writes: what is in memory stays there, and becomes tables of the copy.
            let in_memory = |segment: &&Arc<Segment>| segment.meta().is_none() && !segment.is_empty();
            for segment in view.in_order().iter().filter(in_memory) {
                let number = self.number();
                let table = into.create_table(number, Intent::COPY)?;
                let origin = Origin { order: segment.order, ..Origin::default() };
                let reading = self.reading(IoClass::UrgentCompaction);
                metas.push(write_out(segment, reading, NewTable { number, table }, origin, self.seed)?);
            }
        }
        let whole = || Edit {
            segments: metas.clone(),
            seed: Some(self.seed),
            next_number: Some(self.number()),
            last_seq: Some(self.state.lock().floors.last_seq),
            ..Edit::default()
        };
        let mut manifest = Manifest::new(into.clone(), self.env.random(), UNORDERED, None);
        manifest.append(&Edit::default(), whole, || self.number())
    }

    /// Segments of the manifest, and the view that has them: all there is, if somebody may write.
    fn settled(&self) -> Result<(Vec<SegmentMeta>, Arc<View>)> {
        // Nobody writes from the flush until it is known what is to be copied. Else a key that is overwritten
        // meanwhile could be missing: its new record is not in a table yet, and its old one may be collected.
        let mut writer = self.writer.lock();
        if !self.options.read_only {
            self.flush_locked(&mut writer)?;
            self.wait_for_seals(writer.next_seq - 1)?;
        }
        // With the lock held, what the manifest says is in the view.
        let manifest = self.manifest.lock();
        Ok((manifest.segments.clone(), self.view.load_full()))
    }

    fn copy(&self, segment: &Segment, meta: &SegmentMeta, into: &Arc<dyn Media>) -> Result<()> {
        let Home::Table(table, _) = &segment.home else { unreachable!("the manifest names tables") };
        if let Some(path) = self.media.table_path(meta.number)
            && into.adopt_table(meta.number, &path)?
        {
            return Ok(());
        }
        let mut writer = into.create_table(meta.number, Intent::COPY)?;
        // A file may be longer than those that the store there will write: collecting copies it into shorter ones.
        if writer.capacity() < meta.bytes && into.shape().whole_tables {
            let (bytes, most) = (meta.bytes, writer.capacity());
            let what = format!("a segment of {bytes} bytes: tables of the other medium have {most} at most");
            return Err(Error::new(Kind::Unsupported, what));
        }
        let read = |at, piece: &mut [u8]| {
            self.env.sleep_until(table.read(at, piece, IoClass::Background)?);
            Ok(())
        };
        copy(meta.bytes, read, |_, piece| writer.append(piece))?;
        writer.finish(0)
    }
}
