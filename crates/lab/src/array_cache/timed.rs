//! Response times: steps on modelled disks and an SSD, as a discrete-event simulation.
//!
//! 1. A disk processes one call at a time. Calls that a requester waits for precede those that nobody waits for; each
//!    of the two classes is served in order of arrival.
//! 2. Sectors of one request that are consecutive on a disk are one call. Writes with parity read what
//!    `vellum_array::plan` says, and then write.
//! 3. The policy is called when a request arrives. The array's log is in NVRAM, and takes no time.

mod calls;
mod clocked;
mod disks;

use self::calls::Calls;
use self::disks::Disks;
use super::asked::Asked;
use super::count::Totals;
use super::deltas::Deltas;
use super::workload::Workload;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use vellum_array::Shape;
use vellum_array::cache::Policy;
use vellum_base::{Nanos, Result};
use vellum_media::{HddModel, Preset};

pub(super) use self::clocked::Clocked;
pub use self::clocked::{Response, Times};
pub(super) use self::disks::Ssd;

/// When requests arrive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arrivals {
    /// At the times of the trace, this many times as fast.
    Open {
        /// 1 for the trace's own times.
        speed: f64,
    },
    /// Each client issues its next request when the last one is answered.
    Closed {
        /// Number of clients.
        clients: usize,
    },
}

/// The array's devices.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    /// The array.
    pub shape: Shape,
    /// Model of its members.
    pub disk: HddModel,
    /// The cache's SSD.
    pub ssd: Preset,
}

/// Runs a workload through a policy on these devices. `partial`: a partial write changes only the bytes it covers.
pub fn time(
    policy: &mut dyn Policy,
    workload: &Workload,
    deltas: &mut Deltas,
    partial: bool,
    hardware: &Hardware,
    arrivals: Arrivals,
) -> Result<(Totals, Times)> {
    let mut run = Run {
        asked: Asked::new(policy, deltas, partial),
        workload,
        shape: hardware.shape,
        calls: Calls::new(hardware.shape),
        disks: Disks::new(hardware),
        ssd: Ssd::new(&hardware.ssd),
        events: BinaryHeap::new(),
        order: 0,
        open: vec![(0, Nanos::ZERO); workload.requests.len()],
        next: 0,
        closed: matches!(arrivals, Arrivals::Closed { .. }),
        clock: Clocked::new(Nanos::ZERO)?,
    };
    match arrivals {
        Arrivals::Closed { clients } => (0..clients).for_each(|_| run.next_request(Nanos::ZERO)),
        Arrivals::Open { speed } => {
            let start = workload.requests.first().map_or(Nanos::ZERO, |request| request.time);
            for request in 0..workload.requests.len() {
                let since = workload.requests[request].time.saturating_sub(start);
                run.at(Nanos((since.0 as f64 / speed) as u64), Event::Comes(request));
            }
        }
    }
    run.until_the_end();
    let busy_s = run.disks.busy_s();
    Ok((run.asked.totals, run.clock.times(busy_s)))
}

/// An event of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Comes(usize),
    DiskIsDone(usize),
    SsdIsDone(usize),
}

struct Run<'a> {
    asked: Asked<'a>,
    workload: &'a Workload,
    shape: Shape,
    calls: Calls,
    disks: Disks,
    ssd: Ssd,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    order: u64,
    /// Pending parts of each request, and its time of arrival.
    open: Vec<(u32, Nanos)>,
    next: usize,
    closed: bool,
    clock: Clocked,
}

impl Run<'_> {
    fn at(&mut self, time: Nanos, event: Event) {
        self.order += 1;
        self.events.push(Reverse((time, self.order, event)));
    }

    /// A client issues the next request.
    fn next_request(&mut self, now: Nanos) {
        if self.next < self.workload.requests.len() {
            self.at(now, Event::Comes(self.next));
            self.next += 1;
        }
    }

    fn until_the_end(&mut self) {
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            match event {
                Event::Comes(request) => self.comes(now, request),
                Event::SsdIsDone(request) => self.part_is_done(now, request),
                Event::DiskIsDone(disk) => {
                    if let Some(request) = self.disks.done(disk) {
                        self.part_is_done(now, request);
                    }
                }
            }
            while let Some((disk, done)) = self.disks.start(now) {
                self.at(done, Event::DiskIsDone(disk));
            }
        }
    }

    fn comes(&mut self, now: Nanos, request: usize) {
        let of = self.workload.requests[request];
        self.calls.clear();
        for touched in of.touched(request) {
            self.asked.ask(of.kind, touched);
            self.calls.add(&self.asked.steps);
        }
        // One part more than there are, so that the request is not answered before all its parts are under way.
        self.open[request] = (1, now);
        let (reads, writes) = self.calls.ssd_waited_for();
        if reads + writes > 0 {
            let done = self.ssd.serve(now, reads, writes);
            self.open[request].0 += 1;
            self.at(done, Event::SsdIsDone(request));
        }
        for operation in self.calls.waited_for(&self.shape) {
            self.open[request].0 += 1;
            self.disks.begin(operation, Some(request));
        }
        let (reads, writes) = self.calls.ssd_behind();
        self.ssd.serve(now, reads, writes);
        for operation in self.calls.behind(&self.shape) {
            self.disks.begin(operation, None);
        }
        self.part_is_done(now, request);
    }

    fn part_is_done(&mut self, now: Nanos, request: usize) {
        let (parts, came) = &mut self.open[request];
        *parts -= 1;
        if *parts > 0 {
            return;
        }
        self.clock.answered(self.workload.requests[request].kind, *came, now);
        if self.closed {
            self.next_request(now);
        }
    }
}
