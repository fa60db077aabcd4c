//! The reasons of errors that callers of this crate tell apart ([`vellum_base::Reason`]).

use vellum_base::Reason;

/// The kernel mounts no file system of the kind asked for from the device. Look at what is on it.
pub const NOT_MOUNTED: Reason = Reason::new("serve.not-mounted");
