//! Parity that was put off is brought up to date: from what it lacks, or from data.

use super::core::{Core, apply};
use super::job::{Delta, Part};
use crate::cache::step::PageNo;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::{BlockDevice, Kind, Lba, Result, SECTOR_BYTES};
use vellum_codes::parity::xor_into;

/// Whole sectors, and what they differ by from what parity knows.
type Deltas = Vec<(Lba, Vec<u8>)>;

impl Core {
    /// Brings parity up to date: from what it lacks, or from data if that cannot be had.
    pub fn update_parity(&self, row: u64, parts: &[Part], stamp: u64) -> Result<()> {
        let began = self.env.now();
        if !self.array.is_stale(row) {
            self.is_whole(row, stamp);
            return Ok(());
        }
        self.make_durable(row)?;
        // Nobody asks for a row of which the policy has nothing but because nobody knows what its parity lacks.
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

    /// Where parity cannot be read, nor computed with a member out, the cache may have what that lacks.
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

    /// A sector whose parity was put off, as it is now, if the cache can tell.
    fn newest_of(&self, part: &Part) -> Option<(u64, Vec<u8>)> {
        let (lba, content) = match part {
            Part::Delta(lba, base, delta) => (lba, self.read_changed(*base, delta)),
            Part::Versions(lba, _, new) => (lba, self.read_page(*new)),
        };
        Some((lba.0, content.ok()?))
    }

    /// Data of a row whose intents go with its deltas are durable first.
    fn make_durable(&self, row: u64) -> Result<()> {
        let sectors = self.array.core().shape.row_sectors();
        match &self.nvram {
            Some(nvram) if nvram.has_intents(Lba(row * sectors), sectors) => self.flush(),
            _ => Ok(()),
        }
    }

    /// What parity lacks; None if that cannot be known any more.
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

    /// A delta as a sector. If it cannot be read: what base and array differ by. `read` keeps the delta page that was
    /// read last.
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
                // Once it is detached, writes pass the cache by, and what was read may be newer than parity's lack.
                self.needed_ssd()?;
                xor_into(&mut delta, &out);
                self.counters.deltas_recomputed.fetch_add(1, Relaxed);
                Ok(delta)
            }
        }
    }

    /// The base of a delta that cannot be read, for this reason. If nobody knows what it held, its row is made anew
    /// from data. Where a member is away that has some of these, that cannot be: the page is taken for what it is then,
    /// from an SSD that says what it cannot read, and has returned nothing wrong.
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
