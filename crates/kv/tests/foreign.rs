//! Directories of other programs, stores of other kinds, and places where nothing may be written: said by name, and
//! nothing is changed.

use crate::harness::{directory, open, repair, skipped, small};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv};
use vellum_codes::crc32c;
use vellum_kv::{Directory, DirectoryOptions, Map, Media, Options, Store, log};

fn files(dir: &Path) -> BTreeMap<std::ffi::OsString, Vec<u8>> {
    let files = std::fs::read_dir(dir).unwrap().map(|file| file.unwrap());
    let files = files.filter(|file| file.file_name() != "LOCK");
    files.map(|file| (file.file_name(), std::fs::read(file.path()).unwrap())).collect()
}

fn mend(dir: &Path) -> vellum_base::Result<vellum_kv::Repaired> {
    let env: Arc<dyn Env> = RealEnv::new();
    let media: Arc<dyn Media> = directory(dir);
    repair(&media, &env, &small())
}

/// Nobody opens or repairs it, everybody says `what`, and it stays as it is.
fn assert_refused(dir: &Path, kind: Kind, what: &str) {
    let before = files(dir);
    let opened = open(directory(dir)).map(drop);
    let log = log::Store::open(directory(dir), RealEnv::new(), log::Options::default()).map(drop);
    let read_only = Options { read_only: true, ..small() };
    let read = Store::open(directory(dir), RealEnv::new(), read_only).map(drop);
    for error in [opened, log, read].map(|refused| refused.unwrap_err()) {
        assert!(error.kind() == kind && error.to_string().contains(what), "{error}");
    }
    let error = mend(dir).unwrap_err();
    assert!(matches!(error.kind(), Kind::Unsupported | Kind::Corrupt), "{error}");
    assert!(files(dir) == before, "something was changed");
}

/// As LevelDB 1.23 leaves it, and RocksDB: logs have the names of ours.
fn of_leveldb(dir: &Path, current: bool) {
    std::fs::write(
        dir.join("000003.log"),
        [0x56, 0x1C, 0x0A, 0xA6, 0x1F, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1],
    )
    .unwrap();
    std::fs::write(
        dir.join("MANIFEST-000002"),
        b"\x0c\xcf\x1f\xb0\x1c\0\x01\x01\x1aleveldb.BytewiseComparator",
    )
    .unwrap();
    std::fs::write(dir.join("LOG"), b"2026/01/01-00:00:00.000000 140 Delete type=3 #1\n").unwrap();
    if current {
        std::fs::write(dir.join("CURRENT"), b"MANIFEST-000002\n").unwrap();
    }
}

#[test]
fn a_store_of_leveldb_is_neither_opened_nor_repaired() {
    let dir = tempfile::tempdir().unwrap();
    of_leveldb(dir.path(), true);
    assert_refused(dir.path(), Kind::Unsupported, "LevelDB or RocksDB");
    let dir = tempfile::tempdir().unwrap();
    of_leveldb(dir.path(), false);
    assert_refused(dir.path(), Kind::Corrupt, "CURRENT is missing");
}

/// Files with our names and nothing of ours in them are no store that lost its CURRENT.
#[test]
fn files_that_are_not_ours_are_not_made_a_store_of() {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in [("000001.log", 5000), ("000002.table", 70_000), ("000003.manifest", 100)] {
        std::fs::write(dir.path().join(name), vec![b'x'; bytes]).unwrap();
    }
    assert_refused(dir.path(), Kind::Corrupt, "CURRENT is missing");
}

/// Puts another name into the manifest's first edit, with the checksum that it needs.
fn rename_comparator(dir: &Path) {
    let manifest =
        files(dir).into_keys().find(|name| Path::new(name).extension().is_some_and(|e| e == "manifest"));
    let manifest = manifest.unwrap();
    let number: u64 = Path::new(&manifest).file_stem().unwrap().to_str().unwrap().parse().unwrap();
    let mut bytes = std::fs::read(dir.join(&manifest)).unwrap();
    let name = b"vellum.bytewise";
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at..at + name.len()].copy_from_slice(b"somebody.else's");
    // The record after the head, which has 44 bytes and ends with the store's number: docs/formats/kv-log.md.
    let tag = [&b"VKMF"[..], &number.to_le_bytes(), &bytes[36..44]].concat();
    let length = u32::from_le_bytes(bytes[48..52].try_into().unwrap()) as usize & ((1 << 30) - 1);
    let crc = crc32c(&bytes[48..60 + length]) ^ crc32c(&tag);
    bytes[44..48].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(dir.join(manifest), bytes).unwrap();
}

#[test]
fn a_store_in_another_order_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    store.put(b"k", b"v").unwrap();
    store.close().unwrap();
    rename_comparator(dir.path());
    assert_refused(dir.path(), Kind::Unsupported, "ordered by \"somebody.else's\"");
}

#[test]
fn a_store_of_the_other_engine_is_refused_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    open(directory(dir.path())).unwrap().close().unwrap();
    let error = log::Store::open(directory(dir.path()), RealEnv::new(), log::Options::default()).map(drop);
    assert!(error.unwrap_err().to_string().contains("a store of ordered keys (engine lsm)"));
    let dir = tempfile::tempdir().unwrap();
    log::Store::open(directory(dir.path()), RealEnv::new(), log::Options::default())
        .unwrap()
        .close()
        .unwrap();
    let error = open(directory(dir.path())).map(drop).unwrap_err();
    assert!(error.to_string().contains("it is a log store"), "{error}");
    assert_eq!(mend(dir.path()).unwrap_err().kind(), Kind::Unsupported);
}

/// What a log holds may be whole though it cannot be read now, or not by this program: repair gives up none.
#[test]
fn a_log_that_cannot_be_read_is_not_given_up() {
    let open_store = tempfile::tempdir().unwrap();
    let store = open(directory(open_store.path())).unwrap();
    store.put(b"k", b"v").unwrap();
    let killed = || {
        let copy = tempfile::tempdir().unwrap();
        let all = files(open_store.path());
        all.iter().for_each(|(name, bytes)| std::fs::write(copy.path().join(name), bytes).unwrap());
        let log =
            all.into_keys().find(|name| Path::new(name).extension().is_some_and(|e| e == "log")).unwrap();
        (copy.path().join(log), copy)
    };
    // No file any more: what reads it is told so by the system.
    let (log, copy) = killed();
    std::fs::remove_file(&log).unwrap();
    std::fs::create_dir(&log).unwrap();
    assert_eq!(mend(copy.path()).unwrap_err().kind(), Kind::Io);
    assert!(log.exists());
    // Of a later format: docs/formats/kv-log.md.
    let (log, copy) = killed();
    let mut bytes = std::fs::read(&log).unwrap();
    let number: u64 = log.file_stem().unwrap().to_str().unwrap().parse().unwrap();
    bytes[16] += 1;
    let tag = crc32c(&[&b"VKLG"[..], &number.to_le_bytes()].concat());
    let crc = crc32c(&bytes[4..44]) ^ tag;
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&log, bytes).unwrap();
    let before = files(copy.path());
    assert_eq!(mend(copy.path()).unwrap_err().kind(), Kind::Unsupported);
    assert!(files(copy.path()) == before, "something was changed");
}

/// A store whose process was killed: a table with `k` of this value, and a log with `more` of it.
fn killed_with(value: &[u8]) -> (std::path::PathBuf, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    store.put(b"k", value).unwrap();
    store.compact().unwrap();
    store.put(b"more", value).unwrap();
    let copy = tempfile::tempdir().unwrap();
    files(dir.path()).iter().for_each(|(name, bytes)| std::fs::write(copy.path().join(name), bytes).unwrap());
    let is_log = |name: &std::ffi::OsString| Path::new(name).extension().is_some_and(|e| e == "log");
    let newest = files(copy.path()).into_keys().rfind(is_log).unwrap();
    (copy.path().join(newest), copy)
}

#[test]
fn a_log_of_another_store_is_refused_and_nothing_is_taken_from_it() {
    let (our_log, ours) = killed_with(b"ours");
    let (their_log, _theirs) = killed_with(b"theirs");
    assert_eq!(our_log.file_name(), their_log.file_name(), "the number is the same");
    std::fs::copy(their_log, &our_log).unwrap();
    let before = files(ours.path());
    let opened = open(directory(ours.path())).map(drop);
    for error in [opened, mend(ours.path()).map(drop)].map(|refused| refused.unwrap_err()) {
        let says = error.kind() == Kind::Unsupported && error.to_string().contains("is of another store");
        assert!(says, "{error}");
    }
    assert!(files(ours.path()) == before, "it may be the only copy");
    std::fs::remove_file(our_log).unwrap();
    let repaired = mend(ours.path()).unwrap();
    assert!(repaired.batches == 0, "{repaired:?}");
    let store = open(directory(ours.path())).unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"ours"[..]));
    assert_eq!(store.get(b"more").unwrap(), None);
}

/// By CURRENT, which is another store's, all there is is foreign: it may be CURRENT that was moved here.
#[test]
fn by_the_current_of_another_store_nothing_is_repaired() {
    for manifest in [true, false] {
        let ((_, ours), (_, theirs)) = (killed_with(b"ours"), killed_with(b"theirs"));
        let own = std::fs::read(ours.path().join("CURRENT")).unwrap();
        std::fs::copy(theirs.path().join("CURRENT"), ours.path().join("CURRENT")).unwrap();
        if !manifest {
            let is_manifest = |name: &std::ffi::OsString| name.to_string_lossy().ends_with(".manifest");
            let manifest = files(ours.path()).into_keys().find(is_manifest).unwrap();
            std::fs::remove_file(ours.path().join(manifest)).unwrap();
        }
        let before = files(ours.path());
        let error = mend(ours.path()).unwrap_err().to_string();
        assert!(error.contains("is of another store"), "{error}");
        assert!(files(ours.path()) == before, "something was changed");
        std::fs::write(ours.path().join("CURRENT"), own).unwrap();
        assert_eq!(mend(ours.path()).unwrap().problems.is_empty(), manifest);
        let store = open(directory(ours.path())).unwrap();
        assert_eq!(store.get(b"more").unwrap().as_deref(), Some(&b"ours"[..]));
    }
}

/// Logs that tables of a copy point into are the other store's. Where no manifest tells, they are not replayed, stay,
/// and keep nobody from repairing the rest.
#[test]
fn logs_that_came_with_a_copy_do_not_keep_it_from_being_repaired() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = crate::pointing::pointing(dir.path());
    let media: Arc<dyn Media> = directory(copy.path());
    store.checkpoint(&media).unwrap();
    let copied = open(media).unwrap();
    copied.put(b"own", b"v").unwrap();
    let killed = tempfile::tempdir().unwrap();
    let is_lost = |name: &std::ffi::OsString| {
        Path::new(name).extension().is_some_and(|e| e == "manifest" || e == "table")
    };
    for (name, bytes) in files(copy.path()).into_iter().filter(|(name, _)| !is_lost(name)) {
        std::fs::write(killed.path().join(name), bytes).unwrap();
    }
    let report = mend(killed.path()).unwrap();
    let foreign = report.problems.iter().filter(|problem| problem.contains("is of another store")).count();
    assert_eq!((foreign, report.batches), (3, 1), "{report:?}");
    assert_eq!(crate::pointing::logs(killed.path()).len(), 4, "three, and the one that it goes on with");
    let store = open(directory(killed.path())).unwrap();
    assert_eq!(store.get(b"own").unwrap().as_deref(), Some(&b"v"[..]));
}

/// A directory that not even root may write to.
struct ReadOnlyMount(tempfile::TempDir);

impl ReadOnlyMount {
    fn of(dir: &Path) -> Option<ReadOnlyMount> {
        let at = tempfile::tempdir().unwrap();
        let mount = |args: &[&std::ffi::OsStr]| {
            let done = Command::new("mount").args(args).arg(at.path()).output();
            done.is_ok_and(|done| done.status.success())
        };
        if !mount(&["--bind".as_ref(), dir.as_ref()]) {
            skipped("nothing can be mounted here");
            return None;
        }
        let mounted = ReadOnlyMount(at);
        let made = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(mounted.0.path()).status();
        made.is_ok_and(|made| made.success()).then_some(mounted)
    }
}

impl Drop for ReadOnlyMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn on_a_read_only_file_system_a_store_is_read_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    store.put(b"k", b"v").unwrap();
    store.close().unwrap();
    let before = files(dir.path());
    let Some(mount) = ReadOnlyMount::of(dir.path()) else { return };
    let path = mount.0.path();
    let writes = Directory::open(path, DirectoryOptions::default()).and_then(|media| open(media)).map(drop);
    let error = writes.unwrap_err();
    assert!(error.kind() == Kind::Io && error.to_string().contains("Read-only file system"), "{error}");
    let media = Directory::open_read_only(path, DirectoryOptions::default()).unwrap();
    let store = Store::open(media, RealEnv::new(), Options { read_only: true, ..small() }).unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    assert!(store.verify().unwrap().problems.is_empty());
    drop(store);
    assert!(files(dir.path()) == before);
}
