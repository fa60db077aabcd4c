//! Submits requests to flash, directly or through a queue per channel (FlashKV, section 3.5).
//!
//! The task of a channel takes the most urgent request, submits it, and waits until the flash has nearly finished it.
//! Modelled flash says when that will be; real media block in `submit`, each channel in its own task. The outcome of a
//! request is known once it was submitted; the caller sleeps until its time of completion.
//!
//! 1. A channel serves one request at a time, apart from [`OVERLAP`].
//! 2. After a failure no further program of the same batch is begun.
//! 3. Every request is answered, if only with [`FlashError::PowerLost`].

mod line;

pub use line::Schedule;

use line::{Kind, Line};
use std::ops::Range;
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::sync::{Condvar, Mutex};
use vellum_base::{BlockAddr, Env, Flash, FlashError, FlashOp, IoClass, Nanos, PageAddr, Source, Task};

/// The next request is submitted this long before the current one completes, as its transfer may overlap.
const OVERLAP: Nanos = Nanos::from_us(90);

/// One operation, with its bytes.
#[derive(Clone)]
pub(super) enum Op {
    Read {
        page: PageAddr,
        offset: usize,
        bytes: usize,
    },
    /// Programs a page with this part of `data`, padded.
    Program {
        page: PageAddr,
        data: Arc<Vec<u8>>,
        part: Range<usize>,
    },
    Erase {
        block: BlockAddr,
    },
}

/// The outcome of a batch of operations.
#[derive(Default)]
pub(super) struct Outcome {
    /// When the last one completes.
    pub at: Nanos,
    /// Bytes read, by operation.
    pub read: Vec<Vec<u8>>,
    /// Pages programmed, and pages whose program failed.
    pub programmed: u64,
    pub failed: u64,
    /// The first failure other than of an erase. Without queues nothing after it was begun.
    pub error: Option<FlashError>,
}

/// Operations in progress.
pub(super) enum Pending {
    Known(Outcome),
    Queued(Arc<Batch>),
}

/// Operations in queues that were submitted together.
pub(super) struct Batch {
    progress: Mutex<Progress>,
    answered: Condvar,
}

struct Progress {
    left: usize,
    outcome: Outcome,
    /// The last operations of the batch, queued when all others are answered.
    later: Vec<Op>,
    /// Called when all are answered.
    then: Option<Then>,
}

pub(super) type Then = Box<dyn FnOnce(&Outcome) + Send>;

/// Submits operations to the flash.
pub(super) struct Submitter {
    shared: Arc<Shared>,
    tasks: Mutex<Vec<Task>>,
}

struct Shared {
    flash: Arc<dyn Flash>,
    env: Arc<dyn Env>,
    /// Empty if there are no queues.
    channels: Vec<Channel>,
    scarce: Arc<AtomicBool>,
    stopping: AtomicBool,
}

struct Channel {
    state: Mutex<ChannelState>,
    work: Condvar,
}

struct ChannelState {
    line: Line<Request>,
    /// A request is being submitted, or waited for.
    busy: bool,
}

struct Request {
    op: Op,
    class: IoClass,
    batch: Arc<Batch>,
    /// Its index in the batch.
    at: usize,
}

impl Submitter {
    /// Creates queues and their tasks, or none without a schedule.
    pub(super) fn new(flash: Arc<dyn Flash>, env: Arc<dyn Env>, schedule: Option<Schedule>) -> Submitter {
        let count = schedule.map_or(0, |_| flash.geometry().channels);
        let channel = |_| Channel {
            state: Mutex::new(ChannelState { line: Line::new(schedule.unwrap_or_default()), busy: false }),
            work: Condvar::new(),
        };
        let channels = (0..count).map(channel).collect();
        let (scarce, stopping) = (Arc::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { flash, env, channels, scarce, stopping });
        let serve = |channel: usize| {
            let task_shared = shared.clone();
            shared.env.clone().spawn("kv-channel", Box::new(move || task_shared.serve(channel)))
        };
        let tasks = Mutex::new((0..shared.channels.len()).map(serve).collect());
        Submitter { shared, tasks }
    }

    /// Sets whether few superblocks are free, so that erases are urgent.
    pub(super) fn set_scarce(&self, scarce: bool) {
        self.shared.scarce.store(scarce, Relaxed);
    }

    /// The flag that [`Submitter::set_scarce`] sets.
    pub(super) fn scarce(&self) -> Arc<AtomicBool> {
        self.shared.scarce.clone()
    }

    /// Submits operations.
    pub(super) fn submit(&self, class: IoClass, ops: Vec<Op>) -> Pending {
        let shared = &*self.shared;
        match shared.channels.is_empty() {
            true => Pending::Known(shared.submit(class, &ops)),
            false => Pending::Queued(shared.enqueue(class, ops, Vec::new(), None)),
        }
    }

    /// Submits operations, and `later` ones when those are complete. Without queues the caller waits in between.
    pub(super) fn submit_in_turn(&self, class: IoClass, ops: Vec<Op>, later: Vec<Op>) -> Pending {
        let shared = &*self.shared;
        if !shared.channels.is_empty() && !ops.is_empty() {
            return Pending::Queued(shared.enqueue(class, ops, later, None));
        }
        let first = self.submit(class, ops).wait(&*shared.env);
        if first.error.is_some() {
            return Pending::Known(first);
        }
        let rest = self.submit(class, later).wait(&*shared.env);
        let (programmed, failed) = (first.programmed + rest.programmed, first.failed + rest.failed);
        Pending::Known(Outcome { programmed, failed, ..rest })
    }

    /// Submits operations; `then` is called when all are answered, perhaps by another task, whether anybody waits for
    /// them or not.
    pub(super) fn submit_then(&self, class: IoClass, ops: Vec<Op>, then: Then) -> Pending {
        let shared = &*self.shared;
        if !shared.channels.is_empty() && !ops.is_empty() {
            return Pending::Queued(shared.enqueue(class, ops, Vec::new(), Some(then)));
        }
        let outcome = shared.submit(class, &ops);
        then(&outcome);
        Pending::Known(outcome)
    }

    /// Reads part of a page. The bytes are in `out` when this returns; the result is when modelled flash would deliver
    /// them.
    pub(super) fn read(
        &self,
        class: IoClass,
        page: PageAddr,
        offset: usize,
        out: &mut [u8],
    ) -> Result<Nanos, FlashError> {
        let shared = &*self.shared;
        let Some(channel) = shared.channel_of(page.block) else {
            return Ok(shared.flash.read(class, page, offset as u32, out, &mut [])?.at);
        };
        let mut state = channel.state.lock();
        if state.busy || !state.line.is_empty() {
            drop(state);
            let op = Op::Read { page, offset, bytes: out.len() };
            let outcome = self.submit(class, vec![op]).wait(&*shared.env);
            return outcome.into_one_read(out);
        }
        state.busy = true;
        drop(state);
        let result = shared.flash.read(class, page, offset as u32, out, &mut []);
        if let Ok(done) = &result {
            shared.env.sleep_until(done.at);
        }
        channel.state.lock().busy = false;
        channel.work.notify_all();
        Ok(result?.at)
    }
}

impl Drop for Submitter {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Relaxed);
        for channel in &self.shared.channels {
            drop(channel.state.lock());
            channel.work.notify_all();
        }
        std::mem::take(&mut *self.tasks.lock()).into_iter().for_each(Task::join);
    }
}

impl Pending {
    /// Waits until the operations are complete.
    pub(super) fn wait(self, env: &dyn Env) -> Outcome {
        let outcome = self.wait_for_answer();
        env.sleep_until(outcome.at);
        outcome
    }

    /// Waits until the outcome is known; the operations are complete at [`Outcome::at`].
    pub(super) fn wait_for_answer(self) -> Outcome {
        match self {
            Pending::Known(outcome) => outcome,
            Pending::Queued(batch) => {
                let mut progress = batch.progress.lock();
                while progress.left > 0 {
                    batch.answered.wait(&mut progress);
                }
                std::mem::take(&mut progress.outcome)
            }
        }
    }
}

impl Outcome {
    /// Copies out the bytes of its only read.
    fn into_one_read(self, out: &mut [u8]) -> Result<Nanos, FlashError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        out.copy_from_slice(&self.read[0]);
        Ok(self.at)
    }
}

impl Shared {
    fn channel_of(&self, block: BlockAddr) -> Option<&Channel> {
        let geometry = self.flash.geometry();
        self.channels.get(geometry.channel_of(geometry.die_of(block)) as usize)
    }

    fn enqueue(&self, class: IoClass, ops: Vec<Op>, later: Vec<Op>, then: Option<Then>) -> Arc<Batch> {
        let count = ops.len() + later.len();
        let outcome = Outcome { read: vec![Vec::new(); count], ..Outcome::default() };
        let progress = Mutex::new(Progress { left: count, outcome, later, then });
        let batch = Arc::new(Batch { progress, answered: Condvar::new() });
        self.queue(&batch, class, ops, 0);
        batch
    }

    /// Puts operations of a batch into the queues of their channels; `first` is the index of the first one in the
    /// batch.
    fn queue(&self, batch: &Arc<Batch>, class: IoClass, ops: Vec<Op>, first: usize) {
        let now = self.env.now();
        for (at, op) in ops.into_iter().enumerate() {
            let (kind, block) = match &op {
                Op::Read { page, .. } => (Kind::Read, page.block),
                Op::Program { page, .. } => (Kind::Program, page.block),
                Op::Erase { block } => (Kind::Erase, *block),
            };
            let Some(channel) = self.channel_of(block) else { unreachable!("every channel has a queue") };
            let mut state = channel.state.lock();
            let idle = !state.busy && state.line.is_empty();
            state.line.push(now, kind, class, Request { op, class, batch: batch.clone(), at: first + at });
            drop(state);
            if idle {
                channel.work.notify_all();
            }
        }
    }

    /// The body of a channel's task.
    fn serve(&self, channel: usize) {
        let channel = &self.channels[channel];
        loop {
            let mut state = channel.state.lock();
            let request = loop {
                if !state.busy
                    && let Some(request) = state.line.pop(self.env.now(), self.scarce.load(Relaxed))
                {
                    break request;
                }
                if self.stopping.load(Relaxed) && state.line.is_empty() {
                    return;
                }
                channel.work.wait(&mut state);
            };
            state.busy = true;
            drop(state);
            let outcome = match request.is_futile() {
                true => Outcome { read: vec![Vec::new()], ..Outcome::default() },
                false => self.submit(request.class, std::slice::from_ref(&request.op)),
            };
            let free_at = outcome.at.saturating_sub(OVERLAP);
            let (first, released) = request.batch.answer(request.at, outcome);
            self.env.sleep_until(free_at);
            channel.state.lock().busy = false;
            self.queue(&request.batch, request.class, released, first);
        }
    }

    /// Runs operations on the flash, up to the first failure.
    fn submit(&self, class: IoClass, ops: &[Op]) -> Outcome {
        let mut read: Vec<Vec<u8>> = ops.iter().map(|op| vec![0; op.read_bytes()]).collect();
        let parts: Vec<[Source<'_>; 2]> = ops.iter().map(|op| self.parts(op)).collect();
        let mut flash_ops: Vec<FlashOp<'_>> = ops
            .iter()
            .zip(&parts)
            .zip(&mut read)
            .map(|((op, parts), data)| match op {
                Op::Read { page, offset, .. } => {
                    FlashOp::Read { page: *page, offset: *offset as u32, data, oob: &mut [] }
                }
                Op::Program { page, .. } => {
                    let parts = if parts[1].is_empty() { &parts[..1] } else { &parts[..] };
                    FlashOp::Program { page: *page, parts, oob: &[], seeds: &[] }
                }
                Op::Erase { block } => FlashOp::Erase { block: *block, after: Nanos::ZERO },
            })
            .collect();
        let (mut at, mut done, mut error) = (Nanos::ZERO, 0, None);
        while done < ops.len() && error.is_none() {
            match self.flash.submit(class, &mut flash_ops[done..]) {
                Ok(all) => (at, done) = (at.max(all.at), ops.len()),
                Err(e) => {
                    (at, done) = (at.max(e.done.at), done + e.index);
                    match e.error {
                        // The block is bad now, which is noticed when its superblock is taken.
                        FlashError::EraseFailed(_) => done += 1,
                        other => error = Some(other),
                    }
                }
            }
        }
        let programs = |ops: &[Op]| ops.iter().filter(|op| matches!(op, Op::Program { .. })).count() as u64;
        let failed = if error.as_ref().is_some_and(costs_a_page) { programs(&ops[done..=done]) } else { 0 };
        Outcome { at, read, programmed: programs(&ops[..done]), failed, error }
    }

    fn parts<'a>(&self, op: &'a Op) -> [Source<'a>; 2] {
        match op {
            Op::Program { data, part, .. } => {
                let pad = self.flash.geometry().page_bytes - part.len() as u32;
                [Source::Bytes(&data[part.clone()]), Source::Pad(pad)]
            }
            _ => [Source::Pad(0); 2],
        }
    }
}

/// True if the device counts the page of a program that failed with this error as programmed.
pub(super) fn costs_a_page(error: &FlashError) -> bool {
    matches!(error, FlashError::ProgramFailed(_) | FlashError::PowerLost)
}

impl Request {
    /// True of a program whose batch has failed: pages of an erase block must be programmed in order.
    fn is_futile(&self) -> bool {
        matches!(self.op, Op::Program { .. }) && self.batch.progress.lock().outcome.error.is_some()
    }
}

impl Op {
    fn read_bytes(&self) -> usize {
        if let Op::Read { bytes, .. } = self { *bytes } else { 0 }
    }
}

impl Batch {
    /// Records the outcome of one operation. Returns operations that may be queued now, and the index of the first.
    fn answer(&self, at: usize, mut one: Outcome) -> (usize, Vec<Op>) {
        let mut progress = self.progress.lock();
        let all = &mut progress.outcome;
        all.at = all.at.max(one.at);
        all.programmed += one.programmed;
        all.failed += one.failed;
        all.read[at] = std::mem::take(&mut one.read[0]);
        all.error = all.error.take().or(one.error);
        progress.left -= 1;
        if progress.left == progress.later.len() && progress.left > 0 {
            let released = std::mem::take(&mut progress.later);
            return (progress.outcome.read.len() - released.len(), released);
        }
        if progress.left == 0 {
            if let Some(then) = progress.then.take() {
                then(&progress.outcome);
            }
            drop(progress);
            self.answered.notify_all();
        }
        (0, Vec::new())
    }
}
