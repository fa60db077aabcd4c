//! How many of the clients' requests were writes since the last compaction began (FlashKV, section 3.3).

use crate::lsm::striped::Striped;
use crate::media::Parallelism;
use vellum_base::sync::Mutex;

/// Below this share of writes, in percent, clients' reads matter more than compaction.
const WRITES_FEW_PERCENT: u64 = 30;
/// Requests that make a window.
const ENOUGH: u64 = 100;

/// See the module.
#[derive(Default)]
pub(crate) struct Window {
    reads: Striped,
    at: Mutex<At>,
}

#[derive(Default)]
struct At {
    /// Sequence number when the window began.
    began: u64,
    /// What the last window that had enough requests said.
    few_writes: bool,
}

impl Window {
    /// A client reads.
    #[inline]
    pub(crate) fn read(&self) {
        self.reads.add(1);
    }

    /// A compaction into `level` begins: how it is to be written. Ends the window, and begins the next, if there were
    /// requests enough to tell. `last_seq` counts writes.
    pub(crate) fn turn(&self, last_seq: u64, level: usize) -> Parallelism {
        let mut at = self.at.lock();
        let writes = last_seq.saturating_sub(at.began);
        let reads = self.reads.total();
        if reads + writes >= ENOUGH {
            self.reads.reset();
            at.began = last_seq;
            at.few_writes = writes * 100 < (reads + writes) * WRITES_FEW_PERCENT;
        }
        // Level 0 must not fill up.
        if level > 1 && at.few_writes { Parallelism::Half } else { Parallelism::Full }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_where_fewer_than_30_percent_are_writes() {
        let window = Window::default();
        let mut seq = 0;
        let mut turn = |reads: u64, writes: u64, level| {
            (0..reads).for_each(|_| window.read());
            seq += writes;
            window.turn(seq, level)
        };
        assert_eq!(turn(71, 29, 2), Parallelism::Half);
        assert_eq!(turn(70, 30, 2), Parallelism::Full);
        assert_eq!(turn(100, 0, 3), Parallelism::Half);
        assert_eq!(turn(100, 0, 1), Parallelism::Full, "level 0 to 1 always takes all");
        assert_eq!(turn(5, 5, 2), Parallelism::Half, "too few requests to tell otherwise");
        assert_eq!(turn(0, 95, 2), Parallelism::Full);
    }
}
