//! Restores a cache from the entries of its log and the content of its NVRAM (kdd.txt, III.E).

use super::Kdd;
use crate::cache::policy::{Recipe, Restored};
use crate::cache::restore::{Placed, each_page, place};
use crate::cache::shape::{CacheShape, PageState};
use crate::cache::staging::DELTA_BYTES_MAX;
use crate::cache::step::{DeltaPlace, LogEntry, PageNo, Staged};
use std::collections::BTreeSet;
use vellum_base::{Error, Result};

impl Kdd {
    /// See [`Recipe::restore`].
    pub fn restore(shape: CacheShape, recipe: &Recipe, restored: &Restored) -> Result<Kdd> {
        let mut kdd = Kdd::new(shape, recipe);
        let staged: BTreeSet<PageNo> = restored.staged.iter().map(|staged| staged.base).collect();
        let capacity = kdd.log.capacity();
        each_page(&shape, restored, capacity, |entry| kdd.restore_page(entry, staged.contains(&entry.page)))?;
        for staged in &restored.staged {
            kdd.restore_staged(staged)
                .map_err(|what| Error::corrupt(format!("a staged delta of {}: {what}", staged.lba.0)))?;
        }
        kdd.log.resume(&mut kdd.map, restored.log, &restored.entries);
        if let Some(segments) = &mut kdd.segments {
            segments.resume(&kdd.map);
        }
        Ok(kdd)
    }

    fn restore_page(&mut self, entry: &LogEntry, is_staged: bool) -> Placed {
        place(&mut self.map, entry)?;
        match (entry.state, entry.delta) {
            (PageState::Clean, None) => Ok(()),
            (PageState::Old, _) if is_staged => Ok(()),
            (PageState::Old, Some(delta)) => self.restore_delta(entry.page, delta),
            (PageState::Old, None) => Err("it is old and has no delta"),
            _ => Err("no such state in this policy"),
        }
    }

    fn restore_delta(&mut self, base: PageNo, (page, offset, bytes): (PageNo, u16, u16)) -> Placed {
        if page.0 >= self.map.shape.pages {
            return Err("its delta is beyond the cache");
        }
        match self.map.state(page) {
            PageState::Free => self.map.insert_deltas(page, 1),
            PageState::Delta => self.map.add_delta(page),
            _ => return Err("its delta is in a page of data"),
        }
        self.map.set_delta(base, DeltaPlace::In { page, offset, bytes }, 0);
        if let Some(segments) = &mut self.segments {
            segments.pack(page, base);
        }
        Ok(())
    }

    fn restore_staged(&mut self, staged: &Staged) -> Placed {
        if staged.base.0 >= self.map.shape.pages || self.map.find(staged.lba) != Some(staged.base) {
            return Err("its base is not in the cache");
        }
        if self.map.delta(staged.base).is_some() {
            return Err("it is there twice");
        }
        if usize::from(staged.bytes) > DELTA_BYTES_MAX {
            return Err("it is longer than a page of deltas takes");
        }
        if self.map.state(staged.base) == PageState::Clean {
            self.map.change(staged.base, PageState::Old);
        }
        let place = self.staging.push(staged.base, staged.bytes);
        self.map.set_delta(staged.base, DeltaPlace::Staged, place);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::policy::Scheme;
    use crate::layout::{Level, Shape};
    use vellum_base::Lba;

    #[test]
    fn a_staged_delta_that_no_page_takes_is_refused() {
        let shape = Shape { level: Level::Raid5, members: 4, chunk_sectors: 4, rows: 10 };
        let (page, state) = (PageNo(0), PageState::Clean);
        let entry = LogEntry { page, state, lba: Lba(0), delta: None, sum: None };
        let restore = |bytes| {
            let staged = vec![Staged { base: PageNo(0), lba: Lba(0), bytes, offset: 0 }];
            let restored = Restored { entries: vec![(entry, None)], log: (0, 0), staged };
            Recipe::new(Scheme::KddPaper, 64).restore(&shape, &restored).map(drop)
        };
        assert!(restore(DELTA_BYTES_MAX as u16).is_ok());
        assert!(restore(DELTA_BYTES_MAX as u16 + 1).is_err());
    }
}
