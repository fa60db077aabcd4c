//! Writes a table: new units to its own superblock; units that are stored already are linked (docs/decisions/0025).
//!
//! Invariants
//! 1. A table uses linked units from the moment they are appended. Collection may move them and updates the book; their
//!    names do not change.
//! 2. A table's own units and its lists fit its superblock: linked units add at least as many bytes to the table as
//!    they take for the lists. A table without links has a list only if there is room for one, and so has the capacity
//!    of its superblock, whatever is to be listed.

use super::book::Book;
use super::list::{List, Run};
use super::pool::{Emitted, Offered};
use super::stripe::{Stripe, Supply};
use super::superblock::{EXTENT_UNIT_BYTES, Name, second_at};
use super::{Inner, SUPERBLOCKS_MAX};
use crate::media::{Intent, Stored, TableWriter};
use std::sync::Arc;
use vellum_base::{Avoided, Cause, Result};

/// At most one in this many bytes of a table lists erased tables.
const GONE_PART: u64 = 64;

pub(super) struct FlashWriter {
    inner: Arc<Inner>,
    table: u64,
    cause: Cause,
    stripe: Option<Stripe>,
    list: List,
    /// Units of others may be linked.
    relinks: bool,
    /// [`super::pool::Pool::price`] when the table was begun, and the totals of the table written before it.
    price: f64,
    before: Emitted,
    own_units: u32,
    relinked: u64,
    /// Bytes offered as unchanged, linked or not.
    unchanged: u64,
}

impl FlashWriter {
    pub(super) fn new(inner: Arc<Inner>, table: u64, intent: Intent) -> Result<FlashWriter> {
        let stripe = Stripe::begin(inner.clone(), Name::Table(table), intent, Supply::Tables)?;
        let pool = &inner.pool;
        let list = List::of_table(table, gone_to_list(pool.with_book(Book::lingering), stripe.capacity()));
        // A flush has nothing to link: its entries are stored nowhere yet.
        let relinks = intent.cause != Cause::Flush && pool.relinks() && pool.may_share(stripe.capacity());
        let (price, before) = (pool.price(), pool.last_merge());
        Ok(FlashWriter {
            inner,
            table,
            cause: intent.cause,
            stripe: Some(stripe),
            list,
            relinks,
            price,
            before,
            own_units: 0,
            relinked: 0,
            unchanged: 0,
        })
    }

    fn stripe(&mut self) -> &mut Stripe {
        self.stripe.as_mut().expect("until it is finished")
    }

    /// Bytes of the superblock reserved for both copies of the list.
    fn list_bytes(&self) -> u64 {
        // Reserved from the start, so that the capacity does not shrink with the first link.
        match self.relinks {
            // The second copy begins at a unit.
            true => {
                let page_bytes = u64::from(self.inner.flash.geometry().page_bytes);
                let lists = 2 * self.list.bytes_of_table() + page_bytes;
                (lists + EXTENT_UNIT_BYTES - 1).next_multiple_of(EXTENT_UNIT_BYTES)
            }
            false => 0,
        }
    }

    /// The list, if there are links, or erased tables to be recorded and there is room for them; else nothing.
    fn encoded_list(&self, capacity: u64) -> Vec<u8> {
        if self.relinked == 0 && self.list.gone().is_empty() {
            return Vec::new();
        }
        let list = self.list.encode();
        let (own, bytes) = (u64::from(self.own_units) * EXTENT_UNIT_BYTES, list.len() as u64);
        let fits = second_at(own + bytes, self.inner.flash.geometry()) + bytes <= capacity;
        if self.relinked > 0 || fits { list } else { Vec::new() }
    }

    fn emitted(&self) -> Emitted {
        let bytes = u64::from(self.own_units) * EXTENT_UNIT_BYTES + self.relinked;
        Emitted { bytes, unchanged: self.unchanged }
    }

    /// The fraction of a superblock that has to be live for `next` bytes of it to be linked. Of its live units, the
    /// merge is expected to leave as large a share live as is unchanged in the merge's output.
    fn least_live(&self, next: u64) -> f64 {
        let now = self.emitted();
        let unchanged = (self.before.unchanged + now.unchanged).max(1) as f64;
        self.price * ((self.before.bytes + now.bytes + next) as f64 / unchanged).max(1.0)
    }

    /// True if the table may link `bytes` more.
    fn has_room_for(&self, bytes: u64) -> bool {
        let own = self.stripe.as_ref().map_or(0, Stripe::capacity);
        self.relinks && self.relinked + bytes <= (SUPERBLOCKS_MAX - 1) * own
    }
}

/// The erased tables to be recorded in a superblock of `capacity` bytes: the newest ones, within a small part of it.
/// Older ones matter only if the manifest is lost, as it does not name them.
fn gone_to_list(mut gone: Vec<u64>, capacity: u64) -> Vec<u64> {
    let most = (capacity / GONE_PART / size_of::<u64>() as u64) as usize;
    gone.split_off(gone.len().saturating_sub(most))
}

impl TableWriter for FlashWriter {
    fn capacity(&self) -> u64 {
        let own = self.stripe.as_ref().map_or(0, Stripe::capacity);
        own.saturating_sub(self.list_bytes()) + self.relinked
    }

    fn links_nothing(&mut self) {
        debug_assert_eq!(self.relinked, 0);
        self.relinks = false;
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        debug_assert!((bytes.len() as u64).is_multiple_of(EXTENT_UNIT_BYTES));
        if bytes.is_empty() {
            return Ok(());
        }
        self.stripe().append(bytes)?;
        let units = (bytes.len() as u64 / EXTENT_UNIT_BYTES) as u32;
        self.list.push(Run { origin: self.table, start: self.own_units, units });
        self.own_units += units;
        Ok(())
    }

    fn append_stored(&mut self, bytes: &[u8], from: Stored) -> Result<u64> {
        let (before, mut rest, length) = (self.relinked, bytes, bytes.len() as u64);
        self.unchanged += length;
        let offered = match self.has_room_for(length) {
            true => self.inner.pool.link(self.table, from, length, self.least_live(length)),
            false => None,
        };
        for Offered { bytes, linked } in offered.unwrap_or_default() {
            let (part, later) = rest.split_at(bytes as usize);
            match linked {
                Some(runs) => {
                    self.relinked += bytes;
                    runs.into_iter().for_each(|run| self.list.push(run));
                }
                None => self.append(part)?,
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

    fn would_share(&mut self, bytes: u64, from: Stored) -> bool {
        let shares =
            self.has_room_for(bytes) && self.inner.pool.may_link(from, bytes, self.least_live(bytes));
        // If shared, it is counted by `append_stored`.
        self.unchanged += if shares { 0 } else { bytes };
        shares
    }

    fn finish(mut self: Box<Self>, bubbles: u64) -> Result<()> {
        let Some(stripe) = self.stripe.take() else { unreachable!("it is finished once") };
        let list = self.encoded_list(stripe.capacity());
        let home = stripe.finish(&list)?;
        self.inner.ledger.rebook(self.cause, Cause::Bubble, bubbles);
        let list_run = (!list.is_empty()).then(|| {
            let own = u64::from(self.own_units) * EXTENT_UNIT_BYTES;
            let second = second_at(own + list.len() as u64, self.inner.flash.geometry());
            Run::of_list(self.table, second + list.len() as u64 - own)
        });
        self.inner.pool.with_book(|book| book.settle(self.table, &home, self.list.runs(), list_run));
        Ok(())
    }
}

impl Drop for FlashWriter {
    fn drop(&mut self) {
        self.stripe = None;
        if self.relinks {
            self.inner.pool.merged(self.emitted());
        }
        // What cannot be erased now is erased when the store is opened again.
        let _ = self.inner.with_book(|book| book.let_go(self.table));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_tells_of_few_that_are_gone_and_of_the_newest() {
        assert_eq!(gone_to_list((1..=1000).collect(), 256 << 10), (489..=1000).collect::<Vec<u64>>());
        assert_eq!(gone_to_list(vec![3, 5], 256 << 10), [3, 5]);
        assert_eq!(gone_to_list(vec![3, 5], 0), [0; 0]);
    }
}
