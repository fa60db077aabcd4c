//! Errors: a few kinds that tell the caller what to do, a message that says what happened, and a reason where callers
//! tell errors of one kind apart.

use crate::reason;
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

/// Which of the errors of a [`Kind`] it is, for callers that tell them apart: to give advice, or to go on in another
/// way. A message is for people and may change; a reason is an interface. Most errors need none.
///
/// The set is open. The crate that raises an error declares its reasons as public constants in its module `reason`,
/// each with what happened and what to do, and a name like `"kv.device-not-blank"`.
///
/// ```
/// use vellum_base::{Error, Reason};
///
/// /// The box is closed. Open it.
/// pub const CLOSED: Reason = Reason::new("box.closed");
///
/// fn take() -> Result<(), Error> {
///     Err(Error::invalid("the lid is down").because(CLOSED))
/// }
///
/// let error = take().unwrap_err().context("take a page out");
/// assert_eq!(error.to_string(), "take a page out: the lid is down");
/// let next = match error.reason() {
///     Some(CLOSED) => "open the box",
///     _ => "look at it",
/// };
/// assert_eq!(next, "open the box");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reason(&'static str);

impl Reason {
    /// A reason with this name: that of the crate, a dot, and what happened.
    pub const fn new(name: &'static str) -> Reason {
        Reason(name)
    }
    /// Its name.
    pub const fn name(self) -> &'static str {
        self.0
    }
}

/// An error with its [`Kind`], a message for people, its [`Reason`] if callers need one, and the cause where there is
/// one.
#[derive(Debug)]
pub struct Error {
    kind: Kind,
    message: String,
    reason: Option<Reason>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` with this message.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error { kind, message: message.into(), reason: None, source: None }
    }
    /// [`Kind::Invalid`]: the request itself is wrong.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, message)
    }
    /// [`Kind::Corrupt`]: data fails verification.
    pub fn corrupt(message: impl Into<String>) -> Error {
        Error::new(Kind::Corrupt, message)
    }
    /// A failure of the operating system while doing `what` (present tense: "open d.vellum"). The error numbers that
    /// callers have to know are kinds or reasons.
    pub fn io(what: impl fmt::Display, cause: std::io::Error) -> Error {
        let kind = match cause.raw_os_error() {
            Some(28) | Some(122) => Kind::NoSpace, // ENOSPC, EDQUOT
            _ => Kind::Io,
        };
        let reason = reason::of_io(&cause);
        Error { kind, message: format!("{what}: {cause}"), reason, source: Some(Box::new(cause)) }
    }
    /// What the caller can do about it.
    pub fn kind(&self) -> Kind {
        self.kind
    }
    /// The same error for this reason, or that of another error which it stands for.
    pub fn because(self, reason: impl Into<Option<Reason>>) -> Error {
        Error { reason: reason.into(), ..self }
    }
    /// Which of the errors of its kind it is, if somebody tells them apart.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }
    /// True if this is the reason.
    pub fn is_because(&self, reason: Reason) -> bool {
        self.reason == Some(reason)
    }
    /// The same error for somebody else who is to be told, without its cause.
    pub fn repeated(&self) -> Error {
        Error::new(self.kind, self.message.clone()).because(self.reason)
    }
    /// The same error, for the same reason, its message prefixed with what was being done.
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
        Error { kind, message: e.to_string(), reason: e.reason(), source: Some(Box::new(e)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlashError;
    use std::io;

    const ONE: Reason = Reason::new("base.one");
    const TWO: Reason = Reason::new("base.two");

    #[test]
    fn a_reason_stays_with_its_error() {
        let error = Error::corrupt("torn").because(ONE).context("page 3");
        assert_eq!((error.kind(), error.reason()), (Kind::Corrupt, Some(ONE)));
        assert!(error.is_because(ONE) && !error.is_because(TWO));
        assert_eq!(error.to_string(), "page 3: torn");
        assert_eq!(ONE.name(), "base.one");
    }

    #[test]
    fn an_error_that_stands_for_another_has_its_reason() {
        let (plain, first) = (Error::invalid("no"), Error::invalid("no").because(ONE));
        assert_eq!(plain.reason(), None);
        let second = Error::new(Kind::Poisoned, "since then").because(first.reason());
        assert_eq!((second.kind(), second.reason()), (Kind::Poisoned, Some(ONE)));
        let again = second.repeated();
        assert_eq!((again.kind(), again.reason()), (Kind::Poisoned, Some(ONE)));
        assert_eq!(again.to_string(), "since then");
        assert_eq!(again.because(plain.reason()).reason(), None);
    }

    #[test]
    fn numbers_of_the_system_become_kinds_and_reasons() {
        let of = |number| io::Error::from_raw_os_error(number);
        for (number, kind, reason) in
            [(28, Kind::NoSpace, None), (5, Kind::Io, None), (27, Kind::Io, Some(reason::FILE_TOO_LARGE))]
        {
            for error in [Error::io("write", of(number)), FlashError::from(of(number)).into()] {
                assert_eq!((error.kind(), error.reason()), (kind, reason), "{error}");
            }
        }
    }
}
