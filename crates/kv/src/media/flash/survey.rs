//! A survey of all superblocks, when flash is opened or checked: the first and last page of each erase block is read,
//! and what lists the tags tell of.
//!
//! Tasks look at a share of the superblocks each. Where reads block, they keep a device busy that serves several at
//! once. Modelled flash is given all reads of a share at once, which wait for each other on their dies, and the task
//! sleeps until the last is done.

use super::book::Book;
use super::dies::{data_units, fill_units};
use super::rebuild::{Rebuilt, rebuild};
use super::superblock::{Found, look};
use crate::prefetch::Prefetch;
use std::sync::Arc;
use vellum_base::flash::BatchError;
use vellum_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{
    BlockAddr, BlockReport, Done, Env, Flash, FlashCounters, FlashError, FlashOp, Geometry, IoClass, Nanos,
    Result,
};

const TASKS_MAX: u32 = 8;
/// Fewer superblocks are not worth another task.
const SHARE_MIN: u32 = 32;

/// Reads all superblocks and rebuilds the book.
pub(super) fn survey(flash: &Arc<dyn Flash>, env: &Arc<dyn Env>, width_min: usize) -> Result<Rebuilt> {
    let superblocks = flash.geometry().blocks_per_die;
    let tasks = (superblocks / SHARE_MIN).clamp(1, TASKS_MAX);
    let share_of = |task: u32| {
        let (flash, env) = (flash.clone(), env.clone());
        move || look_at(flash, &env, (task..superblocks).step_by(tasks as usize))
    };
    let others: Vec<_> = (1..tasks).map(|task| Prefetch::begin(env, "kv-survey", share_of(task))).collect();
    let own = share_of(0)();
    let shares = std::iter::once(own).chain(others.into_iter().map(Prefetch::wait));
    let mut shares = shares.map(|share| share.map(Vec::into_iter)).collect::<Result<Vec<_>>>()?;
    let found = (0..superblocks).filter_map(|index| shares[(index % tasks) as usize].next()).collect();
    let room = data_units(&**flash, width_min);
    let book = Book::new(room, fill_units(room, flash.geometry().page_bytes));
    let noting = Noting::of(flash.clone());
    let rebuilt = rebuild(found, book, &noting);
    noting.wait(&**env);
    Ok(rebuilt)
}

fn look_at(
    flash: Arc<dyn Flash>,
    env: &Arc<dyn Env>,
    superblocks: impl Iterator<Item = u32>,
) -> Result<Vec<Found>> {
    let noting = Noting::of(flash);
    let found = superblocks.map(|index| look(&noting, index)).collect();
    noting.wait(&**env);
    found
}

/// Flash that notes when the last operation completes.
struct Noting {
    flash: Arc<dyn Flash>,
    last: AtomicU64,
}

impl Noting {
    fn of(flash: Arc<dyn Flash>) -> Noting {
        Noting { flash, last: AtomicU64::new(0) }
    }

    fn wait(&self, env: &dyn Env) {
        env.sleep_until(Nanos(self.last.load(Relaxed)));
    }
}

impl Flash for Noting {
    fn geometry(&self) -> &Geometry {
        self.flash.geometry()
    }

    fn submit(&self, class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError> {
        let done = self.flash.submit(class, ops)?;
        self.last.fetch_max(done.at.0, Relaxed);
        Ok(done)
    }

    fn report(&self, block: BlockAddr) -> BlockReport {
        self.flash.report(block)
    }

    fn counters(&self) -> FlashCounters {
        self.flash.counters()
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.flash.sync()
    }
}
