//! What merging costs the processor of a modelled host.

use crate::lsm::core::Core;
use vellum_base::Nanos;

/// Paid for in pieces of this size: often enough for others to take turns, and not at every entry.
const PIECE: Nanos = Nanos::from_us(100);

/// Work done by one task, and not yet paid for.
pub(crate) struct Work<'a> {
    core: &'a Core,
    ps: u64,
}

impl<'a> Work<'a> {
    pub(crate) fn new(core: &'a Core) -> Work<'a> {
        Work { core, ps: 0 }
    }

    /// An entry of so many bytes was flushed or merged.
    #[inline]
    pub(crate) fn entry(&mut self, bytes: usize) {
        let cpu = &self.core.options.cpu;
        self.ps += cpu.merge.0 * 1000 + bytes as u64 * (cpu.merge_kib.0 * 1000 / 1024);
        if self.ps > PIECE.0 * 1000 {
            self.core.env.charge(Nanos(std::mem::take(&mut self.ps) / 1000));
        }
    }
}
