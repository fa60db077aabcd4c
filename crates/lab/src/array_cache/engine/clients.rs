//! Clients that each issue a request when the last one is answered, and the contents that they write.

use super::EngineRun;
use crate::array_cache::timed::Clocked;
use crate::array_cache::workload::{PageKind, PageRequest, Workload};
use rand::RngCore;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use vellum_array::cache::engine::CachedArray;
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Error, Result, SECTOR_BYTES, Task};
use vellum_codes::pattern::Pattern;
use vellum_trace::generate::Seeded;

/// Writes a version of a sector: its address, the version, and the number of bytes in which versions differ.
pub(super) type Fill = fn(u64, u64, usize, &mut [u8]);

/// State shared by the clients.
struct Shared {
    device: Arc<CachedArray>,
    env: Arc<dyn Env>,
    workload: Arc<Workload>,
    changed_bytes: usize,
    fill: Fill,
    which: Range<usize>,
    next: AtomicUsize,
    clocks: Mutex<Vec<Clocked>>,
    failed: Mutex<Option<Error>>,
}

/// Lets the clients issue some requests of a workload, writing contents made by `fill`. Returns the response times of
/// each of `parts` parts of the requests.
///
/// # Errors
/// The first error of any client.
pub(super) fn closed_loop(
    device: &Arc<CachedArray>,
    run: &EngineRun<'_>,
    which: Range<usize>,
    parts: usize,
    fill: Fill,
) -> Result<Vec<Clocked>> {
    let env = device.env();
    let clocks = (0..parts).map(|_| Clocked::new(env.now())).collect::<Result<_>>()?;
    let shared = Arc::new(Shared {
        device: device.clone(),
        env: env.clone(),
        workload: run.workload.clone(),
        changed_bytes: run.changed_bytes,
        fill,
        next: AtomicUsize::new(which.start),
        which,
        clocks: Mutex::new(clocks),
        failed: Mutex::default(),
    });
    let client = |_| {
        let shared = shared.clone();
        let run = move || {
            if let Err(error) = shared.ask_on() {
                *shared.failed.lock() = Some(error);
            }
        };
        env.clone().spawn("client", Box::new(run))
    };
    (0..run.clients).map(client).collect::<Vec<_>>().into_iter().for_each(Task::join);
    let Shared { clocks, failed, .. } = Arc::into_inner(shared).expect("the clients are gone");
    match failed.into_inner() {
        Some(error) => Err(error),
        None => Ok(clocks.into_inner()),
    }
}

impl Shared {
    /// Runs one client until no requests are left.
    fn ask_on(&self) -> Result<()> {
        let mut buffer = Vec::new();
        loop {
            let at = self.next.fetch_add(1, Relaxed);
            if at >= self.which.end {
                return Ok(());
            }
            let (request, came) = (&self.workload.requests[at], self.env.now());
            self.ask(request, at as u64 + 1, &mut buffer)?;
            let mut clocks = self.clocks.lock();
            let part = (at - self.which.start) * clocks.len() / self.which.len();
            clocks[part].answered(request.kind, came, self.env.now());
        }
    }

    fn ask(&self, request: &PageRequest, version: u64, buffer: &mut Vec<u8>) -> Result<()> {
        let sectors = u64::from(request.sectors);
        buffer.resize(request.sectors as usize * SECTOR_BYTES, 0);
        match request.kind {
            PageKind::Read => self.device.read(request.lba, buffer),
            PageKind::Forget => self.device.trim(request.lba, sectors),
            PageKind::Write => {
                for (lba, sector) in (request.lba.0..).zip(buffer.chunks_mut(SECTOR_BYTES)) {
                    (self.fill)(lba, version, self.changed_bytes, sector);
                }
                self.device.write(request.lba, buffer, false)
            }
        }
    }
}

/// A version of a sector: its beginning depends on the version, the rest on the sector alone.
pub(super) fn fill(lba: u64, version: u64, changed_bytes: usize, sector: &mut [u8]) {
    Pattern::unique(lba + 1).fill(sector);
    // Not a pattern as well: the difference of two patterns repeats every eight bytes.
    Seeded::new(version << 24).fill_bytes(&mut sector[..changed_bytes]);
}
