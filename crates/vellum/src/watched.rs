//! A trace that is observed while it is read.

use vellum::base::Result;
use vellum::trace::{ByteLen, Request, RequestSource, RowCounts};

/// Receives the next item of a trace, and returns what to pass on.
pub trait Watch: FnMut(&dyn RequestSource, Option<Result<Request>>) -> Option<Result<Request>> {}

impl<W: FnMut(&dyn RequestSource, Option<Result<Request>>) -> Option<Result<Request>>> Watch for W {}

struct Watched<W> {
    trace: Box<dyn RequestSource>,
    watch: W,
}

/// `trace`, as passed on by `watch`.
pub fn watched(trace: Box<dyn RequestSource>, watch: impl Watch + Send + 'static) -> Box<dyn RequestSource> {
    Box::new(Watched { trace, watch })
}

impl<W: Watch> Iterator for Watched<W> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        let next = self.trace.next();
        (self.watch)(&*self.trace, next)
    }
}

impl<W: Watch + Send> RequestSource for Watched<W> {
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
