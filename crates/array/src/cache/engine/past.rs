//! Requests that bypass the cache, because it is detached or cannot help them.

use super::core::Core;
use super::turns::{Mode, Place};
use vellum_base::{BlockDevice, Error, Kind, Lba, Result, SECTOR_BYTES};

impl Core {
    /// Carries out a request past a detached cache. Staged deltas are still valid: sectors of a lost member may be
    /// unknown until these have been added to parity, so it is tried again after that.
    pub fn past(&self, lba: Lba, sectors: u64, mut call: impl FnMut() -> Result<()>) -> Result<()> {
        match call() {
            Err(error) if self.ssd.is_some() && sectors > 0 && error.kind() != Kind::PowerLost => {
                (self.row_of(lba)..=self.row_of(Lba(lba.0 + sectors - 1)))
                    .filter(|row| self.array.is_stale(*row) && !self.unknown.lock().contains(row))
                    .for_each(|row| drop(self.resync(row)));
                call()
            }
            result => result,
        }
    }

    /// Writes to an array whose cache is detached, or that has none. Deferred writes in flight come first, as their
    /// deltas are relative to the content before them.
    pub fn write_past(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        if self.ssd.is_none() {
            return self.array.write(lba, data, fua);
        }
        let last = Lba(lba.0 + (data.len() / SECTOR_BYTES) as u64 - 1);
        let rows = self.row_of(lba)..=self.row_of(last);
        let turn = {
            let _no_turn_grows_meanwhile = self.brain.lock();
            self.turns.take(rows.map(|row| (Place::Data(row), Mode::Alone)).collect())
        };
        turn.wait();
        self.array.write(lba, data, fua)
    }

    /// Retries a write that was refused, row by row. In an unknown row with unreadable data, sectors are written
    /// without parity, which is recomputed as soon as all data can be read.
    pub fn write_unread(&self, lba: Lba, data: &[u8], fua: bool, refused: Error) -> Result<()> {
        let shape = self.array.core().shape;
        let rows = || shape.rows_of(lba, (data.len() / SECTOR_BYTES) as u64);
        let is_stale = rows().any(|(row, _)| self.array.is_stale(row));
        if !is_stale || self.array.lost_members() > 0 || refused.kind() == Kind::PowerLost {
            return Err(refused);
        }
        let mut rest = data;
        for (row, sectors) in rows() {
            let (first, count) = (row * shape.row_sectors() + sectors.start, sectors.end - sectors.start);
            let part = rest.split_off(..count as usize * SECTOR_BYTES).expect("rows are what was asked for");
            let _room = self.room(self.row_bytes())?;
            let _alone = self.clear_row(row, first..first + count)?;
            if !self.array.is_stale(row) {
                self.array.write(Lba(first), part, fua)?;
                continue;
            }
            self.lose_track(row);
            self.persist_all()?;
            // Written durably, as there is no intent for it in the NVRAM.
            match self.array.write_without_parity_update(Lba(first), part, true) {
                Err(error) if error.kind() == Kind::Unsupported => return Err(refused),
                result => result?,
            }
            self.try_again(row);
        }
        Ok(())
    }
}
