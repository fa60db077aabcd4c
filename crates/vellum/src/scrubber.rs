//! Background scrub: while a disk is open its slots are read little by little, and failing data is moved in time.
//!
//! States: running, ended (stopped, or by the first error). Invariants:
//! 1. A pass is spread evenly over its time, in steps that hold the disk's lock for well under a millisecond.
//! 2. It starts at a random place: a disk never open for a whole pass is still read everywhere in the long run.
//! 3. It programs only what it moves: an idle healthy disk stays idle.
//! 4. Dropping a scrubber waits only for the current step.

use crate::Stack;
use serde::Serialize;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Flash, Kind, Result, SlotAddr, Task};
use vellum_disk::{CheckReport, Disk};
use vellum_serve::Stop;

/// Slots per step.
const STEP_SLOTS: u32 = 32;
/// Steps due sooner than this are combined, so that a short pass does not wake up for each.
const PAUSE_MIN: Duration = Duration::from_millis(5);

/// Interval of the scrub of a disk: `7d`, `12h`, `30m`, `90s` or `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScrubEvery(pub Option<Duration>);

/// What a scrubber has done since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ScrubStat {
    /// Time for a pass.
    pub every_seconds: u64,
    /// Number of complete passes.
    pub passes: u64,
    /// Slots passed by the current pass.
    pub pass_slots: u64,
    /// Slots per pass.
    pub slots: u64,
    /// Slots that were in use, and so were read.
    pub slots_read: u64,
    /// Slots moved because bits had to be corrected.
    pub refreshed: u64,
    /// Unreadable sectors: in this pass so far, or in the last if that found more.
    pub damaged_sectors: u64,
    /// Why it ended before the disk was closed.
    pub failed: Option<String>,
}

/// Scrubs an open disk until it is dropped.
pub struct Scrubber {
    stop: Stop,
    stat: Arc<Mutex<ScrubStat>>,
    task: Option<Task>,
}

impl Scrubber {
    /// Starts to scrub the disk of `stack`, one pass per `every`. It must be dropped before the stack is closed.
    pub fn start(stack: &Stack, every: Duration) -> Result<Scrubber> {
        let stop = Stop::new()?;
        let slots = stack.flash().geometry().slots();
        let every_seconds = every.as_secs();
        let stat = Arc::new(Mutex::new(ScrubStat { every_seconds, slots, ..ScrubStat::default() }));
        let first = SlotAddr((stack.env().random() % slots) as u32);
        let pass = Pass { disk: stack.disk().clone(), stop: stop.clone(), stat: stat.clone() };
        let run = move || pass.run(first, every);
        let task = Some(stack.env().clone().spawn("scrub", Box::new(run)));
        Ok(Scrubber { stop, stat, task })
    }

    /// A function that returns what it has done, now or later.
    pub fn watch(&self) -> impl Fn() -> ScrubStat + Send + Sync + Clone + 'static {
        let stat = self.stat.clone();
        move || stat.lock().clone()
    }
}

impl Drop for Scrubber {
    fn drop(&mut self) {
        self.stop.stop();
        self.task.take().into_iter().for_each(Task::join);
    }
}

struct Pass {
    disk: Arc<Disk>,
    stop: Stop,
    stat: Arc<Mutex<ScrubStat>>,
}

impl Pass {
    fn run(&self, first: SlotAddr, every: Duration) {
        let (steps, pause) = pace(self.stat.lock().slots, every);
        let (mut at, mut found, mut damaged_before) = (first, CheckReport::default(), 0);
        while !self.stop.wait(Some(pause)) {
            let whole = match self.step(&mut at, steps, &mut found) {
                Ok(whole) => whole,
                Err(e) => {
                    self.stat.lock().failed = Some(e.to_string());
                    return;
                }
            };
            let mut stat = self.stat.lock();
            stat.damaged_sectors = found.damaged_count.max(damaged_before);
            if whole {
                (stat.passes, stat.pass_slots) = (stat.passes + 1, 0);
                (damaged_before, found) = (found.damaged_count, CheckReport::default());
                stat.damaged_sectors = damaged_before;
            }
        }
    }

    /// Does `steps` steps from `at`. True if that ends a pass.
    fn step(&self, at: &mut SlotAddr, steps: u32, found: &mut CheckReport) -> Result<bool> {
        for _ in 0..steps {
            let (read, refreshed) = (found.slots_read, found.refreshed);
            let next = match self.disk.scrub_some(*at, STEP_SLOTS, found) {
                Err(e) if e.kind() == Kind::NoSpace => return Ok(false), // retried when there is room
                next => next?,
            };
            let mut stat = self.stat.lock();
            let end = if next.0 == 0 { stat.slots } else { next.0.into() };
            stat.pass_slots += end - u64::from(at.0);
            stat.slots_read += found.slots_read - read;
            stat.refreshed += found.refreshed - refreshed;
            *at = next;
            if stat.pass_slots >= stat.slots {
                return Ok(true);
            }
            if self.stop.is_stopped() {
                break;
            }
        }
        Ok(false)
    }
}

/// Number of steps at a time, and the pause before them, so that `slots` take `every`.
fn pace(slots: u64, every: Duration) -> (u32, Duration) {
    let steps = slots.div_ceil(STEP_SLOTS.into()).clamp(1, u32::MAX.into()) as u32;
    let pause = every / steps;
    if pause >= PAUSE_MIN {
        return (1, pause);
    }
    let wakes = (every.as_nanos() / PAUSE_MIN.as_nanos()).clamp(1, steps.into()) as u32;
    (steps.div_ceil(wakes), every / wakes)
}

impl Default for ScrubEvery {
    fn default() -> ScrubEvery {
        ScrubEvery(Some(Duration::from_secs(7 * 86_400)))
    }
}

impl FromStr for ScrubEvery {
    type Err = Error;
    fn from_str(text: &str) -> Result<ScrubEvery> {
        if text == "off" {
            return Ok(ScrubEvery(None));
        }
        let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
        let seconds = units.iter().find_map(|(unit, seconds)| {
            let count = text.strip_suffix(*unit)?.parse::<u64>().ok()?;
            count.checked_mul(*seconds).filter(|seconds| (1..=u64::from(u32::MAX)).contains(seconds))
        });
        let bad = || Error::invalid(format!("'{text}' is no time; write it like 7d, 12h or 30m, or off"));
        seconds.map(|seconds| ScrubEvery(Some(Duration::from_secs(seconds)))).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let seconds = |text: &str| text.parse::<ScrubEvery>().map(|every| every.0.map(|d| d.as_secs()));
        assert_eq!(seconds("7d").unwrap(), ScrubEvery::default().0.map(|d| d.as_secs()));
        assert_eq!((seconds("90s").unwrap(), seconds("12h").unwrap()), (Some(90), Some(43_200)));
        assert_eq!((seconds("30m").unwrap(), seconds("off").unwrap()), (Some(1800), None));
        for bad in ["", "7", "0d", "d", "-1d", "1.5h", "99999999999999999d", "7ä"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pass_takes_its_time() {
        for slots in [1u64, 31, 33, 20_000, 5 << 20, 1 << 32] {
            for seconds in [1u64, 60, 86_400, 7 * 86_400] {
                let every = Duration::from_secs(seconds);
                let (steps, pause) = pace(slots, every);
                let wakes = slots.div_ceil(u64::from(steps) * u64::from(STEP_SLOTS));
                let takes = pause.as_secs_f64() * wakes as f64;
                let off = takes / every.as_secs_f64();
                assert!((0.4..=1.001).contains(&off), "{slots} slots in {seconds} s: {off}");
            }
        }
    }
}
