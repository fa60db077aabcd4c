//! Jobs that requests do not wait for: tasks carry them out in the order in which they were made.
//!
//! 1. Jobs are queued under the policy's lock, in the order of their turns: the first unfinished job never waits for
//!    one behind it.
//! 2. Their number is limited; beyond it requests wait.

use super::core::Core;
use super::job::Job;
use crate::lane::Lanes;
use std::sync::Arc;
use vellum_base::Env;
use vellum_base::sync::{Condvar, Mutex};

/// Number of tasks.
const TASKS: usize = 8;
/// Most jobs queued or in progress.
const JOBS_MAX: usize = 512;

/// See the module.
pub(super) struct Behind {
    lanes: Lanes,
    waiting: Arc<Waiting>,
}

#[derive(Default)]
struct Waiting {
    count: Mutex<usize>,
    fewer: Condvar,
}

impl Behind {
    pub fn start(env: &Arc<dyn Env>) -> Behind {
        Behind { lanes: Lanes::start(env, "array-cache", TASKS), waiting: Arc::default() }
    }

    /// Queues jobs. The caller holds the policy's lock.
    pub fn push(&self, core: &Arc<Core>, jobs: Vec<Job>) {
        *self.waiting.count.lock() += jobs.len();
        for job in jobs {
            let (core, waiting) = (core.clone(), self.waiting.clone());
            self.lanes.push(Box::new(move || {
                // Errors are ignored: a failure has ended the array, detached the SSD or made a row unknown, which
                // others see.
                let _ = core.carry(job, &[]);
                *waiting.count.lock() -= 1;
                waiting.fewer.notify_all();
            }));
        }
    }

    /// Waits until there is room for more jobs.
    pub fn wait_for_room(&self) {
        self.wait_below(JOBS_MAX);
    }

    /// Waits until all jobs are done.
    pub fn drain(&self) {
        self.wait_below(1);
    }

    fn wait_below(&self, bound: usize) {
        let mut count = self.waiting.count.lock();
        while *count >= bound {
            self.waiting.fewer.wait(&mut count);
        }
    }
}
