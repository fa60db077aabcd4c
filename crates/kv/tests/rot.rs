//! Rot: each sector of a small store flipped in turn gives the right answer or a named error, never wrong data.

use crate::harness::{
    Model, backward, directory, flash, flash_with, forward, open, open_flash, packed, small,
};
use std::sync::Arc;
use vellum_base::{BlockAddr, Flash, Kind, RealEnv, Result};
use vellum_kv::{Batch, Bounds, Durability, Map, Options, Store};
use vellum_media::nand::NandParams;

pub(crate) fn pair(i: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("key{:04}", i * 7 % 500).into_bytes(), vec![i as u8; 40 + i as usize % 300])
}

/// A store with tables on two levels and a log, closed.
pub(crate) fn fill(store: Store) -> Model {
    let mut model = Model::new();
    for i in 0..900u32 {
        let (key, value) = pair(i);
        let mut batch = Batch::new();
        batch.put(&key, &value).unwrap();
        store.write(&batch, Durability::Buffered).unwrap();
        model.insert(key, value);
        if i % 9 == 0 {
            let gone = format!("key{:04}", i % 500).into_bytes();
            store.delete(&gone).unwrap();
            model.remove(&gone);
        }
        match i {
            500 => store.compact().unwrap(),
            750 => store.flush().unwrap(),
            _ => {}
        }
    }
    let stat = store.stat();
    assert!(stat.levels[0].tables > 0 && stat.levels[1].tables > 0 && stat.memtable_bytes > 0, "{stat:?}");
    store.close().unwrap();
    model
}

/// Reads everything in every way; what is read must be right.
pub(crate) fn read(store: &Store, model: &Model, context: &str) -> Result<()> {
    assert!(forward(store.iter(Bounds::all())?)? == *model, "{context}: wrong data going forward");
    assert!(backward(store.iter(Bounds::all())?)? == *model, "{context}: wrong data going backward");
    for i in 0..500 {
        let key = format!("key{i:04}").into_bytes();
        assert_eq!(store.get(&key)?, model.get(&key).cloned(), "{context}: {key:?}");
    }
    Ok(())
}

/// Opens and reads a store in which something was flipped. True if it noticed.
pub(crate) fn noticed(open: impl FnOnce() -> Result<Store>, model: &Model, context: &str) -> bool {
    let opened = open();
    if let Ok(store) = &opened {
        let wrong = read(store, model, context).is_err();
        let verified = store.verify().unwrap_or_else(|e| panic!("{context}: {e}"));
        assert!(!wrong || !verified.problems.is_empty(), "{context}: verify saw nothing");
    }
    match opened.and_then(|store| read(&store, model, context)) {
        Ok(()) => false,
        Err(e) => {
            // Where the magic of the NVRAM is gone, no store is to be seen.
            let named = e.kind() == Kind::Corrupt || e.to_string().contains("format it first");
            assert!(named, "{context}: {e}");
            true
        }
    }
}

#[test]
fn each_page_of_flash_flipped_in_turn() {
    let whole = flash(3);
    let model = fill(open_flash(&whole, RealEnv::new()).unwrap());
    let (mut seen, mut pages) = (0, 0);
    for block in 0..whole.geometry().blocks() {
        for page in 0..whole.report(BlockAddr(block)).pages_written {
            for bit in [5, 8 * 700 + 3, 8 * 4000] {
                let fork = Arc::new(whole.fork().unwrap());
                let at = BlockAddr(block).page(page);
                fork.flip_bit(at, bit).unwrap();
                let context = format!("bit {bit} of {at}");
                seen += noticed(|| open_flash(&fork, RealEnv::new()), &model, &context) as u32;
                pages += 1;
            }
        }
    }
    assert!(pages > 150 && seen > pages / 4, "{seen} of {pages} noticed");
}

#[test]
fn each_sector_of_nvram_flipped_in_turn() {
    let whole = flash_with(NandParams { nvram_bytes: 320 << 10, ..NandParams::default() });
    let model = fill(open_flash(&whole, RealEnv::new()).unwrap());
    let (mut seen, bytes) = (0, whole.nvram().unwrap().bytes());
    for sector in 0..bytes / 512 {
        for at in [0, 9, 300] {
            let fork = Arc::new(whole.fork().unwrap());
            let mut byte = [0];
            fork.nvram().unwrap().read(sector * 512 + at, &mut byte).unwrap();
            fork.nvram().unwrap().write(sector * 512 + at, &[byte[0] ^ 0x10]).unwrap();
            let context = format!("byte {at} of sector {sector} of the NVRAM");
            seen += noticed(|| open_flash(&fork, RealEnv::new()), &model, &context) as u32;
        }
    }
    assert!(seen > 20, "only {seen} noticed");
}

/// What says that a log or a manifest is in a slot is there twice: what was synced there is not lost with a bit.
#[test]
fn each_byte_of_the_heads_of_slots_in_nvram_flipped_in_turn() {
    let whole = flash_with(NandParams { nvram_bytes: 320 << 10, ..NandParams::default() });
    let store = open_flash(&whole, RealEnv::new()).unwrap();
    (0..50u8).for_each(|n| store.put(&[n], &[n; 30]).unwrap());
    store.sync().unwrap();
    let killed = whole.fork().unwrap();
    let mut bytes = vec![0; killed.nvram().unwrap().bytes()];
    killed.nvram().unwrap().read(0, &mut bytes).unwrap();
    let heads = (0..bytes.len()).step_by(64).filter(|at| &bytes[*at..at + 4] == b"VKAR");
    let mut slots = 0;
    for at in heads.inspect(|_| slots += 1).flat_map(|at| at..at + 64) {
        let fork = Arc::new(killed.fork().unwrap());
        fork.nvram().unwrap().write(at, &[bytes[at] ^ 4]).unwrap();
        let found = forward(open_flash(&fork, RealEnv::new()).unwrap().iter(Bounds::all()).unwrap()).unwrap();
        assert_eq!(found.len(), 50, "byte {at}");
    }
    assert_eq!(slots, 2, "a manifest and a log");
}

#[test]
fn each_sector_of_each_file_flipped_in_turn() {
    assert!(flip_each_sector(small()) > 100);
    assert!(flip_each_sector(packed()) > 30);
    assert!(flip_each_sector(Options { map_files: false, ..small() }) > 100);
}

/// Where in a sector, and which bit; each of a run of sectors another one.
const PLACES: [(usize, u32); 5] = [(37, 0), (0, 7), (511, 3), (4, 5), (260, 1)];

/// Small files, which decide about the rest: every byte of them.
#[test]
fn each_byte_of_current_and_manifest_flipped_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(directory(dir.path())).unwrap());
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let small = files
        .iter()
        .filter(|file| file.ends_with("CURRENT") || file.extension().is_some_and(|e| e == "manifest"));
    let (mut seen, mut bytes) = (0, 0);
    for file in small {
        let good = std::fs::read(file).unwrap();
        for at in 0..good.len() {
            let copy = tempfile::tempdir().unwrap();
            for other in &files {
                std::fs::copy(other, copy.path().join(other.file_name().unwrap())).unwrap();
            }
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(copy.path().join(file.file_name().unwrap()), &bad).unwrap();
            let context = format!("byte {at} of {}", file.display());
            seen += noticed(|| open(directory(copy.path())), &model, &context) as usize;
            bytes += 1;
        }
    }
    // The last edit may be torn: then it never was, and the store is whole without it.
    assert!(bytes > 150 && seen > bytes / 2, "{seen} of {bytes} noticed");
}

/// How often a flipped bit was noticed.
fn flip_each_sector(options: Options) -> u32 {
    let open = |media| Store::open(media, RealEnv::new(), options.clone());
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(directory(dir.path())).unwrap());
    let mut seen = 0;
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    for file in &files {
        let good = std::fs::read(file).unwrap();
        for (sector, (offset, bit)) in (0..good.len().div_ceil(512)).zip(PLACES.into_iter().cycle()) {
            let mut bad = good.clone();
            let at = (sector * 512 + offset).min(good.len() - 1);
            bad[at] ^= 1 << bit;
            std::fs::write(file, &bad).unwrap();
            let copy = tempfile::tempdir().unwrap();
            for file in &files {
                std::fs::copy(file, copy.path().join(file.file_name().unwrap())).unwrap();
            }
            let context = format!("bit {bit} of byte {at} of {}", file.display());
            seen += noticed(|| open(directory(copy.path())), &model, &context) as u32;
        }
        std::fs::write(file, &good).unwrap();
    }
    seen
}

#[test]
fn each_file_cut_short_or_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(directory(dir.path())).unwrap());
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    let mut seen = 0;
    for file in files.iter().filter(|file| !file.ends_with("LOCK")) {
        let good = std::fs::read(file).unwrap();
        for step in 0..24 {
            let at = good.len() * step / 24;
            let cut = good[..at].to_vec();
            let mut noise = good.clone();
            noise[at..].iter_mut().take(3000).enumerate().for_each(|(i, byte)| *byte = (i * 37 + step) as u8);
            for (what, bad) in [("cut", cut), ("overwritten", noise)] {
                let copy = tempfile::tempdir().unwrap();
                for other in &files {
                    std::fs::copy(other, copy.path().join(other.file_name().unwrap())).unwrap();
                }
                std::fs::write(copy.path().join(file.file_name().unwrap()), &bad).unwrap();
                let context = format!("{} {what} at {at}", file.display());
                seen += noticed(|| open(directory(copy.path())), &model, &context) as u32;
            }
        }
    }
    assert!(seen > 100, "only {seen} noticed");
}

#[test]
fn a_missing_file_is_missed() {
    let dir = tempfile::tempdir().unwrap();
    let model = fill(open(directory(dir.path())).unwrap());
    let files: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    for gone in files.iter().filter(|file| !file.ends_with("LOCK") && !file.ends_with("TAIL")) {
        let copy = tempfile::tempdir().unwrap();
        for file in files.iter().filter(|file| *file != gone) {
            std::fs::copy(file, copy.path().join(file.file_name().unwrap())).unwrap();
        }
        let context = format!("without {}", gone.display());
        assert!(noticed(|| open(directory(copy.path())), &model, &context), "{context}: not noticed");
    }
}

#[test]
fn foreign_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let foreign = ["notes.txt", "000x.table", "table", ".log", "2024.log", "+00003.log", "0000003.table"];
    let huge = ["99999999999999999999999.log", "9999999999999999999.log", "1000000000000000.table"];
    let foreign = foreign.into_iter().chain(huge).collect::<Vec<_>>();
    for name in &foreign {
        std::fs::write(dir.path().join(name), b"mine").unwrap();
    }
    let model = fill(open(directory(dir.path())).unwrap());
    read(&open(directory(dir.path())).unwrap(), &model, "beside foreign files").unwrap();
    for name in foreign {
        assert_eq!(std::fs::read(dir.path().join(name)).unwrap(), b"mine", "{name}");
    }
}

#[test]
fn two_openers_and_no_store_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let first = directory(dir.path());
    let options = vellum_kv::DirectoryOptions::default();
    let second = vellum_kv::Directory::open(dir.path(), options).map(drop).unwrap_err();
    assert_eq!(second.kind(), Kind::Busy);
    let none = Options { create_if_missing: false, ..Options::default() };
    let error = Store::open(first, RealEnv::new(), none).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    let bare = vellum_media::nand::Nand::ram(crate::harness::geometry(), Default::default()).unwrap();
    let error = vellum_kv::FlashMedia::open(Arc::new(bare), RealEnv::new()).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
}
