//! The new content of a row's data columns and parity after a write, computed from what was read of the row.

use crate::access::bytes_of;
use crate::core::Core;
use crate::layout::Band;
use crate::log::{Content, Extent};
use crate::plan::{Columns, Mode, Plan};
use vellum_base::{Result, SECTOR_BYTES};
use vellum_codes::parity;

/// New content of data sectors of a row.
pub(crate) struct NewData<'a> {
    pub row: u64,
    /// First sector, counted from the start of the row.
    pub start: u64,
    pub bytes: &'a [u8],
}

/// What was read of a band, by column.
pub(crate) type Old = Vec<Option<Vec<u8>>>;

impl Core {
    /// New content of a band: written data columns that are present, and parity.
    pub fn new_extents(
        &self,
        new: &NewData<'_>,
        band: &Band,
        plan: &Plan,
        mut old: Old,
        lost: Columns,
    ) -> Result<Vec<Extent>> {
        let parities = match (plan.parity.is_empty(), plan.mode) {
            (true, _) => Vec::new(),
            (_, Mode::ReadModify) => self.parity_by_deltas(new, band, plan, &mut old),
            (_, Mode::Reconstruct) => self.parity_anew(new, band, &old),
            (_, Mode::Recover) => {
                self.recover_band(band, &mut old, lost)?;
                self.parity_anew(new, band, &old)
            }
        };
        let written = band.columns.clone().filter(|column| !lost.has(*column));
        let data = written.map(|column| (column, self.new_bytes(new, band, column).to_vec()));
        let parity = (self.shape.data_columns()..).zip(parities);
        let parity = parity.filter(|(column, _)| plan.parity.contains(column));
        let extents = data.chain(parity).map(|(column, bytes)| {
            let (role, sector) = self.place(new.row, column, band.offsets.start);
            Extent { role, sector, content: Content::Bytes(bytes) }
        });
        Ok(extents.collect())
    }

    /// The bytes that a write puts into a column at the band's offsets.
    fn new_bytes<'a>(&self, new: &NewData<'a>, band: &Band, column: usize) -> &'a [u8] {
        let in_row = column as u64 * u64::from(self.shape.chunk_sectors) + u64::from(band.offsets.start);
        let start = (in_row - new.start) as usize * SECTOR_BYTES;
        &new.bytes[start..start + bytes_of(band.sectors())]
    }

    /// P and Q, updated by the deltas of the written columns. Parities that are not planned are left empty.
    fn parity_by_deltas(&self, new: &NewData<'_>, band: &Band, plan: &Plan, old: &mut Old) -> Vec<Vec<u8>> {
        let data = self.shape.data_columns();
        let mut parities: Vec<Vec<u8>> =
            (data..self.shape.members).map(|column| old[column].take().unwrap_or_default()).collect();
        for column in band.columns.clone() {
            let mut delta = old[column].take().expect("planned and read");
            parity::xor_into(&mut delta, self.new_bytes(new, band, column));
            for parity_column in &plan.parity {
                add_delta(&mut parities[parity_column - data], *parity_column - data, &delta, column);
            }
        }
        parities
    }

    /// P and Q computed from all data: the new columns, and the others as they were read.
    fn parity_anew(&self, new: &NewData<'_>, band: &Band, old: &Old) -> Vec<Vec<u8>> {
        let columns: Vec<&[u8]> = (0..self.shape.data_columns())
            .map(|column| match band.columns.contains(&column) {
                true => self.new_bytes(new, band, column),
                false => old[column].as_deref().expect("planned and read"),
            })
            .collect();
        self.parities_of(&columns)
    }

    /// P, or P and Q, computed from all data columns.
    pub fn parities_of(&self, columns: &[&[u8]]) -> Vec<Vec<u8>> {
        let empty = || vec![0; columns[0].len()];
        match self.shape.level.parities() {
            1 => {
                let mut p = empty();
                parity::p(columns, &mut p);
                vec![p]
            }
            _ => {
                let (mut p, mut q) = (empty(), empty());
                parity::pq(columns, &mut p, &mut q);
                vec![p, q]
            }
        }
    }

    fn recover_band(&self, band: &Band, old: &mut Old, lost: Columns) -> Result<()> {
        let bytes = bytes_of(band.sectors());
        let mut columns: Vec<Vec<u8>> =
            old.drain(..).map(|column| column.unwrap_or_else(|| vec![0; bytes])).collect();
        self.solve(&mut columns, lost)?;
        *old = columns.into_iter().map(Some).collect();
        Ok(())
    }
}

/// Adds a data column's delta to a parity: P if `parity` is 0, otherwise Q.
pub(crate) fn add_delta(to: &mut [u8], parity: usize, delta: &[u8], column: usize) {
    match parity {
        0 => parity::xor_into(to, delta),
        _ => parity::add_scaled(to, delta, column),
    }
}
