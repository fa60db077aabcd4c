//! Hash maps whose behaviour is the same in every run: fixed seeds, for keys that no outsider chooses.

/// Hasher builder with a fixed seed.
pub type FixedState = foldhash::fast::FixedState;

/// A hash map that behaves the same in every run. Do not iterate where order matters; do not key by
/// anything an outsider may choose freely (use a seeded content hash first).
#[expect(clippy::disallowed_types, reason = "this is the one sanctioned hash map")]
pub type FixedMap<K, V> = std::collections::HashMap<K, V, FixedState>;

/// The set that goes with [`FixedMap`].
#[expect(clippy::disallowed_types, reason = "this is the one sanctioned hash set")]
pub type FixedSet<K> = std::collections::HashSet<K, FixedState>;
