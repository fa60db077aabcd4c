//! Repairs of both engines that do not come to their end: the power goes at any call, or there is no room from any on.

use crate::doubtful::{Doubtful, Fault};
use crate::harmed::{bereft, copy_of, doubtful, files_of, stored};
use crate::harness::{Model, directory, forward, small};
use crate::log::harness as log;
use crate::log::repair::once_was;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use vellum_base::{Kind, RealEnv, Result};
use vellum_kv::{Bounds, Map, Media, Repaired, Store};

/// An engine whose stores are repaired.
#[derive(Clone, Copy)]
struct Engine {
    name: &'static str,
    mend: fn(&Arc<dyn Media>) -> Result<Repaired>,
    /// What a store that is in order holds.
    content: fn(Arc<dyn Media>) -> Result<Model>,
}

const ORDERED: Engine = Engine {
    name: "lsm",
    mend: |media| vellum_kv::repair(media, &(RealEnv::new() as _), &small()),
    content: |media| {
        let store = Store::open(media, RealEnv::new(), small())?;
        let verified = store.verify()?;
        assert!(verified.problems.is_empty(), "{verified:?}");
        forward(store.iter(Bounds::all())?)
    },
};

const LOG: Engine = Engine {
    name: "log",
    mend: |media| vellum_kv::log::repair(media, &(RealEnv::new() as _), &log::small()),
    content: |media| {
        let store = log::open_with(media, log::small())?;
        let verified = store.verify()?;
        assert!(verified.problems.is_empty(), "{verified:?}");
        log::walked(&store)
    },
};

/// A damaged store.
struct Damaged {
    engine: Engine,
    context: String,
    /// The manifest is there and in order.
    told: bool,
    stored: Vec<(String, Vec<u8>)>,
    /// What is there after a repair that nothing comes between. Where nothing tells the order of segments, what one
    /// that did not end has left is one more of these: then only that all once was.
    expected: Option<Model>,
}

impl Damaged {
    /// A table and the log have damage, and there is `left`: all else, all but CURRENT, the feet of tables without it
    /// and the manifest, or not even these.
    fn new(engine: Engine, left: &str) -> Damaged {
        let dir = tempfile::tempdir().unwrap();
        match engine.name {
            "log" => drop(crate::log::rot::fill(crate::log::rot::open(dir.path()).unwrap())),
            _ => drop(crate::rot::fill(crate::harness::open(directory(dir.path())).unwrap())),
        }
        let told = ["all", "manifest"].contains(&left);
        let from = if told { copy_of(&files_of(dir.path()), None) } else { bereft(dir.path()) };
        if left == "manifest" {
            std::fs::remove_file(from.path().join("CURRENT")).unwrap();
        }
        let mut stored = stored(from.path());
        for end in [".table", ".log"] {
            let (_, bytes) = stored.iter_mut().find(|(name, _)| name.ends_with(end)).unwrap();
            bytes[700] ^= 1;
        }
        for (_, bytes) in stored.iter_mut().filter(|(name, _)| left == "nothing" && name.ends_with(".table"))
        {
            let foot = bytes.len() - 4096;
            bytes[foot + 20] ^= 1;
        }
        let whole = doubtful(&stored);
        let report = (engine.mend)(&(whole.directory() as Arc<dyn Media>)).unwrap();
        assert!(report.tables_rewritten > 0 && report.manifest_lost != told, "{report:?}");
        let content = (engine.content)(whole.directory()).unwrap();
        let (context, expected) =
            (format!("{}, {left} left", engine.name), (left != "nothing").then_some(content));
        Damaged { engine, context, told, stored, expected }
    }

    fn each(mut show: impl FnMut(Damaged)) {
        for left in ["all", "manifest", "feet", "nothing"] {
            show(Damaged::new(LOG, left));
        }
        // An ordered store needs no feet to tell what is older.
        for left in ["all", "manifest", "feet"] {
            show(Damaged::new(ORDERED, left));
        }
    }

    fn mend(&self, all: &Doubtful) -> Result<Repaired> {
        (self.engine.mend)(&(all.directory() as Arc<dyn Media>))
    }

    fn check(&self, all: &Doubtful, context: &str) {
        let found = (self.engine.content)(all.directory()).unwrap_or_else(|e| panic!("{context}: {e}"));
        let is_same = match &self.expected {
            Some(expected) => found == *expected,
            None => found.iter().all(|(key, value)| once_was(key, value)),
        };
        assert!(is_same, "{context}: not the same");
    }
}

/// Cut at each call and begun again, a repair comes to the same: nothing goes before what is made of it is safe.
#[test]
fn repairs_that_are_cut_at_every_call_are_begun_again() {
    Damaged::each(|damaged| {
        let mut rng = SmallRng::seed_from_u64(3);
        let mut cut_at = |nth: u64| {
            let (all, context) =
                (doubtful(&damaged.stored), format!("{}, cut at call {nth}", damaged.context));
            all.0.lock().left = Some(nth);
            let first = damaged.mend(&all);
            let was_cut = all.0.lock().off;
            // What is erased last may fail: that is said, and no error.
            assert!(first.is_ok() || was_cut, "{context}: {first:?}");
            all.0.lock().left = None;
            if was_cut {
                all.0.lock().crash_by_chance(&mut rng);
                damaged.mend(&all).unwrap_or_else(|e| panic!("{context}: {e}"));
            }
            damaged.check(&all, &context);
            was_cut
        };
        let calls = (1..).take_while(|nth| cut_at(*nth)).count();
        assert!(calls > 10, "{}: only {calls} calls", damaged.context);
    });
}

/// Without room, before the new manifest is in force, nothing is left of a repair, nor is anything gone.
#[test]
fn repairs_that_find_no_room_change_nothing() {
    Damaged::each(|damaged| {
        let tables = |all: &Doubtful| all.0.lock().names_ending_in(".table");
        let current = |all: &Doubtful| all.directory().current().unwrap();
        let full_at = |nth: u64| {
            let (all, context) =
                (doubtful(&damaged.stored), format!("{}, full at call {nth}", damaged.context));
            let before = (tables(&all), current(&all));
            (all.0.lock().left, all.0.lock().fault) = (Some(nth), Fault::Full);
            let result = damaged.mend(&all);
            all.0.lock().left = None;
            if let Err(error) = &result {
                assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
                let is_in_force = current(&all) != before.1;
                assert!(is_in_force || tables(&all) == before.0, "{context}: {:?} {before:?}", tables(&all));
                let again = damaged.mend(&all).unwrap_or_else(|e| panic!("{context}: {e}"));
                assert!(is_in_force || !damaged.told || again.tables_rewritten > 0, "{context}: {again:?}");
            }
            damaged.check(&all, &context);
            result.is_err()
        };
        let calls = (1..).take_while(|nth| full_at(*nth)).count();
        assert!(calls > 8, "{}: only {calls} calls", damaged.context);
    });
}
