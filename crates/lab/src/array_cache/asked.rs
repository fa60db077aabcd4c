//! A policy that is told of a workload's sectors, one after the other: what counter and model of times have in common.

use super::count::Totals;
use super::deltas::Deltas;
use super::workload::PageKind;
use vellum_array::cache::{Newest, Policy, Steps};
use vellum_base::{Lba, SECTOR_BYTES};

/// One sector of a request.
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    /// The sector.
    pub lba: Lba,
    /// How many bytes of it.
    pub bytes: usize,
    /// The request's place in its workload.
    pub request: usize,
    /// The sector's place in the request.
    pub nth: usize,
}

/// See the module.
pub(super) struct Asked<'a> {
    policy: &'a mut dyn Policy,
    deltas: &'a mut Deltas,
    /// A write in part changes no more than its part.
    partial: bool,
    /// Of the last sector.
    pub steps: Steps,
    /// Of all.
    pub totals: Totals,
}

impl<'a> Asked<'a> {
    pub fn new(policy: &'a mut dyn Policy, deltas: &'a mut Deltas, partial: bool) -> Asked<'a> {
        Asked { policy, deltas, partial, steps: Steps::default(), totals: Totals::default() }
    }

    #[inline]
    pub fn ask(&mut self, kind: PageKind, touched: Touched) {
        let Touched { lba, bytes, .. } = touched;
        self.steps.clear();
        match kind {
            PageKind::Read => {
                let newest = self.policy.read(lba, &mut self.steps);
                self.totals.reads += 1;
                self.totals.read_hits += u64::from(newest != Newest::Array);
            }
            PageKind::Write => {
                let bytes = if self.partial { bytes } else { SECTOR_BYTES };
                let delta = self.deltas.next(Touched { bytes, ..touched }, || self.policy.base(lba));
                self.totals.writes += 1;
                self.totals.write_hits += u64::from(self.policy.newest(lba) != Newest::Array);
                self.policy.write(lba, delta, &mut self.steps);
            }
            PageKind::Forget => self.policy.forget(lba, &mut self.steps),
        }
        self.deltas.follow(kind, lba, &self.steps);
        self.totals.add(&self.steps);
    }
}
