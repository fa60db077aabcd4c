//! State shared by the parts of an array: its members and which of them count (`roster.rs`), calls on them, row locks,
//! and the end of an array after an error.
//!
//! 1. Lock order: rows, ascending by index in the lock table; then roster changes. The roster's lock is never held
//!    while waiting for a row.
//! 2. An array that is closed with its cache stores the cache's `bond`. It is cleared before anything changes without
//!    that cache, whose content would be outdated.
//! 3. An array that has ended takes no writes. It ends when the power is lost, when a member's file system is full, or
//!    when more members are lost than parity covers. Superblocks are not written after that, so that members can be
//!    brought back in their last state and the next assembly can repair what was in flight.

mod roster;

use crate::access::{Access, What, call};
use crate::bell::Bell;
use crate::bitmap::Bitmap;
use crate::intent::Intents;
use crate::lane::{Call, together};
use crate::layout::Shape;
use crate::log::Log;
use crate::plan::Columns;
use crate::stuck::Stuck;
use crate::superblock::{Id, LogPlace, Plot, State, Superblock};
pub(crate) use roster::{Member, Roster};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use vellum_base::sync::{Mutex, MutexGuard};
use vellum_base::{Env, Error, Kind, Result};

/// Locks on rows: row `r` has lock `r % ROW_LOCKS`.
pub(crate) const ROW_LOCKS: usize = 256;

/// Counters for [`crate::Status`].
#[derive(Default)]
pub(crate) struct Counters {
    pub healed_sectors: AtomicU64,
    pub recovered_sectors: AtomicU64,
    pub log_records: AtomicU64,
    pub log_sectors: AtomicU64,
    pub log_retirements: AtomicU64,
}

/// See the module.
pub(crate) struct Core {
    pub env: Arc<dyn Env>,
    pub array: Id,
    pub shape: Shape,
    pub plot: Plot,
    pub log_place: LogPlace,
    pub log: Log,
    pub stale: Bitmap,
    pub intent: Bitmap,
    pub intents: Intents,
    pub counters: Counters,
    pub stuck: Stuck,
    /// Rung when the roster changes.
    pub bell: Arc<Bell>,
    /// Changes are made through the cache that the array is bound to.
    pub has_cache: AtomicBool,
    roster: Mutex<Arc<Roster>>,
    change: Mutex<()>,
    ended: Mutex<Option<Error>>,
    /// Why members were taken out, by id.
    reasons: Mutex<BTreeMap<Id, String>>,
    rows: Vec<Mutex<()>>,
}

/// Parts of a new core.
pub(crate) struct Parts {
    pub superblock: Superblock,
    pub members: Vec<Option<Arc<Member>>>,
    pub log: Log,
    pub stale: Bitmap,
    pub intent: Bitmap,
}

impl Core {
    pub fn new(env: Arc<dyn Env>, parts: Parts) -> Core {
        let Parts { superblock, members, log, stale, intent } = parts;
        let Superblock { event, table, log_epoch, bond, .. } = superblock;
        let roster = Roster { event, table, members, log_epoch, bond };
        Core {
            env,
            array: superblock.array,
            shape: superblock.shape,
            plot: superblock.plot,
            log_place: superblock.log,
            log,
            stale,
            intent,
            intents: Intents::default(),
            counters: Counters::default(),
            stuck: Stuck::default(),
            bell: Arc::default(),
            has_cache: AtomicBool::new(false),
            roster: Mutex::new(Arc::new(roster)),
            change: Mutex::new(()),
            ended: Mutex::new(None),
            reasons: Mutex::default(),
            rows: (0..ROW_LOCKS).map(|_| Mutex::new(())).collect(),
        }
    }

    /// Locks a row.
    pub fn lock_row(&self, row: u64) -> MutexGuard<'_, ()> {
        self.rows[(row % ROW_LOCKS as u64) as usize].lock()
    }

    /// Locks these rows, at most [`ROW_LOCKS`].
    pub fn lock_rows(&self, rows: Range<u64>) -> Vec<MutexGuard<'_, ()>> {
        let mut locks: Vec<u64> = rows.map(|row| row % ROW_LOCKS as u64).collect();
        locks.sort_unstable();
        locks.into_iter().map(|lock| self.lock_row(lock)).collect()
    }

    /// Locks all rows.
    pub fn lock_all_rows(&self) -> Vec<MutexGuard<'_, ()>> {
        self.rows.iter().map(Mutex::lock).collect()
    }

    /// Where an offset of a column is stored: the member, and the sector on it.
    pub fn place(&self, row: u64, column: usize, offset: u32) -> (usize, u64) {
        let sector = self.plot.data_start + self.shape.member_sector(row) + u64::from(offset);
        (self.shape.member_of(row, column), sector)
    }

    /// Row, column and offset in the chunk of a member's data or parity sector: the inverse of [`Core::place`].
    pub fn placed_at(&self, role: usize, sector: u64) -> (u64, usize, u32) {
        let (at, chunk) = (sector - self.plot.data_start, u64::from(self.shape.chunk_sectors));
        let row = at / chunk;
        (row, self.shape.column_of(row, role), (at % chunk) as u32)
    }

    /// Columns of the row that their members do not have.
    pub fn lost_columns(&self, roster: &Roster, row: u64) -> Columns {
        let lost = (0..self.shape.members).filter(|role| roster.with_row(*role, row).is_none());
        lost.map(|role| self.shape.column_of(row, role)).collect()
    }

    /// Members that have valid parity of the row.
    pub fn parity_roles(&self, roster: &Roster, row: u64) -> Vec<usize> {
        self.shape.parity_members(row).filter(|role| roster.with_row(*role, row).is_some()).collect()
    }

    /// Makes all calls concurrently. A lost power ends the array; so does a full file system below a member, which has
    /// not failed and is not taken out. All other errors are left to the caller.
    pub fn perform(&self, roster: &Roster, accesses: Vec<Access>) -> Result<Vec<Result<Vec<u8>>>> {
        let roles: Vec<usize> = accesses.iter().map(|access| access.role).collect();
        let calls = accesses.into_iter().map(|Access { role, sector, what }| {
            let member = roster.members[role].as_ref().expect("a member that counts is there");
            let device = member.device.clone();
            Call { lanes: &member.lanes, run: Box::new(move || call(&*device, sector, what)) }
        });
        let results = together(calls.collect());
        if failed_by(&results, Kind::PowerLost).next().is_some() {
            return Err(self.end(Kind::PowerLost, "the power is off"));
        }
        // A member that is being rebuilt holds nothing yet that the others lack.
        let is_needed = |at: &usize| roster.table[roles[*at]].state == State::Active;
        let full = failed_by(&results, Kind::NoSpace).find(|(at, _)| is_needed(at));
        if let Some((at, error)) = full {
            let why = format!("member {}: {error}: make room there, then open the array again", roles[at]);
            return Err(self.end(Kind::NoSpace, &why));
        }
        Ok(results)
    }

    /// Makes calls that change members; those that fail are taken out. Returns the first error that concerns the array
    /// itself.
    pub fn change_all(&self, roster: &Roster, accesses: Vec<Access>) -> Result<()> {
        let roles: Vec<usize> = accesses.iter().map(|access| access.role).collect();
        let results = self.perform(roster, accesses)?;
        for (role, result) in roles.into_iter().zip(results) {
            if let Err(error) = result {
                self.fail(roster, role, &error.to_string())?;
            }
        }
        Ok(())
    }

    /// Flushes all members that are present.
    pub fn flush_members(&self) -> Result<()> {
        let (moment, roster) = (self.stale.moment(), self.roster());
        // Checked after the roster was taken: a member that was lost by the end of the array is not flushed, but counts
        // on superblocks.
        self.check_writable()?;
        let flushes = roster.present().map(|role| Access { role, sector: 0, what: What::Flush });
        self.change_all(&roster, flushes.collect())?;
        self.stale.flushed(moment);
        Ok(())
    }

    /// Clears the bits of rows that are no longer stale on the members, if there are any. Concurrent changes may leave
    /// more of them.
    pub fn settle_marks(&self) -> Result<()> {
        if !self.stale.is_behind() {
            return Ok(());
        }
        self.flush_members()?;
        self.stale.catch_up(self)
    }

    /// Fails for a role that does not exist.
    pub fn check_role(&self, role: usize) -> Result<()> {
        if role < self.shape.members {
            return Ok(());
        }
        Err(Error::invalid(format!("there is no member {role}: the last is {}", self.shape.members - 1)))
    }

    /// Ends the array and returns the error for that. The first reason is kept.
    pub fn end(&self, kind: Kind, why: &str) -> Error {
        self.ended.lock().get_or_insert_with(|| Error::new(kind, why)).repeated()
    }

    /// Fails if the array has ended.
    pub fn check_writable(&self) -> Result<()> {
        match &*self.ended.lock() {
            None => Ok(()),
            Some(why) => Err(why.repeated().context("the array takes no writes")),
        }
    }

    /// Called before the array's data, or what its parity lacks, change: returns the roster to use.
    pub fn begin_change(&self) -> Result<Arc<Roster>> {
        if self.roster().bond != 0 && !self.has_cache.load(Relaxed) {
            self.bind(0)?;
            self.log.settle_doubts(self)?;
        }
        let roster = self.roster();
        // Checked after the roster was taken: an array ends before a roster without the lost members is published.
        self.check_writable().map(|()| roster)
    }

    /// Why the array has ended, if it has.
    pub fn ended(&self) -> Option<String> {
        self.ended.lock().as_ref().map(Error::to_string)
    }
}

fn failed_by(results: &[Result<Vec<u8>>], kind: Kind) -> impl Iterator<Item = (usize, &Error)> {
    let errors = results.iter().enumerate().filter_map(|(at, result)| Some((at, result.as_ref().err()?)));
    errors.filter(move |(_, error)| error.kind() == kind)
}
