//! Reads tables, wherever their extents are.

use super::Inner;
use super::layout::{ReadGuard, TableHandle, TableLayout};
use super::plan::Plan;
use crate::media::{PendingRead, TableReader};
use std::sync::Arc;
use vellum_base::{Error, IoClass, Nanos, Result};

pub(super) struct FlashReader {
    pub inner: Arc<Inner>,
    pub table: Arc<TableHandle>,
}

impl FlashReader {
    /// The pages to be read for a byte range.
    fn plan(&self, layout: &TableLayout, offset: u64, bytes: usize) -> Result<Plan> {
        let geometry = self.inner.flash.geometry();
        let found = layout.find(offset, bytes as u64);
        let found = found.ok_or_else(|| {
            Error::corrupt("units of a table are lost, or it is shorter than its index says")
        })?;
        Ok(Plan::new(found.flat_map(|(home, from, bytes)| home.pages(geometry, from, bytes))))
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
        let plan = self.plan(&reading.0, offset, out.len())?;
        match plan.single() {
            Some((page, offset)) => Ok(self.inner.submitter.read(class, page, offset, out)?),
            None => Ok(plan.assemble(self.inner.submitter.submit(class, plan.ops()).wait_for_answer(), out)?),
        }
    }

    fn ask(&self, offset: u64, bytes: usize, class: IoClass) -> Result<PendingRead> {
        let reading: ReadGuard = self.table.read();
        let plan = self.plan(&reading.0, offset, bytes)?;
        // Released when the read is answered: the caller may take long to fetch the result, and collection must not
        // wait for that.
        let answered = Box::new(move |_: &_| drop(reading));
        let pending = self.inner.submitter.submit_then(class, plan.ops(), answered);
        let env = self.inner.env.clone();
        Ok(PendingRead::InFlight(Box::new(move || {
            let mut out = vec![0; bytes];
            plan.assemble(pending.wait(&*env), &mut out)?;
            Ok(out)
        })))
    }
}
