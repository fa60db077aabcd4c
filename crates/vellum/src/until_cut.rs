//! A trace whose recorder was killed: good up to where its file ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum::base::Result;
use vellum::trace::vtrace::is_cut;
use vellum::trace::{ByteLen, Request, RequestSource, RowCounts};

/// What is told of such a trace.
pub const NOTE: &str =
    "the trace has no end record, as its recorder was killed or the file was cut: replayed up to there";

/// Ends where the trace is cut, instead of failing there.
pub struct UntilCut {
    trace: Box<dyn RequestSource>,
    cut: Arc<AtomicBool>,
}

impl UntilCut {
    /// `trace`; `cut` becomes true when it comes to a cut.
    pub fn new(trace: Box<dyn RequestSource>, cut: &Arc<AtomicBool>) -> UntilCut {
        UntilCut { trace, cut: cut.clone() }
    }
}

impl Iterator for UntilCut {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        match self.trace.next() {
            Some(Err(e)) if is_cut(&e) => {
                self.cut.store(true, Relaxed);
                None
            }
            other => other,
        }
    }
}

impl RequestSource for UntilCut {
    fn rows(&self) -> RowCounts {
        self.trace.rows()
    }
    fn device_names(&self) -> Vec<String> {
        self.trace.device_names()
    }
    fn device_bytes(&self) -> Option<ByteLen> {
        self.trace.device_bytes()
    }
}
