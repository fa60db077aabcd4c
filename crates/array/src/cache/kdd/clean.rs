//! Cleaning: updates parity of whole rows from deltas, and reclaims their pages (kdd.txt, III.D; its second reclamation
//! scheme).

use super::Kdd;
use crate::cache::shape::PageState;
use crate::cache::step::{DeltaPlace, PageNo, ParityPart, Step, Steps};
use vellum_base::Lba;

impl Kdd {
    /// Cleans the coldest rows of a set in which too many pages are dirty.
    pub(super) fn keep_clean(&mut self, set: u32, steps: &mut Steps) {
        let share = |share: f64| (share * f64::from(self.map.pages_of(set))) as u32;
        // With segments the SSD is a single set, too large to clean a share of it at once.
        let is_all = self.segments.is_some() && set != self.map.shape.window_set();
        let (high, low) = (share(self.high), share(if is_all { self.high } else { self.low }));
        if self.map.dirty(set) <= high {
            return;
        }
        while self.map.dirty(set) > low {
            let Some(coldest) = self.map.coldest_pinned(set) else { return };
            self.clean(self.map.shape.row_of(self.map.lba(coldest)), steps);
        }
    }

    /// Updates the parity of a row, and reclaims its old pages and their deltas.
    pub(super) fn clean(&mut self, row: u64, steps: &mut Steps) {
        let mut pages = std::mem::take(&mut self.row);
        self.map.pinned_of_row(row, &mut pages);
        if !pages.is_empty() {
            self.update_parity(row, &pages, steps);
        }
        for page in pages.drain(..) {
            self.reclaim(page, steps);
        }
        self.row = pages;
    }

    /// Reclaims an old page whose row is clean: a page in memory gets the newest version, a page on flash is dropped.
    fn reclaim(&mut self, page: PageNo, steps: &mut Steps) {
        if self.map.shape.is_window(page) {
            steps.push(Step::Refresh(page));
            self.drop_delta(page, steps);
            self.map.clear_delta(page);
            self.map.change(page, PageState::Clean);
            return;
        }
        if let Some(admission) = &mut self.admission {
            admission.remember(self.map.lba(page));
        }
        self.drop_delta(page, steps);
        self.drop_page(page, steps);
        steps.push(Step::Discard(page));
    }

    fn update_parity(&mut self, row: u64, pages: &[PageNo], steps: &mut Steps) {
        let from = steps.parts.len() as u32;
        let mut last_read = None;
        for page in pages {
            let (lba, place) = (self.map.lba(*page), self.map.delta(*page).expect("old pages have deltas"));
            if let DeltaPlace::In { page, .. } = place
                && last_read.replace(page) != Some(page)
            {
                steps.push(Step::ReadDeltas(page));
            }
            steps.parts.push(ParityPart::Delta(lba, *page, place));
        }
        let whole = self.add_rest_of_columns(row, pages, steps);
        let count = steps.parts.len() as u32 - from;
        steps.push(Step::UpdateParity { row, from, count, whole });
    }

    /// True if the cache has all data at the offsets of these pages; then the rest of them is added to the list.
    fn add_rest_of_columns(&self, row: u64, pages: &[PageNo], steps: &mut Steps) -> bool {
        let (chunk, start) = (self.map.shape.chunk_sectors, row * self.map.shape.row_sectors);
        let columns = self.map.shape.row_sectors / chunk;
        let mates = |page: &PageNo| {
            let offset = (self.map.lba(*page).0 - start) % chunk;
            (0..columns).map(move |column| Lba(start + column * chunk + offset))
        };
        if !pages.iter().flat_map(mates).all(|lba| self.map.find(lba).is_some()) {
            return false;
        }
        let parts = steps.parts.len();
        for page in pages {
            self.read_page(*page, steps);
            for lba in mates(page) {
                let mate = self.map.find(lba).expect("all are there");
                let is_listed = || steps.parts[parts..].contains(&ParityPart::Same(lba, mate));
                if self.map.state(mate) == PageState::Clean && !is_listed() {
                    self.read_page(mate, steps);
                    steps.parts.push(ParityPart::Same(lba, mate));
                }
            }
        }
        true
    }
}
