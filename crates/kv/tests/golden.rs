//! Stores of every format version, of both engines, kept as fixtures: in a directory, on a flash image, and on a device
//! cut into zones.
//! They open, verify and read back for ever.
//!
//! `VELLUM_GOLDEN=write cargo test -p vellum-kv golden` makes the fixtures anew. That is right only before a version is
//! released; after that, a new version gets fixtures of its own.

use crate::harmed::copy_of_open;
use crate::harness::{Model, assert_same, forward, packed};
use crate::log::harness as log;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_base::{Env, Geometry, RealEnv, Result};
use vellum_kv::{Bounds, Directory, DirectoryOptions, Durability, FlashMedia, Map, Media, Store, ZoneMedia};
use vellum_media::image::{Image, ImageParams};
use vellum_media::zones::RawDevice;

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    dies_per_channel: 1,
    blocks_per_die: 40,
    pages_per_block: 18,
    page_bytes: 4096,
    oob_bytes: 0,
};
const ZONE_BYTES: u64 = 96 << 10;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.packed"))
}

/// Version 3 is what is written: since version 2 logs and manifests bear the number of their store
/// (docs/formats/kv-log.md), since version 3 tables and segments have sums (docs/formats/kv-table.md, kv-segment.md).
fn writes(name: &str) -> bool {
    name.ends_with("-v3") && std::env::var("VELLUM_GOLDEN").is_ok_and(|value| value == "write")
}

fn in_directory(dir: &Path) -> Result<Arc<dyn Media>> {
    Ok(Directory::open(&dir.join("store"), DirectoryOptions { table_bytes: 64 << 10 })?)
}

fn on_flash(dir: &Path) -> Result<Arc<dyn Media>> {
    let path = dir.join("image");
    let is_new = !path.exists();
    let flash = match is_new {
        true => Image::create(&path, &ImageParams { nvram_bytes: 512 << 10, ..ImageParams::new(GEOMETRY) })?,
        false => Image::open(&path, false)?,
    };
    if is_new {
        FlashMedia::format(&flash)?;
    }
    Ok(FlashMedia::open(Arc::new(flash), RealEnv::new())?)
}

fn on_zones(dir: &Path) -> Result<Arc<dyn Media>> {
    let (path, is_new) = (dir.join("device"), !dir.join("device").exists());
    let directory = Directory::open(&dir.join("store"), DirectoryOptions::default())?;
    if is_new {
        std::fs::File::create(&path).and_then(|file| file.set_len(30 * ZONE_BYTES)).unwrap();
        ZoneMedia::format(&directory, &RawDevice::open(&path, ZONE_BYTES)?, "device", [7; 16], false)?;
    }
    Ok(ZoneMedia::open(directory, Arc::new(RawDevice::open(&path, ZONE_BYTES)?))?)
}

fn key(n: u32) -> Vec<u8> {
    format!("key{n:04}").into_bytes()
}

/// The default keyspace, and `sheets`.
fn expected() -> (Model, Model) {
    let value =
        |round: u8, n: u32| [&[round; 8][..], &[n as u8; 30], b"a value that may be compressed"].concat();
    let mut model = Model::new();
    for round in 0..3u8 {
        (0..600).filter(|n| n % 3 >= round.into()).for_each(|n| drop(model.insert(key(n), value(round, n))));
    }
    (0..600).step_by(5).for_each(|n| drop(model.remove(&key(n))));
    model.insert(Vec::new(), b"of the empty key".to_vec());
    model.insert(b"large".to_vec(), (0..7000u32).map(|n| ((n * n) >> 3) as u8).collect());
    let sheets = (0..90).map(|n| (key(n), n.to_be_bytes().to_vec())).collect();
    (model, sheets)
}

/// Two levels and more, every codec, an ingest, a keyspace that was dropped, deletes, and a log.
fn fill(store: &Store) {
    let (model, sheets) = expected();
    let (space, gone) = (store.create_keyspace("sheets").unwrap(), store.create_keyspace("gone").unwrap());
    (0..50).for_each(|n| gone.put(&key(n), b"nobody sees it").unwrap());
    (0..600).for_each(|n| store.put(&key(n), b"hidden").unwrap());
    store.compact().unwrap();
    let mut ingest = space.ingest().unwrap();
    sheets.iter().for_each(|(key, value)| ingest.put(key, value).unwrap());
    ingest.finish().unwrap();
    let mut left = model.iter();
    left.by_ref().take(300).for_each(|(key, value)| store.put(key, value).unwrap());
    store.flush().unwrap();
    (0..600).step_by(5).for_each(|n| store.delete(&key(n)).unwrap());
    store.drop_keyspace("gone").unwrap();
    store.flush().unwrap();
    left.for_each(|(key, value)| store.put(key, value).unwrap());
    store.sync().unwrap();
}

/// Names, lengths and bytes of all files below, compressed.
fn pack(dir: &Path) -> Vec<u8> {
    let mut out = Vec::new();
    for name in files_below(dir, Path::new("")) {
        let bytes = std::fs::read(dir.join(&name)).unwrap();
        out.extend_from_slice(&(name.len() as u32).to_le_bytes());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        out.extend_from_slice(&bytes);
    }
    zstd::bulk::compress(&out, 19).unwrap()
}

fn files_below(root: &Path, at: &Path) -> Vec<String> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(root.join(at)).unwrap().map(|entry| at.join(entry.unwrap().file_name())).collect();
    names.sort();
    let below = |name: PathBuf| match root.join(&name).is_dir() {
        true => files_below(root, &name),
        false => vec![name.to_str().unwrap().to_string()],
    };
    names.into_iter().flat_map(below).collect()
}

fn unpack(packed: &[u8], dir: &Path) {
    let all = zstd::bulk::decompress(packed, 64 << 20).unwrap();
    let mut rest = &all[..];
    let mut take = |len: usize| {
        let (head, tail) = rest.split_at(len);
        rest = tail;
        (head, tail.is_empty())
    };
    loop {
        let name_bytes = u32::from_le_bytes(take(4).0.try_into().unwrap());
        let name = std::str::from_utf8(take(name_bytes as usize).0).unwrap();
        let length = u64::from_le_bytes(take(8).0.try_into().unwrap());
        let (bytes, is_last) = take(length as usize);
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        if is_last {
            return;
        }
    }
}

fn is_whole(name: &str, media: fn(&Path) -> Result<Arc<dyn Media>>) {
    let open = |dir: &Path| {
        let env: Arc<dyn Env> = RealEnv::new();
        media(dir).and_then(|media| Store::open(media, env, packed()))
    };
    if writes(name) {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path()).unwrap();
        fill(&store);
        store.close().unwrap();
        std::fs::write(fixture(name), pack(dir.path())).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let fixture = std::fs::read(fixture(name)).unwrap();
    assert!(fixture.len() < 40 << 10, "{name}: {} bytes", fixture.len());
    unpack(&fixture, dir.path());
    if name.ends_with("-v3") && name.starts_with("zones") {
        // Since version 3 a directory knows itself from a copy.
        let store = Directory::open(&dir.path().join("store"), DirectoryOptions::default()).unwrap();
        let device = RawDevice::open(&dir.path().join("device"), ZONE_BYTES).unwrap();
        ZoneMedia::move_to(&store, &device, "device").unwrap();
    }
    let (mut model, sheets) = expected();
    for round in 0..2 {
        let context = format!("{name}, round {round}");
        let store = open(dir.path()).unwrap_or_else(|e| panic!("{context}: {e}"));
        assert_eq!(store.keyspaces(), ["default", "sheets"], "{context}");
        assert_same(&store, &model, &context);
        let space = store.keyspace("sheets").unwrap();
        assert_eq!(forward(space.iter(Bounds::all()).unwrap()).unwrap(), sheets, "{context}");
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}");
        assert!(store.stat().lifetime.user_bytes() > 50_000, "{context}");
        // It is not only read.
        let mut batch = vellum_kv::Batch::new();
        batch.put(b"round", &[round; 10]).unwrap();
        store.write(&batch, Durability::Sync).unwrap();
        model.insert(b"round".to_vec(), vec![round; 10]);
        store.compact().unwrap();
        drop(space);
        store.close().unwrap();
    }
}

/// Keys of which a manifest in NVRAM has only the beginnings, since CURRENT has version 6.
#[test]
fn a_store_of_long_keys_on_flash_opens_and_reads_back() {
    let (name, dir) = ("flash-long-v3", tempfile::tempdir().unwrap());
    let open = |dir: &Path| Store::open(on_flash(dir).unwrap(), RealEnv::new(), packed()).unwrap();
    let long = |n: u32| [&[b'l'; 200][..], &key(n)].concat();
    let mut model: Model = (0..500).map(|n| (long(n), n.to_be_bytes().repeat(50))).collect();
    if writes(name) {
        let store = open(dir.path());
        let mut all = model.iter();
        all.by_ref().take(400).for_each(|(key, value)| store.put(key, value).unwrap());
        store.compact().unwrap();
        all.for_each(|(key, value)| store.put(key, value).unwrap());
        store.flush().unwrap();
        store.close().unwrap();
        std::fs::write(fixture(name), pack(dir.path())).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    unpack(&std::fs::read(fixture(name)).unwrap(), dir.path());
    for round in 0..2 {
        let store = open(dir.path());
        assert_same(&store, &model, name);
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        store.put(&long(round), b"anew").unwrap();
        model.insert(long(round), b"anew".to_vec());
        store.compact().unwrap();
        store.close().unwrap();
    }
}

/// Older versions, which a manifest counts since CURRENT has version 7.
#[test]
fn a_store_that_kept_versions_for_a_snapshot_opens_and_loses_them() {
    let (name, dir) = ("directory-older-v3", tempfile::tempdir().unwrap());
    let open = |dir: &Path| Store::open(in_directory(dir).unwrap(), RealEnv::new(), packed()).unwrap();
    let held = |store: &Store| {
        let levels = store.stat().levels;
        levels.iter().fold((0, 0), |sum, level| (sum.0 + level.entries, sum.1 + level.older))
    };
    let model: Model = (0..300).map(|n| (key(n), n.to_be_bytes().repeat(20))).collect();
    if writes(name) {
        let store = open(dir.path());
        model.keys().take(100).for_each(|key| store.put(key, b"of the snapshot").unwrap());
        let snapshot = store.snapshot();
        model.iter().for_each(|(key, value)| store.put(key, value).unwrap());
        store.compact().unwrap();
        drop(snapshot);
        store.close().unwrap();
        std::fs::write(fixture(name), pack(dir.path())).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    unpack(&std::fs::read(fixture(name)).unwrap(), dir.path());
    for older in [100, 0] {
        let store = open(dir.path());
        assert_eq!(held(&store), (300 + older, older));
        assert_same(&store, &model, name);
        store.compact().unwrap();
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
        store.close().unwrap();
    }
}

/// Of key `n`, in this round.
fn logged(round: u8, n: u32) -> Vec<u8> {
    [&[round; 100][..], &n.to_be_bytes().repeat(40 + n as usize % 30)].concat()
}

/// Segments that were collected, with bubbles before what stayed, and after that deletes and a log.
fn fill_log(store: &vellum_kv::log::Store) -> Model {
    let mut model = Model::new();
    let mut put = |round, n| {
        store.put(&key(n), &logged(round, n)).unwrap();
        model.insert(key(n), logged(round, n));
    };
    (0..1000).for_each(|n| put(0, n));
    (0..1000).filter(|n| n % 100 < 20).for_each(|n| put(1, n));
    store.compact().unwrap();
    (0..40).for_each(|n| put(2, n));
    for n in (0..1000).step_by(50) {
        store.delete(&key(n)).unwrap();
        model.remove(&key(n));
    }
    store.sync().unwrap();
    model
}

fn log_is_whole(name: &str, media: fn(&Path) -> Result<Arc<dyn Media>>) {
    let open = |dir: &Path| media(dir).and_then(|media| log::open_with(media, log::of_seed(1)));
    let made = tempfile::tempdir().unwrap();
    let store = open(made.path()).unwrap();
    let mut model = fill_log(&store);
    store.close().unwrap();
    if writes(name) {
        std::fs::write(fixture(name), pack(made.path())).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    unpack(&std::fs::read(fixture(name)).unwrap(), dir.path());
    for round in 0..2u8 {
        let context = format!("{name}, round {round}");
        let store = open(dir.path()).unwrap_or_else(|e| panic!("{context}: {e}"));
        log::assert_same(&store, &model, &context);
        assert!(round > 0 || store.stat().bubble_bytes > 0 && store.stat().delete_bytes > 0, "{context}");
        assert_eq!(store.verify().unwrap().problems, Vec::<String>::new(), "{context}");
        store.put(b"round", &[round; 10]).unwrap();
        model.insert(b"round".to_vec(), vec![round; 10]);
        store.compact().unwrap();
        log::assert_same(&store, &model, &context);
        store.close().unwrap();
    }
}

/// The store that is in the directory now, as if the process had been killed.
fn killed(dir: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    std::fs::rename(copy_of_open(&dir.join("store")).keep(), copy.path().join("store")).unwrap();
    copy
}

/// A store of version 1 is one of the newest from its first opening on, before anything is written to its log.
fn is_upgraded<S: Map>(name: &str, open: impl Fn(&Path) -> S) {
    let dir = tempfile::tempdir().unwrap();
    unpack(&std::fs::read(fixture(name)).unwrap(), dir.path());
    let at = |dir: &Path, file: &str, at: usize| std::fs::read(dir.join("store").join(file)).unwrap()[at];
    assert_eq!(at(dir.path(), "CURRENT", 8), 1);
    let (mut lives, mut values) = (vec![dir], Vec::new());
    for life in 0..3u8 {
        let dir = lives.last().unwrap().path();
        let store = open(dir);
        assert_eq!(at(dir, "CURRENT", 8), 7);
        values.iter().for_each(|value: &[u8; 1]| assert_eq!(store.get(value).unwrap().unwrap(), value));
        store.put(&[life], &[life]).unwrap();
        values.push([life]);
        let copy = killed(dir);
        let names = files_below(&copy.path().join("store"), Path::new(""));
        let newest = names.iter().rfind(|name| name.ends_with(".log")).unwrap();
        assert_eq!(at(copy.path(), newest, 16), 2, "version of {newest}");
        lives.push(copy);
    }
}

#[test]
fn stores_of_version_1_are_upgraded_when_they_are_opened() {
    is_upgraded("directory-v1", |dir| {
        Store::open(in_directory(dir).unwrap(), RealEnv::new(), packed()).unwrap()
    });
    is_upgraded("log-directory-v1", |dir| {
        log::open_with(in_directory(dir).unwrap(), log::of_seed(1)).unwrap()
    });
}

#[test]
fn log_stores_in_directories() {
    log_is_whole("log-directory-v1", in_directory);
    log_is_whole("log-directory-v2", in_directory);
    log_is_whole("log-directory-v3", in_directory);
}

#[test]
fn log_stores_on_flash() {
    log_is_whole("log-flash-v1", on_flash);
    log_is_whole("log-flash-v2", on_flash);
    log_is_whole("log-flash-v3", on_flash);
}

#[test]
fn directories() {
    is_whole("directory-v1", in_directory);
    is_whole("directory-v2", in_directory);
    is_whole("directory-v3", in_directory);
}

#[test]
fn flash_images() {
    is_whole("flash-v1", on_flash);
    is_whole("flash-v2", on_flash);
    is_whole("flash-v3", on_flash);
}

#[test]
fn devices_of_zones() {
    is_whole("zones-v1", on_zones);
    is_whole("zones-v2", on_zones);
    is_whole("zones-v3", on_zones);
    // Since then heads say that an end follows.
    is_whole("zones-ends-v3", on_zones);
}
