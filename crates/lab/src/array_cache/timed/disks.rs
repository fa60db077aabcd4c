//! Disks, each with a queue of two classes, and an SSD of several dies.

use super::Hardware;
use super::calls::{Call, Operation};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use vellum_base::{Nanos, SECTOR_BYTES};
use vellum_media::{Drive, Preset};

/// An operation in progress: its first calls, then the others.
struct UnderWay {
    calls: u32,
    then: Vec<Call>,
    request: Option<usize>,
}

struct Disk {
    drive: Drive,
    /// Index of the operation of its current call.
    at: Option<usize>,
    /// Calls and their operations: waited for, and in the background.
    queues: [VecDeque<(Call, usize)>; 2],
}

/// All disks of the array.
pub(super) struct Disks {
    disks: Vec<Disk>,
    operations: Vec<Option<UnderWay>>,
    unused: Vec<usize>,
    /// Disks that may be able to start a call.
    wake: Vec<usize>,
}

impl Disks {
    pub fn new(hardware: &Hardware) -> Disks {
        let disk = |_| Disk { drive: Drive::new(hardware.disk), at: None, queues: Default::default() };
        Disks {
            disks: (0..hardware.shape.members).map(disk).collect(),
            operations: Vec::new(),
            unused: Vec::new(),
            wake: Vec::new(),
        }
    }

    /// Queues the first calls of an operation.
    pub fn begin(&mut self, operation: Operation, request: Option<usize>) {
        let Operation { first, then } = operation;
        let (first, then) = if first.is_empty() { (then, Vec::new()) } else { (first, then) };
        let at = self.unused.pop().unwrap_or_else(|| {
            self.operations.push(None);
            self.operations.len() - 1
        });
        self.operations[at] = Some(UnderWay { calls: 0, then, request });
        self.queue(first, at);
    }

    fn queue(&mut self, calls: Vec<Call>, operation: usize) {
        let under_way = self.operations[operation].as_mut().expect("under way");
        under_way.calls = calls.len() as u32;
        let class = usize::from(under_way.request.is_none());
        for call in calls {
            self.wake.push(call.disk);
            self.disks[call.disk].queues[class].push_back((call, operation));
        }
    }

    /// Starts the next call of an idle disk. Returns the disk, and when the call will be done; None if all are busy or
    /// have nothing to do.
    pub fn start(&mut self, now: Nanos) -> Option<(usize, Nanos)> {
        while let Some(which) = self.wake.pop() {
            let disk = &mut self.disks[which];
            if disk.at.is_some() {
                continue;
            }
            let [waited_for, behind] = &mut disk.queues;
            if let Some((call, operation)) = waited_for.pop_front().or_else(|| behind.pop_front()) {
                disk.at = Some(operation);
                return Some((which, disk.drive.serve(now, call.sector, call.sectors, call.is_write)));
            }
        }
        None
    }

    /// Ends the current call of a disk. Returns the request that has one part fewer to wait for.
    pub fn done(&mut self, which: usize) -> Option<usize> {
        let operation = self.disks[which].at.take().expect("a call under way");
        self.wake.push(which);
        let under_way = self.operations[operation].as_mut().expect("under way");
        under_way.calls -= 1;
        if under_way.calls > 0 {
            return None;
        }
        let then = std::mem::take(&mut under_way.then);
        if !then.is_empty() {
            self.queue(then, operation);
            return None;
        }
        self.unused.push(operation);
        self.operations[operation].take().and_then(|under_way| under_way.request)
    }

    /// Mean busy time.
    pub fn busy_s(&self) -> f64 {
        let sum: f64 = self.disks.iter().map(|disk| disk.drive.busy.as_secs_f64()).sum();
        sum / self.disks.len() as f64
    }
}

/// A link, and dies that each process one page at a time.
pub(in crate::array_cache) struct Ssd {
    free: BinaryHeap<Reverse<Nanos>>,
    read: Nanos,
    write: Nanos,
}

impl Ssd {
    pub fn new(preset: &Preset) -> Ssd {
        let moved = |rate: u64| Nanos::transfer(SECTOR_BYTES as u64, rate);
        let dies = preset.geometry.dies() as usize;
        Ssd {
            free: (0..dies.max(1)).map(|_| Reverse(Nanos::ZERO)).collect(),
            read: preset.timing.read + moved(preset.link_read_bytes_per_second),
            write: preset.timing.program + moved(preset.link_write_bytes_per_second),
        }
    }

    /// Issues these page reads and writes at once; returns when the last is done.
    pub fn serve(&mut self, now: Nanos, reads: u32, writes: u32) -> Nanos {
        let mut last = now;
        let times = std::iter::repeat_n(self.read, reads as usize)
            .chain(std::iter::repeat_n(self.write, writes as usize));
        for time in times {
            let Reverse(free) = self.free.pop().expect("an SSD has a die");
            let done = free.max(now) + time;
            self.free.push(Reverse(done));
            last = last.max(done);
        }
        last
    }
}
