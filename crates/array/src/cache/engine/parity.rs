//! Updating deferred parity: from deltas, or from data.

use super::core::{Core, apply};
use super::job::{Delta, Part};
use crate::cache::step::PageNo;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{BlockDevice, Kind, Lba, Result, SECTOR_BYTES};
use vellum_codes::parity::xor_into;

/// Whole sectors, each with its difference from the version that parity covers.
type Deltas = Vec<(Lba, Vec<u8>)>;

impl Core {
    /// Updates the parity of a row from its deltas, or from data if these are not available.
    pub fn update_parity(&self, row: u64, parts: &[Part], stamp: u64) -> Result<()> {
        let began = self.env.now();
        if !self.array.is_stale(row) {
            self.is_whole(row, stamp);
            return Ok(());
        }
        self.make_durable(row)?;
        // A row without parts is only asked for if it is unknown.
        let is_unknown = parts.is_empty() || self.unknown.lock().contains(&row);
        let deltas = if is_unknown { None } else { self.deltas_of(parts)? };
        let result = match &deltas {
            Some(deltas) => self.update_by_deltas(row, parts, deltas),
            None => self.array.resync(row),
        };
        let count = if deltas.is_some() { &self.counters.rows_cleaned } else { &self.counters.rows_resynced };
        match &result {
            Ok(()) => {
                self.is_whole(row, stamp);
                count.fetch_add(1, Relaxed);
                let took = self.env.now().saturating_sub(began);
                self.counters.cleaning_ns.fetch_add(took.0, Relaxed);
            }
            Err(_) => self.lose_track(row),
        }
        result
    }

    /// Updates parity by deltas. If parity cannot be read, nor computed because a member is out, the cache may have the
    /// data needed for that.
    fn update_by_deltas(&self, row: u64, parts: &[Part], deltas: &Deltas) -> Result<()> {
        let deltas: Vec<crate::Delta<'_>> =
            deltas.iter().map(|(lba, bytes)| crate::Delta { lba: *lba, bytes }).collect();
        match self.array.parity_update(row, &deltas) {
            Err(error) if error.kind() != Kind::PowerLost => {
                self.array.core().check_writable()?;
                let known = parts.iter().filter_map(|part| self.newest_of(part)).collect();
                self.array.parity_update_knowing(row, &deltas, &known)
            }
            result => result,
        }
    }

    /// The current content of a sector with deferred parity, if the cache has it.
    fn newest_of(&self, part: &Part) -> Option<(u64, Vec<u8>)> {
        let (lba, content) = match part {
            Part::Delta(lba, base, delta) => (lba, self.read_changed(*base, delta)),
            Part::Versions(lba, _, new) => (lba, self.read_page(*new)),
        };
        Some((lba.0, content.ok()?))
    }

    /// Makes data of a row durable if there are intents for it, as these go with its deltas.
    fn make_durable(&self, row: u64) -> Result<()> {
        let sectors = self.array.core().shape.row_sectors();
        match &self.nvram {
            Some(nvram) if nvram.has_intents(Lba(row * sectors), sectors) => self.flush(),
            _ => Ok(()),
        }
    }

    /// What parity lacks; `None` if that is no longer known.
    fn deltas_of(&self, parts: &[Part]) -> Result<Option<Deltas>> {
        let mut read = None;
        let mut deltas = Vec::with_capacity(parts.len());
        for part in parts {
            let (lba, result) = match part {
                Part::Delta(lba, base, delta) => (*lba, self.delta_of(*lba, *base, delta, &mut read)),
                Part::Versions(lba, old, new) => (*lba, self.versions(*old, *new)),
            };
            match result {
                Ok(delta) => deltas.push((lba, delta)),
                Err(error) if error.kind() == Kind::PowerLost => return Err(error),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(deltas))
    }

    /// A delta, as a whole sector. If it is unreadable, the difference between base and array. `read` caches the delta
    /// page read last.
    fn delta_of(
        &self,
        lba: Lba,
        base: PageNo,
        delta: &Delta,
        read: &mut Option<(PageNo, Vec<u8>)>,
    ) -> Result<Vec<u8>> {
        let mut out = vec![0; SECTOR_BYTES];
        match self.coded(delta, read).and_then(|coded| apply(&coded, &mut out)) {
            Ok(()) => Ok(out),
            Err(error) if error.kind() == Kind::PowerLost => Err(error),
            Err(error) => {
                let mut delta = self.read_base(lba, base, error.kind())?;
                self.array.read(lba, &mut out)?;
                // After a detach, writes bypass the cache, so the array may be newer than the delta that parity lacks.
                self.needed_ssd()?;
                xor_into(&mut delta, &out);
                self.counters.deltas_recomputed.fetch_add(1, Relaxed);
                Ok(delta)
            }
        }
    }

    /// The base of a delta that cannot be read for the reason `why`. If its checksum is not known the base is refused,
    /// and the row is resynchronised from data. That is impossible if a missing member has data of the row: then the
    /// page is trusted as it is, provided that the SSD reported the read error, and has never returned wrong content.
    fn read_base(&self, lba: Lba, base: PageNo, why: Kind) -> Result<Vec<u8>> {
        let ssd = self.needed_ssd()?;
        let lacks_data = || !self.array.lost_sectors(std::iter::once(self.row_of(lba))).is_empty();
        let is_honest = why == Kind::Io && ssd.wrong.load(Relaxed) == 0;
        match is_honest && ssd.sums.is_with_delta(base) && lacks_data() {
            true => ssd.read_unchecked(base),
            false => ssd.read_page(base),
        }
    }

    fn versions(&self, old: PageNo, new: PageNo) -> Result<Vec<u8>> {
        let ssd = self.needed_ssd()?;
        let mut delta = ssd.read_page(old)?;
        xor_into(&mut delta, &ssd.read_page(new)?);
        Ok(delta)
    }
}
