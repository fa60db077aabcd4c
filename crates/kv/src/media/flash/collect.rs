//! Collection: what is live on a few superblocks is moved to one, so that they can be erased.
//!
//! Who needs a superblock and finds none free moves what is left on those of which least is live, until a
//! superblock is
//! full; of the last of them perhaps a part. The new superblock ends with new lists of the tables concerned, of the
//! next
//! edition; the store above sees nothing of it.
//!
//! Invariants
//! 1. Nothing that is collected is erased before the superblock with the new lists is safe, and before reads by the
//! old
//!    layouts have been answered.
//! 2. One collection at a time. It needs one free superblock, which tables do not get while there is anything to
//! collect.

use super::Inner;
use super::layout::{Extent, Layout, push};
use super::list::{self, List, Part};
use super::queue::Op;
use super::stripe::{Stripe, Supply};
use super::superblock::{Home, Name, UNIT_BYTES};
use crate::media::{Intent, Parallelism};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, Error, IoClass, Kind, Result};

/// Bytes that are read in one go.
const READ_BYTES: u64 = 1 << 20;

/// A table that has something on superblocks that are collected.
struct Moving {
    table: u64,
    edition: u32,
    old: Arc<Layout>,
    pieces: Vec<Piece>,
}

impl Moving {
    /// The next of it are units of the new superblock.
    fn moves(&mut self, start: u32, more: u32) {
        match self.pieces.last_mut() {
            _ if more == 0 => {}
            Some(Piece::Moved { units, .. }) => *units += more,
            _ => self.pieces.push(Piece::Moved { start, units: more }),
        }
    }
}

/// Of a new layout.
enum Piece {
    /// Where it was.
    Stays(Extent),
    /// Units of the new superblock.
    Moved { start: u32, units: u32 },
}

impl Inner {
    /// A free superblock, erased.
    pub(super) fn take(self: &Arc<Inner>, class: IoClass, supply: Supply) -> Result<Home> {
        loop {
            if let Some(home) = self.pool.take(&self.road, &*self.env, class, supply)? {
                return Ok(home);
            }
            if supply == Supply::Collection || !self.collect(class)? {
                return Err(Error::new(Kind::NoSpace, "no superblock is free; delete keys, then compact"));
            }
        }
    }

    /// Wins superblocks. False if there are none to be won.
    fn collect(self: &Arc<Inner>, class: IoClass) -> Result<bool> {
        let _one_at_a_time = self.collecting.lock();
        if self.pool.has_free() {
            return Ok(true); // somebody else has just collected
        }
        let (group, victims) = self.pool.with_book(|book| {
            let group: BTreeMap<u32, u64> = book.next_group().into_iter().collect();
            let victims: Vec<u32> = group.keys().copied().collect();
            book.keep(&victims);
            (group, victims)
        });
        if group.is_empty() {
            return Ok(false);
        }
        let result = self.evacuate(group, class);
        let gone = self.pool.with_book(|book| {
            if let Err(error) = &result
                && error.kind() != Kind::NoSpace
            {
                book.set_stuck(&victims);
            }
            book.unkeep(&victims)
        });
        gone.into_iter().try_for_each(|index| self.release(index))?;
        match result {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Kind::NoSpace => Ok(false),
            Err(error) if error.kind() == Kind::PowerLost => Err(error),
            // What cannot be read stays where it is.
            Err(_) => Ok(true),
        }
    }

    /// Moves so many units of each of these superblocks, or fewer, if the lists take much room.
    fn evacuate(self: &Arc<Inner>, mut group: BTreeMap<u32, u64>, class: IoClass) -> Result<()> {
        let mut tables = self.tables_on(&group);
        let Some(first) = tables.first() else { return Ok(()) };
        let name = Name { table: first.table, edition: first.edition };
        let intent = Intent { cause: Cause::Gc, class, parallelism: Parallelism::Full };
        let mut stripe = Stripe::begin(self.clone(), name, intent, Supply::Collection)?;
        let (moved, bytes) = loop {
            let moved = plan(&mut tables, group.clone());
            let bytes: u64 = moved.iter().map(Extent::bytes).sum();
            let lists = list::encode(&self.lists(&mut tables, name)).len() as u64;
            let over = (bytes + lists).saturating_sub(stripe.capacity()).div_ceil(UNIT_BYTES);
            if over == 0 {
                break (moved, bytes);
            }
            if !self.shrink(&mut group, over) {
                return Err(Error::new(Kind::NoSpace, "lists leave no room for what would be collected"));
            }
            tables = self.tables_on(&group);
        };
        self.copy(&moved, &mut stripe, class)?;
        let lists = self.lists(&mut tables, name);
        let home = stripe.finish(&list::encode(&lists))?;
        self.counts.collections.fetch_add(1, Relaxed);
        self.counts.collected_bytes.fetch_add(bytes, Relaxed);
        self.put_in_force(tables, &home)
    }

    /// Takes units out of a group. False if then it would win nothing: what it fills might be collected next, for ever.
    fn shrink(&self, group: &mut BTreeMap<u32, u64>, mut units: u64) -> bool {
        let live = |index: &u32| self.pool.with_book(|book| book.superblock(*index).map_or(0, |s| s.live));
        for quota in group.values_mut().rev() {
            let less = units.min(*quota);
            (*quota, units) = (*quota - less, units - less);
        }
        group.retain(|_, quota| *quota > 0);
        group.iter().filter(|(index, quota)| **quota >= live(index)).count() > 1
    }

    fn tables_on(&self, group: &BTreeMap<u32, u64>) -> Vec<Moving> {
        let victims: Vec<u32> = group.keys().copied().collect();
        self.pool.with_book(|book| {
            let moving = |(table, old): (u64, Arc<Layout>)| Moving {
                table,
                edition: book.next_edition(table),
                old,
                pieces: Vec::new(),
            };
            book.tables_on(&victims).into_iter().map(moving).collect()
        })
    }

    /// The new lists, of tables that have not been given up meanwhile; the others are left out.
    fn lists(&self, tables: &mut Vec<Moving>, name: Name) -> Vec<List> {
        self.pool.with_book(|book| {
            tables.retain(|moving| book.table(moving.table).is_some());
            let part = |piece: &Piece| match piece {
                Piece::Stays(extent) => book.part(extent),
                Piece::Moved { start, units } => Part { source: name, start: *start, units: *units },
            };
            let list = |moving: &Moving| List {
                name: Name { table: moving.table, edition: moving.edition },
                parts: moving.pieces.iter().map(part).collect(),
            };
            tables.iter().map(list).collect()
        })
    }

    /// Appends what is moved.
    fn copy(&self, moved: &[Extent], stripe: &mut Stripe, class: IoClass) -> Result<()> {
        let geometry = self.flash.geometry();
        let (mut ops, mut bytes) = (Vec::new(), 0);
        for (at, extent) in moved.iter().enumerate() {
            let op = |(page, offset, bytes)| Op::Read { page, offset, bytes };
            ops.extend(extent.home.pages(geometry, extent.offset(), extent.bytes()).map(op));
            bytes += extent.bytes();
            if bytes >= READ_BYTES || at + 1 == moved.len() {
                let mut read = vec![0; bytes as usize];
                let outcome = self.road.submit(class, std::mem::take(&mut ops)).wait(&*self.env);
                outcome.into_read(&mut read)?;
                stripe.append(&read)?;
                bytes = 0;
            }
        }
        Ok(())
    }

    /// The new lists are safe.
    fn put_in_force(&self, tables: Vec<Moving>, home: &Arc<Home>) -> Result<()> {
        let (old, gone) = self.pool.with_book(|book| {
            let (mut old, mut gone) = (Vec::new(), Vec::new());
            for Moving { table, edition, old: before, pieces } in tables {
                book.note(home.index, table);
                // It may have been given up meanwhile.
                if book.table(table).is_some() {
                    book.put(table, layout_of(edition, home, pieces));
                    gone.extend(book.leave(&before));
                    old.push(before);
                }
            }
            gone.extend(book.unkeep(&[home.index]));
            (old, gone)
        });
        old.iter().for_each(|layout| layout.wait_for_readers());
        gone.into_iter().try_for_each(|index| self.release(index))
    }
}

/// Says of each table what stays and what moves; returns what moves, in order.
fn plan(tables: &mut [Moving], mut group: BTreeMap<u32, u64>) -> Vec<Extent> {
    let (mut moved, mut start) = (Vec::new(), 0);
    for moving in tables {
        for extent in &moving.old.clone().extents {
            let left = group.get_mut(&extent.index()).map_or(0, std::mem::take);
            let (first, rest) = extent.split(left);
            if let Some(left_now) = group.get_mut(&extent.index()) {
                *left_now = left - first.units as u64;
            }
            moving.moves(start, first.units);
            moving.pieces.extend(rest.map(Piece::Stays));
            start += first.units;
            moved.extend((first.units > 0).then_some(first));
        }
    }
    debug_assert_eq!(moved.iter().map(Extent::bytes).sum::<u64>(), u64::from(start) * UNIT_BYTES);
    moved
}

fn layout_of(edition: u32, home: &Arc<Home>, pieces: Vec<Piece>) -> Layout {
    let mut extents = Vec::new();
    for piece in pieces {
        let extent = match piece {
            Piece::Stays(extent) => extent,
            Piece::Moved { start, units } => Extent { home: home.clone(), start, units },
        };
        push(&mut extents, extent);
    }
    Layout::new(edition, home.index, extents)
}
