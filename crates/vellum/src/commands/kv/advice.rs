//! What to do about a store that does not open or fails: the default advice is for disks.

use super::notation::names;
use crate::failure::Failure;
use std::io::{self, ErrorKind};
use std::path::Path;
use vellum::base::{Error, Kind};
use vellum::kv::{AnyStore, Engine, Options, Store, awaits_device, is_being_built, is_unfinished, named};

/// Beginning of the system's error for a file that would exceed the size limit.
const TOO_LARGE: &str = "File too large";
/// What is reported if a file became shorter while it was read, followed by what a program should do.
const UNMAPPED: &str = "it could not be read where it is mapped";

/// The failure of a store at `path`, with advice.
pub fn advise(error: Error, path: &Path) -> Failure {
    let is_cut_short = error.kind() == Kind::Io && error.to_string().contains("was not finished");
    if is_unfinished(path) || is_cut_short && awaits_device(path) {
        return unfinished(path);
    }
    let error = for_commands(error);
    let next = match error.kind() {
        Kind::Busy if error.to_string().contains("in use by something else") => {
            "it is mounted, or another program has it open (lsblk and fuser tell): end that, or name another device"
                .into()
        }
        Kind::Busy if error.to_string().contains("faster than it can be read") => {
            "run the command again: it was looked at while another process wrote much".into()
        }
        Kind::Busy => {
            "a store has one writer, or any number of readers: wait for the other process, or end it".into()
        }
        Kind::Corrupt if error.to_string().contains("in its middle") => DAMAGED_LOG.into(),
        Kind::Corrupt | Kind::Unsupported if error.to_string().contains("the file ZONES") => lost_device(path),
        Kind::Corrupt => damaged(path),
        Kind::NoSpace => no_room(&error),
        Kind::Invalid if error.to_string().contains("compresses nothing") => "leave --compression out".into(),
        Kind::Io | Kind::Poisoned if error.to_string().contains(TOO_LARGE) => {
            "raise the limit on file sizes (ulimit -f) or put the store where files may be larger, then run the \
             command again: what was synced is there"
                .into()
        }
        Kind::Poisoned => "look at the file system, then open the store again: what was synced is there".into(),
        Kind::Io if error.to_string().contains(UNMAPPED) => {
            "run the command again: what went on meanwhile with that file shows then".into()
        }
        Kind::Io if error.to_string().contains("holds no key-value store") => NO_STORE_ON_IMAGE.into(),
        Kind::Io => "put right what the system says, then run the command again".into(),
        Kind::Unsupported if error.to_string().contains("LevelDB") => {
            "choose another directory; what it holds comes over by `vellum kv load`, of keys and values that their own \
             tools print"
                .into()
        }
        Kind::Unsupported if error.to_string().contains("is a copy of the one") => format!(
            "use the original; or copy the device, too, and say where that is: `vellum kv open {} --device COPY`; the \
             device itself there takes the tables from the original",
            path.display()
        ),
        Kind::Unsupported => match next_of_sharing(&error) {
            Some(next) => next.into(),
            None => return Failure::from(named(error, path)),
        },
        _ => return Failure::from(named(error, path)),
    };
    Failure::with_next(error, next)
}

/// Removes advice to seek again, since commands have no iterator.
fn for_commands(error: Error) -> Error {
    let said = error.to_string();
    match said.split_once(UNMAPPED) {
        Some((before, _)) => Error::new(error.kind(), format!("{before}{UNMAPPED}")),
        None => error,
    }
}

/// What to do if `--reuse relink` is not possible.
pub fn next_of_sharing(error: &Error) -> Option<&'static str> {
    let is_it = error.kind() == Kind::Unsupported && error.to_string().contains("in two tables at once");
    is_it.then_some(
        "instead of --reuse relink say --reuse auto, which is relink where that can be and else off, or put the store \
         on XFS, btrfs or raw flash; where such a file system has larger blocks (stat -f), say --unit with their size",
    )
}

/// Failure to make a store at `out` from the one at `from`.
pub fn advise_copy(error: Error, from: &Path, out: &Path) -> Failure {
    match error.kind() {
        Kind::NoSpace => {
            let next =
                format!("make room where {} is, then run it again: nothing of it was left", out.display());
            Failure::with_next(error, next)
        }
        Kind::Invalid
            if ["not empty", "no directory"].iter().any(|what| error.to_string().contains(what)) =>
        {
            Failure::with_next(error, "choose another directory: nothing is replaced")
        }
        Kind::Unsupported if error.to_string().contains("has no keyspaces") => Failure::with_next(
            error,
            "leave --engine log out, or dump one keyspace (`vellum kv dump --keyspace`) and load that",
        ),
        Kind::Busy => advise(error, out),
        _ => advise(error, from),
    }
}

/// Refuses to create something in a store's directory, or over its image.
pub fn refuse_inside(out: &Path, from: &Path) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize().ok();
    let there = std::path::absolute(out).ok().and_then(|out| out.ancestors().find_map(real));
    match (there, real(from)) {
        (Some(there), Some(within)) if there.starts_with(&within) => {
            let what = format!("{} is in the store that is read, {}", out.display(), from.display());
            Err(Failure::with_next(Error::invalid(what), "choose a place beside it"))
        }
        _ => Ok(()),
    }
}

/// Failure for a path without a store.
pub fn missing(path: &Path) -> Failure {
    if is_unfinished(path) || awaits_device(path) {
        return unfinished(path);
    }
    let what = match looked_into(path) {
        Ok(()) => "holds no key-value store",
        Err(e) if e.kind() == ErrorKind::NotFound => "is not there",
        Err(e) => return Error::io(format!("open {}", path.display()), e).into(),
    };
    let error = Error::new(Kind::Io, format!("{} {what}", path.display()));
    let next = match path.exists() && !path.is_dir() {
        true => "look at the path: a store is a directory, or a flash image".into(),
        false => format!("look at the path; `vellum kv open {}` makes a new store", path.display()),
    };
    Failure::with_next(error, next)
}

/// Fails if it cannot be determined whether there is a store.
fn looked_into(path: &Path) -> io::Result<()> {
    if !path.metadata()?.is_dir() {
        return Ok(());
    }
    path.read_dir()?;
    match path.join("CURRENT").metadata() {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Failure of an operation that needs ordered keys, on a log store.
pub fn has_no_order(path: &Path) -> Failure {
    let path = path.display();
    let what = format!("{path} is a log store (engine log): its keys have no order");
    Failure::with_next(
        Error::invalid(what),
        format!(
            "`vellum kv dump {path}` prints all, `vellum kv get` one; `vellum debubble {path} NEW --engine lsm` makes an ordered store"
        ),
    )
}

/// What to do if the store at `path` is not of the engine that is `wanted`.
pub fn other_engine(path: &Path, wanted: Engine) -> String {
    let spaces = match AnyStore::open(path, None, Options { read_only: true, ..Options::default() }) {
        Ok(AnyStore::Lsm(store)) => store.keyspaces(),
        _ => Vec::new(),
    };
    let (is, into) = (path.display(), wanted.name());
    match spaces.len() {
        0 | 1 => format!(
            "leave --engine out; `vellum kv dump {is} | vellum kv load NEW --engine {into}` makes one of the other kind"
        ),
        _ => format!(
            "leave --engine out: a {into} store has no keyspaces, and this one has {}; `vellum kv dump {is} --keyspace \
             NAME | vellum kv load NEW --engine {into}` makes one of each",
            names(&spaces)
        ),
    }
}

fn unfinished(path: &Path) -> Failure {
    let (is_being_built, is_on_device) = (is_being_built(path), awaits_device(path));
    let device = Store::device_of(path).unwrap_or_else(|| "DEV".into());
    let path = path.display();
    let (by, ended) = match is_on_device {
        true => ("`kv open --device`", "failed, or was cut short"),
        false => ("`debubble` or `kv checkpoint`", "was cut short"),
    };
    if is_being_built {
        let what = format!("{path} is being made by another process: {by}");
        return Failure::with_next(
            Error::new(Kind::Busy, what),
            "wait until that is done, or end it; or choose another directory",
        );
    }
    let what = format!("{path} holds a store that was not finished: {by} {ended}");
    let next = match is_on_device {
        true => format!(
            "run `vellum kv open {path} --device {device}` again, with the options of before, or remove it (rm -r {path})"
        ),
        false => format!("make it again, which begins anew, or remove it (rm -r {path})"),
    };
    Failure::with_next(Error::new(Kind::Io, what), next)
}

/// Advice for a flash image that holds something else.
const NO_STORE_ON_IMAGE: &str =
    "look at the path; `vellum kv open NEW --flash SIZE` makes an image with a store on it";

/// Advice if `--strict` was given.
const DAMAGED_LOG: &str = "without --strict the log ends there, as if the power had gone; `vellum kv repair` takes what \
                           follows, too: keep a copy first";

/// What to do where a directory does not say on which device its tables are.
fn lost_device(path: &Path) -> String {
    format!("say on which device its tables are: `vellum kv open {} --device DEV`", path.display())
}

fn damaged(path: &Path) -> String {
    format!("keep a copy of {}, then see what `vellum kv repair` says", all_of(path))
}

/// What must be copied for a second copy of the store.
fn all_of(path: &Path) -> String {
    match Store::device_of(path) {
        _ if path.is_file() => "the image".into(),
        Some(device) => format!("the directory and of {device}"),
        None => "the directory".into(),
    }
}

fn no_room(error: &Error) -> String {
    match error.to_string().contains("a value of ") {
        // The size of segments depends on the space available when a store is opened.
        true => "make room where the store is, a few hundred times as much as the value, then run it again; or keep \
                 such values in an ordered store (--engine lsm)"
            .into(),
        false => "make room where the store is, or delete keys and run `vellum kv compact`; then run it again".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_is_to_do_is_not_said_to_people() {
        let error = Error::new(Kind::Io, format!("table 3: {UNMAPPED}; seek again"));
        let failure = advise(error, Path::new("s"));
        assert_eq!(failure.error().to_string(), format!("table 3: {UNMAPPED}"));
        assert!(failure.next().starts_with("run the command again"), "{}", failure.next());
    }
}
