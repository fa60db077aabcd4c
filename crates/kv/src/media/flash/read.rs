//! Reading a table, wherever its extents are.

use super::Inner;
use super::layout::{Handle, Layout, Reading};
use super::queue::Op;
use crate::media::{Asked, TableReader};
use std::sync::Arc;
use vellum_base::{Error, IoClass, Nanos, Result};

pub(super) struct FlashReader {
    pub inner: Arc<Inner>,
    pub table: Arc<Handle>,
}

impl FlashReader {
    /// Reads of pages, or of parts of them.
    fn reads(&self, layout: &Layout, offset: u64, bytes: usize) -> Result<Vec<Op>> {
        let geometry = self.inner.flash.geometry();
        let found = layout.find(offset, bytes as u64);
        let found = found.ok_or_else(|| {
            Error::corrupt("units of a table are lost, or it is shorter than its index says")
        })?;
        let op = |(page, offset, bytes)| Op::Read { page, offset, bytes };
        Ok(found.flat_map(|(home, from, bytes)| home.pages(geometry, from, bytes)).map(op).collect())
    }
}

impl TableReader for FlashReader {
    fn bytes(&self) -> Result<u64> {
        Ok(self.table.layout().bytes())
    }

    fn lost_bytes(&self) -> u64 {
        self.table.layout().lost_bytes()
    }

    fn read(&self, offset: u64, out: &mut [u8], class: IoClass) -> Result<Nanos> {
        let reading = self.table.read();
        let reads = self.reads(&reading.0, offset, out.len())?;
        match &reads[..] {
            [Op::Read { page, offset, bytes }] => {
                Ok(self.inner.road.read(class, *page, *offset, &mut out[..*bytes])?)
            }
            _ => Ok(self.inner.road.submit(class, reads).wait_for_answer().into_read(out)?),
        }
    }

    fn ask(&self, offset: u64, bytes: usize, class: IoClass) -> Result<Asked> {
        let reading: Reading = self.table.read();
        let reads = self.reads(&reading.0, offset, bytes)?;
        // Whoever asked may wait long before it looks at the answer, and collection must not wait for that.
        let answered = Box::new(move |_: &_| drop(reading));
        let pending = self.inner.road.submit_and(class, reads, answered);
        let env = self.inner.env.clone();
        Ok(Asked::Coming(Box::new(move || {
            let mut out = vec![0; bytes];
            pending.wait(&*env).into_read(&mut out)?;
            Ok(out)
        })))
    }
}
