//! A segment that is read while the one before is copied: media read in the time that hashing and writing take.

use crate::log::core::Core;
use crate::log::segment::{Reading, Segment};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{IoClass, Result, Task};

type Data = Arc<Mutex<Option<Result<Vec<u8>>>>>;

/// See the module.
pub(super) struct Ahead {
    data: Data,
    task: Option<Task>,
}

impl Ahead {
    /// Begins to read.
    pub fn of(core: &Core, segment: &Arc<Segment>) -> Ahead {
        let data = Data::default();
        let (env, segment, to) = (core.env.clone(), segment.clone(), data.clone());
        let read = move || {
            let found = segment.data(Reading { env: &*env, class: IoClass::Background });
            *to.lock() = Some(found);
        };
        Ahead { data, task: Some(core.env.clone().spawn("kv-collect-ahead", Box::new(read))) }
    }

    /// What the segment holds, when it is read.
    pub fn wait(mut self) -> Result<Vec<u8>> {
        self.task.take().into_iter().for_each(Task::join);
        self.data.lock().take().expect("it was read")
    }
}

impl Drop for Ahead {
    /// Nobody reads a segment that is given up.
    fn drop(&mut self) {
        self.task.take().into_iter().for_each(Task::join);
    }
}
