//! Admission to flash: a sector may be written to flash if it is missed again within a while (LARC: Huang et al.,
//! Improving flash-based disk cache with lazy adaptive replacement, MSST 2013), or used twice while it is in memory;
//! both limited by the flash budget.
//!
//! 1. The ghost list holds sectors, without data, that left memory unused. It holds at most `room` of them, between a
//!    tenth and nine tenths of the cache's pages: every miss of the cache raises `room`, every hit lowers it.
//! 2. A sector that is missed again leaves the ghost list.

use std::collections::VecDeque;
use vellum_base::hash::FixedMap;
use vellum_base::{Lba, SECTOR_BYTES};

/// What is known of a sector on a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It was not missed lately.
    New,
    /// It is in the ghost list: it was missed before, a while ago.
    Proven,
    /// It is part of a long sequential run.
    Passing,
}

/// See the module.
pub(super) struct Admission {
    pages: f64,
    room: f64,
    /// Sectors in the order of their misses; an entry is valid only if the ghost list has the same number for the
    /// sector.
    queue: VecDeque<(Lba, u32)>,
    ghosts: FixedMap<Lba, u32>,
    count: u32,
    /// The sector after the last miss, and the length of the run of consecutive misses up to it.
    run: (Lba, u64),
    run_max: u64,
    /// Bytes that may be written; `None`: no limit.
    budget: Option<i64>,
}

impl Admission {
    /// For a cache of this many pages. Misses in runs longer than `run_max` sectors are not remembered. `budget` is the
    /// number of bytes that may be written at first; `None`: no limit.
    pub fn new(pages: u32, run_max: u64, budget: Option<i64>) -> Admission {
        let pages = f64::from(pages);
        Admission {
            pages,
            room: pages / 10.0,
            queue: VecDeque::new(),
            ghosts: FixedMap::default(),
            count: 0,
            run: (Lba(0), 0),
            run_max,
            budget,
        }
    }

    /// Counts a hit of the cache.
    pub fn hit(&mut self) {
        self.room = (self.room - self.pages / (self.pages - self.room)).max(self.pages / 10.0);
    }

    /// Counts a miss of the cache; returns what is known of the sector.
    pub fn miss(&mut self, lba: Lba) -> Standing {
        self.room = (self.room + self.pages / self.room).min(self.pages * 0.9);
        self.run = (lba.offset(1), if self.run.0 == lba { self.run.1 + 1 } else { 1 });
        if self.ghosts.remove(&lba).is_some() {
            return Standing::Proven;
        }
        if self.run.1 > self.run_max { Standing::Passing } else { Standing::New }
    }

    /// Puts a sector into the ghost list: if it is missed soon, it may be admitted.
    pub fn remember(&mut self, lba: Lba) {
        self.count = self.count.wrapping_add(1);
        self.ghosts.insert(lba, self.count);
        self.queue.push_back((lba, self.count));
        self.trim();
    }

    /// Charges bytes written to flash.
    pub fn spend(&mut self, bytes: usize) {
        if let Some(budget) = &mut self.budget {
            *budget -= bytes as i64;
        }
    }

    /// Adds to the budget. What is not used is kept, up to the cache's size.
    pub fn grant(&mut self, bytes: i64) {
        if let Some(budget) = &mut self.budget {
            let most = self.pages as i64 * SECTOR_BYTES as i64;
            *budget = budget.saturating_add(bytes).min(most);
        }
    }

    /// Bytes that may be written, if there is a budget; may be negative.
    pub fn left(&self) -> Option<i64> {
        self.budget
    }

    /// True if the budget is used up.
    pub fn is_broke(&self) -> bool {
        self.budget.is_some_and(|budget| budget < SECTOR_BYTES as i64)
    }

    fn trim(&mut self) {
        if self.queue.len() as f64 > 2.0 * self.pages + 16.0 {
            self.queue.retain(|(lba, count)| self.ghosts.get(lba) == Some(count));
        }
        while self.ghosts.len() as f64 > self.room {
            let Some((lba, count)) = self.queue.pop_front() else { return };
            if self.ghosts.get(&lba) == Some(&count) {
                self.ghosts.remove(&lba);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn misses(admission: &mut Admission, lbas: impl IntoIterator<Item = u64>) -> Vec<Standing> {
        lbas.into_iter().map(|lba| admission.miss(Lba(lba))).collect()
    }

    #[test]
    fn misses_behind_the_longest_run_that_is_remembered_pass_by() {
        use Standing::{New, Passing};
        let mut admission = Admission::new(100, 3, None);
        assert_eq!(misses(&mut admission, 10..15), [New, New, New, Passing, Passing]);
        // A run ends where another sector is missed in between, and the next one begins anew.
        assert_eq!(misses(&mut admission, [40, 15, 16, 17, 18]), [New, New, New, New, Passing]);
        assert_eq!(misses(&mut admission, [18, 17, 16, 15]), [New; 4], "backwards is no run");
        let mut none = Admission::new(100, 0, None);
        assert_eq!(misses(&mut none, [5, 5]), [Passing; 2]);
    }

    #[test]
    fn what_was_remembered_is_proven_once_in_a_run_too() {
        use Standing::{New, Passing, Proven};
        let mut admission = Admission::new(100, 1, None);
        [12, 50].map(Lba).into_iter().for_each(|lba| admission.remember(lba));
        assert_eq!(misses(&mut admission, 11..14), [New, Proven, Passing]);
        assert_eq!(misses(&mut admission, [50, 50, 12]), [Proven, New, New]);
    }

    #[test]
    fn the_ghost_list_forgets_the_oldest_and_grows_by_misses() {
        let mut admission = Admission::new(100, 1000, None);
        (0..11).map(Lba).for_each(|lba| admission.remember(lba));
        assert_eq!(
            misses(&mut admission, [0, 10]),
            [Standing::New, Standing::Proven],
            "a tenth of the pages"
        );
        misses(&mut admission, (0..200).map(|i| 1000 + 2 * i));
        (0..95).map(Lba).for_each(|lba| admission.remember(lba));
        assert_eq!(misses(&mut admission, [4, 5]), [Standing::New, Standing::Proven], "at most nine tenths");
    }
}
