//! Key-value stores on the kernel's block devices.

use super::bridge::{Way, attach};
use super::host::{can_mount, kernel_has, sh, try_sh};
use crate::support::Home;
use std::fs;
use std::path::Path;
use vellum::kv::Map;
use vellum::kv::{Bounds, Options, Reuse, Store};

/// A loop device over a file.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        try_sh(&format!("losetup -d {}", self.0));
    }
}

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

/// Fills a store with keys that come in runs, and merges it; what compaction kept and did not write.
fn clustered(path: &Path, reuse: Reuse) -> u64 {
    let options = Options {
        reuse,
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

/// Of all keys and values, in order, read anew.
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

/// A KiB that does not compress.
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
    sh(&format!("{mkfs} -q {}", device.0));
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
