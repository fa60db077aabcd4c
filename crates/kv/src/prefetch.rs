//! Work done by a task of its own, such as a read, while the caller does something else.

use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Env, Result, Task, spawn_or_run};

/// See the module.
pub(crate) struct Prefetch<T> {
    found: Arc<Mutex<Option<Result<T>>>>,
    task: Option<Task>,
}

impl<T: Send + 'static> Prefetch<T> {
    /// Begins to `read`.
    pub(crate) fn begin(
        env: &Arc<dyn Env>,
        name: &str,
        read: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Prefetch<T> {
        let found = Arc::new(Mutex::new(None));
        let to = found.clone();
        let body = move || *to.lock() = Some(read());
        Prefetch { found, task: spawn_or_run(env, name, Box::new(body)) }
    }

    /// What was read, when it is.
    pub(crate) fn wait(mut self) -> Result<T> {
        self.task.take().into_iter().for_each(Task::join);
        self.found.lock().take().expect("it was read")
    }
}

impl<T> Drop for Prefetch<T> {
    /// Waits for the task: it must not outlive its caller.
    fn drop(&mut self) {
        self.task.take().into_iter().for_each(Task::join);
    }
}
