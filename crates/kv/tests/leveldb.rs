//! The power-loss cases of LevelDB that stay open there (google/leveldb, issues 189, 193, 195, 251), on a directory
//! that loses just what each of them loses.

use crate::doubtful::{Change, Doubtful};
use crate::files::open;
use std::sync::Arc;
use vellum_base::Env;
use vellum_kv::{Batch, Durability, Map};
use vellum_sim::Sim;

fn one(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(key, value).unwrap();
    batch
}

/// Runs `life` in virtual time until the power goes at the `nth` call. True if it went.
fn cut_at(nth: u64, files: &Doubtful, life: impl FnOnce(&Arc<dyn Env>)) -> bool {
    let sim = Sim::new(nth);
    let env: Arc<dyn Env> = sim.env();
    files.0.lock().left = Some(nth);
    sim.run(|| life(&env));
    std::mem::replace(&mut files.0.lock().off, true)
}

/// Opens what is left, outside of virtual time.
fn after<T>(files: &Doubtful, look: impl FnOnce(&vellum_kv::Store) -> T) -> T {
    let env: Arc<dyn Env> = vellum_base::RealEnv::new();
    let store = open(files, &env).unwrap_or_else(|e| panic!("{e}"));
    look(&store)
}

/// 189: CURRENT is there, the manifest that it names is not.
#[test]
fn issue_189_a_store_that_was_being_made_is_made_again() {
    for nth in 1.. {
        let files = Doubtful::default();
        let cut = cut_at(nth, &files, |env| drop(open(&files, env)));
        files.0.lock().crash(|_| true, |_, _| 0);
        after(&files, |store| store.put(b"k", b"v").unwrap());
        if !cut {
            assert!(nth > 8, "a store is made in {nth} calls");
            break;
        }
    }
}

/// 193: two logs, neither synced; the older is lost, the newer is not.
#[test]
fn issue_193_a_later_put_does_not_outlive_an_earlier_one() {
    let files = Doubtful::default();
    let count = 150u32; // two logs, one memtable waiting for its flush
    cut_at(u64::MAX, &files, |env| {
        let store = open(&files, env).unwrap();
        for i in 0..count {
            store.write(&one(&i.to_be_bytes(), &[7; 600]), Durability::Buffered).unwrap();
        }
        let logs = vellum_kv::media::Files::names(&files)
            .unwrap()
            .iter()
            .filter(|name| name.ends_with(".log"))
            .count();
        assert_eq!(logs, 2);
        files.0.lock().off = true;
    });
    let mut logs: Vec<String> = Vec::new();
    files.0.lock().crash(
        |_| true,
        |name, len| {
            if name.ends_with(".log") && !logs.contains(&name.to_string()) {
                logs.push(name.to_string());
            }
            if logs.first().is_some_and(|oldest| oldest == name) { 0 } else { len }
        },
    );
    after(&files, |store| {
        let there: Vec<u32> = (0..count).filter(|i| store.get(&i.to_be_bytes()).unwrap().is_some()).collect();
        assert_eq!(there, (0..there.len() as u32).collect::<Vec<_>>(), "a later put without an earlier one");
    });
}

/// 195: what was removed is gone, but CURRENT was not renamed yet.
#[test]
fn issue_195_removals_before_the_rename_lose_nothing() {
    for nth in 1.. {
        let (files, mut promised) = (Doubtful::default(), 0u32);
        let cut = cut_at(nth, &files, |env| {
            for _ in 0..3 {
                let Ok(store) = open(&files, env) else { return };
                for _ in 0..30 {
                    if store.write(&one(&promised.to_be_bytes(), &[7; 900]), Durability::Sync).is_err() {
                        return;
                    }
                    promised += 1;
                }
                if store.flush().is_err() {
                    return;
                }
            }
        });
        files.0.lock().crash(|change| matches!(change, Change::Remove(_)), |_, len| len);
        after(&files, |store| {
            for i in 0..promised {
                assert!(store.get(&i.to_be_bytes()).unwrap().is_some(), "cut at {nth}: {i} of {promised}");
            }
        });
        if !cut {
            break;
        }
    }
}

/// 251: part of the last append is zeros.
#[test]
fn issue_251_a_batch_that_was_torn_is_discarded() {
    for kept in (0..6000).step_by(512) {
        let files = Doubtful::default();
        cut_at(u64::MAX, &files, |env| {
            let store = open(&files, env).unwrap();
            store.write(&one(b"first", b"1"), Durability::Sync).unwrap();
            store.write(&one(b"large", &[7; 5000]), Durability::Buffered).unwrap();
            files.0.lock().off = true;
        });
        files.0.lock().crash(|_| true, |_, len| kept.min(len));
        after(&files, |store| {
            assert_eq!(store.get(b"first").unwrap().as_deref(), Some(&b"1"[..]));
            let large = store.get(b"large").unwrap();
            assert_eq!(large, (kept > 5000).then(|| vec![7; 5000]), "{kept} bytes kept");
        });
    }
}
