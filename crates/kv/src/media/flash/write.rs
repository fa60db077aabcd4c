//! Writing a table: its own units to a superblock, and those that are stored already where they are
//! (docs/decisions/0021,
//! "Relinking on raw flash").
//!
//! Invariants
//! 1. What of other superblocks a table counts on is held from the moment it is taken over: collection does not move
//!    it, and it is not erased.
//! 2. A table's own units and its list fit its superblock: each extent of another brings at least as many bytes as it
//!    takes from the list's.

use super::Inner;
use super::layout::{Extent, Layout, push};
use super::list::{self, List, Part};
use super::stripe::{Stripe, Supply};
use super::superblock::{Name, UNIT_BYTES};
use crate::lsm::table::Stored;
use crate::media::{Intent, TableWriter};
use std::sync::Arc;
use vellum_base::{Avoided, Cause, Result};

/// A table has at most so many times the bytes of a superblock.
const SUPERBLOCKS_MAX: u64 = 4;

pub(super) struct FlashWriter {
    inner: Arc<Inner>,
    table: u64,
    cause: Cause,
    stripe: Option<Stripe>,
    /// Of the stripe, which may yet be written elsewhere, and of others.
    pieces: Vec<Piece>,
    own_units: u32,
    /// Bytes that were offered as stored, and those of them that were not written.
    offered: u64,
    relinked: u64,
    /// As they were taken over.
    held: Vec<Extent>,
}

enum Piece {
    Own { start: u32, units: u32 },
    Other(Extent),
}

impl FlashWriter {
    pub(super) fn new(inner: Arc<Inner>, table: u64, intent: Intent) -> Result<FlashWriter> {
        let name = Name { table, edition: 0 };
        let stripe = Some(Stripe::begin(inner.clone(), name, intent, Supply::Tables)?);
        let (pieces, held) = (Vec::new(), Vec::new());
        let cause = intent.cause;
        Ok(FlashWriter { inner, table, cause, stripe, pieces, own_units: 0, offered: 0, relinked: 0, held })
    }

    fn stripe(&mut self) -> &mut Stripe {
        self.stripe.as_mut().expect("until it is finished")
    }

    /// Bytes of the superblock that the list may need.
    fn list_bytes(&self) -> u64 {
        match self.held.is_empty() {
            true => 0,
            // One may follow.
            false => (list::encoded_max([self.pieces.len() + 1]) as u64).next_multiple_of(UNIT_BYTES),
        }
    }

    /// The part of what is written that may stay as it is, about.
    fn survival(&self) -> f64 {
        let bytes = self.own_units as u64 * UNIT_BYTES + self.relinked;
        if bytes == 0 { 1.0 } else { self.offered as f64 / bytes as f64 }
    }

    fn link(&mut self, extent: Extent) {
        self.relinked += extent.bytes();
        self.held.push(extent.clone());
        match self.pieces.last_mut() {
            Some(Piece::Other(last))
                if last.index() == extent.index() && last.start + last.units == extent.start =>
            {
                last.units += extent.units;
            }
            _ => self.pieces.push(Piece::Other(extent)),
        }
    }

    /// The list, for a table that is more than its superblock.
    fn list(&self) -> Vec<u8> {
        let name = Name { table: self.table, edition: 0 };
        let part = |piece: &Piece| match piece {
            Piece::Own { start, units } => Part { source: name, start: *start, units: *units },
            Piece::Other(extent) => self.inner.pool.with_book(|book| book.part(extent)),
        };
        match self.held.is_empty() {
            true => Vec::new(),
            false => list::encode(&[List { name, parts: self.pieces.iter().map(part).collect() }]),
        }
    }
}

impl TableWriter for FlashWriter {
    fn capacity(&self) -> u64 {
        let own = self.stripe.as_ref().map_or(0, Stripe::capacity);
        own.saturating_sub(self.list_bytes()) + self.relinked
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        debug_assert!((bytes.len() as u64).is_multiple_of(UNIT_BYTES));
        self.stripe().append(bytes)?;
        let more = (bytes.len() as u64 / UNIT_BYTES) as u32;
        match self.pieces.last_mut() {
            Some(Piece::Own { units, .. }) => *units += more,
            _ => self.pieces.push(Piece::Own { start: self.own_units, units: more }),
        }
        self.own_units += more;
        Ok(())
    }

    fn append_stored(&mut self, bytes: &[u8], from: Stored) -> Result<u64> {
        let (before, mut rest) = (self.relinked, bytes);
        self.offered += bytes.len() as u64;
        let fits = self.relinked + bytes.len() as u64 <= (SUPERBLOCKS_MAX - 1) * self.stripe().capacity();
        let taken = if fits { self.inner.pool.link(from, bytes.len() as u64, self.survival()) } else { None };
        for (extent, is_linked) in taken.unwrap_or_default() {
            let (part, later) = rest.split_at(extent.bytes() as usize);
            match is_linked {
                true => self.link(extent),
                false => self.append(part)?,
            }
            rest = later;
        }
        if !rest.is_empty() {
            self.append(rest)?;
        }
        let relinked = self.relinked - before;
        self.inner.ledger.avoided(Avoided::Remap, relinked);
        Ok(relinked)
    }

    fn finish(mut self: Box<Self>, bubbles: u64) -> Result<()> {
        let list = self.list();
        let Some(stripe) = self.stripe.take() else { unreachable!("it is finished once") };
        let home = stripe.finish(&list)?;
        self.inner.ledger.rebook(self.cause, Cause::Bubble, bubbles);
        let mut extents = Vec::new();
        for piece in std::mem::take(&mut self.pieces) {
            let extent = match piece {
                Piece::Own { start, units } => Extent { home: home.clone(), start, units },
                Piece::Other(extent) => extent,
            };
            push(&mut extents, extent);
        }
        let held = std::mem::take(&mut self.held);
        let layout = Layout::new(0, home.index, extents);
        self.inner.pool.with_book(|book| book.settle(self.table, layout, &held));
        Ok(())
    }
}

impl Drop for FlashWriter {
    fn drop(&mut self) {
        self.stripe = None;
        let gone = self.inner.pool.with_book(|book| book.let_go(&self.held));
        // What cannot be erased now is when the store is opened again.
        gone.into_iter().for_each(|index| drop(self.inner.release(index)));
    }
}
