//! The reasons of errors that the operating system reports, or several crates raise ([`crate::Reason`]).

use crate::Reason;
use std::io;

/// A file would exceed the limit on the size of files (`EFBIG`). Raise the limit, or put the file elsewhere.
pub const FILE_TOO_LARGE: Reason = Reason::new("base.file-too-large");

/// Somebody else changed what was read, faster than it can be read. Read it again.
pub const CHANGED_MEANWHILE: Reason = Reason::new("base.changed-meanwhile");

/// The reason for an error of the operating system, if it is one that callers know.
pub(crate) fn of_io(error: &io::Error) -> Option<Reason> {
    let is_too_large = error.raw_os_error() == Some(27); // EFBIG
    is_too_large.then_some(FILE_TOO_LARGE)
}
