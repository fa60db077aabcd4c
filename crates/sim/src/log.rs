//! The log: a running hash of all events, and the last few events in full for a failure report.

use crate::tasks::Tasks;
use std::collections::VecDeque;
use std::fmt::Write;
use vellum_base::Nanos;

/// Bytes of a text note that a report shows.
const NOTE_BYTES: usize = 48;

/// Kinds of events. Their numbers are hashed.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A task was spawned.
    Spawned,
    /// A sleep ended.
    Timer,
    /// A task started, or was woken from waiting.
    Woken,
    /// A task ended.
    Ended,
    /// Power was cut.
    Cut,
    /// The application noted a text.
    Text { length: u8, start: [u8; NOTE_BYTES] },
    /// The application noted a number.
    Number(u64),
}

#[derive(Clone, Copy)]
struct Record {
    time: u64,
    task: u64,
    kind: Kind,
}

/// The log of events.
pub(crate) struct Log {
    hash: u64,
    count: u64,
    last: VecDeque<Record>,
    last_max: usize,
}

impl Log {
    /// A log that keeps the last `last_max` events.
    pub(crate) fn new(last_max: usize) -> Log {
        Log { hash: 0, count: 0, last: VecDeque::with_capacity(last_max), last_max }
    }

    /// Hash of all events so far.
    pub(crate) fn hash(&self) -> u64 {
        finish(self.hash ^ self.count)
    }

    /// Number of events so far.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Records an event of the world.
    #[inline]
    pub(crate) fn event(&mut self, time: u64, task: u64, kind: Kind) {
        let code = match kind {
            Kind::Spawned => 1,
            Kind::Timer => 2,
            Kind::Woken => 3,
            Kind::Ended => 4,
            Kind::Cut => 5,
            Kind::Text { .. } => 6,
            Kind::Number(_) => 7,
        };
        self.mix(time);
        self.mix(task << 8 | code);
        self.count += 1;
        if self.last_max > 0 {
            self.keep(Record { time, task, kind });
        }
    }

    /// Records a text from the application.
    pub(crate) fn text(&mut self, time: u64, task: u64, text: &str) {
        let mut start = [0; NOTE_BYTES];
        let length = text.len().min(NOTE_BYTES);
        start[..length].copy_from_slice(&text.as_bytes()[..length]);
        self.event(time, task, Kind::Text { length: length as u8, start });
        self.mix(text.len() as u64);
        for piece in text.as_bytes().chunks(8) {
            let mut word = [0; 8];
            word[..piece.len()].copy_from_slice(piece);
            self.mix(u64::from_le_bytes(word));
        }
    }

    /// Records a number from the application.
    pub(crate) fn number(&mut self, time: u64, task: u64, number: u64) {
        self.event(time, task, Kind::Number(number));
        self.mix(number);
    }

    /// The last events, one per line, oldest first.
    pub(crate) fn report(&self, tasks: &Tasks) -> String {
        let mut lines = String::new();
        for Record { time, task, kind } in &self.last {
            let name = tasks.name(*task).unwrap_or("-");
            let what = match kind {
                Kind::Spawned => "spawned".into(),
                Kind::Timer => "slept until now".into(),
                Kind::Woken => "runs".into(),
                Kind::Ended => "ended".into(),
                Kind::Cut => "power cut".into(),
                Kind::Text { length, start } => {
                    String::from_utf8_lossy(&start[..*length as usize]).into_owned()
                }
                Kind::Number(number) => format!("notes {number:#x}"),
            };
            writeln!(lines, "  {:>14}ns  #{task} {name}: {what}", Nanos(*time).0).expect("memory takes text");
        }
        lines
    }

    #[inline]
    fn keep(&mut self, record: Record) {
        if self.last.len() == self.last_max {
            self.last.pop_front();
        }
        self.last.push_back(record);
    }

    #[inline]
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Spreads every bit over the word (the finaliser of splitmix64).
pub(crate) fn finish(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
