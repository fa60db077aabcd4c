//! Background dedup: while a disk is open and idle, copies are searched for the sectors that were programmed without a
//! search; then the fingerprint table is filled with those of what was stored before.
//!
//! States: running, ended (stopped, or by the first error, which the disk then reports to every writer). Invariants:
//! 1. It starts when no request has come for `PAUSE`, and stops at the next request, after a step of well under a
//!    millisecond.
//! 2. If nothing is marked, nothing is programmed; what was stored before is scanned once.
//! 3. Dropping a deduper waits only for the current step.

use crate::Stack;
use std::sync::Arc;
use std::time::Duration;
use vellum_base::{BlockDevice, Kind, Result, Task};
use vellum_disk::Disk;
use vellum_serve::Stop;

/// Sectors per step.
const STEP_SECTORS: u32 = 16;
/// Pages per step whose fingerprints are entered.
const STEP_PAGES: u32 = 16;
/// Time without requests after which the disk counts as idle.
const PAUSE: Duration = Duration::from_millis(20);

/// Deduplicates an open disk until it is dropped.
pub struct Deduper {
    stop: Stop,
    task: Option<Task>,
}

impl Deduper {
    /// Starts, if the disk of `stack` ever marks sectors. It must be dropped before the stack is closed.
    pub fn start(stack: &Stack) -> Result<Option<Deduper>> {
        let disk = stack.disk().clone();
        if disk.info().read_only || !disk.dedup().uses_parity() {
            return Ok(None);
        }
        let stop = Stop::new()?;
        let stopped = stop.clone();
        let task = stack.env().clone().spawn("dedup", Box::new(move || run(&disk, &stopped)));
        Ok(Some(Deduper { stop, task: Some(task) }))
    }
}

impl Drop for Deduper {
    fn drop(&mut self) {
        self.stop.stop();
        self.task.take().into_iter().for_each(Task::join);
    }
}

/// Processes waiting sectors first, then what was stored before. Returns how much is left.
fn step(disk: &Disk) -> Result<u64> {
    match disk.dedup_some(STEP_SECTORS)? {
        0 => disk.refill_some(STEP_PAGES),
        left => Ok(left),
    }
}

fn run(disk: &Arc<Disk>, stop: &Stop) {
    let mut served = disk.requests_served();
    while !stop.wait(Some(PAUSE)) {
        let now = disk.requests_served();
        let mut idle = std::mem::replace(&mut served, now) == now;
        while idle && !stop.is_stopped() {
            match step(disk) {
                Ok(0) => break,
                Ok(_) => idle = disk.requests_served() == now,
                Err(e) if e.kind() == Kind::NoSpace => break, // retried when there is room
                Err(_) => return,
            }
        }
    }
}
