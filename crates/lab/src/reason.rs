//! The reasons of errors that callers of this crate tell apart ([`vellum_base::Reason`]).

use vellum_base::Reason;

/// Deltas are to be those of recorded contents, and the trace has none. Record it with them, or model the deltas.
pub const CONTENTS_UNKNOWN: Reason = Reason::new("lab.contents-unknown");
