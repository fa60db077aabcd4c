//! What a manifest says of a table.

/// Most bytes that a manifest needs for a table on flash, not counting its two keys.
pub(crate) const TABLE_MANIFEST_BYTES: usize = 48 + SUM_MANIFEST_BYTES;
/// Of these, the bytes of its sum.
pub(super) const SUM_MANIFEST_BYTES: usize = 5;
/// Most bytes that a manifest in NVRAM has of the first and last key of a table.
pub(crate) const BOUNDS_MANIFEST_BYTES: usize = 2 * BOUND_MANIFEST_BYTES;
/// Of each of them, if together they have more.
const BOUND_MANIFEST_BYTES: usize = 64;

/// Description of a table in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableMeta {
    pub number: u64,
    pub bytes: u64,
    pub entries: u64,
    pub deletes: u64,
    /// Entries of which it has a newer version, too: they were kept for snapshots. 0 also if an earlier program wrote
    /// it.
    pub older: u64,
    pub seq_min: u64,
    pub seq_max: u64,
    /// Its first and last key.
    pub smallest: Vec<u8>,
    pub largest: Vec<u8>,
    /// These are only how its first and last key begin: the table has both.
    pub is_cut: bool,
    /// Sum of its leaves, which identifies it; `None` if written by an earlier version.
    pub sum: Option<u32>,
    /// Bytes of values in logs that it points to, and these logs.
    pub pointed_bytes: u64,
    pub logs: Vec<LogPart>,
}

/// A log that a table points into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogPart {
    pub number: u64,
    /// All its pointers are to bytes below this offset.
    pub bytes: u64,
}

impl TableMeta {
    /// True if a key is between its smallest and largest.
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.smallest[..] <= *key && self.largest[..] >= *key
    }

    /// The same with its first and last key cut if they are long.
    pub(crate) fn brief(self) -> TableMeta {
        match self.smallest.len() + self.largest.len() <= BOUNDS_MANIFEST_BYTES {
            true => self,
            false => {
                let (smallest, largest) =
                    (begin_of(&self.smallest).to_vec(), begin_of(&self.largest).to_vec());
                TableMeta { smallest, largest, is_cut: true, ..self }
            }
        }
    }

    /// True if it may have a key, as far as this says.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        self.has(key) || self.is_cut && self.smallest[..] <= *key && key.starts_with(&self.largest)
    }

    /// Most bytes that a manifest in NVRAM needs for it.
    pub(crate) fn manifest_bytes(&self) -> usize {
        // Tables written by earlier versions have no sum.
        let without = if self.sum.is_none() { SUM_MANIFEST_BYTES } else { 0 };
        TABLE_MANIFEST_BYTES - without + self.bounds_bytes()
    }

    /// Of these, the bytes for its first and last key.
    pub(crate) fn bounds_bytes(&self) -> usize {
        match self.smallest.len() + self.largest.len() {
            bytes if bytes <= BOUNDS_MANIFEST_BYTES => bytes,
            _ => begin_of(&self.smallest).len() + begin_of(&self.largest).len(),
        }
    }

    /// True if what the oldest snapshot sees, if there is one, is newer than all of it.
    pub(crate) fn is_seen_whole(&self, oldest: Option<u64>) -> bool {
        oldest.is_none_or(|seq| seq >= self.seq_max)
    }

    /// True if it has older versions of keys that nobody sees: they outlived the snapshots they were kept for.
    pub(crate) fn is_outlived(&self, oldest: Option<u64>) -> bool {
        self.older > 0 && self.is_seen_whole(oldest)
    }

    /// True if it points to values in logs.
    pub(crate) fn points(&self) -> bool {
        !self.logs.is_empty()
    }

    /// Approximate bytes including its values in logs: what a merge reads and writes.
    pub(crate) fn merged_bytes(&self) -> u64 {
        self.bytes.saturating_add(self.pointed_bytes)
    }
}

/// As much of a key as a manifest has if it is long.
fn begin_of(key: &[u8]) -> &[u8] {
    &key[..key.len().min(BOUND_MANIFEST_BYTES)]
}
