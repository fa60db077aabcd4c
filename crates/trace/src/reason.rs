//! The reasons of errors that callers of this crate tell apart ([`vellum_base::Reason`]).

use vellum_base::Reason;

/// A trace has no end record: its recorder was not finished. What was read until then is good.
pub const CUT: Reason = Reason::new("trace.cut");
/// A trace has requests to several devices. Select one, or lay them side by side.
pub const SEVERAL_DEVICES: Reason = Reason::new("trace.several-devices");
