//! Processor time of merging on a modelled host.

use crate::lsm::core::Core;
use vellum_base::Nanos;

/// Time is charged in pieces of this size: often enough for other tasks to take turns, but not at every entry.
const PIECE: Nanos = Nanos::from_us(100);

/// Work that one task has done and not yet charged.
pub(crate) struct Work<'a> {
    core: &'a Core,
    ps: u64,
}

impl<'a> Work<'a> {
    pub(crate) fn new(core: &'a Core) -> Work<'a> {
        Work { core, ps: 0 }
    }

    /// Accounts for flushing or merging an entry of `bytes` bytes.
    #[inline]
    pub(crate) fn entry(&mut self, bytes: usize) {
        let cpu = &self.core.options.cpu;
        self.ps += cpu.merge.0 * 1000 + bytes as u64 * (cpu.merge_kib.0 * 1000 / 1024);
        if self.ps > PIECE.0 * 1000 {
            self.core.env.charge(Nanos(std::mem::take(&mut self.ps) / 1000));
        }
    }
}
