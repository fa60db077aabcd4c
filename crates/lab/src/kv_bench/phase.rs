//! One workload on one store: each client is a task, and each request is timed.

use super::engine::{Engine, Session};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Env, Error, Nanos, Result};
use vellum_trace::generate::kv::{Job, KeyForm, Kind, KvRequest, Stream, Values, Workload};

/// Longest time that a histogram records exactly; longer ones are clipped to it.
const LATENCY_MAX: Nanos = Nanos::from_ms(1_000_000);
/// Significant digits of a histogram.
const DIGITS: u8 = 3;

/// Parameters of a phase.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// Requests, tasks, seed.
    pub job: Job,
    /// Bytes of every value.
    pub value_bytes: usize,
    /// Compressed size of a value, as a share of its size.
    pub compressible: f64,
    /// No requests are started after this time.
    pub time_max: Option<Nanos>,
}

/// Results of a phase.
#[derive(Debug, Default)]
pub struct Measured {
    /// Requests that were answered.
    pub requests: u64,
    /// From the start of the first request to the end of the last.
    pub elapsed: Nanos,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Records that were inserted.
    pub inserted: u64,
    /// Reads that found nothing.
    pub absent: u64,
    /// Values that belong to another record, or have the wrong length.
    pub wrong: u64,
    /// Times by kind of request.
    pub kinds: BTreeMap<Kind, Latencies>,
}

/// How long requests took.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

/// Quantiles of latencies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Number of requests.
    pub requests: u64,
    /// Median.
    pub latency_ns_p50: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p999: u64,
    /// Maximum.
    pub latency_ns_max: u64,
    /// Mean.
    pub latency_ns_mean: f64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies(Histogram::new_with_bounds(1, LATENCY_MAX.0, DIGITS).expect("constant bounds"))
    }
}

impl Latencies {
    /// Merges the latencies of all kinds.
    pub fn all<'a>(kinds: impl IntoIterator<Item = &'a Latencies>) -> Latencies {
        let mut all = Latencies::default();
        kinds.into_iter().for_each(|kind| all.add(kind));
        all
    }

    /// The quantiles.
    pub fn quantiles(&self) -> Quantiles {
        let at = |share: f64| self.0.value_at_quantile(share);
        Quantiles {
            requests: self.0.len(),
            latency_ns_p50: at(0.5),
            latency_ns_p99: at(0.99),
            latency_ns_p999: at(0.999),
            latency_ns_max: self.0.max(),
            latency_ns_mean: self.0.mean(),
        }
    }

    fn add(&mut self, other: &Latencies) {
        self.0.add(&other.0).expect("the same bounds");
    }
}

/// Runs a phase. `told` is called from time to time with the number of further requests done.
pub fn run<E: Engine + ?Sized + 'static>(
    env: &Arc<dyn Env>,
    engine: &Arc<E>,
    phase: &Phase,
    told: &Arc<dyn Fn(u64) + Send + Sync>,
) -> Result<Measured> {
    let streams = phase.job.streams()?;
    let values = Values::new(phase.value_bytes, phase.compressible, phase.job.seed)?;
    let sum: Arc<Mutex<Result<Measured>>> = Arc::new(Mutex::new(Ok(Measured::default())));
    let began = env.now();
    let until = phase.time_max.map(|time| Nanos(began.0 + time.0));
    let tasks = streams.into_iter().map(|stream| {
        let (engine, sum, told, clock) = (engine.clone(), sum.clone(), told.clone(), env.clone());
        let (values, form) = (values.clone(), phase.job.workload.key_form());
        let run = move || {
            let mut client = Client { session: engine.session(), values, form, clock: &*clock, until };
            let measured = client.run(stream, &*told);
            let mut sum = sum.lock();
            let merged = std::mem::replace(&mut *sum, Ok(Measured::default()));
            *sum = merged.and_then(|sum| Ok(sum.and(measured?)));
        };
        env.clone().spawn("kv-client", Box::new(run))
    });
    let tasks: Vec<_> = tasks.collect();
    tasks.into_iter().for_each(vellum_base::Task::join);
    let elapsed = env.now().saturating_sub(began);
    let measured = std::mem::replace(&mut *sum.lock(), Ok(Measured::default()));
    Ok(Measured { elapsed, ..measured? })
}

impl Measured {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed.0.max(1) as f64
    }

    fn and(mut self, other: Measured) -> Measured {
        self.requests += other.requests;
        self.user_bytes += other.user_bytes;
        self.inserted += other.inserted;
        self.absent += other.absent;
        self.wrong += other.wrong;
        for (kind, latencies) in other.kinds {
            self.kinds.entry(kind).or_default().add(&latencies);
        }
        self
    }
}

struct Client<'a> {
    session: Box<dyn Session + 'a>,
    values: Values,
    form: KeyForm,
    clock: &'a dyn Env,
    until: Option<Nanos>,
}

impl Client<'_> {
    fn run(&mut self, stream: Stream, told: &(dyn Fn(u64) + Send + Sync)) -> Result<Measured> {
        const TELL_EVERY: u64 = 10_000;
        let mut measured = Measured::default();
        let mut times: [Latencies; Kind::ALL.len()] = Default::default();
        let (mut key, mut value, mut read) = (Vec::new(), Vec::new(), Vec::new());
        for request in stream {
            self.form.key(request.record, &mut key);
            if !matches!(request.kind, Kind::Read | Kind::Scan) {
                self.values.value(request.record, &mut value);
                measured.user_bytes += (key.len() + value.len()) as u64;
            }
            let began = self.clock.now();
            self.answer(request, &key, &value, &mut read, &mut measured)?;
            let ended = self.clock.now();
            let took = ended.saturating_sub(began);
            times[request.kind as usize].0.saturating_record(took.0);
            measured.requests += 1;
            measured.inserted += u64::from(request.kind == Kind::Insert);
            if measured.requests.is_multiple_of(TELL_EVERY) {
                told(TELL_EVERY);
            }
            if self.until.is_some_and(|until| ended >= until) {
                break;
            }
        }
        told(measured.requests % TELL_EVERY);
        let asked = Kind::ALL.into_iter().zip(times).filter(|(_, times)| !times.0.is_empty());
        measured.kinds = asked.collect();
        Ok(measured)
    }

    #[inline]
    fn answer(
        &mut self,
        request: KvRequest,
        key: &[u8],
        value: &[u8],
        read: &mut Vec<u8>,
        measured: &mut Measured,
    ) -> Result<()> {
        match request.kind {
            Kind::Update | Kind::Insert => return self.session.put(key, value),
            Kind::Scan => return self.scan(request, key, read, measured),
            Kind::Read | Kind::ReadModifyWrite => {}
        }
        match self.session.get(key, read)? {
            true => measured.wrong += u64::from(!self.values.is_of(request.record, read)),
            false => measured.absent += 1,
        }
        match request.kind {
            Kind::ReadModifyWrite => self.session.put(key, value),
            _ => Ok(()),
        }
    }

    /// Copies all keys and values, as clients of YCSB do; otherwise borrowed values would not be read at all.
    fn scan(
        &mut self,
        request: KvRequest,
        key: &[u8],
        read: &mut Vec<u8>,
        measured: &mut Measured,
    ) -> Result<()> {
        let (mut first, mut wrong, values) = (true, 0, &self.values);
        let mut last = Vec::new();
        read.clear();
        self.session.scan(key, request.records, &mut |found, value| {
            let right = match std::mem::take(&mut first) {
                true => found == key && values.is_of(request.record, value),
                false => found > &last[..] && value.len() == values.bytes(),
            };
            wrong += u64::from(!right);
            last.clear();
            last.extend_from_slice(found);
            read.extend_from_slice(found);
            read.extend_from_slice(value);
        })?;
        measured.wrong += wrong;
        measured.absent += u64::from(first);
        Ok(())
    }
}

/// True if a store that this workload filled has all records: one that draws them leaves some out.
pub fn fills_all(workload: Workload) -> bool {
    workload.mix().shares.iter().all(|(kind, _)| *kind == Kind::Insert)
}

/// Fails if any answer was wrong, or a record was not there in a store that had all of them.
pub fn check(measured: &Measured, had_all: bool) -> Result<()> {
    match (measured.wrong, measured.absent) {
        (0, absent) if absent == 0 || !had_all => Ok(()),
        (0, absent) => Err(Error::corrupt(format!("{absent} records that were put are not there"))),
        (wrong, _) => Err(Error::corrupt(format!("{wrong} answers were wrong"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use vellum_base::RealEnv;

    /// Loses every so many-th put, or answers with another value.
    struct Broken {
        records: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
        loses: bool,
        spoils: bool,
    }

    /// One key of eight or so, in whatever form.
    fn is_bad(key: &[u8]) -> bool {
        key.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) % 8 == 3
    }

    impl Engine for Broken {
        fn session(&self) -> Box<dyn Session + '_> {
            Box::new(self)
        }

        fn close(self: Arc<Self>) -> Result<()> {
            Ok(())
        }
    }

    impl Session for &Broken {
        fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
            let mut value = value.to_vec();
            value[0] ^= u8::from(self.spoils && is_bad(key));
            if !(self.loses && is_bad(key)) {
                self.records.lock().insert(key.to_vec(), value);
            }
            Ok(())
        }

        fn get(&mut self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            let records = self.records.lock();
            let found = records.get(key);
            found.into_iter().for_each(|found| value.clone_from(found));
            Ok(found.is_some())
        }

        fn scan(&mut self, key: &[u8], records: u32, see: &mut dyn FnMut(&[u8], &[u8])) -> Result<u32> {
            let found = self.records.lock();
            found.range(key.to_vec()..).take(records as usize).for_each(|(key, value)| see(key, value));
            Ok(records)
        }
    }

    fn error_of(loses: bool, spoils: bool, workloads: [Workload; 2]) -> Option<String> {
        let env: Arc<dyn Env> = RealEnv::new();
        let engine = Arc::new(Broken { records: Mutex::default(), loses, spoils });
        let told: Arc<dyn Fn(u64) + Send + Sync> = Arc::new(|_| ());
        let checked = workloads.into_iter().try_for_each(|workload| {
            let job = Job { workload, records: 500, requests: 500, tasks: 2, seed: 3 };
            let phase = Phase { job, value_bytes: 40, compressible: 1.0, time_max: None };
            check(&run(&env, &engine, &phase, &told)?, fills_all(workloads[0]))
        });
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn an_engine_that_loses_or_spoils_records_is_found_out() {
        for workload in [Workload::YcsbA, Workload::YcsbC, Workload::YcsbD, Workload::YcsbE, Workload::YcsbF]
        {
            let ran = |loses, spoils| error_of(loses, spoils, [Workload::YcsbLoad, workload]);
            assert_eq!(ran(false, false), None, "{workload:?}");
            assert!(ran(true, false).is_some(), "{workload:?}");
            assert!(ran(false, true).is_some_and(|error| error.contains("were wrong")), "{workload:?}");
        }
        let drawn = [Workload::FillRandom, Workload::ReadRandom];
        assert_eq!(error_of(false, false, drawn), None);
        let whole = [Workload::FillSeq, Workload::ReadRandom];
        assert_eq!(error_of(false, false, whole), None);
        assert!(error_of(true, false, whole).is_some());
    }
}
