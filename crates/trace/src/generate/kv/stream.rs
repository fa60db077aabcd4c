//! The requests of one of the tasks that carry out a job.

use super::choice::Chooser;
use super::population::{Inserter, Population};
use super::workload::{Workload, YCSB_SCAN_RECORDS_MAX};
use super::{Kind, KvRequest};
use crate::generate::Seeded;
use vellum_base::{Error, Result};

/// A workload and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// The workload.
    pub workload: Workload,
    /// Number of records at the beginning; for a workload that fills an empty store, at the end.
    pub records: u64,
    /// Number of requests of all tasks together.
    pub requests: u64,
    /// Number of tasks.
    pub tasks: usize,
    /// Seed of everything random.
    pub seed: u64,
}

/// See the module. Requesting the next item acknowledges the previous one.
#[derive(Debug)]
pub struct Stream {
    left: u64,
    rng: Seeded,
    /// Kinds, each with the sum of the shares up to it, in units of 2^-64.
    kinds: Vec<(Kind, u64)>,
    chooser: Option<Chooser>,
    inserter: Inserter,
    insert_limit: u64,
}

impl Job {
    /// One stream per task. The number of an insert depends on which task asks first; everything else on the seed
    /// alone.
    pub fn streams(&self) -> Result<Vec<Stream>> {
        if self.tasks == 0 || self.records == 0 {
            return Err(Error::invalid("a workload needs records, and somebody to ask for them"));
        }
        let mix = self.workload.mix();
        let inserts = mix.share(Kind::Insert);
        // A workload of inserts only starts with an empty store; other kinds of filling draw from all records, existing
        // or not.
        let (there, limit) = if inserts == 1.0 { (0, self.records) } else { (self.records, u64::MAX) };
        let population = Population::new(there, self.tasks);
        let expected = (self.requests as f64 * inserts) as u64;
        let stream = |task: usize| {
            let chooser = match inserts == 1.0 {
                true => None,
                false => Some(Chooser::new(mix.choice, &population, expected)?),
            };
            let (each, rest) = (self.requests / self.tasks as u64, self.requests % self.tasks as u64);
            Ok(Stream {
                left: each + u64::from((task as u64) < rest),
                rng: Seeded::new(Seeded::new(self.seed ^ (task as u64) << 48).next()),
                kinds: thresholds(mix.shares),
                chooser,
                inserter: population.inserter(task),
                insert_limit: limit,
            })
        };
        (0..self.tasks).map(stream).collect()
    }
}

fn thresholds(shares: &[(Kind, f64)]) -> Vec<(Kind, u64)> {
    let mut sum = 0.0;
    let up_to = shares.iter().map(|(kind, share)| {
        sum += share;
        (*kind, (sum * u64::MAX as f64) as u64)
    });
    up_to.collect()
}

impl Stream {
    fn kind(&mut self) -> Kind {
        if let [(only, _)] = self.kinds[..] {
            return only;
        }
        let drawn = self.rng.next();
        let kind = self.kinds.iter().find(|(_, up_to)| drawn <= *up_to).or(self.kinds.last());
        kind.map_or(Kind::Read, |(kind, _)| *kind)
    }
}

impl Iterator for Stream {
    type Item = KvRequest;

    #[inline]
    fn next(&mut self) -> Option<KvRequest> {
        self.inserter.acknowledge();
        self.left = self.left.checked_sub(1)?;
        let kind = self.kind();
        let record = match (&mut self.chooser, kind) {
            (_, Kind::Insert) | (None, _) => self.inserter.begin(self.insert_limit)?,
            (Some(chooser), _) => chooser.choose(&mut self.rng),
        };
        let records = match kind {
            Kind::Scan => 1 + self.rng.below(YCSB_SCAN_RECORDS_MAX.into()) as u32,
            _ => 1,
        };
        Some(KvRequest { kind, record, records })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.inserter.acknowledge();
    }
}
