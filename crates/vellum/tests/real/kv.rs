//! Key-value stores on the kernel's block devices.

use super::bridge::{Way, attach};
use super::host::{can_mount, sh, try_sh};
use crate::support::Home;
use std::fs;

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
