//! The mapping of sectors to members: level, chunk size, and the rotation of columns over members (md's left-symmetric
//! layout, and its RAID-6 form).
//!
//! A row is a stripe: one chunk of every member, at the same place. A column is a position in a row: data chunks
//! `0..d`, then P, then Q.
//!
//! 1. [`Shape::member_of`] is a permutation of the members for every row; [`Shape::column_of`] is its inverse.
//! 2. From one row to the next P moves one member down, and data column 0 is on the member after the last parity, so
//!    that sequential reads use all members.

use std::ops::Range;
use vellum_base::size::format_size;
use vellum_base::{Error, Lba, Result, SECTOR_BYTES};

/// Most members of an array.
pub const MEMBERS_MAX: usize = 64;

/// RAID level: how many lost members an array survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// The loss of one member.
    Raid5,
    /// The loss of two members.
    Raid6,
}

impl Level {
    /// Parity chunks per row, which is how many members may be lost.
    pub const fn parities(self) -> usize {
        match self {
            Level::Raid5 => 1,
            Level::Raid6 => 2,
        }
    }

    /// 5 or 6.
    pub const fn number(self) -> u8 {
        self.parities() as u8 + 4
    }

    /// The level of this number.
    pub fn from_number(number: u8) -> Option<Level> {
        [Level::Raid5, Level::Raid6].into_iter().find(|level| level.number() == number)
    }
}

/// Level and size of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// RAID-5 or RAID-6.
    pub level: Level,
    /// Number of members, including lost ones.
    pub members: usize,
    /// Sectors of a chunk, a power of two.
    pub chunk_sectors: u32,
    /// Number of rows.
    pub rows: u64,
}

/// A run of sectors in one data chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The row.
    pub row: u64,
    /// The data column.
    pub column: usize,
    /// First sector within the chunk.
    pub offset: u32,
    /// How many sectors.
    pub sectors: u32,
}

/// Offsets in the chunks of a row at which a write covers the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Band {
    /// Sectors within the chunk.
    pub offsets: Range<u32>,
    /// Data columns that are written at these offsets.
    pub columns: Range<usize>,
}

impl Band {
    /// Number of sectors in each chunk.
    pub fn sectors(&self) -> u32 {
        self.offsets.end - self.offsets.start
    }

    /// Splits it into bands of one sector per chunk.
    pub fn by_sector(&self) -> impl Iterator<Item = Band> {
        self.offsets.clone().map(|at| Band { offsets: at..at + 1, columns: self.columns.clone() })
    }
}

impl Shape {
    /// Fails if no array can have this shape.
    pub fn check(&self) -> Result<()> {
        let least = self.level.parities() + 2;
        if self.members < least || self.members > MEMBERS_MAX {
            return Err(Error::invalid(format!(
                "RAID-{} takes {least} to {MEMBERS_MAX} members, not {}",
                self.level.number(),
                self.members
            )));
        }
        if !self.chunk_sectors.is_power_of_two() || self.chunk_sectors > 1 << 14 {
            return Err(Error::invalid(format!(
                "a chunk is a power of two from 4KiB to 64MiB, not {}",
                format_size(u64::from(self.chunk_sectors) * SECTOR_BYTES as u64)
            )));
        }
        if self.rows == 0 {
            return Err(Error::invalid("the members have no room for a single row: take larger ones"));
        }
        Ok(())
    }

    /// Data chunks in a row.
    pub fn data_columns(&self) -> usize {
        self.members - self.level.parities()
    }

    /// Data sectors in a row.
    pub fn row_sectors(&self) -> u64 {
        u64::from(self.chunk_sectors) * self.data_columns() as u64
    }

    /// Sectors of the array.
    pub fn sectors(&self) -> u64 {
        self.row_sectors() * self.rows
    }

    /// The member that has `column` of `row`.
    pub fn member_of(&self, row: u64, column: usize) -> usize {
        let p = self.members - 1 - (row % self.members as u64) as usize;
        let data = self.data_columns();
        let steps = if column < data { column + self.level.parities() } else { column - data };
        (p + steps) % self.members
    }

    /// The members that have the parity of `row`: P's, then Q's.
    pub fn parity_members(&self, row: u64) -> impl Iterator<Item = usize> {
        (self.data_columns()..self.members).map(move |column| self.member_of(row, column))
    }

    /// The column that `member` has in `row`.
    pub fn column_of(&self, row: u64, member: usize) -> usize {
        let p = self.members - 1 - (row % self.members as u64) as usize;
        let steps = (member + self.members - p) % self.members;
        let parities = self.level.parities();
        if steps < parities { self.data_columns() + steps } else { steps - parities }
    }

    /// First sector of a row's chunk on its member, counted from the start of the first row.
    pub fn member_sector(&self, row: u64) -> u64 {
        row * u64::from(self.chunk_sectors)
    }

    /// Splits a request by chunk.
    pub fn pieces(&self, lba: Lba, sectors: u64) -> impl Iterator<Item = Piece> + use<> {
        let (shape, end) = (*self, lba.0 + sectors);
        let mut at = lba.0;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let chunk = u64::from(shape.chunk_sectors);
                let (row, in_row) = (at / shape.row_sectors(), at % shape.row_sectors());
                let offset = (in_row % chunk) as u32;
                let count = u64::from(shape.chunk_sectors - offset).min(end - at) as u32;
                at += u64::from(count);
                Piece { row, column: (in_row / chunk) as usize, offset, sectors: count }
            })
        })
    }

    /// Splits a request by row: the row, and the range of its data sectors.
    pub fn rows_of(&self, lba: Lba, sectors: u64) -> impl Iterator<Item = (u64, Range<u64>)> + use<> {
        let (per_row, start, end) = (self.row_sectors(), lba.0, lba.0 + sectors);
        let rows = if sectors == 0 { 0..0 } else { start / per_row..(end - 1) / per_row + 1 };
        rows.map(move |row| {
            let first = row * per_row;
            (row, start.max(first) - first..end.min(first + per_row) - first)
        })
    }

    /// Splits a request into stretches of at most `rows` rows.
    pub fn stretches(&self, lba: Lba, sectors: u64, rows: u64) -> impl Iterator<Item = (Lba, u64)> + use<> {
        let (per_row, end) = (self.row_sectors(), lba.0 + sectors);
        let mut at = lba.0;
        std::iter::from_fn(move || {
            let first = at;
            at = ((first / per_row + rows) * per_row).min(end);
            (first < end).then(|| (Lba(first), at - first))
        })
    }

    /// The bands of a write to these data sectors of a row, in ascending order of offsets. At most three.
    pub fn bands(&self, sectors: Range<u64>) -> Vec<Band> {
        let chunk = u64::from(self.chunk_sectors);
        let place = |sector: u64| ((sector / chunk) as usize, (sector % chunk) as u32);
        let ((first, start), (last, end)) = (place(sectors.start), place(sectors.end - 1));
        let end = end + 1;
        let mut cuts = [0, start, end, self.chunk_sectors];
        cuts.sort_unstable();
        let bands = cuts.windows(2).map(|cut| Band {
            offsets: cut[0]..cut[1],
            columns: first + usize::from(cut[0] < start)..last + usize::from(cut[0] < end),
        });
        bands.filter(|band| !band.offsets.is_empty() && !band.columns.is_empty()).collect()
    }
}
