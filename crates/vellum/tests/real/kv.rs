//! Key-value stores on the kernel's block devices.

use super::bridge::{Loop, Way, attach};
use super::host::{can_mount, kernel_has, make_fs, sh, try_sh};
use crate::support::Home;
use std::fs;
use std::path::{Path, PathBuf};
use vellum::kv::Map;
use vellum::kv::{Bounds, Options, Reuse, Store};

#[test]
fn a_store_on_a_block_device_that_nobody_else_may_use() {
    if !can_mount(&["losetup", "mount", "umount", "mkfs.ext4"]) {
        return;
    }
    let home = Home::new();
    fs::File::create(home.path("file")).unwrap().set_len(64 << 20).unwrap();
    let device = Loop(attach(&home.path("file"), &Way { sector_bytes: 512, ..Way::default() }));
    sh(&format!("mkfs.ext4 -q {}", device.0));
    home.run(&format!("kv open s --device {} --zone 4MiB", device.0)).failed(2, "is not blank");
    fs::create_dir(home.path("mnt")).unwrap();
    sh(&format!("mount {} {}", device.0, home.path("mnt").display()));
    home.run(&format!("kv open s --device {} --zone 4MiB --force", device.0)).failed(5, "in use");
    sh(&format!("umount {}", home.path("mnt").display()));
    home.ok(&format!("kv open s --device {} --zone 4MiB --force", device.0));
    let lines: String =
        (0..30_000).map(|n| format!("key{n:06}\tvalue of {n}, and some more of it\n")).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    home.ok("kv load s r.tsv");
    home.ok("kv compact s");
    assert_eq!(home.ok("kv dump s"), lines);
}

/// Fills a store with runs of keys, and merges it; returns what compaction kept without writing it.
fn clustered(path: &Path, reuse: Reuse) -> u64 {
    let options = Options {
        reuse: reuse.into(),
        memtable_bytes: 1 << 20,
        level1_bytes: 4 << 20,
        level0_compact: 4,
        ..Options::default()
    };
    let store = Store::open(path, options).unwrap();
    for run in 0..2000u32 {
        let start = run * 7919 % 1000 * 20;
        for key in start..start + 20 {
            store.put(&key.to_be_bytes(), &noise(key ^ run << 16)).unwrap();
        }
    }
    store.compact().unwrap();
    let kept = store.stat().since_opened.reuse().relinked_bytes;
    store.close().unwrap();
    kept
}

/// Digest of all keys and values, in order, after reopening.
fn digest(path: &Path) -> (u64, u32) {
    let options = Options { read_only: true, ..Options::default() };
    let store = Store::open(path, options).unwrap();
    let (mut iter, mut entries, mut all) = (store.iter(Bounds::all()).unwrap(), 0, Vec::new());
    iter.seek_to_first().unwrap();
    while iter.is_valid() {
        entries += 1;
        all.extend_from_slice(iter.key());
        all.extend_from_slice(iter.value());
        iter.next().unwrap();
    }
    (entries, vellum::codes::crc32c(&all))
}

/// An incompressible KiB.
fn noise(seed: u32) -> Vec<u8> {
    let mut state = seed as u64 | 1 << 40;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..1024).map(|_| byte()).collect()
}

fn leaves_are_cloned_on(kind: &str, mkfs: &str) {
    if !can_mount(&["losetup", "mount", "umount", mkfs]) || !kernel_has(kind) {
        return;
    }
    let home = Home::new();
    fs::File::create(home.path("file")).unwrap().set_len(1 << 30).unwrap();
    let device = Loop(attach(&home.path("file"), &Way { sector_bytes: 512, ..Way::default() }));
    make_fs(&format!("{mkfs} -q {}", device.0));
    fs::create_dir(home.path("mnt")).unwrap();
    let mount = format!("mount {} {}", device.0, home.path("mnt").display());
    let umount = format!("umount {}", home.path("mnt").display());
    let stat = format!("/sys/block/{}/stat", device.0.trim_start_matches("/dev/"));
    let sectors =
        || -> u64 { fs::read_to_string(&stat).unwrap().split_whitespace().nth(6).unwrap().parse().unwrap() };
    let written = |reuse, name: &str| {
        sh(&mount);
        let before = sectors();
        let relinked = clustered(&home.path("mnt").join(name), reuse);
        sh(&umount);
        let written = sectors() - before;
        sh(&mount);
        let digest = digest(&home.path("mnt").join(name));
        home.ok(&format!("kv verify mnt/{name}"));
        sh(&umount);
        (written, relinked, digest)
    };
    let (off, none, plain) = written(Reuse::Off, "off");
    let (on, cloned, other) = written(Reuse::Relink, "on");
    assert!(plain == other, "{kind}: the stores differ");
    assert!(none == 0 && cloned > 10 << 20, "{kind}: {cloned} bytes cloned");
    assert!(on * 10 < off * 9, "{kind}: {on} sectors written where {off} are without clones");
}

#[test]
fn leaves_are_cloned_on_xfs() {
    leaves_are_cloned_on("xfs", "mkfs.xfs");
}

#[test]
fn leaves_are_cloned_on_btrfs() {
    leaves_are_cloned_on("btrfs", "mkfs.btrfs");
}

/// A file system in a file, mounted at `mnt`.
struct Mounted(PathBuf, #[expect(dead_code, reason = "it goes after the mount")] Loop);

impl Mounted {
    fn new(home: &Home, mkfs: &str, bytes: u64) -> Mounted {
        fs::File::create(home.path("file")).unwrap().set_len(bytes).unwrap();
        let device = Loop(attach(&home.path("file"), &Way { sector_bytes: 512, ..Way::default() }));
        make_fs(&format!("{mkfs} {}", device.0));
        fs::create_dir(home.path("mnt")).unwrap();
        sh(&format!("mount {} {}", device.0, home.path("mnt").display()));
        Mounted(home.path("mnt"), device)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        try_sh(&format!("umount -l {}", self.0.display()));
    }
}

/// That a whole file can be cloned does not imply that a part can, if blocks are larger than the part.
#[test]
fn where_blocks_are_larger_than_leaves_only_leaves_of_whole_blocks_are_cloned() {
    if !can_mount(&["losetup", "mount", "umount", "mkfs.xfs"]) || !kernel_has("xfs") {
        return;
    }
    let home = Home::new();
    fs::File::create(home.path("tried")).unwrap().set_len(400 << 20).unwrap();
    let (mounts, _) = try_sh(&format!(
        "cd {0} && mkfs.xfs -q -b size=16384 tried && mkdir at && mount -o loop tried at && umount at",
        home.dir().display()
    ));
    if !mounts {
        return super::host::skipped("this kernel has no XFS with blocks of 16 KiB");
    }
    let _mounted = Mounted::new(&home, "mkfs.xfs -q -b size=16384", 400 << 20);
    home.run("kv put mnt/s a 1 --reuse relink").failed(3, "in two tables at once");
    assert!(!home.path("mnt/s").exists());
    assert_eq!(home.json("kv load mnt/s /dev/null --reuse auto")["reuse_mode"], "off");

    // Leaves of whole blocks can be cloned.
    let value = |n: u32, turn: u32| -> String {
        let word = |i: u32| format!("{:08x}", (n * 125 + i).wrapping_mul(2_654_435_761).rotate_left(turn));
        (0..125).map(word).collect()
    };
    let lines = |keys: &mut dyn Iterator<Item = u32>, turn: u32| -> String {
        keys.map(|n| format!("key{n:06}\t{}\n", value(n, turn))).collect()
    };
    fs::write(home.path("all.tsv"), lines(&mut (0..20_000), 0)).unwrap();
    fs::write(home.path("some.tsv"), lines(&mut (0..20_000).step_by(2000), 7)).unwrap();
    let reusing = "--unit 16KiB --reuse relink --island-min 0";
    for step in ["load mnt/t all.tsv", "compact mnt/t", "load mnt/t some.tsv", "compact mnt/t"] {
        home.ok(&format!("kv {step} {reusing}"));
    }
    let stat = home.json("kv stat mnt/t");
    assert!(stat["lifetime"]["reuse"]["reflinked_bytes"].as_u64().unwrap() > 4 << 20, "{stat}");
    home.ok("kv verify mnt/t");
    assert_eq!(home.ok("kv get mnt/t key002000").trim(), value(2000, 7));
    home.run("kv put mnt/t a 1 --unit 5KiB").failed(2, "a power of two from 4096 to 65536");
}

/// Here new files cannot be cloned from old ones: the trial does what will be done.
#[test]
fn reflinks_are_not_counted_on_where_files_came_to_be_written_in_place() {
    if !can_mount(&["losetup", "mount", "umount", "mkfs.btrfs", "chattr"]) || !kernel_has("btrfs") {
        return;
    }
    let home = Home::new();
    let _mounted = Mounted::new(&home, "mkfs.btrfs -q", 400 << 20);
    let lines: String = (0..5000).map(|n| format!("key{n:05}\t{}\n", "v".repeat(100))).collect();
    fs::write(home.path("r.tsv"), lines).unwrap();
    assert_eq!(home.json("kv load mnt/s r.tsv --reuse relink")["sharing"], "reflink");
    sh(&format!("chattr +C {}", home.path("mnt/s").display()));
    home.run("kv put mnt/s a 1 --reuse relink").failed(3, "in two tables at once");
    assert_eq!(home.json("kv load mnt/s r.tsv --reuse auto")["reuse_mode"], "off");
}

/// Space limits the length of values of a log store, with a message; a full file system allows no trials.
#[test]
fn a_small_file_system_takes_small_values() {
    if !can_mount(&["losetup", "mount", "umount", "mkfs.ext4"]) {
        return;
    }
    let home = Home::new();
    let _mounted = Mounted::new(&home, "mkfs.ext4 -q", 80 << 20);
    fs::write(home.path("big"), vec![7; 1 << 20]).unwrap();
    let said = home.run("kv put mnt/new k --value-from big --engine log");
    said.failed(3, "with as little room as there is here");
    assert!(!home.path("mnt/new").exists());
    home.ok("kv put mnt/s a 1 --engine log");
    home.run("kv put mnt/s k --value-from big").failed(3, "with as little room as there is here");
    home.ok("kv put mnt/ordered k --value-from big");
}

/// A copy for which there is no space leaves nothing, and the advice is for its directory.
#[test]
fn a_copy_without_room_leaves_nothing() {
    if !can_mount(&["losetup", "mount", "umount", "mkfs.ext4"]) {
        return;
    }
    let home = Home::new();
    let _mounted = Mounted::new(&home, "mkfs.ext4 -q", 24 << 20);
    let mut records = fs::File::create(home.path("r.tsv")).unwrap();
    for n in 0..40_000u32 {
        let value: String = noise(n).iter().map(|byte| char::from(b'a' + byte % 16)).collect();
        std::io::Write::write_all(&mut records, format!("{n:06}\t{value}\n").as_bytes()).unwrap();
    }
    for engine in ["lsm", "log"] {
        home.ok(&format!("kv load {engine} r.tsv --engine {engine}"));
        for line in [format!("debubble {engine} mnt/out"), format!("kv checkpoint {engine} mnt/out")] {
            let said = home.run(&line);
            let fits = said.err.contains("make room where mnt/out is");
            assert!(said.code == 3 && fits, "{line}: {} {}", said.code, said.err);
            assert!(!home.path("mnt/out").exists(), "{line}");
        }
    }
}
