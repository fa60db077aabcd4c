//! How a command ends: its verdict, or what went wrong and what to do next; and their exit codes.

use crate::commands;
use std::fmt;
use std::process::ExitCode;
use vellum::base::{Error, Kind};

/// What a command returns.
pub type Outcome = Result<Verdict, Failure>;

/// Verdict of a command that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All is well.
    Fine,
    /// The command found problems, or a claim that does not hold.
    Problems,
}

/// A command that could not complete.
#[derive(Debug)]
pub struct Failure {
    error: Error,
    next: Option<String>,
}

impl Verdict {
    /// Exit code 0 or 1.
    pub fn exit_code(self) -> ExitCode {
        ExitCode::from(match self {
            Verdict::Fine => 0,
            Verdict::Problems => 1,
        })
    }
}

impl Failure {
    /// `error`, with more specific advice than its kind gives.
    pub fn with_next(error: Error, next: impl Into<String>) -> Failure {
        Failure { error, next: Some(next.into()) }
    }

    /// An error of the command line's parser: its first paragraph says what is wrong, others may contain a tip.
    pub fn usage(said: &str) -> Failure {
        let mut paragraphs = said.split("\n\n").map(|text| {
            text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
        });
        let what = paragraphs.next().unwrap_or_default();
        let tip = paragraphs.find_map(|text| text.strip_prefix("tip: ").map(String::from));
        let error = Error::invalid(what.strip_prefix("error: ").unwrap_or(&what));
        Failure { error, next: tip }
    }

    /// Puts something in front of what happened.
    pub fn context(self, what: impl fmt::Display) -> Failure {
        Failure { error: self.error.context(what), ..self }
    }

    /// Adds advice for errors of this kind, unless there is more specific advice.
    pub fn or_next(self, kind: Kind, next: &str) -> Failure {
        let fits = self.error.kind() == kind;
        Failure { next: self.next.or_else(|| fits.then(|| next.into())), ..self }
    }

    /// Replaces the advice.
    pub fn instead_next(self, next: impl Into<String>) -> Failure {
        Failure { next: Some(next.into()), ..self }
    }

    /// What happened.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// What to do next.
    pub fn next(&self) -> String {
        match (&self.next, self.error.kind()) {
            (Some(next), _) => next.clone(),
            (None, Kind::Invalid) => {
                format!("{} --help says what it takes, with an example", commands::given())
            }
            (None, kind) => next_step(kind).into(),
        }
    }

    /// The advice, unless it follows from the kind of the error.
    pub fn advice(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Exit code; see docs/COMMANDS.md.
    pub fn code(&self) -> u8 {
        code(self.error.kind())
    }

    /// Exit code, for the system.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure { error, next: None }
    }
}

/// Stable names of the kinds, for `--json`.
const KIND_NAMES: [(Kind, &str); 9] = [
    (Kind::Invalid, "invalid"),
    (Kind::NoSpace, "no_space"),
    (Kind::Corrupt, "corrupt"),
    (Kind::Io, "io"),
    (Kind::Poisoned, "poisoned"),
    (Kind::Gone, "gone"),
    (Kind::Busy, "busy"),
    (Kind::Unsupported, "unsupported"),
    (Kind::PowerLost, "power_lost"),
];

/// The name of a kind.
pub fn kind_name(kind: Kind) -> &'static str {
    KIND_NAMES.iter().find(|(known, _)| *known == kind).map_or("other", |(_, name)| name)
}

/// The kind with this name.
pub fn kind_by_name(name: &str) -> Kind {
    KIND_NAMES.iter().find(|(_, known)| *known == name).map_or(Kind::Io, |(kind, _)| *kind)
}

fn code(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid => 2,
        Kind::Corrupt => 4,
        Kind::Busy => 5,
        _ => 3,
    }
}

fn next_step(kind: Kind) -> &'static str {
    match kind {
        Kind::NoSpace => "free space there, or choose a smaller disk; nothing that was flushed is lost",
        Kind::Corrupt => {
            "keep a copy of the file, then try `vellum disk repair`; `vellum disk dump` gets out what can be read"
        }
        Kind::Io => "put right what the line above says, then run the command again",
        Kind::Poisoned => {
            "look at the host's storage, then open the disk again: it goes on from its last flush"
        }
        Kind::Busy => {
            "wait for whoever uses it, or end that (a running `vellum disk` or `vellum array` that serves or mounts it)"
        }
        Kind::Gone => "leave it out: what it holds is not what was written to it any more",
        Kind::PowerLost => "open it again",
        _ => "this does not work here; the line above says what is missing",
    }
}
