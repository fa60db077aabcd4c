//! Planning of what a write to a band of a row must read. Pure; tests count its reads.
//!
//! * *read-modify-write* reads the data to be overwritten and the parity; parity changes by the deltas.
//! * *reconstruct-write* reads the data that are not overwritten; parity is recomputed.
//! * *recover* reads everything present; what is lost is recovered, then parity is recomputed.
//!
//! 1. If no column is lost, the first or second is chosen, whichever reads fewer chunks; the first if equal (md's
//!    rule).
//! 2. Lost columns are not read. A lost column that is written excludes read-modify-write, a lost data column that is
//!    not written excludes reconstruct-write; if both exclude, the band is recovered.
//! 3. A stale row is read-modify-written or refused: the deltas that its parity lacks must stay the same.
//! 4. Sectors that can be neither read nor computed are overwritten if everything that the new parity needs is
//!    readable; parity is recomputed then. Otherwise the write is refused: other lost sectors would be computed from
//!    the new parity as data that never existed.

use crate::layout::{Band, Shape};

/// A set of columns of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns(u128);

impl Columns {
    /// The set with `column` added.
    #[must_use]
    pub fn with(self, column: usize) -> Columns {
        Columns(self.0 | 1 << column)
    }
    /// Whether `column` is in the set.
    pub fn has(self, column: usize) -> bool {
        self.0 >> column & 1 == 1
    }
    /// Number of columns.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }
    /// The columns in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..128).filter(move |column| self.has(*column))
    }
}

impl FromIterator<usize> for Columns {
    fn from_iter<I: IntoIterator<Item = usize>>(columns: I) -> Columns {
        columns.into_iter().fold(Columns::default(), Columns::with)
    }
}

/// How the new parity is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// From the old data and the old parity.
    ReadModify,
    /// From all data.
    Reconstruct,
    /// From all data, some of them recovered.
    Recover,
}

/// What to read, and how to compute parity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How parity is computed.
    pub mode: Mode,
    /// Columns to read at the band's offsets.
    pub reads: Vec<usize>,
    /// Parity columns to write: those that are not lost.
    pub parity: Vec<usize>,
}

/// Why a band cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impossible {
    /// More columns are lost than there is parity for.
    Lost,
    /// The row is stale and a lost data column is written: its new parity cannot be known.
    StaleAndLost,
}

/// Plans the write of a band. `lost` columns are missing; of the others, those in `unread` can be neither read nor
/// computed at these offsets.
pub fn plan(
    shape: &Shape,
    band: &Band,
    lost: Columns,
    unread: Columns,
    stale: bool,
) -> Result<Plan, Impossible> {
    let data = 0..shape.data_columns();
    let written = |column: &usize| band.columns.contains(column);
    let present = |column: &usize| !lost.has(*column);
    if lost.count() > shape.level.parities() {
        return Err(Impossible::Lost);
    }
    let parity: Vec<usize> = (data.end..shape.members).filter(present).collect();
    let lost_written = band.columns.clone().any(|column| lost.has(column));
    let lost_other = data.clone().any(|column| lost.has(column) && !written(&column));
    let read_modify = || data.clone().filter(written).chain(parity.iter().copied()).collect::<Vec<_>>();
    let others = || data.clone().filter(|column| !written(column)).collect::<Vec<_>>();
    let readable = |columns: &[usize]| columns.iter().all(|column| !unread.has(*column));
    let (mode, reads) = match (lost_written, lost_other) {
        _ if parity.is_empty() => (Mode::Reconstruct, Vec::new()),
        (true, _) if stale => return Err(Impossible::StaleAndLost),
        (true, true) => (Mode::Recover, data.clone().filter(present).chain(parity.iter().copied()).collect()),
        (true, false) => (Mode::Reconstruct, others()),
        (false, true) => (Mode::ReadModify, read_modify()),
        (false, false) if stale => (Mode::ReadModify, read_modify()),
        (false, false) => {
            let (modify, others) = (read_modify(), others());
            let is_modify = modify.len() <= others.len() && readable(&modify);
            if is_modify || !readable(&others) {
                (Mode::ReadModify, modify)
            } else {
                (Mode::Reconstruct, others)
            }
        }
    };
    match readable(&reads) {
        true => Ok(Plan { mode, reads, parity }),
        false => Err(Impossible::Lost),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Level;

    fn shape(level: Level, members: usize) -> Shape {
        Shape { level, members, chunk_sectors: 4, rows: 1 }
    }

    /// Reads and the mode of a write to `written` columns.
    fn counted(shape: &Shape, written: std::ops::Range<usize>, lost: &[usize]) -> (Mode, usize) {
        let band = Band { offsets: 0..1, columns: written };
        let plan = plan(shape, &band, lost.iter().copied().collect(), Columns::default(), false).unwrap();
        assert!(plan.reads.iter().all(|column| !lost.contains(column)), "{plan:?}");
        (plan.mode, plan.reads.len())
    }

    #[test]
    fn a_small_write_reads_two_in_raid_5_and_three_in_raid_6() {
        assert_eq!(counted(&shape(Level::Raid5, 5), 1..2, &[]), (Mode::ReadModify, 2));
        assert_eq!(counted(&shape(Level::Raid6, 8), 1..2, &[]), (Mode::ReadModify, 3));
        assert_eq!(
            counted(&shape(Level::Raid6, 5), 1..2, &[]),
            (Mode::Reconstruct, 2),
            "three members of data"
        );
    }

    #[test]
    fn the_cheaper_way_is_taken_and_a_whole_row_reads_nothing() {
        let five = shape(Level::Raid5, 6);
        let ways: Vec<_> = (1..=5).map(|count| counted(&five, 0..count, &[])).collect();
        let (modify, reconstruct) = (Mode::ReadModify, Mode::Reconstruct);
        let want = [(modify, 2), (modify, 3), (reconstruct, 2), (reconstruct, 1), (reconstruct, 0)];
        assert_eq!(ways, want);
    }

    #[test]
    fn lost_columns_are_worked_around() {
        let six = shape(Level::Raid6, 6); // data 0..4, P 4, Q 5
        assert_eq!(counted(&six, 1..2, &[1]), (Mode::Reconstruct, 3), "its own old data are lost");
        assert_eq!(counted(&six, 1..2, &[2]), (Mode::ReadModify, 3), "another's are lost");
        assert_eq!(counted(&six, 1..2, &[1, 2]), (Mode::Recover, 4));
        assert_eq!(counted(&six, 0..4, &[1, 2]), (Mode::Reconstruct, 0));
        assert_eq!(counted(&six, 1..2, &[4]), (Mode::ReadModify, 2), "P is lost, Q goes on");
        assert_eq!(counted(&six, 1..2, &[4, 5]), (Mode::Reconstruct, 0), "nothing to keep up");
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let five = shape(Level::Raid5, 4);
        let band = Band { offsets: 0..1, columns: 0..1 };
        let lost = |columns: &[usize]| columns.iter().copied().collect::<Columns>();
        let none = Columns::default();
        assert_eq!(plan(&five, &band, lost(&[0, 1]), none, false), Err(Impossible::Lost));
        assert_eq!(plan(&five, &band, lost(&[0]), none, true), Err(Impossible::StaleAndLost));
        let whole = Band { offsets: 0..1, columns: 0..3 };
        let plan = plan(&five, &whole, none, none, true).unwrap();
        assert_eq!((plan.mode, plan.reads.len()), (Mode::ReadModify, 4), "a stale row stays as stale");
    }

    #[test]
    fn what_cannot_be_read_is_written_over_if_new_parity_can_do_without() {
        let columns = |columns: &[usize]| columns.iter().copied().collect::<Columns>();
        let planned = |shape: &Shape, lost: &[usize], unread: &[usize], stale: bool| {
            let band = Band { offsets: 0..1, columns: 0..1 };
            plan(shape, &band, columns(lost), columns(unread), stale).map(|plan| (plan.mode, plan.reads))
        };
        let (five, six) = (shape(Level::Raid5, 5), shape(Level::Raid6, 6)); // data 0..4, P 4, Q 5
        assert_eq!(planned(&five, &[], &[0, 4], false), Ok((Mode::Reconstruct, vec![1, 2, 3])));
        assert_eq!(planned(&six, &[4], &[0, 5], false), Ok((Mode::Reconstruct, vec![1, 2, 3])));
        assert_eq!(planned(&five, &[4], &[0], false), Ok((Mode::Reconstruct, vec![])), "no parity is there");
        assert_eq!(planned(&five, &[], &[1], false), Ok((Mode::ReadModify, vec![0, 4])));
        // Whatever parity were written, the other lost sector would be computed from it.
        assert_eq!(planned(&five, &[], &[0, 1], false), Err(Impossible::Lost));
        assert_eq!(planned(&five, &[2], &[0], false), Err(Impossible::Lost));
        assert_eq!(planned(&five, &[0], &[1], false), Err(Impossible::Lost));
        assert_eq!(planned(&five, &[], &[0, 4], true), Err(Impossible::Lost), "a stale row stays as stale");
    }
}
