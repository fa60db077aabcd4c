//! Repairs of log stores whose power goes at any call.

use super::harness::{open_with, small, walked};
use super::repair::{bereft, mend, once_was};
use super::rot::{fill, open};
use crate::doubtful::Doubtful;
use crate::harmed::{copy_of, files_of};
use crate::harness::Model;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::sync::Arc;
use vellum_kv::{Files, Map, Media};

/// A directory whose power can go, with these files.
fn doubtful(stored: &[(String, Vec<u8>)]) -> Doubtful {
    let all = Doubtful::default();
    for (name, bytes) in stored {
        let file = all.create(name).unwrap();
        file.write(0, bytes).unwrap();
        file.sync().unwrap();
    }
    all.sync_names().unwrap();
    all
}

fn result_of(all: &Doubtful, context: &str) -> Model {
    let store = open_with(all.directory(), small()).unwrap_or_else(|e| panic!("{context}: {e}"));
    let verified = store.verify().unwrap();
    assert!(verified.problems.is_empty(), "{context}: {verified:?}");
    walked(&store).unwrap()
}

/// Cut at each call and begun again, a repair comes to the same: nothing goes before what is made of it is safe.
#[test]
fn repairs_of_log_stores_cut_at_every_call_are_begun_again() {
    let dir = tempfile::tempdir().unwrap();
    fill(open(dir.path()).unwrap());
    // With a manifest, without CURRENT, without either, and without feet as well: then no one says the seed.
    for left in ["all", "manifest", "feet", "nothing"] {
        let told = ["all", "manifest"].contains(&left);
        let from = if told { copy_of(&files_of(dir.path()), None) } else { bereft(dir.path()) };
        if left == "manifest" {
            std::fs::remove_file(from.path().join("CURRENT")).unwrap();
        }
        let mut stored: Vec<(String, Vec<u8>)> = files_of(from.path())
            .into_iter()
            .map(|file| (file.file_name().unwrap().to_str().unwrap().into(), std::fs::read(&file).unwrap()))
            .collect();
        // A segment, and what the log has first.
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
        let report = mend(&(whole.directory() as Arc<dyn Media>)).unwrap();
        assert!(report.tables_rewritten > 0 && report.batches > 0 && report.untold != told, "{report:?}");
        let expected = result_of(&whole, "never cut");
        let mut rng = SmallRng::seed_from_u64(3);
        let cut_at = |nth: u64, rng: &mut SmallRng| {
            let (all, context) = (doubtful(&stored), format!("{left} left, cut at call {nth}"));
            all.0.lock().left = Some(nth);
            let first = mend(&(all.directory() as Arc<dyn Media>));
            let was_cut = all.0.lock().off;
            // What is erased last may fail: that is said, and no error.
            assert!(first.is_ok() || was_cut, "{context}: {first:?}");
            all.0.lock().left = None;
            if was_cut {
                all.0.lock().crash_by_chance(rng);
                mend(&(all.directory() as Arc<dyn Media>)).unwrap_or_else(|e| panic!("{context}: {e}"));
            }
            let result = result_of(&all, &context);
            let is_same = match left {
                // What a cut repair left half-written is one more segment of which nothing says the order.
                "nothing" => result.iter().all(|(key, value)| once_was(key, value)),
                _ => result == expected,
            };
            assert!(is_same, "{context}: not the same");
            was_cut
        };
        let calls = (1..).take_while(|nth| cut_at(*nth, &mut rng)).count();
        assert!(calls > 10, "only {calls} calls");
    }
}
