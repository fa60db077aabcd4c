//! One of many locks, held while consecutive operations need the same one.
//!
//! Taking and releasing a lock costs more than most of the work done under it, and the operations of a batch mostly
//! stay on one die.

use vellum_base::sync::{Mutex, MutexGuard};

/// Holds at most one of `locks`.
pub(crate) struct OneOf<'a, T> {
    locks: &'a [Mutex<T>],
    held: Option<(usize, MutexGuard<'a, T>)>,
}

impl<'a, T> OneOf<'a, T> {
    /// Holds no lock yet.
    pub fn new(locks: &'a [Mutex<T>]) -> OneOf<'a, T> {
        OneOf { locks, held: None }
    }

    /// The value behind lock `index`. Releases any other lock first.
    #[inline]
    pub fn get(&mut self, index: usize) -> &mut T {
        if self.held.as_ref().is_none_or(|(held, _)| *held != index) {
            self.release();
            self.held = Some((index, self.locks[index].lock()));
        }
        let (_, guard) = self.held.as_mut().expect("taken above");
        guard
    }

    /// Releases the lock, if one is held.
    pub fn release(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_is_held() {
        let locks = [Mutex::new(1), Mutex::new(2)];
        let mut one = OneOf::new(&locks);
        *one.get(0) += 10;
        assert!(locks[0].try_lock().is_none() && locks[1].try_lock().is_some());
        *one.get(1) += 20;
        assert!(locks[0].try_lock().is_some() && locks[1].try_lock().is_none());
        one.release();
        assert_eq!((*locks[0].lock(), *locks[1].lock()), (11, 22));
    }
}
