//! Directories, keys, values and options that are not what they should be: clear errors, and no panic.

use crate::harness::{Model, Op, apply, assert_same, batch_of, directory, open, skipped};
use vellum_base::{Kind, RealEnv};
use vellum_kv::{Directory, DirectoryOptions, Durability, Map, Options, Store};

#[test]
fn a_directory_that_takes_no_writes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    store.put(b"k", b"v").unwrap();
    store.close().unwrap();
    let mode = |mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o555);
    if std::fs::write(dir.path().join("probe"), b"").is_ok() {
        skipped("this user may write everywhere");
        std::fs::remove_file(dir.path().join("probe")).unwrap();
    } else {
        let writes = Directory::open(dir.path(), DirectoryOptions::default()).and_then(|media| open(media));
        assert_eq!(writes.map(drop).unwrap_err().kind(), Kind::Io);
    }
    let media = Directory::open_read_only(dir.path(), DirectoryOptions::default()).unwrap();
    let options = Options { read_only: true, ..Options::default() };
    let store = Store::open(media, RealEnv::new(), options).unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    drop(store);
    mode(0o755);
}

#[test]
fn a_path_that_is_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"mine").unwrap();
    for result in [
        Directory::open(&file, DirectoryOptions::default()),
        Directory::open_read_only(&file, DirectoryOptions::default()).and_then(|media| {
            let options = Options { read_only: true, ..Options::default() };
            Store::open(media.clone(), RealEnv::new(), options).map(|_| media)
        }),
        Directory::open_read_only(&dir.path().join("none"), DirectoryOptions::default()),
    ] {
        let error = result.map(drop).unwrap_err();
        assert!(matches!(error.kind(), Kind::Io), "{error}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), b"mine");
}

#[test]
fn the_longest_keys_go_all_the_way() {
    let dir = tempfile::tempdir().unwrap();
    // They share all but the last bytes, or nothing.
    let key = |n: u32| {
        let mut key = vec![(n % 2 * 9) as u8; vellum_kv::KEY_BYTES_MAX - 4];
        key.extend(n.to_be_bytes());
        key
    };
    let mut model = Model::new();
    let store = open(Directory::open(dir.path(), DirectoryOptions::default()).unwrap()).unwrap();
    for round in 0..4 {
        let puts = (0..24).map(|n| Op::Put(key(n), vec![round as u8; 50 * n as usize]));
        let ops: Vec<Op> = puts.chain([Op::Delete(key(round))]).collect();
        store.write(&batch_of(&ops), Durability::Buffered).unwrap();
        apply(&mut model, &ops);
        assert_same(&store, &model, "in the memtable");
        store.flush().unwrap();
    }
    assert_same(&store, &model, "in level 0");
    store.compact().unwrap();
    assert_same(&store, &model, "merged");
    let ops = [Op::Put(key(99), b"in the log".to_vec())];
    store.write(&batch_of(&ops), Durability::Buffered).unwrap();
    apply(&mut model, &ops);
    drop(store);
    let store = open(Directory::open(dir.path(), DirectoryOptions::default()).unwrap()).unwrap();
    assert_same(&store, &model, "opened again");
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}

#[test]
fn tables_that_are_too_short_for_anything_are_refused_by_name() {
    for table_bytes in [0, 7, 4096] {
        let dir = tempfile::tempdir().unwrap();
        let media = || Directory::open(dir.path(), DirectoryOptions { table_bytes }).unwrap();
        let ordered = open(media()).unwrap_err();
        let of_log = vellum_kv::log::Store::open(media(), RealEnv::new(), Default::default());
        for error in [ordered, of_log.map(drop).unwrap_err()] {
            assert_eq!(error.kind(), Kind::Invalid);
            assert!(error.to_string().contains("8192 are the least"), "{error}");
        }
    }
}

#[test]
fn the_largest_entries_are_taken_to_the_deepest_level_or_refused_by_name() {
    for table_bytes in [256 << 10, DirectoryOptions::default().table_bytes] {
        let dir = tempfile::tempdir().unwrap();
        let media = Directory::open(dir.path(), DirectoryOptions { table_bytes }).unwrap();
        let store = open(media).unwrap();
        let (most, largest) =
            (vellum_kv::KEY_BYTES_MAX.min(table_bytes as usize / 16), store.value_bytes_max());
        for n in 0..3 {
            store.put(&vec![n; most], &vec![n; largest]).unwrap();
            store.put(&vec![n; most - 1], b"short").unwrap();
            store.flush().unwrap();
        }
        let error = store.put(&vec![0; most + 1], b"").unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
        assert!(error.to_string().contains("a key of"), "{error}");
        store.compact().unwrap();
        for n in 0..3 {
            assert_eq!(store.get(&vec![n; most]).unwrap(), Some(vec![n; largest]));
            assert_eq!(store.get(&vec![n; most - 1]).unwrap().as_deref(), Some(&b"short"[..]));
        }
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
    }
}

#[test]
fn options_that_cannot_be_meant_are_refused() {
    let zstd = [vellum_kv::Compression::Zstd(99); _];
    for options in [
        Options { cache_bytes: usize::MAX, ..Options::default() },
        Options { filter_bits_per_key: 1_000_000_000, ..Options::default() },
        Options { compaction_tasks: usize::MAX, ..Options::default() },
        Options { compression: zstd, ..Options::default() },
    ] {
        let dir = tempfile::tempdir().unwrap();
        let error = Store::open(directory(dir.path()), RealEnv::new(), options).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid, "{error}");
    }
}
