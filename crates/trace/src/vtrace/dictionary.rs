//! The contents that a trace has had before, in bounded memory.
//!
//! Contents get dense ids in the order of their first appearance. The table has two generations: a hit moves its entry
//! to the young one; when the young one is full, it replaces the old one. So contents used again within the last
//! `capacity` distinct ones are always found; a forgotten one gets a new id, as if it were new.

use vellum_base::hash::FixedMap;

/// A map of two generations.
pub struct Generations<K, V> {
    young: FixedMap<K, V>,
    old: FixedMap<K, V>,
    capacity: usize,
}

impl<K: Copy + Eq + std::hash::Hash, V: Copy> Generations<K, V> {
    /// A table that remembers at least the latest `capacity` distinct keys.
    pub fn new(capacity: usize) -> Generations<K, V> {
        Generations { young: FixedMap::default(), old: FixedMap::default(), capacity: capacity.max(1) }
    }

    /// The value of `key`, which counts as used now.
    pub fn get(&mut self, key: K) -> Option<V> {
        if let Some(value) = self.young.get(&key) {
            return Some(*value);
        }
        let value = self.old.remove(&key)?;
        self.insert(key, value);
        Some(value)
    }

    /// Stores `value` for `key`.
    pub fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.capacity {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_keys_are_found_and_memory_is_bounded() {
        let mut table = Generations::new(100);
        for key in 0..10_000u64 {
            table.insert(key, key * 2);
            assert_eq!(table.get(0), Some(0), "used every time, so never forgotten");
            for recent in key.saturating_sub(98)..=key {
                assert_eq!(table.get(recent), Some(recent * 2));
            }
            assert!(table.young.len() + table.old.len() <= 201);
        }
        assert_eq!(table.get(5000), None);
    }
}
