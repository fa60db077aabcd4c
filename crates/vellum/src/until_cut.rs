//! A trace whose recorder was killed: valid up to where its file ends.

use crate::watched::watched;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum::trace::RequestSource;
use vellum::trace::vtrace::is_cut;

/// Remark on such a trace.
pub const NOTE: &str =
    "the trace has no end record, as its recorder was killed or the file was cut: replayed up to there";

/// Ends where the trace is cut, instead of failing there; `cut` is set when that happens.
pub fn until_cut(trace: Box<dyn RequestSource>, cut: &Arc<AtomicBool>) -> Box<dyn RequestSource> {
    let cut = cut.clone();
    watched(trace, move |_, next| match next {
        Some(Err(e)) if is_cut(&e) => {
            cut.store(true, Relaxed);
            None
        }
        other => other,
    })
}
