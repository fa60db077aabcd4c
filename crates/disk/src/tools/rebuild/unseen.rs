//! The highest possible number of events in unreadable pages: rule 4 of [`super`].

use super::Rebuild;
use crate::format::NO_SLOT;
use crate::format::oob::SlotKind;
use crate::format::root::Root;
use crate::roots::FoundRoot;
use vellum_base::SlotAddr;

impl Rebuild<'_> {
    /// After a clean close nothing is programmed after the last root, and the root contains the total programmed: if
    /// the device counts no more, unreadable pages are older than the root.
    pub(super) fn bound_unseen(&mut self, found: Option<&FoundRoot>) {
        self.unseen_seq = self.evidence.unseen_seq;
        if let Some(FoundRoot { root, seq, .. }) = found
            && root.clean
            && self.evidence.newest_seq <= *seq
        {
            let pages = self.flash.counters().pages_programmed;
            let programmed = pages.checked_mul(u64::from(self.geometry.page_bytes));
            if programmed == Some(root.ledger.programmed_total()) {
                self.unseen_seq = self.unseen_seq.min(seq - 1);
            }
        }
    }

    /// The checkpoint of a root counts if its directories, or later ones, can be read: they list the nodes, so missing
    /// ones are known.
    pub(super) fn find_covered(&mut self, root: Option<&Root>) {
        let Some(root) = root else { return };
        let is_known = |(directory, slot): (u32, &u32)| {
            let named = self.evidence.of_kind(SlotAddr(*slot), SlotKind::Directory);
            let read = self.directories.get(&directory).map(|(seq, _)| *seq);
            *slot == NO_SLOT
                || matches!((named, read), (Some((seq, id)), Some(read)) if id == directory && read >= seq)
        };
        if (0u32..).zip(&root.directories).all(is_known) {
            self.covered_seq = root.checkpoint_seq;
        }
    }
}
