//! Collection: what is live on a few superblocks is moved to one, so that they can be erased.
//!
//! Who needs a superblock and finds none free moves what is left on those of which least is live, until a superblock
//! is full; of the last of them perhaps a part. The new superblock ends with a list of what was moved to it. Tables'
//! own lists say what their units are, not where, so none is written anew; the store above sees nothing of it.
//!
//! Invariants
//! 1. Nothing that is collected is erased before the superblock that it went to is safe, and before reads by the old
//!    layouts have been answered.
//! 2. One collection at a time. It needs one free superblock, which tables do not get while they share any.
//! 3. It empties at least as many superblocks as it fills: a plan is made for the one that there is to fill.

use super::Inner;
use super::book::Group;
use super::layout::Extent;
use super::plan::Plan;
use super::stripe::{Stripe, Supply};
use super::superblock::{Home, Name, UNIT_BYTES, second_at};
use crate::media::{Intent, Parallelism};
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, Error, FlashError, IoClass, Kind, Result};

/// Collections that are done, at most, for a superblock as wide as another.
const WIDE_TRIES: u32 = 3;
/// Bytes that are read in one go.
const READ_BYTES: u64 = 1 << 20;

impl Inner {
    /// A free superblock of `width` dies or more, erased, to be written.
    pub(super) fn take(self: &Arc<Inner>, class: IoClass, supply: Supply, width: usize) -> Result<Arc<Home>> {
        // To collect brings any superblock, perhaps not a wide one.
        let mut tries = if width > 0 { WIDE_TRIES } else { u32::MAX };
        loop {
            if let Some(home) = self.pool.take(&self.submitter, &*self.env, class, (supply, width))? {
                return Ok(home);
            }
            if supply == Supply::Collection || tries == 0 || !self.collect(class, width)? {
                return Err(Error::new(Kind::NoSpace, "no superblock is free; delete keys, then compact"));
            }
            tries -= 1;
        }
    }

    /// Wins superblocks, if there is none of so many dies. False if there are none to be won.
    fn collect(self: &Arc<Inner>, class: IoClass, width: usize) -> Result<bool> {
        let _one_at_a_time = self.collecting.lock();
        if self.pool.has_free(width) {
            return Ok(true); // somebody else has just collected
        }
        if self.pool.free() == 0 {
            return Ok(false);
        }
        let number = self.pool.with_book(|book| book.next_collection());
        let intent = Intent { cause: Cause::Gc, class, parallelism: Parallelism::Full };
        let moved = Stripe::begin(self.clone(), Name::Collected(number), intent, Supply::Collection)
            .and_then(|stripe| self.move_to(stripe, class));
        self.pool.end_collection(|_| ());
        match moved {
            Err(error) if error.kind() == Kind::NoSpace => Ok(false),
            moved => moved,
        }
    }

    /// Moves what fits a superblock. False if there was nothing to be moved.
    fn move_to(self: &Arc<Inner>, stripe: Stripe, class: IoClass) -> Result<bool> {
        let geometry = *self.flash.geometry();
        let capacity = stripe.capacity();
        let fits = |units: u64, list_bytes: u64| {
            second_at(units * UNIT_BYTES + list_bytes, &geometry) + list_bytes <= capacity
        };
        let Some(group) = self.pool.with_book(|book| book.next_group(fits)) else { return Ok(false) };
        match self.copy(&group, stripe, class) {
            Ok(home) => self.put_in_force(&home, group).map(|()| true),
            Err(Unmoved { from, error }) => {
                self.with_book(|book| {
                    from.into_iter().for_each(|index| book.set_stuck(index));
                    book.put_down(&group.victims);
                })?;
                match (from, error.kind()) {
                    (_, Kind::PowerLost) => Err(error),
                    // What cannot be read stays where it is; the others are collected without it. What cannot be
                    // written has cost an erase block, and is tried on those that are left.
                    (Some(_), _) | (_, Kind::NoSpace) => Ok(true),
                    _ => Err(error),
                }
            }
        }
    }

    /// Writes what is moved, and what it is.
    fn copy(&self, group: &Group, mut stripe: Stripe, class: IoClass) -> Result<Arc<Home>, Unmoved> {
        let pieces: Vec<Extent> = group.moved.iter().flat_map(|extent| extent.pieces(READ_BYTES)).collect();
        let mut rest = &pieces[..];
        while let Some(first) = rest.first() {
            // Of one superblock at a time, so that it is known which cannot be read.
            let mut bytes = 0;
            let is_next = |extent: &&Extent| {
                bytes += extent.bytes();
                extent.index() == first.index() && bytes <= READ_BYTES
            };
            let count = rest.iter().take_while(is_next).count();
            let (now, later) = rest.split_at(count);
            let read = self.read_all(now, class);
            let read = read.map_err(|error| Unmoved { from: Some(first.index()), error: error.into() })?;
            stripe.append(&read)?;
            rest = later;
        }
        let bytes = group.moved.iter().map(Extent::bytes).sum();
        let home = stripe.finish(&group.list.encode())?;
        self.counts.collections.fetch_add(1, Relaxed);
        self.counts.collected_bytes.fetch_add(bytes, Relaxed);
        Ok(home)
    }

    fn read_all(&self, extents: &[Extent], class: IoClass) -> Result<Vec<u8>, FlashError> {
        let geometry = self.flash.geometry();
        let plan = Plan::new(extents.iter().flat_map(|e| e.home.pages(geometry, e.offset(), e.bytes())));
        let mut read = vec![0; extents.iter().map(Extent::bytes).sum::<u64>() as usize];
        plan.assemble(self.submitter.submit(class, plan.ops()).wait(&*self.env), &mut read)?;
        Ok(read)
    }

    /// What was moved is safe.
    fn put_in_force(&self, home: &Arc<Home>, group: Group) -> Result<()> {
        let old = self.pool.end_collection(|book| book.put_in_force(home, &group));
        // Till then they are in hand, or they might be erased with the last table that counts on what was not moved.
        old.iter().for_each(|layout| layout.wait_for_readers());
        self.with_book(|book| {
            book.put_down(&group.victims);
            book.put_down(&[home.index]);
        })
    }
}

/// Why nothing was moved.
struct Unmoved {
    /// What cannot be read.
    from: Option<u32>,
    error: Error,
}

impl From<Error> for Unmoved {
    fn from(error: Error) -> Unmoved {
        Unmoved { from: None, error }
    }
}
