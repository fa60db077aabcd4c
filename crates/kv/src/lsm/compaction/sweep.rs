//! Visibility filter of a merge: which versions of a key are still needed.

use crate::key::{EntryKind, Stamp};
use crate::lsm::core::Core;
use crate::lsm::version::Version;

/// Is shown entries in order, and says of each whether it is still visible to anyone.
pub(crate) struct Sweep {
    /// Sequence numbers of the snapshots, ascending.
    snapshots: Vec<u64>,
    /// Numbers of dropped keyspaces.
    dead: Vec<u8>,
    key: Vec<u8>,
    /// The viewer of the last entry of `key`: a snapshot, or `Some(None)` for the newest state; `None` before the first
    /// entry.
    seen_by: Option<Option<u64>>,
}

impl Sweep {
    /// With the snapshots that are open now, and the keyspaces of `version`.
    pub(crate) fn of(core: &Core, version: &Version) -> Sweep {
        Sweep::new(core.snapshots.lock().keys().copied().collect(), version.keyspaces.dead().collect())
    }

    /// `snapshots`: those open when the sweep begins; later ones see the newest version of everything. `dead`: dropped
    /// keyspaces.
    pub(crate) fn new(mut snapshots: Vec<u64>, dead: Vec<u8>) -> Sweep {
        snapshots.sort_unstable();
        Sweep { snapshots, dead, key: Vec::new(), seen_by: None }
    }

    /// True if snapshots may see versions that are not the newest.
    pub(crate) fn looks_back(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// True if the entry is needed. `bottom` says whether no older version of its key can be in a deeper level.
    pub(crate) fn keeps(&mut self, key: &[u8], stamp: Stamp, bottom: impl FnOnce() -> bool) -> bool {
        if self.key != key {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.seen_by = None;
        }
        if key.first().is_some_and(|keyspace| self.dead.contains(keyspace)) {
            return false;
        }
        // The oldest snapshot that sees this entry. If it sees a newer entry of the key, that hides this one.
        let first = self.snapshots.partition_point(|snapshot| *snapshot < stamp.seq());
        let viewer = self.snapshots.get(first).copied();
        if self.seen_by == Some(viewer) {
            return false;
        }
        self.seen_by = Some(viewer);
        // A delete with nothing below hides nothing: older versions in this merge follow right after it and are dropped
        // as well, as long as no snapshot sees one of them.
        let oldest_view = first == 0;
        !(stamp.kind() == Some(EntryKind::Delete) && oldest_view && bottom())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Entry = (u8, u64, bool);

    fn visible(entries: &[Entry], key: u8, seq: u64) -> Option<u64> {
        let newest = entries.iter().filter(|e| e.0 == key && e.1 <= seq).max_by_key(|e| e.1)?;
        newest.2.then_some(newest.1)
    }

    proptest! {
        #[test]
        fn nobody_sees_a_difference(ops in prop::collection::vec((0u8..4, any::<bool>()), 0..40), snapshots in prop::collection::vec(0u64..45, 0..4), bottom in any::<bool>()) {
            let mut entries: Vec<Entry> = ops.iter().enumerate().map(|(i, (k, put))| (*k, i as u64 + 1, *put)).collect();
            entries.sort_by_key(|e| (e.0, std::cmp::Reverse(e.1)));
            let mut sweep = Sweep::new(snapshots.clone(), Vec::new());
            let kept: Vec<Entry> = entries.iter().copied().filter(|(key, seq, put)| {
                let kind = if *put { EntryKind::Put } else { EntryKind::Delete };
                sweep.keeps(&[*key], Stamp::new(*seq, kind), || bottom)
            }).collect();
            for seq in snapshots.iter().copied().chain([u64::MAX >> 8]) {
                for key in 0..4 {
                    prop_assert_eq!(visible(&kept, key, seq), visible(&entries, key, seq));
                }
            }
            // No more than one version for each viewer.
            for key in 0..4 {
                prop_assert!(kept.iter().filter(|e| e.0 == key).count() <= snapshots.len() + 1);
            }
            if snapshots.is_empty() && bottom {
                prop_assert!(kept.iter().all(|e| e.2), "a delete stayed for nothing");
            }
        }
    }
}
