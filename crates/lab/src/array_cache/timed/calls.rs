//! Translates steps into calls on disks and SSD.

use vellum_array::cache::{ParityPart, Step, Steps};
use vellum_array::plan::{Columns, plan};
use vellum_array::{Shape, layout::Band};
use vellum_base::Lba;
use vellum_base::hash::FixedSet;

/// A call on a disk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub disk: usize,
    pub sector: u64,
    pub sectors: u64,
    pub is_write: bool,
}

/// Calls issued at once, and others issued when those are done.
#[derive(Clone, Debug, Default)]
pub(super) struct Operation {
    pub first: Vec<Call>,
    pub then: Vec<Call>,
}

/// The steps of one request.
pub(super) struct Calls {
    shape: Shape,
    /// Rows whose parity update is deferred.
    stale: FixedSet<u64>,
    reads: Vec<Lba>,
    writes: Vec<Lba>,
    put_off: Vec<Lba>,
    /// Rows, offsets within their chunks, and whether all data are in the cache.
    updates: Vec<(u64, Vec<u32>, bool)>,
    /// Pages read and written on the SSD: waited for, and in the background.
    ssd: [(u32, u32); 2],
}

impl Calls {
    pub fn new(shape: Shape) -> Calls {
        Calls {
            shape,
            stale: FixedSet::default(),
            reads: Vec::new(),
            writes: Vec::new(),
            put_off: Vec::new(),
            updates: Vec::new(),
            ssd: [(0, 0); 2],
        }
    }

    pub fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.put_off.clear();
        self.updates.clear();
        self.ssd = [(0, 0); 2];
    }

    /// Pages read and written on the SSD that the requester waits for.
    pub fn ssd_waited_for(&self) -> (u32, u32) {
        self.ssd[0]
    }

    /// Pages read and written on the SSD that nobody waits for.
    pub fn ssd_behind(&self) -> (u32, u32) {
        self.ssd[1]
    }

    /// Adds the steps of another sector of the request.
    pub fn add(&mut self, steps: &Steps) {
        for (at, step) in steps.list.iter().enumerate() {
            let (reads, writes) = &mut self.ssd[usize::from(at >= steps.answered)];
            match step {
                Step::ReadPage(_) | Step::ReadDeltas(_) => *reads += 1,
                Step::WritePage { .. }
                | Step::Promote { .. }
                | Step::CommitDeltas { .. }
                | Step::CommitLog { .. } => *writes += 1,
                Step::ReadArray(lba) => self.reads.push(*lba),
                Step::WriteArray(lba) => self.writes.push(*lba),
                Step::WriteWithoutParity(lba) => {
                    self.put_off.push(*lba);
                    self.stale.insert(lba.0 / self.shape.row_sectors());
                }
                Step::UpdateParity { row, from, count, whole } => {
                    self.stale.remove(row);
                    let offsets = self.offsets(steps.parts_of(*from, *count));
                    self.updates.push((*row, offsets, *whole));
                }
                Step::Stage(_) | Step::Unstage(_) | Step::Note(_) | Step::Discard(_) => {}
                Step::Hold { .. } | Step::Refresh(_) | Step::Vacate { .. } => {}
            }
        }
    }

    fn offsets(&self, parts: &[ParityPart]) -> Vec<u32> {
        let offset = |part: &ParityPart| {
            let (ParityPart::Delta(lba, ..) | ParityPart::Versions { lba, .. } | ParityPart::Same(lba, _)) =
                part;
            (lba.0 % u64::from(self.shape.chunk_sectors)) as u32
        };
        let mut offsets: Vec<u32> = parts.iter().map(offset).collect();
        offsets.sort_unstable();
        offsets.dedup();
        offsets
    }

    /// Operations that the requester waits for.
    pub fn waited_for(&self, shape: &Shape) -> Vec<Operation> {
        let mut operations = Vec::new();
        for (lba, sectors) in runs(&self.reads) {
            operations.extend(pieces(shape, lba, sectors, false));
        }
        for (lba, sectors) in runs(&self.put_off) {
            operations.extend(pieces(shape, lba, sectors, true));
        }
        for (lba, sectors) in runs(&self.writes) {
            for (row, within) in shape.rows_of(lba, sectors) {
                operations.push(self.write(shape, row, &shape.bands(within)));
            }
        }
        operations
    }

    /// Operations that nobody waits for.
    pub fn behind(&self, shape: &Shape) -> Vec<Operation> {
        self.updates.iter().map(|update| update_parity(shape, update)).collect()
    }

    fn write(&self, shape: &Shape, row: u64, bands: &[Band]) -> Operation {
        let mut operation = Operation::default();
        for band in bands {
            let plan = plan(shape, band, Columns::default(), Columns::default(), self.stale.contains(&row))
                .expect("nothing is lost, so it can be written");
            let call = |column: usize, is_write: bool| {
                call(shape, row, column, band.offsets.start, band.sectors(), is_write)
            };
            operation.first.extend(plan.reads.iter().map(|column| call(*column, false)));
            operation.then.extend(band.columns.clone().chain(plan.parity).map(|column| call(column, true)));
        }
        operation
    }
}

fn call(shape: &Shape, row: u64, column: usize, offset: u32, sectors: u32, is_write: bool) -> Call {
    let sector = shape.member_sector(row) + u64::from(offset);
    Call { disk: shape.member_of(row, column), sector, sectors: sectors.into(), is_write }
}

fn pieces(shape: &Shape, lba: Lba, sectors: u64, is_write: bool) -> impl Iterator<Item = Operation> {
    shape.pieces(lba, sectors).map(move |piece| {
        let call = call(shape, piece.row, piece.column, piece.offset, piece.sectors, is_write);
        Operation { first: vec![call], then: Vec::new() }
    })
}

/// Reads parity unless all data are known, then writes it.
fn update_parity(shape: &Shape, (row, offsets, whole): &(u64, Vec<u32>, bool)) -> Operation {
    let mut operation = Operation::default();
    for run in offsets.chunk_by(|a, b| a + 1 == *b) {
        for column in shape.data_columns()..shape.members {
            let of = |is_write| call(shape, *row, column, run[0], run.len() as u32, is_write);
            operation.first.extend((!whole).then(|| of(false)));
            operation.then.push(of(true));
        }
    }
    operation
}

/// Runs of consecutive sectors.
fn runs(sectors: &[Lba]) -> impl Iterator<Item = (Lba, u64)> {
    sectors.chunk_by(|a, b| a.0 + 1 == b.0).map(|run| (run[0], run.len() as u64))
}
