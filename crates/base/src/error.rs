//! Errors: a few kinds that tell the caller what to do, and a message that says what happened.

use std::fmt;

/// `Result` whose error defaults to [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The request itself is wrong (range, alignment, option). Change it.
    Invalid,
    /// No room: logical space, spare blocks or the host's file system. Trim, or grow.
    NoSpace,
    /// Data on the medium fails verification. Run `check`, then `repair`.
    Corrupt,
    /// The medium or the operating system failed. Look at the cause.
    Io,
    /// A durability call failed earlier, so the store takes no more writes. Reopen it.
    Poisoned,
    /// The device was removed, or is shorter than when it was opened: its contents are no longer trusted, and it is
    /// never written again. Continue without it.
    Gone,
    /// It is already open elsewhere.
    Busy,
    /// Not implemented, or not for this medium.
    Unsupported,
    /// The (simulated) power is off. Nothing works until the device is opened again.
    PowerLost,
}

/// An error with its [`Kind`], a message for people, and the cause where there is one.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` with this message.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), source: None }
    }
    /// [`Kind::Invalid`]: the request itself is wrong.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, message)
    }
    /// [`Kind::Corrupt`]: data fails verification.
    pub fn corrupt(message: impl Into<String>) -> Error {
        Error::new(Kind::Corrupt, message)
    }
    /// A failure of the operating system while doing `what` (present tense: "open d.vellum").
    pub fn io(what: impl fmt::Display, cause: std::io::Error) -> Error {
        let kind = match cause.raw_os_error() {
            Some(28) | Some(122) => Kind::NoSpace, // ENOSPC, EDQUOT
            _ => Kind::Io,
        };
        Error { kind, message: format!("{what}: {cause}"), source: Some(Box::new(cause)) }
    }
    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// The same error, its message prefixed with what was being done.
    pub fn context(mut self, what: impl fmt::Display) -> Error {
        self.message = format!("{what}: {}", self.message);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}

impl From<crate::flash::FlashError> for Error {
    fn from(e: crate::flash::FlashError) -> Error {
        use crate::flash::FlashError as F;
        let kind = match &e {
            F::PowerLost => Kind::PowerLost,
            F::Uncorrectable(_) => Kind::Corrupt,
            F::Full(_) => Kind::NoSpace,
            _ => Kind::Io,
        };
        Error { kind, message: e.to_string(), source: Some(Box::new(e)) }
    }
}
