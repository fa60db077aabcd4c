//! The share of writes among clients' requests since the last compaction began (FlashKV, section 3.3).

use crate::lsm::striped::Striped;
use crate::media::Parallelism;
use vellum_base::sync::Mutex;

/// Below this percentage of writes, clients' reads matter more than compaction.
const WRITES_FEW_PERCENT: u64 = 30;
/// Fewest requests of a window.
const ENOUGH: u64 = 100;

/// See the module.
#[derive(Default)]
pub(crate) struct Window {
    reads: Striped,
    state: Mutex<WindowState>,
}

#[derive(Default)]
struct WindowState {
    /// Sequence number when the window began.
    began: u64,
    /// Result of the last window with enough requests.
    few_writes: bool,
}

impl Window {
    /// Counts a read.
    #[inline]
    pub(crate) fn read(&self) {
        self.reads.add(1);
    }

    /// Called when a compaction into `level` begins: returns how to write it. Begins a new window if the current one
    /// has enough requests. Writes are counted by `last_seq`, the newest sequence number.
    pub(crate) fn turn(&self, last_seq: u64, level: usize) -> Parallelism {
        let mut state = self.state.lock();
        let writes = last_seq.saturating_sub(state.began);
        let reads = self.reads.total();
        if reads + writes >= ENOUGH {
            self.reads.reset();
            state.began = last_seq;
            state.few_writes = writes * 100 < (reads + writes) * WRITES_FEW_PERCENT;
        }
        // Compaction of level 0 always gets all channels: level 0 must not fill up.
        if level > 1 && state.few_writes { Parallelism::Half } else { Parallelism::Full }
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
