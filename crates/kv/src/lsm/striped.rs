//! Striped counters: threads add to different stripes, so that they do not contend for a cache line.

use std::cell::Cell;
use vellum_base::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const STRIPES: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Striped {
    stripes: [Stripe; STRIPES],
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

thread_local! {
    static OWN: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The stripe of this thread.
#[inline]
fn own() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    OWN.get().unwrap_or_else(|| {
        let own = NEXT.fetch_add(1, Relaxed) % STRIPES;
        OWN.set(Some(own));
        own
    })
}

impl Striped {
    /// Adds `count`; returns what the thread's stripe, which others may share, held before.
    #[inline]
    pub(crate) fn add(&self, count: u64) -> u64 {
        self.stripes[own()].0.fetch_add(count, Relaxed)
    }

    /// All that was added since the last [`Striped::reset`].
    pub(crate) fn total(&self) -> u64 {
        self.stripes.iter().map(|stripe| stripe.0.load(Relaxed)).sum()
    }

    /// Resets the sum to 0.
    pub(crate) fn reset(&self) {
        self.stripes.iter().for_each(|stripe| stripe.0.store(0, Relaxed));
    }
}
