//! Collection (garbage collection of superblocks): live units of several superblocks are moved to one, so that those
//! can be erased.
//!
//! It runs when a superblock is needed and none is free. Units are moved from the superblocks with the fewest live ones
//! until the new superblock is full, perhaps only in part from the last one. The new superblock ends with a list of
//! what was moved to it. Lists of tables name units, not their places, so they need not be rewritten, and the store
//! above does not notice.
//!
//! Invariants
//! 1. A collected superblock is erased only after the one that its units went to is durable, and all reads by old
//!    layouts were answered.
//! 2. One collection runs at a time. It needs one free superblock, which is withheld from tables while superblocks are
//!    shared.
//! 3. It empties at least as many superblocks as it fills, as each collection is planned for the one superblock that it
//!    fills.

use super::Inner;
use super::book::Group;
use super::layout::Extent;
use super::plan::Plan;
use super::stripe::{Stripe, Supply};
use super::superblock::{EXTENT_UNIT_BYTES, Home, Name, second_at};
use crate::media::{Intent, Parallelism};
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, Error, FlashError, IoClass, Kind, Result};

/// Most collections that are tried to get a superblock of a required width.
const WIDE_TRIES: u32 = 3;
/// Most bytes that are read at a time.
const READ_BYTES: u64 = 1 << 20;

impl Inner {
    /// An erased superblock of at least `width` dies, to be written. Collects if none is free.
    pub(super) fn take(self: &Arc<Inner>, class: IoClass, supply: Supply, width: usize) -> Result<Arc<Home>> {
        // Collection frees any superblocks, perhaps not wide enough ones.
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

    /// Frees superblocks, unless one of `width` dies is free by now. False if none can be freed.
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

    /// Moves as much as fits `stripe`. False if there is nothing to move.
    fn move_to(self: &Arc<Inner>, stripe: Stripe, class: IoClass) -> Result<bool> {
        let geometry = *self.flash.geometry();
        let capacity = stripe.capacity();
        let fits = |units: u64, list_bytes: u64| {
            second_at(units * EXTENT_UNIT_BYTES + list_bytes, &geometry) + list_bytes <= capacity
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
                    // A superblock that cannot be read is left alone, and the others are collected without it. A failed
                    // write has cost an erase block; the next try uses another superblock.
                    (Some(_), _) | (_, Kind::NoSpace) => Ok(true),
                    _ => Err(error),
                }
            }
        }
    }

    /// Copies the units of a group, and writes the list that names them.
    fn copy(&self, group: &Group, mut stripe: Stripe, class: IoClass) -> Result<Arc<Home>, Unmoved> {
        let pieces: Vec<Extent> = group.moved.iter().flat_map(|extent| extent.pieces(READ_BYTES)).collect();
        let mut rest = &pieces[..];
        while let Some(first) = rest.first() {
            // From one superblock at a time, so that it is known which one cannot be read.
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

    /// Makes tables use the moved units, which are durable by now, and releases the old superblocks.
    fn put_in_force(&self, home: &Arc<Home>, group: Group) -> Result<()> {
        let old = self.pool.end_collection(|book| book.put_in_force(home, &group));
        // Until then they are in hand: they might be erased otherwise, when the last table that uses an unmoved rest is
        // erased.
        old.iter().for_each(|layout| layout.wait_for_readers());
        self.with_book(|book| {
            book.put_down(&group.victims);
            book.put_down(&[home.index]);
        })
    }
}

/// Why nothing was moved.
struct Unmoved {
    /// The superblock that cannot be read, if that is the reason.
    from: Option<u32>,
    error: Error,
}

impl From<Error> for Unmoved {
    fn from(error: Error) -> Unmoved {
        Unmoved { from: None, error }
    }
}
