//! Reports of failed runs.

use super::{World, join_key};
use std::fmt::Write;
use vellum_base::Nanos;

impl World {
    /// The remaining tasks, one per line.
    pub(crate) fn task_report(&self) -> String {
        let state = self.state.borrow();
        let mut lines = String::new();
        for (slot, entry) in state.tasks.alive() {
            let (number, name, since) = (entry.number, &entry.name, Nanos(entry.parked_at));
            let key = state.waiters.key(slot);
            let joined = state.tasks.alive().find(|(other, _)| key == Some(join_key(*other)));
            let what = match (key, joined, state.events.timer(slot)) {
                (Some(_), Some((_, other)), _) => {
                    format!("since {since} waits for the end of `{}`", other.name)
                }
                (Some(_), None, _) => format!("since {since} waits for a lock or a condition"),
                (None, _, Some(time)) => format!("sleeps until {}", Nanos(time)),
                (None, _, None) => "is ready".into(),
            };
            writeln!(lines, "  #{number} `{name}` {what}").expect("memory takes text");
        }
        lines
    }

    /// Name of the task that runs (or has just panicked), for a report.
    pub(crate) fn running_name(&self) -> String {
        let mut state = self.state.borrow_mut();
        match state.running {
            Some(slot) => state.tasks.get(slot).name.to_string(),
            None => "-".into(),
        }
    }

    /// The last events, and how to replay them.
    pub(crate) fn replay_report(&self) -> String {
        let state = self.state.borrow();
        let seed = self.config.seed;
        let events = state.log.report(&state.tasks);
        let heading = if events.is_empty() { "" } else { "last events:\n" };
        format!("at {}ns; replay with {}={seed}\n{heading}{events}", self.now(), crate::SEED_VARIABLE)
    }
}
