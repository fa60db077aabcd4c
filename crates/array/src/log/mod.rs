//! The log that closes the write hole: records of what a row is to become, durable before anything changes in place
//! (docs/decisions/0022-array.md).
//!
//! 1. A record is *live* from its append until it is retired. It is *done* when its writes in place have returned.
//! 2. Records are retired in the order of their sequence, after a flush of all members that began when they were
//!    done, and are retired for sure when all heads say so.
//! 3. Who is not done with a record waits for no other's.
//! 4. A row may be changed without a record only when no record of it is live ([`Log::settle`]).

mod device;
mod record;
mod replay;
mod ring;

pub(crate) use device::{format_device, owner, read_device, read_stale};
pub(crate) use record::{Content, Extent, Head, record_sectors};
pub(crate) use replay::{Replayed, read_members, replay};

use crate::core::{Access, Core, Member, Roster, What};
use crate::lane::{Call, together};
use crate::superblock::{Id, LogPlace};
use record::Record;
use ring::Ring;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::sync::{Condvar, Mutex, MutexGuard};
use vellum_base::{Error, Kind, Result};

/// Whether a sector is a head of the array that it names: for fuzzing.
pub(crate) fn decode_head(sector: &[u8]) -> bool {
    Head::owner(sector).is_some()
}

/// How many sectors the record takes that begins a ring, if there is one: for fuzzing.
pub(crate) fn decode_record(ring: &[u8], array: &Id, epoch: u64) -> Option<usize> {
    Record::decode(ring, array, epoch).map(|(_, sectors)| sectors)
}

/// Heads in front of a ring.
pub(crate) const HEADS: u64 = 2;

/// See the module.
pub(crate) struct Log {
    /// The log device, if records go to one.
    device: Option<Arc<Member>>,
    /// On the log device, between the heads and the ring: the bitmap of stale rows.
    bitmap_sectors: u64,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    epoch: u64,
    previous: u64,
    next: u64,
    generation: u64,
    /// One for each role, or one for the log device.
    rings: Vec<Ring>,
    live: BTreeMap<u64, Live>,
    retiring: bool,
}

struct Live {
    row: u64,
    done: bool,
}

/// An appended record, or that none was needed.
#[must_use]
pub(crate) struct Ticket(Option<u64>);

/// What became of an append.
pub(crate) enum Appended {
    /// Go on in place.
    Durable(Ticket),
    /// A member failed: begin anew without it.
    Again,
}

impl Log {
    /// An empty log of `rings` rings; records are appended after [`Log::begin`].
    pub fn new(device: Option<Arc<Member>>, rings: usize, ring_sectors: u32, bitmap_sectors: u64) -> Log {
        let rings = (0..rings).map(|_| Ring::new(ring_sectors)).collect();
        let state = State {
            epoch: 0,
            previous: 0,
            next: 1,
            generation: 0,
            rings,
            live: BTreeMap::new(),
            retiring: false,
        };
        Log { device, bitmap_sectors, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Makes records of before not count any more. Superblocks hear which log device goes on from here.
    pub fn begin(&self, core: &Core, generation: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.epoch = core.env.random();
        state.previous = core.roster().log_epoch;
        state.generation = generation;
        let epoch = state.epoch;
        drop(state);
        self.write_heads(core, 1)?;
        match core.log_place {
            LogPlace::Device => core.change_roster(|roster| {
                roster.log_epoch = epoch;
                Ok(())
            }),
            LogPlace::Members | LogPlace::None => Ok(()),
        }
    }

    /// Writes heads again: a new member has none.
    pub fn refresh_heads(&self, core: &Core) -> Result<()> {
        let mut state = self.state.lock();
        while state.retiring {
            self.changed.wait(&mut state);
        }
        state.retiring = true; // A head with an older `oldest` must not come after one that retires.
        let oldest = state.live.keys().next().copied().unwrap_or(state.next);
        drop(state);
        let result = self.write_heads(core, oldest);
        self.state.lock().retiring = false;
        self.changed.notify_all();
        result
    }

    /// Whether records are written at all.
    pub fn is_on(&self, core: &Core) -> bool {
        core.log_place != LogPlace::None
    }
    /// Appends the record of a change of `row`, durably, where it belongs. The caller holds the row.
    pub fn append(&self, core: &Core, roster: &Roster, row: u64, extents: &[Extent]) -> Result<Appended> {
        let participants = participants(core, roster, row);
        if participants.is_empty() {
            self.settle(core, row)?;
            return Ok(Appended::Durable(Ticket(None)));
        }
        let sectors = record_sectors(extents);
        let (sequence, epoch, places) = self.reserve(core, row, &participants, sectors)?;
        let mask = match core.log_place {
            LogPlace::Members => participants.iter().fold(0, |mask, role| mask | 1u64 << role),
            _ => 0,
        };
        let record = Record { epoch, sequence, participants: mask, extents: extents.to_vec() };
        let stored = record.encode(&core.array);
        core.counters.log_records.fetch_add(1, Relaxed);
        core.counters.log_sectors.fetch_add(u64::from(sectors) * participants.len() as u64, Relaxed);
        let writes = participants.iter().zip(places).map(|(ring, at)| (*ring, at, stored.clone()));
        match self.write(core, roster, writes.collect()) {
            Ok(true) => Ok(Appended::Durable(Ticket(Some(sequence)))),
            // Also if the array has ended: whoever waits for this record must hear of it.
            result => {
                self.complete(Ticket(Some(sequence)));
                result.map(|_| Appended::Again)
            }
        }
    }

    /// The change is in place.
    pub fn complete(&self, ticket: Ticket) {
        let Some(sequence) = ticket.0 else { return };
        if let Some(live) = self.state.lock().live.get_mut(&sequence) {
            live.done = true;
        }
        self.changed.notify_all();
    }

    /// Returns when no record of the row is live. The caller holds the row.
    pub fn settle(&self, core: &Core, row: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.live.values().any(|live| live.row == row) {
            state = self.retire_or_wait(core, state)?;
        }
        Ok(())
    }

    /// Retires everything. Nobody writes meanwhile.
    pub fn retire_all(&self, core: &Core) -> Result<()> {
        let mut state = self.state.lock();
        while !state.live.is_empty() {
            state = self.retire_or_wait(core, state)?;
        }
        Ok(())
    }

    /// Takes a sequence and room in every ring.
    fn reserve(&self, core: &Core, row: u64, rings: &[usize], sectors: u32) -> Result<(u64, u64, Vec<u32>)> {
        let mut state = self.state.lock();
        loop {
            let places: Option<Vec<u32>> =
                rings.iter().map(|ring| state.rings[*ring].room(sectors)).collect();
            if let Some(places) = places {
                let sequence = state.next;
                state.next += 1;
                for (ring, at) in rings.iter().zip(&places) {
                    state.rings[*ring].take(sequence, *at, sectors);
                }
                state.live.insert(sequence, Live { row, done: false });
                return Ok((sequence, state.epoch, places));
            }
            if state.live.is_empty() {
                let why = format!("a record of {sectors} sectors does not fit into the log");
                return Err(Error::new(Kind::Unsupported, why));
            }
            state = self.retire_or_wait(core, state)?;
        }
    }

    /// Retires what is done at the front, or waits for somebody to be done, or to have retired.
    fn retire_or_wait<'a>(
        &'a self,
        core: &Core,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>> {
        core.check_writable()?;
        let can = state.live.values().next().is_some_and(|live| live.done);
        if state.retiring || !can {
            self.changed.wait(&mut state);
            return Ok(state);
        }
        state.retiring = true;
        let next = state.next;
        let oldest = state.live.iter().find(|(_, live)| !live.done).map_or(next, |(sequence, _)| *sequence);
        drop(state);
        let result = self.make_retired(core, oldest);
        let mut state = self.state.lock();
        state.retiring = false;
        if result.is_ok() {
            state.live = state.live.split_off(&oldest);
            state.rings.iter_mut().for_each(|ring| ring.retire(oldest));
        }
        self.changed.notify_all();
        result.map(|()| state)
    }

    fn make_retired(&self, core: &Core, oldest: u64) -> Result<()> {
        core.counters.log_retirements.fetch_add(1, Relaxed);
        core.flush_members()?;
        self.write_heads(core, oldest)
    }

    /// Says in all heads which record is the oldest that counts. Heads alternate between their two places.
    fn write_heads(&self, core: &Core, oldest: u64) -> Result<()> {
        let head = {
            let mut state = self.state.lock();
            state.generation += 1;
            Head { epoch: state.epoch, previous: state.previous, oldest, generation: state.generation }
        };
        let (stored, which) = (head.encode(&core.array), head.generation % HEADS);
        match core.log_place {
            LogPlace::None => Ok(()),
            LogPlace::Device => self.write_device(core, which, stored),
            LogPlace::Members => {
                let roster = core.roster();
                let at = core.plot.log_heads(&core.shape) + which;
                let writes = roster.present().map(|role| Access {
                    role,
                    sector: at,
                    what: What::Write(stored.clone(), true),
                });
                core.change_all(&roster, writes.collect())
            }
        }
    }

    /// Writes a record to its rings; false if a member failed.
    fn write(&self, core: &Core, roster: &Roster, writes: Vec<(usize, u32, Vec<u8>)>) -> Result<bool> {
        if core.log_place == LogPlace::Device {
            let (_, at, stored) = writes.into_iter().next().expect("one ring");
            let at = HEADS + self.bitmap_sectors + u64::from(at);
            return self.write_device(core, at, stored).map(|()| true);
        }
        let start = core.plot.log_heads(&core.shape) + HEADS;
        let roles: Vec<usize> = writes.iter().map(|(role, ..)| *role).collect();
        let accesses = writes.into_iter().map(|(role, at, stored)| Access {
            role,
            sector: start + u64::from(at),
            what: What::Write(stored, true),
        });
        let results = core.perform(roster, accesses.collect())?;
        let mut whole = true;
        for (role, result) in roles.into_iter().zip(results) {
            if let Err(error) = result {
                core.fail(roster, role, &error.to_string())?;
                whole = false;
            }
        }
        Ok(whole)
    }

    /// Writes to the log device, durably. If that fails the array takes no more writes.
    pub fn write_device(&self, core: &Core, sector: u64, stored: Vec<u8>) -> Result<()> {
        let member = self.device.as_ref().expect("a log on a device has one");
        let device = member.device.clone();
        let run = move || device.write(vellum_base::Lba(sector), &stored, true);
        let result = together(vec![Call { lanes: &member.lanes, run: Box::new(run) }]).remove(0);
        result.map_err(|error| {
            let kind = if error.kind() == Kind::PowerLost { Kind::PowerLost } else { Kind::Io };
            core.end(kind, &format!("the log device failed: {error}"))
        })
    }
}

/// The rings that a record of a change of the row goes to.
fn participants(core: &Core, roster: &Roster, row: u64) -> Vec<usize> {
    let parity_roles = core.parity_roles(roster, row);
    match core.log_place {
        _ if parity_roles.is_empty() => Vec::new(),
        LogPlace::None => Vec::new(),
        LogPlace::Members => parity_roles,
        LogPlace::Device => vec![0],
    }
}
