//! Reports losses of a served array where its server runs, once, with what to do: they might go unnoticed for days.
//!
//! Invariants
//! 1. What is removed by an order is not reported: whoever gave the order knows.
//! 2. Losses up to the end are reported: the last check is after the last request.

use super::held::Held;
use crate::ui::say;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use vellum::array::{Id, MemberStatus, State};
use vellum::base::{Env, RealEnv, Result, Task};
use vellum::serve::Stop;

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Checks for losses until it is dropped.
pub struct Losses {
    stop: Stop,
    task: Option<Task>,
}

/// What has been reported so far.
#[derive(Default)]
struct Said {
    members: BTreeSet<Id>,
    cache: bool,
}

impl Losses {
    /// Starts to watch `held`.
    pub fn watch(held: &Arc<Held>) -> Result<Losses> {
        let stop = Stop::new()?;
        let (held, stopped) = (held.clone(), stop.clone());
        let run = move || {
            let mut said = Said::default();
            loop {
                let is_last = stopped.wait(Some(LOOK_EVERY));
                said.look(&held).into_iter().for_each(say);
                if is_last {
                    return;
                }
            }
        };
        let task = RealEnv::new().spawn("losses", Box::new(run));
        Ok(Losses { stop, task: Some(task) })
    }
}

impl Drop for Losses {
    fn drop(&mut self) {
        self.stop.stop();
        self.task.take().into_iter().for_each(Task::join);
    }
}

impl Said {
    /// Lines to report now.
    fn look(&mut self, held: &Held) -> Vec<String> {
        let file = held.file().display();
        let cache = held.dead_cache().filter(|_| !std::mem::replace(&mut self.cache, true));
        let cache = cache.map(|why| {
            format!(
                "{file}: the cache is detached: {why}; the array goes on without it; vellum array detach-cache {file} lets \
                 go of it, and when this has ended vellum array attach-cache {file} SSD takes another"
            )
        });
        let members = held.array().array().status().members;
        let lost = members.iter().enumerate().filter_map(|(role, member)| self.lost(held, role, member));
        let lost: Vec<String> = lost.collect();
        let degraded = held.shown().degraded(held.file()).filter(|_| !lost.is_empty());
        cache.into_iter().chain(lost).chain(degraded.map(|degraded| format!("{file}: {degraded}"))).collect()
    }

    fn lost(&mut self, held: &Held, role: usize, member: &MemberStatus) -> Option<String> {
        // None: it was missing at the start, and was reported then.
        let reason = member.reason.as_ref().filter(|_| member.state == State::Missing)?;
        if held.is_taken_out(&member.id) {
            return None;
        }
        let name = held.name_of(&member.id).map_or(String::new(), |name| format!(", {}", name.display()));
        let line = format!("{}: role {role}{name} is out: {reason}", held.file().display());
        self.members.insert(member.id).then_some(line)
    }
}
