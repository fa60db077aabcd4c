//! Passes the sectors of a workload to a policy, one after the other: shared by the counter and the timing model.

use super::count::Totals;
use super::deltas::Deltas;
use super::workload::PageKind;
use vellum_array::cache::{Newest, Policy, Steps};
use vellum_base::{Lba, SECTOR_BYTES};

/// One sector of a request.
#[derive(Clone, Copy, Debug)]
pub struct Touched {
    /// Its address.
    pub lba: Lba,
    /// Number of bytes touched.
    pub bytes: usize,
    /// Index of the request in its workload.
    pub request: usize,
    /// Index of the sector in the request.
    pub nth: usize,
}

/// See the module.
pub(super) struct Asked<'a> {
    policy: &'a mut dyn Policy,
    deltas: &'a mut Deltas,
    /// A partial write changes only the bytes that it covers.
    partial: bool,
    /// Steps of the last sector.
    pub steps: Steps,
    /// Totals over all sectors.
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
