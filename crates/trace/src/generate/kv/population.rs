//! The existing records: numbers are allocated from 0 on, and a record exists once its insert was acknowledged.
//!
//! Invariants
//! 1. No number is allocated twice.
//! 2. Every record below [`Population::len`] was acknowledged, so a request finds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// No insert is in progress.
const NONE: u64 = u64::MAX;

/// The records of a store, shared by its clients.
#[derive(Debug)]
pub struct Population {
    next: AtomicU64,
    /// For each client, a number at or below that of its insert in progress.
    under_way: Vec<AtomicU64>,
}

/// The inserts of one client, one at a time.
#[derive(Debug)]
pub struct Inserter {
    population: Arc<Population>,
    client: usize,
}

impl Population {
    /// A population of `records` records, to which `clients` clients will add.
    pub fn new(records: u64, clients: usize) -> Arc<Population> {
        let under_way = (0..clients).map(|_| AtomicU64::new(NONE)).collect();
        Arc::new(Population { next: AtomicU64::new(records), under_way })
    }

    /// Number of records that exist, from 0 on without a gap.
    pub fn len(&self) -> u64 {
        // The order matters: an insert announces itself before it takes a number.
        let next = self.next.load(SeqCst);
        self.under_way.iter().map(|number| number.load(SeqCst)).fold(next, u64::min)
    }

    /// True if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The inserts of a client.
    pub fn inserter(self: &Arc<Self>, client: usize) -> Inserter {
        Inserter { population: self.clone(), client }
    }
}

impl Inserter {
    /// Allocates the number of a new record, if it is below `limit`. The record exists from the next call of
    /// [`Inserter::acknowledge`] on.
    pub fn begin(&self, limit: u64) -> Option<u64> {
        let Population { next, under_way } = &*self.population;
        under_way[self.client].store(next.load(SeqCst), SeqCst);
        let number = next.fetch_add(1, SeqCst);
        under_way[self.client].store(number, SeqCst);
        (number < limit).then_some(number)
    }

    /// Ends the insert in progress, if there is one.
    pub fn acknowledge(&self) {
        self.population.under_way[self.client].store(NONE, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_from_their_acknowledgement_on_and_without_gaps() {
        let population = Population::new(10, 2);
        let (a, b) = (population.inserter(0), population.inserter(1));
        assert_eq!((a.begin(100), b.begin(100)), (Some(10), Some(11)));
        assert_eq!(population.len(), 10);
        b.acknowledge();
        assert_eq!(population.len(), 10, "10 is not there yet");
        a.acknowledge();
        assert_eq!(population.len(), 12);
        assert_eq!(a.begin(12), None);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "threads that race")]
    fn what_counts_was_acknowledged_whoever_looks() {
        let population = Population::new(0, 2);
        let done: Arc<Vec<AtomicU64>> = Arc::new((0..20_000).map(|_| AtomicU64::new(0)).collect());
        let insert = |client: usize| {
            let (inserter, done) = (population.inserter(client), done.clone());
            std::thread::spawn(move || {
                while let Some(number) = inserter.begin(done.len() as u64) {
                    assert_eq!(done[number as usize].fetch_add(1, SeqCst), 0, "handed out twice");
                    inserter.acknowledge();
                }
                inserter.acknowledge();
            })
        };
        let clients = [insert(0), insert(1)];
        while population.len() < done.len() as u64 {
            let len = population.len().min(done.len() as u64) as usize;
            assert!(done[len.saturating_sub(64)..len].iter().all(|done| done.load(SeqCst) == 1));
        }
        clients.into_iter().for_each(|client| client.join().unwrap());
    }
}
