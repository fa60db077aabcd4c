//! The log that closes the write hole: records with the new content of rows, durable before anything changes in place
//! (docs/decisions/0022-array.md).
//!
//! 1. A record is *live* from its append until it is retired. It is *done* when its writes in place have returned, or
//!    when it is certain that there will be none.
//! 2. Records are retired in sequence order, after a flush of all members that began when they were done; they count as
//!    retired once all heads record that.
//! 3. An operation that has a live record which is not done never waits for another's: there is no deadlock.
//! 4. A row may change without a record only when no record of it is live ([`Log::settle`]).

mod device;
mod record;
mod replay;
mod ring;

pub(crate) use device::{Left, RECORDS_MIN, format_device, make_empty, owner, read_device, read_stale};
pub(crate) use record::{Content, EXTENTS_MAX, Extent, Head, largest_record, record_sectors};
pub(crate) use replay::{Found, read_rings, replay, rewrite};

use crate::access::{Access, What, call, joined};
use crate::core::{Core, Member, Roster};
use crate::lane::{Call, together};
use crate::superblock::{Id, LogPlace};
use record::Record;
use ring::Ring;
use std::collections::BTreeMap;
use std::iter::repeat_n;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vellum_base::sync::{Condvar, Mutex, MutexGuard};
use vellum_base::{Error, Kind, Result};

/// True if the sector is a head of the array that it names: for fuzzing.
pub(crate) fn decode_head(sector: &[u8]) -> bool {
    Head::owner(sector).is_some()
}

/// Sectors of the record at the beginning of a ring, if there is one: for fuzzing.
pub(crate) fn decode_record(ring: &[u8], array: &Id, epoch: u64) -> Option<usize> {
    Record::decode(ring, array, epoch).map(|(_, sectors)| sectors)
}

/// Number of heads before a ring.
pub(crate) const HEADS: u64 = 2;

/// See the module.
pub(crate) struct Log {
    /// The log device, if there is one.
    device: Option<Arc<Member>>,
    /// Sectors of the bitmap of stale rows, which is between the heads and the ring on a log device.
    bitmap_sectors: u64,
    ring_sectors: u32,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    epoch: u64,
    previous: u64,
    next: u64,
    generation: u64,
    /// A bit for each role whose ring is not trusted yet.
    unread: u64,
    /// One per role, or a single one for the log device.
    rings: Vec<Ring>,
    live: BTreeMap<u64, Live>,
    retiring: bool,
}

struct Live {
    row: u64,
    done: bool,
}

/// The new content of a row: one record.
pub(crate) struct RowChange {
    pub row: u64,
    pub extents: Vec<Extent>,
}

/// Sequence numbers of appended records. Rows without a present parity member need none.
#[must_use]
pub(crate) struct Ticket(Range<u64>);

/// Outcome of an append.
pub(crate) enum Appended {
    /// The records are durable: write in place.
    Durable(Ticket),
    /// A member failed: start over without it.
    Again,
}

impl Log {
    /// An empty log of `rings` rings; records can be appended after [`Log::begin`].
    pub fn new(device: Option<Arc<Member>>, rings: usize, ring_sectors: u32, bitmap_sectors: u64) -> Log {
        let rings = (0..rings).map(|_| Ring::new(ring_sectors)).collect();
        let state = State {
            epoch: 0,
            previous: 0,
            next: 1,
            generation: 0,
            unread: 0,
            rings,
            live: BTreeMap::new(),
            retiring: false,
        };
        Log { device, bitmap_sectors, ring_sectors, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Sectors of the log device, if there is one.
    pub fn device_sectors(&self) -> Option<u64> {
        self.device.as_ref().map(|member| member.device.info().sectors)
    }

    /// Continues from the heads that were found. If there are rings in doubt, heads record that before anything is
    /// replayed: if this opening is interrupted, a later one may be able to read those rings, and must not trust them.
    pub fn resume(&self, core: &Core, found: &Found, doubted_roles: u64) -> Result<()> {
        let mut state = self.state.lock();
        state.generation = found.head.map_or(0, |head| head.generation);
        if doubted_roles == 0 {
            return Ok(());
        }
        let oldest = found.head.map_or(1, |head| head.oldest);
        state.epoch = found.head.map_or_else(|| core.env.random(), |head| head.epoch);
        state.unread = doubted_roles;
        drop(state);
        self.write_heads(core, oldest)
    }

    /// Starts a new epoch, which invalidates all earlier records; superblocks record it if the log is on a device.
    /// Heads keep the roles whose rings were unreadable if a cache has yet to learn of it.
    pub fn begin(&self, core: &Core, is_cache_to_hear: bool) -> Result<()> {
        let mut state = self.state.lock();
        state.epoch = core.env.random();
        state.previous = core.roster().log_epoch;
        if !is_cache_to_hear {
            state.unread = 0;
        }
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

    /// Ends the doubt about rows: no cache holds, or will hold, anything of them.
    pub fn settle_doubts(&self, core: &Core) -> Result<()> {
        let unread = std::mem::take(&mut self.state.lock().unread);
        if unread == 0 { Ok(()) } else { self.refresh_heads(core) }
    }

    /// Writes heads again, for a new member that has none.
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

    /// True if there is a log.
    pub fn is_on(&self, core: &Core) -> bool {
        core.log_place != LogPlace::None
    }

    /// How many consecutive rows with records of `record_sectors` sectors may be appended together: those that take a
    /// quarter of a ring, but at least one round of parity over the members.
    pub fn rows_together(&self, core: &Core, record_sectors: u32) -> u64 {
        let records = u64::from(self.ring_sectors / 4 / record_sectors);
        match core.log_place {
            LogPlace::None => u64::MAX,
            LogPlace::Device => records.max(1),
            LogPlace::Members => {
                let rounds = records / core.shape.level.parities() as u64;
                core.shape.members as u64 * rounds.max(1)
            }
        }
    }

    /// Appends a record for each change to the rings where it belongs, durably. The caller holds the rows.
    pub fn append(&self, core: &Core, roster: &Roster, changes: &[RowChange]) -> Result<Appended> {
        let mut records = Vec::with_capacity(changes.len());
        for RowChange { row, extents } in changes {
            let rings = participants(core, roster, *row);
            match rings.is_empty() {
                true => self.settle(core, *row)?,
                false => records.push(Unplaced { row: *row, rings, extents }),
            }
        }
        if records.is_empty() {
            return Ok(Appended::Durable(Ticket(0..0)));
        }
        let (first, epoch, places) = self.reserve(core, &records)?;
        let ticket = Ticket(first..first + records.len() as u64);
        let mut writes = Vec::new();
        for ((record, places), sequence) in records.iter().zip(places).zip(ticket.0.clone()) {
            let stored = record.encode(core, epoch, sequence);
            let copies = repeat_n(stored, places.len());
            writes.extend(
                record.rings.iter().zip(places).zip(copies).map(|((ring, at), stored)| (*ring, at, stored)),
            );
        }
        match self.write(core, roster, writes) {
            Ok(true) => return Ok(Appended::Durable(ticket)),
            // Done also if the array has ended, to wake those who wait for these records.
            result => {
                self.complete(ticket);
                result?;
            }
        }
        // Some members may have these records. They must not be replayed after a crash, whatever the next attempt
        // writes.
        changes.iter().try_for_each(|change| self.settle(core, change.row))?;
        Ok(Appended::Again)
    }

    /// Marks records as done: the changes are in place.
    pub fn complete(&self, ticket: Ticket) {
        let mut state = self.state.lock();
        state.live.range_mut(ticket.0).for_each(|(_, live)| live.done = true);
        drop(state);
        self.changed.notify_all();
    }

    /// Waits until no record of the row is live. The caller holds the row.
    pub fn settle(&self, core: &Core, row: u64) -> Result<()> {
        let mut state = self.state.lock();
        while state.live.values().any(|live| live.row == row) {
            state = self.retire_or_wait(core, state)?;
        }
        Ok(())
    }

    /// Retires all records. There must be no concurrent writes.
    pub fn retire_all(&self, core: &Core) -> Result<()> {
        let mut state = self.state.lock();
        while !state.live.is_empty() {
            state = self.retire_or_wait(core, state)?;
        }
        Ok(())
    }

    /// Reserves sequence numbers and room in every ring, for all records or none, so that no caller waits while it
    /// holds some. Returns the first sequence number, the epoch, and the position of each record in each of its rings.
    fn reserve(&self, core: &Core, records: &[Unplaced<'_>]) -> Result<(u64, u64, Vec<Vec<u32>>)> {
        let mut state = self.state.lock();
        loop {
            if let Some(places) = state.place(records) {
                let first = state.next;
                state.next += records.len() as u64;
                let live = records.iter().map(|record| Live { row: record.row, done: false });
                state.live.extend((first..).zip(live));
                return Ok((first, state.epoch, places));
            }
            if state.live.is_empty() {
                let sectors: u32 = records.iter().map(Unplaced::sectors).sum();
                let why = format!("records of {sectors} sectors do not fit into the log");
                return Err(Error::new(Kind::Unsupported, why));
            }
            state = self.retire_or_wait(core, state)?;
        }
    }

    /// Retires the records that are done at the front, or waits until one is done or another task has retired some.
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

    /// Writes all heads with the oldest valid record. Heads alternate between their two places.
    fn write_heads(&self, core: &Core, oldest: u64) -> Result<()> {
        let head = {
            let mut state = self.state.lock();
            state.generation += 1;
            let State { epoch, previous, generation, unread, .. } = *state;
            Head { epoch, previous, oldest, generation, ring_sectors: self.ring_sectors, unread }
        };
        let (stored, which) = (head.encode(&core.array), head.generation % HEADS);
        match core.log_place {
            LogPlace::None => Ok(()),
            LogPlace::Device => self.write_device(core, which, What::Write(stored, true)),
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

    /// Writes records to rings, adjacent ones together; false if a member failed.
    fn write(&self, core: &Core, roster: &Roster, writes: Vec<(usize, u32, Vec<u8>)>) -> Result<bool> {
        let start = match core.log_place {
            LogPlace::Device => HEADS + self.bitmap_sectors,
            _ => core.plot.log_heads(&core.shape) + HEADS,
        };
        let accesses = writes.into_iter().map(|(role, at, stored)| Access {
            role,
            sector: start + u64::from(at),
            what: What::Write(stored, true),
        });
        let accesses = joined(accesses.collect());
        if core.log_place == LogPlace::Device {
            accesses
                .into_iter()
                .try_for_each(|access| self.write_device(core, access.sector, access.what))?;
            return Ok(true);
        }
        let roles: Vec<usize> = accesses.iter().map(|access| access.role).collect();
        let results = core.perform(roster, accesses)?;
        let mut whole = true;
        for (role, result) in roles.into_iter().zip(results) {
            if let Err(error) = result {
                core.fail(roster, role, &error.to_string())?;
                whole = false;
            }
        }
        Ok(whole)
    }

    /// Writes to the log device, durably. If that fails, the array ends.
    pub fn write_device(&self, core: &Core, sector: u64, what: What) -> Result<()> {
        let member = self.device.as_ref().expect("a log on a device has one");
        let device = member.device.clone();
        let run = move || call(&*device, sector, what);
        let result = together(vec![Call { lanes: &member.lanes, run: Box::new(run) }]).remove(0);
        result.map(drop).map_err(|error| {
            let kind = if error.kind() == Kind::PowerLost { Kind::PowerLost } else { Kind::Io };
            core.end(kind, &format!("the log device failed: {error}"))
        })
    }
}

/// A record without a position yet.
struct Unplaced<'a> {
    row: u64,
    /// The rings that it goes to.
    rings: Vec<usize>,
    extents: &'a [Extent],
}

impl Unplaced<'_> {
    fn sectors(&self) -> u32 {
        record_sectors(self.extents)
    }

    /// Encodes the record as it is stored in each of its rings, and counts it.
    fn encode(&self, core: &Core, epoch: u64, sequence: u64) -> Vec<u8> {
        let participants = match core.log_place {
            LogPlace::Members => self.rings.iter().fold(0, |mask, role| mask | 1u64 << role),
            _ => 0,
        };
        core.counters.log_records.fetch_add(1, Relaxed);
        core.counters.log_sectors.fetch_add(u64::from(self.sectors()) * self.rings.len() as u64, Relaxed);
        Record { epoch, sequence, participants, extents: self.extents.into() }.encode(&core.array)
    }
}

impl State {
    /// Takes room for the next records in each of their rings; `None`, and takes nothing, if there is not enough.
    fn place(&mut self, records: &[Unplaced<'_>]) -> Option<Vec<Vec<u32>>> {
        let mut all = Vec::with_capacity(records.len());
        for (record, sequence) in records.iter().zip(self.next..) {
            let mut places = Vec::with_capacity(record.rings.len());
            for ring in &record.rings {
                let Some(at) = self.rings[*ring].take(sequence, record.sectors()) else {
                    self.rings.iter_mut().for_each(|ring| ring.take_back(self.next));
                    return None;
                };
                places.push(at);
            }
            all.push(places);
        }
        Some(all)
    }
}

/// The rings that hold the record of a change of the row.
fn participants(core: &Core, roster: &Roster, row: u64) -> Vec<usize> {
    let parity_roles = core.parity_roles(roster, row);
    match core.log_place {
        _ if parity_roles.is_empty() => Vec::new(),
        LogPlace::None => Vec::new(),
        LogPlace::Members => parity_roles,
        LogPlace::Device => vec![0],
    }
}
