//! Distributions and order of the keys written.

use std::collections::VecDeque;
use vellum_base::Result;
use vellum_trace::generate::kv::choice::scatter;
use vellum_trace::generate::{Seeded, Zipf};

/// Consecutive keys of a cluster, and random keys between two clusters (freewrite.txt, section 4.1).
const CLUSTER_KEYS: u64 = 20;
const BETWEEN_CLUSTERS: u64 = 5;
/// Share of requests that repeat a key in the paper's loads.
const REPEATED: f64 = 0.04;
/// The range of keys is this many times the number of records.
const RANGE_TIMES: u64 = 1 << 20;
/// Limit on how late a record may come in time order.
const LATE_MAX: u64 = 1000;

/// A request to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Put(u64),
    Delete(u64),
}

/// A distribution of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    /// The paper's: random.
    Uniform,
    /// The paper's: clusters of 20 consecutive keys.
    Clustered,
    /// The paper's: five random keys between two clusters.
    Mixed,
    /// All records, then twice as many uniformly random updates.
    UniformUpdates,
    /// The same with Zipf-distributed updates of scattered keys.
    ZipfUpdates,
    /// The same with updates of 20 consecutive keys, like the paper's clusters; the load uses such runs as well.
    ClusteredUpdates,
    /// Records in time order, some slightly late; once the intended number is reached, the oldest are deleted.
    TimeOrdered,
    /// New records at random keys; once all are present, a random one is deleted for each new one. Like Bitcoin's
    /// chainstate.
    InsertThenDelete,
}

impl Keys {
    pub(super) const PAPER: [Keys; 3] = [Keys::Uniform, Keys::Clustered, Keys::Mixed];
    pub(super) const GRID: [Keys; 5] = [
        Keys::UniformUpdates,
        Keys::ZipfUpdates,
        Keys::ClusteredUpdates,
        Keys::TimeOrdered,
        Keys::InsertThenDelete,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Keys::Uniform | Keys::UniformUpdates => "uniform",
            Keys::Clustered | Keys::ClusteredUpdates => "clustered",
            Keys::Mixed => "mixed",
            Keys::ZipfUpdates => "zipf",
            Keys::TimeOrdered => "time-ordered",
            Keys::InsertThenDelete => "insert-delete",
        }
    }

    /// Number of puts in a run with `records`.
    pub(super) fn puts(self, records: u64) -> u64 {
        if Keys::PAPER.contains(&self) { records } else { 3 * records }
    }

    /// All requests, in order.
    pub(super) fn requests(self, records: u64, seed: u64) -> Result<Requests> {
        Ok(Requests {
            keys: self,
            records,
            left: self.puts(records),
            rng: Seeded::new(seed),
            zipf: Zipf::new(records, 0.99)?,
            run: 0..0,
            loose: 0,
            starts: Default::default(),
            alive: VecDeque::new(),
            pending: VecDeque::new(),
        })
    }
}

/// See [`Keys::requests`].
pub(super) struct Requests {
    keys: Keys,
    records: u64,
    left: u64,
    rng: Seeded,
    zipf: Zipf,
    /// Rest of the current cluster.
    run: std::ops::Range<u64>,
    /// Random keys left before the next cluster.
    loose: u64,
    /// Keys, and first keys of clusters, written so far, for repetition.
    starts: [Vec<u64>; 2],
    /// Records present.
    alive: VecDeque<u64>,
    pending: VecDeque<Request>,
}

impl Requests {
    /// The next key of the paper's loads.
    fn papers(&mut self) -> u64 {
        if let Some(key) = self.run.next() {
            return key;
        }
        let length = match self.keys {
            Keys::Uniform => 1,
            Keys::Clustered => CLUSTER_KEYS,
            _ if self.loose > 0 => 1,
            _ => CLUSTER_KEYS,
        };
        self.loose = if length == 1 { self.loose.saturating_sub(1) } else { BETWEEN_CLUSTERS };
        let start = self.start(length);
        self.run = start + 1..start + length;
        start
    }

    /// The next key, or first key of a cluster: an earlier one of the same length, or a random one.
    fn start(&mut self, length: u64) -> u64 {
        let starts = &mut self.starts[usize::from(length > 1)];
        if self.rng.chance(REPEATED) && !starts.is_empty() {
            return starts[self.rng.below(starts.len() as u64) as usize];
        }
        let start = self.rng.below(self.records * RANGE_TIMES);
        starts.push(start);
        start
    }

    /// The record to update, once all are present.
    fn updated(&mut self) -> u64 {
        if let Some(key) = self.run.next() {
            return key;
        }
        match self.keys {
            Keys::ZipfUpdates => scatter(self.zipf.sample(&mut self.rng)) % self.records,
            Keys::ClusteredUpdates => {
                let start = self.rng.below(self.records - CLUSTER_KEYS);
                self.run = start + 1..start + CLUSTER_KEYS;
                start
            }
            _ => self.rng.below(self.records),
        }
    }

    fn put(&mut self, number: u64) -> Request {
        let (records, is_load) = (self.records, number < self.records);
        match self.keys {
            Keys::Uniform | Keys::Clustered | Keys::Mixed => Request::Put(self.papers()),
            Keys::ClusteredUpdates if is_load => Request::Put(spread_rows(number, records)),
            // Every record once, in scattered order: its number times an odd factor coprime to their count.
            _ if is_load && self.keys.updates() => Request::Put(spread(number, records)),
            Keys::TimeOrdered => {
                let key = number + self.rng.below(LATE_MAX);
                self.insert(key, 0)
            }
            Keys::InsertThenDelete => {
                let dead = self.rng.below(records);
                self.insert(scatter(number), dead)
            }
            _ => Request::Put(self.updated()),
        }
    }

    /// Adds a record; if there are enough, the one at index `dead` is deleted next.
    fn insert(&mut self, key: u64, dead: u64) -> Request {
        self.alive.push_back(key);
        if self.alive.len() as u64 > self.records {
            self.alive.swap(0, dead as usize);
            self.pending.extend(self.alive.pop_front().map(Request::Delete));
        }
        Request::Put(key)
    }
}

impl Keys {
    fn updates(self) -> bool {
        matches!(self, Keys::UniformUpdates | Keys::ZipfUpdates | Keys::ClusteredUpdates)
    }
}

/// A permutation of `0..count`.
fn spread(number: u64, count: u64) -> u64 {
    const FACTOR: u64 = 2_654_435_761; // a prime above every count here
    (number % count).wrapping_mul(FACTOR) % count
}

/// The same for rows of [`CLUSTER_KEYS`], each in order; records that do not fill a row come last.
fn spread_rows(number: u64, count: u64) -> u64 {
    let rows = count / CLUSTER_KEYS;
    match number < rows * CLUSTER_KEYS {
        true => spread(number / CLUSTER_KEYS, rows) * CLUSTER_KEYS + number % CLUSTER_KEYS,
        false => number,
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        if let Some(request) = self.pending.pop_front() {
            return Some(request);
        }
        let number = self.keys.puts(self.records) - self.left;
        self.left = self.left.checked_sub(1)?;
        Some(self.put(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn loads_repeat_what_the_paper_says() {
        for keys in Keys::PAPER {
            let all: Vec<Request> = keys.requests(50_000, 1).unwrap().collect();
            let distinct = all.iter().map(|r| if let Request::Put(key) = r { *key } else { 0 });
            let distinct = distinct.collect::<BTreeSet<_>>();
            let repeated = 1.0 - distinct.len() as f64 / all.len() as f64;
            assert_eq!(all.len(), 50_000);
            assert!((0.02..0.05).contains(&repeated), "{}: {repeated}", keys.name());
            let rows = distinct.iter().zip(distinct.iter().skip(1)).filter(|(a, b)| *a + 1 == **b).count();
            let expected = match keys {
                Keys::Uniform => 0.0,
                Keys::Clustered => 19.0 / 20.0,
                _ => 19.0 / 25.0,
            };
            let share = rows as f64 / distinct.len() as f64;
            assert!((share - expected).abs() < 0.02, "{}: {share} in a row", keys.name());
        }
    }

    #[test]
    fn updates_begin_with_every_record_once() {
        for keys in [Keys::UniformUpdates, Keys::ZipfUpdates, Keys::ClusteredUpdates] {
            let all: Vec<Request> = keys.requests(3007, 1).unwrap().collect();
            let load: Vec<u64> =
                all[..3007].iter().map(|r| if let Request::Put(key) = r { *key } else { 0 }).collect();
            let loaded: BTreeSet<u64> = load.iter().copied().collect();
            assert_eq!((loaded.len(), loaded.last(), all.len()), (3007, Some(&3006), 9021));
            let in_rows = load.windows(2).filter(|two| two[0] + 1 == two[1]).count();
            let most = if keys == Keys::ClusteredUpdates { 150 * 19 + 6..150 * 19 + 9 } else { 0..30 };
            assert!(most.contains(&in_rows), "{}: {in_rows}", keys.name());
        }
    }

    #[test]
    fn as_many_are_there_in_the_end() {
        let mut there = BTreeSet::new();
        for request in Keys::InsertThenDelete.requests(1000, 1).unwrap() {
            let changed = match request {
                Request::Put(key) => there.insert(key),
                Request::Delete(key) => there.remove(&key),
            };
            assert!(changed);
        }
        assert_eq!(there.len(), 1000);
    }
}
