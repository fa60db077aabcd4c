//! The busy-until timelines of a channel's bus and dies.
//!
//! 1. `until` never decreases; work is accounted once.
//! 2. A die's queue is sorted by start. An erase that waits for its `after` is parked beside it until work arrives that
//!    does not fit before the erase.

use super::Timing;
use super::bookings::Bookings;
use crate::nand::InFlightOp;
use std::collections::VecDeque;
use vellum_base::{BlockAddr, Nanos, PageAddr};

/// Maximum number of unfinished programs and erases tracked per die. Beyond that, the oldest count as finished.
const QUEUE_MAX: usize = 4096;

/// A program or an erase with its times.
#[derive(Clone, Copy)]
pub(super) struct Flight {
    pub start: Nanos,
    pub end: Nanos,
    /// The time from which a power cut does not undo it: its end, or when the protected buffer accepted it.
    pub safe: Nanos,
    pub what: InFlightOp,
}

/// A bus and the dies on it.
pub(super) struct Channel {
    timing: Timing,
    /// Picoseconds per byte: precise enough, and avoids a division per transfer.
    byte_ps: u64,
    /// Pages of each die that fit into the protected buffer.
    protected: usize,
    /// When the last program finishes.
    programmed: Nanos,
    bus: Bus,
    dies: Vec<DieClock>,
}

/// When a bus finishes all its work, and when it is reserved for urgent reads.
#[derive(Default)]
struct Bus {
    until: Nanos,
    urgent: Bookings,
    busy: Nanos,
}

#[derive(Default)]
struct DieClock {
    /// When everything submitted is finished, except the parked erase.
    until: Nanos,
    /// When the urgent reads are finished.
    urgent_until: Nanos,
    queue: VecDeque<Flight>,
    parked: Option<Flight>,
    /// The page sensed last, and when; nothing was programmed or erased since.
    register: Option<(PageAddr, Nanos)>,
    /// When the register's last bytes have been transferred.
    sent: Nanos,
    busy: Nanos,
}

impl Channel {
    pub fn new(dies: u32, timing: &Timing, protected: usize) -> Channel {
        Channel {
            timing: *timing,
            byte_ps: 1_000_000_000_000 / timing.channel_bytes_per_second.max(1),
            protected,
            programmed: Nanos::ZERO,
            bus: Bus::default(),
            dies: (0..dies).map(|_| DieClock::default()).collect(),
        }
    }

    pub fn bus_busy(&self) -> Nanos {
        self.bus.busy
    }

    pub fn die_busy(&self, die: usize) -> Nanos {
        self.dies[die].busy
    }

    pub fn programmed(&self) -> Nanos {
        self.programmed
    }

    /// Returns when the bytes of a page have arrived.
    pub fn read(&mut self, now: Nanos, die: usize, page: PageAddr, bytes: u64, urgent: bool) -> Nanos {
        let length = Nanos(bytes * self.byte_ps / 1000);
        let die = &mut self.dies[die];
        die.retire(now);
        if urgent && die.is_buffered(page) {
            return now;
        }
        let sensed = match die.register {
            Some((held, sensed)) if held == page => sensed.max(now),
            _ if urgent => die.sense_now(now, &self.timing),
            _ => die.enqueue(now, now, self.timing.read, None).1,
        };
        die.register = Some((page, sensed));
        die.sent = match urgent {
            true => self.bus.transfer_urgent(now, sensed, length),
            false => self.bus.transfer(now, sensed.max(die.sent), length),
        };
        die.sent
    }

    /// Returns when a page is programmed, or safe in the protected buffer. Its content is available at `ready`, and
    /// takes `senses` senses on the same die.
    pub fn program(
        &mut self,
        now: Nanos,
        die: usize,
        page: PageAddr,
        bytes: u64,
        ready: Nanos,
        senses: u64,
    ) -> Nanos {
        let length = Nanos(bytes * self.byte_ps / 1000);
        let arrived = self.bus.transfer(now, ready, length);
        let duration = Nanos(self.timing.program.0 + senses * self.timing.read.0);
        let die = &mut self.dies[die];
        die.retire(now);
        let room = die.buffered(self.protected).map_or(now, |oldest| oldest.end);
        let end = die.work(now, arrived, duration, InFlightOp::Program(page), page.block);
        self.programmed = self.programmed.max(end);
        if self.protected == 0 {
            return end;
        }
        let safe = ready.max(room).min(end);
        if let Some(flight) = die.queue.back_mut() {
            flight.safe = safe;
        }
        safe
    }

    /// Returns when a block is erased.
    pub fn erase(&mut self, now: Nanos, die: usize, block: BlockAddr, after: Nanos) -> Nanos {
        let duration = self.timing.erase;
        let die = &mut self.dies[die];
        die.retire(now);
        if after > die.until.max(now) && die.parked.is_none() {
            let end = after + duration;
            let parked = Flight { start: after, end, safe: end, what: InFlightOp::Erase(block) };
            die.parked = Some(parked);
            die.register = None;
            die.busy += duration;
            return parked.end;
        }
        die.unpark();
        die.work(now, now.max(after), duration, InFlightOp::Erase(block), block)
    }

    /// Passes to `give`, in order, what is queued and not safe, and forgets all work. Everything before a safe
    /// operation on its die is safe, too: the capacitors last for both.
    pub fn drain(&mut self, now: Nanos, mut give: impl FnMut(Flight)) {
        for die in &mut self.dies {
            die.unpark();
            let safe = die.queue.iter().rposition(|flight| flight.safe <= now).map_or(0, |last| last + 1);
            die.queue.drain(..).skip(safe).for_each(&mut give);
            *die = DieClock { busy: die.busy, ..DieClock::default() };
        }
        self.bus = Bus { busy: self.bus.busy, ..Bus::default() };
    }
}

impl Bus {
    /// Returns when a transfer of `length` ends that can begin at `ready`.
    #[inline]
    fn transfer(&mut self, now: Nanos, ready: Nanos, length: Nanos) -> Nanos {
        self.busy += length;
        self.until = self.until.max(now) + length;
        self.until.max(ready + length)
    }

    /// The same with priority over everything else.
    #[inline]
    fn transfer_urgent(&mut self, now: Nanos, ready: Nanos, length: Nanos) -> Nanos {
        self.transfer(now, ready, length);
        self.urgent.book(now, ready, length)
    }
}

impl DieClock {
    /// Drops finished operations.
    #[inline]
    fn retire(&mut self, now: Nanos) {
        while self.queue.front().is_some_and(|flight| flight.end <= now) {
            self.queue.pop_front();
        }
    }

    /// The `nth` last unfinished program.
    fn buffered(&self, nth: usize) -> Option<&Flight> {
        let mut programs = self.queue.iter().rev().filter(|f| matches!(f.what, InFlightOp::Program(_)));
        programs.nth(nth.checked_sub(1)?)
    }

    /// True if the page's program has not finished.
    fn is_buffered(&self, page: PageAddr) -> bool {
        self.queue.iter().any(|flight| flight.is_program_of(page))
    }

    /// Senses before everything that has not begun; returns when that is done.
    fn sense_now(&mut self, now: Nanos, timing: &Timing) -> Nanos {
        let mut start = self.urgent_until.max(now);
        if start == now {
            let at_work = self.queue.front().into_iter().chain(&self.parked);
            let left = at_work
                .filter(|flight| flight.start <= now && flight.end > now)
                .map(|flight| flight.end - now)
                .max();
            start += left.map_or(Nanos::ZERO, |left| left.min(timing.suspend));
        }
        let end = start + timing.read;
        let delay = end - self.urgent_until.max(now);
        self.urgent_until = end;
        self.until = self.until.max(now) + delay;
        self.busy += timing.read;
        end
    }

    /// Appends work to the queue; before the parked erase, if it fits. Returns its start and end.
    #[inline]
    fn enqueue(
        &mut self,
        now: Nanos,
        ready: Nanos,
        duration: Nanos,
        block: Option<BlockAddr>,
    ) -> (Nanos, Nanos) {
        let mut start = self.until.max(ready).max(now);
        if let Some(parked) = self.parked {
            let same = block.is_some_and(|block| parked.what == InFlightOp::Erase(block));
            if same || start + duration > parked.start {
                self.unpark();
                start = start.max(self.until);
            }
        }
        self.until = start + duration;
        self.busy += duration;
        (start, self.until)
    }

    /// Queues a program or an erase.
    #[inline]
    fn work(
        &mut self,
        now: Nanos,
        ready: Nanos,
        duration: Nanos,
        what: InFlightOp,
        block: BlockAddr,
    ) -> Nanos {
        let (start, end) = self.enqueue(now, ready, duration, Some(block));
        self.register = None;
        if self.queue.len() >= QUEUE_MAX {
            self.queue.pop_front();
        }
        self.queue.push_back(Flight { start, end, safe: end, what });
        end
    }

    /// Moves the parked erase into the queue.
    fn unpark(&mut self) {
        if let Some(parked) = self.parked.take() {
            self.until = self.until.max(parked.end);
            self.queue.push_back(parked);
        }
    }
}
