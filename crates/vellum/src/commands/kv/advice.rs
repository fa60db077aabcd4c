//! What to do about a store that does not open or fails: the default advice is for disks.

use super::notation::names;
use crate::failure::Failure;
use std::io::{self, ErrorKind};
use std::path::Path;
use vellum::base::reason::{CHANGED_MEANWHILE, FILE_TOO_LARGE};
use vellum::base::{Error, Kind, Reason};
use vellum::kv::{
    AnyStore, Directory, Engine, Options, Store, awaits_device, is_being_built, is_unfinished, named,
    reason as kv,
};
use vellum::media::reason as media;
use vellum::reason;

/// What programs are told to do if a file became shorter while it was read ([`kv::NOT_READ_MAPPED`]).
const SEEK_AGAIN: &str = "; seek again";

/// The failure of a store at `path`, with advice.
pub fn advise(error: Error, path: &Path) -> Failure {
    let is_cut_short = error.is_because(reason::STORE_UNFINISHED);
    if is_unfinished(path) || is_cut_short && awaits_device(path) {
        return unfinished(path);
    }
    let error = for_commands(error);
    if let Some(next) = error.reason().and_then(|reason| next_of(reason, error.kind(), path)) {
        return Failure::with_next(error, next);
    }
    let next = match error.kind() {
        Kind::Busy => {
            "a store has one writer, or any number of readers: wait for the other process, or end it".into()
        }
        Kind::Corrupt => damaged(path),
        Kind::NoSpace => {
            "make room where the store is, or delete keys and run `vellum kv compact`; then run it again"
                .into()
        }
        Kind::Poisoned => {
            "look at the file system, then open the store again: what was synced is there".into()
        }
        Kind::Io => "put right what the system says, then run the command again".into(),
        _ => return Failure::from(named(error, path)),
    };
    Failure::with_next(error, next)
}

/// Advice for errors with a reason.
fn next_of(reason: Reason, kind: Kind, path: &Path) -> Option<String> {
    let next = match (reason, kind) {
        (media::DEVICE_IN_USE, _) => {
            "it is mounted, or another program has it open (lsblk and fuser tell): end that, or name another device"
        }
        (CHANGED_MEANWHILE, _) => "run the command again: it was looked at while another process wrote much",
        (kv::LOG_DAMAGED, _) => DAMAGED_LOG,
        (kv::DEVICE_UNKNOWN, _) => return Some(lost_device(path)),
        (kv::VALUE_TOO_LONG, Kind::NoSpace) => NO_ROOM_FOR_VALUE,
        (reason::COMPRESSES_NOTHING, _) => "leave --compression out",
        (FILE_TOO_LARGE, _) => {
            "raise the limit on file sizes (ulimit -f) or put the store where files may be larger, then run the \
             command again: what was synced is there"
        }
        (kv::NOT_READ_MAPPED, Kind::Io) => {
            "run the command again: what went on meanwhile with that file shows then"
        }
        (reason::NO_STORE_ON_IMAGE, _) => NO_STORE_ON_IMAGE,
        (kv::FOREIGN_STORE, _) => {
            "choose another directory; what it holds comes over by `vellum kv load`, of keys and values that their own \
             tools print"
        }
        (kv::DIRECTORY_COPIED, _) => return Some(original_of(path)),
        (kv::SHARES_NOTHING, _) => SHARES_NOTHING,
        _ => return None,
    };
    Some(next.into())
}

/// Removes advice to seek again, since commands have no iterator.
fn for_commands(error: Error) -> Error {
    if !error.is_because(kv::NOT_READ_MAPPED) {
        return error;
    }
    let said = error.to_string();
    let what = said.split_once(SEEK_AGAIN).map_or(&*said, |(before, _)| before);
    Error::new(error.kind(), what).because(error.reason())
}

/// What to do if `--reuse relink` is not possible.
pub fn next_of_sharing(error: &Error) -> Option<&'static str> {
    error.is_because(kv::SHARES_NOTHING).then_some(SHARES_NOTHING)
}

/// Failure to make a store at `out` from the one at `from`.
pub fn advise_copy(error: Error, from: &Path, out: &Path) -> Failure {
    match error.kind() {
        Kind::NoSpace => {
            let next =
                format!("make room where {} is, then run it again: nothing of it was left", out.display());
            Failure::with_next(error, next)
        }
        _ if error.is_because(reason::PLACE_TAKEN) => {
            Failure::with_next(error, "choose another directory: nothing is replaced")
        }
        _ if error.is_because(reason::NO_KEYSPACES) => Failure::with_next(
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
    match path.join(Directory::CURRENT).metadata() {
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
        false => ("`kv ingest`, `kv checkpoint` or `debubble`", "was cut short"),
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

/// Advice if `--reuse relink` is not possible.
const SHARES_NOTHING: &str = "instead of --reuse relink say --reuse auto, which is relink where that can be and else \
                              off, or put the store on XFS, btrfs or raw flash; where such a file system has larger \
                              blocks (stat -f), say --unit with their size";

/// Advice for a value of which there would be room in larger segments: their size depends on the space available when a
/// store is opened.
const NO_ROOM_FOR_VALUE: &str = "make room where the store is, a few hundred times as much as the value, then run it \
                                 again; or keep such values in an ordered store (--engine lsm)";

/// What to do with a copy of a directory whose tables are on a device.
fn original_of(path: &Path) -> String {
    format!(
        "use the original; or copy the device, too, and say where that is: `vellum kv open {} --device COPY`; the \
         device itself there takes the tables from the original",
        path.display()
    )
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_is_to_do_is_not_said_to_people() {
        let error = Error::new(Kind::Io, "table 3: it could not be read; seek again");
        let failure = advise(error.because(kv::NOT_READ_MAPPED), Path::new("s"));
        assert_eq!(failure.error().to_string(), "table 3: it could not be read");
        assert!(failure.next().starts_with("run the command again"), "{}", failure.next());
    }
}
