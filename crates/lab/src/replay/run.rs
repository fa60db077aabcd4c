//! Runs one mode.

use super::comparison::{Latencies, Latency, ModeResult};
use super::device::{Device, Sized};
use super::mode::Mode;
use super::options::{Pace, ReplayOptions};
use super::oracle::{Fingerprint, Oracle, fingerprint};
use super::queue::{OPEN_QUEUE_DEPTH, Queue, Started};
use super::survey::Survey;
use crate::Progress;
use hdrhistogram::Histogram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockDevice, Env, Error, Flash, FlashCounters, Lba, LedgerSnapshot, Nanos, Result, SECTOR_BYTES,
};
use vellum_codes::pattern::Pattern;
use vellum_disk::LedgerStat;
use vellum_sim::{Sim, SimConfig, SimEnv};
use vellum_trace::generate::Seeded;
use vellum_trace::{RequestKind, RequestSource};

const STACK_BYTES: usize = 256 << 10;
/// Sectors read at a time when all are read back.
const CHECK_SECTORS: usize = 32;
/// Requests between progress reports.
const PROGRESS_REQUESTS: u64 = 4096;
/// Longer latencies (18 minutes) are recorded as this.
const LATENCY_NS_MAX: u64 = 1 << 40;
/// Keeps the contents of the precondition different from all others.
const PRECONDITION_IDS: u64 = 1 << 62;

/// Replays `source` on a fresh disk in `mode`.
pub(super) fn run(
    source: Box<dyn RequestSource>,
    mode: Mode,
    survey: &Survey,
    sized: &Sized,
    options: &ReplayOptions,
    progress: &dyn Progress,
) -> Result<ModeResult> {
    let sim = Sim::with(SimConfig { stack_bytes: STACK_BYTES, ..SimConfig::new(options.seed) });
    let env = sim.env();
    let mut result = sim.run(|| {
        let device = Arc::new(Device::new(sized, survey.sectors(), &mode, options, env.clone())?);
        Run { env: env.clone(), device, mode, survey, options }.replay(source, progress)
    })?;
    result.log_hash = format!("{:016x}", sim.log_hash());
    Ok(result)
}

struct Run<'a> {
    env: Arc<SimEnv>,
    device: Arc<Device>,
    mode: Mode,
    survey: &'a Survey,
    options: &'a ReplayOptions,
}

/// Counters at the end of the preparation.
struct Before {
    ledger: LedgerSnapshot,
    flash: FlashCounters,
}

impl Run<'_> {
    fn replay(self, source: Box<dyn RequestSource>, progress: &dyn Progress) -> Result<ModeResult> {
        let mut oracle = Oracle::new(self.mode, self.survey.journals.clone());
        self.precondition(&mut oracle)?;
        oracle.start();
        let before = Before { ledger: self.device.disk.ledger(), flash: self.device.flash.counters() };
        let started = self.env.now();
        let queue = Queue::new(self.env.clone(), self.options.pace, source, oracle);
        let shared = Arc::new(Shared {
            env: self.env.clone(),
            device: self.device.clone(),
            queue,
            clocks: Mutex::new(Clocks::new()?),
            finished: AtomicU64::new(0),
        });
        work_all(&shared, workers(self.options.pace), progress);
        let shared = Arc::into_inner(shared).ok_or_else(|| Error::invalid("a worker outlived the replay"))?;
        let clocks = shared.clocks.into_inner();
        let oracle = shared.queue.into_oracle()?;
        // Includes programming what the device has buffered: otherwise short runs would look faster than long ones.
        let ended = clocks.last_end.max(self.device.flash.programmed_at());
        self.device.disk.flush()?;
        if self.options.search.scan_after && self.mode.dedup.uses_parity() {
            self.device.disk.dedup_all(|_, _| {})?;
            self.device.disk.flush()?;
        }
        self.result(&oracle, &before, ended.saturating_sub(started), &clocks)
    }

    /// Fills the disk as requested, and waits until the device is idle.
    fn precondition(&self, oracle: &mut Oracle) -> Result<()> {
        let wanted = self.options.precondition;
        let sectors = self.survey.sectors();
        let share = |share: f64| (sectors as f64 * share.clamp(0.0, 1.0)) as u64;
        let filled = share(wanted.fill_share);
        let overwritten = (filled as f64 * wanted.overwrite_share.max(0.0)) as u64;
        let mut rng = Seeded::new(self.options.seed);
        let mut data = vec![0; SECTOR_BYTES];
        for i in 0..filled + overwritten {
            let lba = if i < filled { i } else { rng.below(filled) };
            Pattern::unique(PRECONDITION_IDS | i).fill(&mut data);
            oracle.write(lba, &data);
            self.device.disk.write(Lba(lba), &data, false)?;
        }
        if filled > 0 {
            self.device.disk.flush()?;
        }
        Ok(())
    }

    fn result(
        &self,
        oracle: &Oracle,
        before: &Before,
        duration: Nanos,
        clocks: &Clocks,
    ) -> Result<ModeResult> {
        let Device { disk, flash, .. } = &*self.device;
        let (ledger, counters) = (disk.ledger(), flash.counters());
        let page_bytes = u64::from(flash.geometry().page_bytes);
        let device_bytes = counters.pages_programmed * page_bytes;
        assert_eq!(ledger.programmed_total(), device_bytes, "the ledger says what the device programmed");
        let memory = disk.stat().memory;
        let expected = oracle.expected();
        let wrong_sectors = self.count_wrong(&expected)?;
        assert!(wrong_sectors == 0 || self.mode.can_corrupt(), "{} corrupted", self.mode.name());
        let ledger = ledger.since(&before.ledger);
        let programmed_pages = counters.pages_programmed - before.flash.pages_programmed;
        for number in [ledger.programmed_total(), ledger.avoided_total(), wrong_sectors] {
            self.env.note_number(number);
        }
        let seconds = duration.as_secs_f64();
        let rate = |amount: f64| if seconds > 0.0 { amount / seconds } else { 0.0 };
        Ok(ModeResult {
            mode: self.mode.name(),
            verified: self.mode.verify,
            host_sectors_written: ledger.host_written_bytes / SECTOR_BYTES as u64,
            home: oracle.home(&ledger),
            ledger: LedgerStat::new(&ledger, programmed_pages * page_bytes),
            wrong_sectors,
            checked_sectors: expected.len() as u64,
            duration_ns: duration.0,
            throughput_bytes_per_second: rate(clocks.bytes as f64),
            requests_per_second: rate(clocks.requests as f64),
            latency: clocks.latencies(),
            erases: counters.blocks_erased - before.flash.blocks_erased,
            dedup_memory_bytes: memory.dedup_bytes as u64,
            verify_cache_bytes: memory.verify_cache_bytes as u64,
            log_hash: String::new(),
        })
    }

    /// Reads all sectors back, and counts those that do not hold what was written last.
    fn count_wrong(&self, expected: &[(u64, Fingerprint)]) -> Result<u64> {
        let mut data = vec![0; CHECK_SECTORS * SECTOR_BYTES];
        let mut wrong = 0;
        for run in expected.chunk_by(|a, b| a.0 + 1 == b.0).flat_map(|run| run.chunks(CHECK_SECTORS)) {
            let data = &mut data[..run.len() * SECTOR_BYTES];
            self.device.disk.read(Lba(run[0].0), data)?;
            let sectors = data.chunks_exact(SECTOR_BYTES);
            wrong +=
                sectors.zip(run).filter(|(bytes, (_, print))| fingerprint(bytes) != *print).count() as u64;
        }
        Ok(wrong)
    }
}

/// Number of requests in flight.
pub(super) fn workers(pace: Pace) -> u32 {
    match pace {
        Pace::Closed { queue_depth } => queue_depth.clamp(1, 1024),
        Pace::Open { .. } => OPEN_QUEUE_DEPTH,
    }
}

struct Shared {
    env: Arc<SimEnv>,
    device: Arc<Device>,
    queue: Queue,
    clocks: Mutex<Clocks>,
    finished: AtomicU64,
}

/// Runs `workers` workers, including the caller, to the end of the trace.
fn work_all(shared: &Arc<Shared>, workers: u32, progress: &dyn Progress) {
    let tasks: Vec<_> = (1..workers)
        .map(|_| {
            let shared = shared.clone();
            shared.env.clone().spawn("worker", Box::new(move || shared.work(|_| {})))
        })
        .collect();
    let mut told = 0;
    shared.work(|finished| {
        if finished >= told + PROGRESS_REQUESTS {
            progress.advance(finished - told);
            told = finished;
        }
    });
    tasks.into_iter().for_each(|task| task.join());
    progress.advance(shared.finished.load(Relaxed) - told);
}

impl Shared {
    fn work(&self, mut tell: impl FnMut(u64)) {
        let mut data = Vec::new();
        while let Some(started) = self.queue.take(&mut data) {
            let carried_out = self.carry_out(&started, &mut data);
            self.queue.finish(&started);
            match carried_out {
                Ok(()) => self.clocks.lock().note(&started, self.env.now()),
                Err(e) => self.queue.fail(e),
            }
            tell(self.finished.fetch_add(1, Relaxed) + 1);
        }
    }

    fn carry_out(&self, started: &Started, data: &mut Vec<u8>) -> Result<()> {
        let Device { disk, read_link, write_link, .. } = &*self.device;
        let request = &started.request;
        let (lba, sectors) = (Lba(started.sectors.start), started.sectors.end - started.sectors.start);
        match request.kind {
            RequestKind::Read => {
                data.resize(sectors as usize * SECTOR_BYTES, 0);
                disk.read(lba, data)?;
                read_link.cross(&*self.env, data.len() as u64);
                Ok(())
            }
            RequestKind::Write => {
                self.read_edges(started)?;
                write_link.cross(&*self.env, data.len() as u64);
                disk.write(lba, data, request.fua)
            }
            RequestKind::Trim if sectors > 0 => disk.trim(lba, sectors),
            RequestKind::WriteZeroes if sectors > 0 => disk.write_zeroes(lba, sectors, request.fua),
            RequestKind::Trim | RequestKind::WriteZeroes => Ok(()),
            RequestKind::Flush => disk.flush(),
        }
    }

    /// A write that covers part of its first or last sector must read it first. (It then writes what is in the trace,
    /// whose contents are of whole sectors.)
    fn read_edges(&self, started: &Started) -> Result<()> {
        let request = &started.request;
        let odd = |at: u64| !at.is_multiple_of(SECTOR_BYTES as u64);
        let (first, last) = (started.sectors.start, started.sectors.end - 1);
        let head = odd(request.offset.0);
        let tail = odd(request.end().0) && !(head && first == last);
        let mut sector = [0; SECTOR_BYTES];
        for edge in head.then_some(first).into_iter().chain(tail.then_some(last)) {
            self.device.disk.read(Lba(edge), &mut sector)?;
            self.device.read_link.cross(&*self.env, SECTOR_BYTES as u64);
        }
        Ok(())
    }
}

/// Times of the requests.
struct Clocks {
    read: Histogram<u64>,
    write: Histogram<u64>,
    sync: Histogram<u64>,
    bytes: u64,
    requests: u64,
    last_end: Nanos,
}

impl Clocks {
    fn new() -> Result<Clocks> {
        let histogram = || {
            Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
                .map_err(|e| Error::invalid(format!("make a histogram: {e}")))
        };
        let (read, write, sync) = (histogram()?, histogram()?, histogram()?);
        Ok(Clocks { read, write, sync, bytes: 0, requests: 0, last_end: Nanos::ZERO })
    }

    fn note(&mut self, started: &Started, now: Nanos) {
        let request = &started.request;
        let histogram = match request.kind {
            RequestKind::Read => Some(&mut self.read),
            RequestKind::Flush => Some(&mut self.sync),
            RequestKind::Write if request.fua => Some(&mut self.sync),
            RequestKind::Write => Some(&mut self.write),
            RequestKind::Trim | RequestKind::WriteZeroes => None,
        };
        if let Some(histogram) = histogram {
            histogram.saturating_record(now.saturating_sub(started.since).0);
        }
        if matches!(request.kind, RequestKind::Read | RequestKind::Write) {
            self.bytes += request.length.0;
        }
        self.requests += 1;
        self.last_end = self.last_end.max(now);
    }

    fn latencies(&self) -> Latencies {
        let of = |h: &Histogram<u64>| Latency {
            count: h.len(),
            latency_ns_p50: h.value_at_quantile(0.5),
            latency_ns_p99: h.value_at_quantile(0.99),
            latency_ns_p999: h.value_at_quantile(0.999),
            latency_ns_max: h.max(),
        };
        Latencies { read: of(&self.read), write: of(&self.write), sync: of(&self.sync) }
    }
}
