//! The requests that wait for a channel, and the choice of the next one (FlashKV, section 3.5).
//!
//! Invariant: two programs of one erase block are served in the order in which they came: they have the same class,
//! hence the same rank, and the earlier one has the earlier deadline.

use vellum_base::{IoClass, Nanos};

/// The order in which a channel serves waiting requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// In the order of arrival.
    Noop,
    /// By priority: requests of clients, logs and the compaction of level 0 before those of other compactions; within
    /// each group reads before programs. Erases come last, but first while less than a fifth of the superblocks are
    /// free. A request past its deadline goes before all others.
    #[default]
    Priority,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Read,
    Program,
    Erase,
}

/// How long a request may be overtaken by others: foreground, background.
const PATIENCE_READ: [Nanos; 2] = [Nanos::from_ms(20), Nanos::from_ms(100)];
const PATIENCE_PROGRAM: [Nanos; 2] = [Nanos::from_ms(50), Nanos::from_ms(250)];
const PATIENCE_ERASE: Nanos = Nanos::from_ms(1000);

struct Waiting<T> {
    kind: Kind,
    class: IoClass,
    deadline: Nanos,
    item: T,
}

/// See the module. Requests are kept in the order of arrival.
pub(super) struct Line<T> {
    schedule: Schedule,
    waiting: Vec<Waiting<T>>,
}

impl<T> Line<T> {
    pub(super) fn new(schedule: Schedule) -> Line<T> {
        Line { schedule, waiting: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn push(&mut self, now: Nanos, kind: Kind, class: IoClass, item: T) {
        let background = (class == IoClass::Background) as usize;
        let patience = match kind {
            Kind::Read => PATIENCE_READ[background],
            Kind::Program => PATIENCE_PROGRAM[background],
            Kind::Erase => PATIENCE_ERASE,
        };
        self.waiting.push(Waiting { kind, class, deadline: now + patience, item });
    }

    /// The next to be served. `scarce`: few superblocks are free.
    pub(super) fn pop(&mut self, now: Nanos, scarce: bool) -> Option<T> {
        let at = match self.schedule {
            Schedule::Noop => 0,
            Schedule::Priority => self.most_urgent(now, scarce)?,
        };
        (at < self.waiting.len()).then(|| self.waiting.remove(at).item)
    }

    fn most_urgent(&self, now: Nanos, scarce: bool) -> Option<usize> {
        let key = |waiting: &Waiting<T>| match waiting.deadline <= now {
            true => (false, 0, Kind::Read, IoClass::Foreground, waiting.deadline),
            false => {
                let group = match waiting.kind {
                    Kind::Erase => 3 * !scarce as u8,
                    _ => 1 + (waiting.class == IoClass::Background) as u8,
                };
                (true, group, waiting.kind, waiting.class, Nanos::ZERO)
            }
        };
        let keys = self.waiting.iter().enumerate().map(|(at, waiting)| (key(waiting), at));
        keys.min().map(|(_, at)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Nanos = Nanos::from_ms(5000);

    fn order(schedule: Schedule, scarce: bool, requests: &[(Nanos, Kind, IoClass)]) -> Vec<usize> {
        let mut line = Line::new(schedule);
        for (at, (arrived, kind, class)) in requests.iter().enumerate() {
            line.push(*arrived, *kind, *class, at);
        }
        std::iter::from_fn(|| line.pop(NOW, scarce)).collect()
    }

    #[test]
    fn clients_before_compaction_reads_before_programs_erases_by_need() {
        use IoClass::{Background, Foreground, UrgentCompaction};
        let requests = [
            (NOW, Kind::Erase, Background),
            (NOW, Kind::Program, Background),
            (NOW, Kind::Read, Background),
            (NOW, Kind::Program, UrgentCompaction),
            (NOW, Kind::Read, Foreground),
        ];
        assert_eq!(order(Schedule::Priority, false, &requests), [4, 3, 2, 1, 0]);
        assert_eq!(order(Schedule::Priority, true, &requests), [0, 4, 3, 2, 1]);
        assert_eq!(order(Schedule::Noop, true, &requests), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn nobody_starves() {
        let requests = [
            (NOW, Kind::Read, IoClass::Foreground),
            (Nanos(NOW.0 - PATIENCE_PROGRAM[1].0), Kind::Program, IoClass::Background),
            (Nanos(NOW.0 - PATIENCE_ERASE.0 - 1), Kind::Erase, IoClass::Background),
        ];
        assert_eq!(order(Schedule::Priority, false, &requests), [2, 1, 0]);
    }

    proptest! {
        #[test]
        fn requests_of_one_kind_and_class_keep_their_order(
            requests in prop::collection::vec((0u64..500, 0usize..3, 0usize..4), 0..40),
            scarce in any::<bool>(),
        ) {
            let kinds = [Kind::Read, Kind::Program, Kind::Erase];
            let classes =
                [IoClass::Foreground, IoClass::Metadata, IoClass::UrgentCompaction, IoClass::Background];
            let mut arrived = Nanos(NOW.0 - Nanos::from_ms(300).0);
            let requests: Vec<_> = requests.into_iter().map(|(later_us, kind, class)| {
                arrived = (arrived + Nanos::from_us(later_us * 20)).min(NOW);
                (arrived, kinds[kind], classes[class])
            }).collect();
            let served = order(Schedule::Priority, scarce, &requests);
            prop_assert_eq!(served.len(), requests.len());
            for kind in kinds {
                for class in classes {
                    let alike: Vec<usize> = served.iter().copied()
                        .filter(|at| requests[*at].1 == kind && requests[*at].2 == class).collect();
                    prop_assert!(alike.is_sorted(), "{kind:?} {class:?}: {alike:?}");
                }
            }
        }
    }
}
