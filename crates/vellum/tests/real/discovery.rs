//! Disks other than one ext4 with 4 KiB blocks: they work, and `disk stat` says where there is a useful journal, or why
//! there is none. Changes of that are noticed while the disk is in use.

use super::bridge::{BRIDGE_TOOLS, Bridge, FILE_DOOR, NBD_DOOR, Way, attach};
use super::files::Files;
use super::host::{EXT_TOOLS, can_mount, disk_is_well, have, kernel_has, sh, try_sh, wait_until};
use crate::support::{Home, Running};
use serde_json::Value;
use std::path::PathBuf;

/// A part of a served disk, as the kernel sees a partition: a separate loop device. Detached when dropped.
struct Part {
    device: String,
    at: PathBuf,
}

impl Part {
    fn new(home: &Home, first_sector_512: u64, sectors_512: u64, at: &str) -> Part {
        let way = Way {
            sector_bytes: 512,
            offset_bytes: first_sector_512 * 512,
            size_bytes: Some(sectors_512 * 512),
            plain_writes: false,
        };
        let part = Part { device: attach(&home.path("file"), &way), at: home.path(at) };
        std::fs::create_dir(&part.at).unwrap();
        part
    }

    /// Makes a file system, mounts it, writes, and compares after remounting.
    #[track_caller]
    fn holds_files(&self, mkfs: &str, options: &str) {
        sh(&format!("{mkfs} {}", self.device));
        let mount = format!("mount -o {options} {} {}", self.device, self.at.display());
        let unmount = format!("umount {}", self.at.display());
        sh(&mount);
        let files = Files::write(&self.at, 3);
        sh(&unmount);
        sh(&format!("e2fsck -fn {}", self.device));
        sh(&mount);
        files.check();
        sh(&unmount);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        try_sh(&format!("umount {0} 2>&1 || umount -l {0}", self.at.display()));
        try_sh(&format!("losetup -d {}", self.device));
    }
}

fn serve_file(home: &Home, size: &str) -> Running {
    home.ok(&format!("disk create d --size {size}"));
    home.start(&format!("disk serve d {FILE_DOOR}")).0
}

/// The file systems that a disk reports, open or not.
fn file_systems(home: &Home) -> Vec<Value> {
    home.json("disk stat d")["file_systems"].as_array().unwrap().clone()
}

#[track_caller]
fn why_no_benefit(home: &Home) -> String {
    match &file_systems(home)[..] {
        [only] => only["no_benefit"].as_str().unwrap_or_default().to_string(),
        other => panic!("{other:?}"),
    }
}

fn copies(home: &Home) -> u64 {
    home.json("disk stat d")["ledger"]["avoided"]["journal_copy"].as_u64().unwrap_or(0)
}

#[test]
fn small_blocks_work_and_gain_nothing() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    for (fs, block) in [("ext4", 1024), ("ext3", 2048)] {
        if !kernel_has(fs) {
            continue;
        }
        let home = Home::new();
        let server = serve_file(&home, "128MiB");
        let part = Part::new(&home, 0, 128 << 11, "mnt");
        part.holds_files(&format!("mkfs.{fs} -q -b {block}"), "data=journal");
        drop(part);
        let why = why_no_benefit(&home);
        assert!(why.starts_with(&format!("{} KiB blocks on 4 KiB sectors", block / 1024)), "{why}");
        assert!(home.ok("disk stat d").contains("no benefit: "));
        assert_eq!(server.interrupt().0, 0);
        disk_is_well(&home, "d");
    }
}

#[test]
fn a_misaligned_partition_works_and_is_told_to_gain_nothing() {
    if !can_mount(EXT_TOOLS) || !have(&["sgdisk"]) {
        return;
    }
    let home = Home::new();
    let server = serve_file(&home, "128MiB");
    sh(&format!("sgdisk -a 1 -n 1:2049:+100M {}", home.path("file").display()));
    let part = Part::new(&home, 2049, 100 << 11, "mnt");
    part.holds_files("mkfs.ext4 -q -b 4096", "data=journal");
    drop(part);
    let why = why_no_benefit(&home);
    assert!(why.contains("align") || why.contains("4 KiB"), "{why}");
    assert_eq!(file_systems(&home)[0]["partition"], 1);
    assert_eq!(server.interrupt().0, 0);
    disk_is_well(&home, "d");
}

#[test]
fn two_file_systems_on_a_partitioned_disk_both_gain() {
    if !can_mount(EXT_TOOLS) || !have(&["sgdisk"]) {
        return;
    }
    let home = Home::new();
    let server = serve_file(&home, "256MiB");
    sh(&format!("sgdisk -n 1:2048:+110M -n 2:0:+110M {}", home.path("file").display()));
    let parts = [(2048, "ext4", "one"), (2048 + (110 << 11), "ext3", "two")];
    let mut before = 0;
    for (first, fs, at) in parts {
        if !kernel_has(fs) {
            return;
        }
        let part = Part::new(&home, first, 110 << 11, at);
        part.holds_files(&format!("mkfs.{fs} -q -b 4096 -J size=8"), "data=journal");
        let now = copies(&home);
        assert!(now > before + (10 << 20), "{fs} in its partition: {before}, {now} bytes were copies");
        before = now;
    }
    let found = file_systems(&home);
    let seen: Vec<_> = found.iter().map(|f| (f["kind"].as_str().unwrap(), f["partition"].as_u64())).collect();
    assert_eq!(seen, [("ext4", Some(1)), ("ext3", Some(2))]);
    assert!(found.iter().all(|f| f["journal_bytes"] == 8 << 20), "{found:?}");
    assert_eq!(server.interrupt().0, 0);
    disk_is_well(&home, "d");
}

#[test]
fn xfs_works_and_is_told_to_gain_nothing() {
    if !can_mount(&["losetup", "mount", "umount", "mkfs.xfs"]) || !kernel_has("xfs") {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 512MiB");
    let (mounted, _) = home.start("disk mount d mnt --fs xfs");
    let files = Files::write(&home.path("mnt"), 2);
    let found = &file_systems(&home)[0];
    assert_eq!((&found["kind"], &found["journal_bytes"]), (&Value::from("xfs"), &Value::Null), "{found}");
    assert!(why_no_benefit(&home).contains("XFS"));
    assert_eq!(mounted.interrupt().0, 0);
    let (mounted, _) = home.start("disk mount d mnt --fs xfs");
    files.check();
    assert_eq!(mounted.interrupt().0, 0);
    disk_is_well(&home, "d");
}

#[test]
fn what_changes_the_journal_is_seen_at_once() {
    let tools = ["tune2fs", "resize2fs", "dumpe2fs", "mkfs.xfs"];
    if !can_mount(EXT_TOOLS) || !have(BRIDGE_TOOLS) || !have(&tools) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 512MiB");
    let (server, _) = home.start(&format!("disk serve d {NBD_DOOR}"));
    let bridge = Bridge::new(&home, &Way::default());
    let device = bridge.device.clone();
    let is = |kind: &str, journal_mib: Option<u64>| {
        wait_until(&format!("{kind} with {journal_mib:?}, not {:?}", file_systems(&home)), || {
            let found = file_systems(&home);
            found.len() == 1
                && found[0]["kind"] == kind
                && found[0]["journal_bytes"].as_u64() == journal_mib.map(|mib| mib << 20)
        });
    };
    is("blank", None);
    let steps: [(&str, &str, Option<u64>); 6] = [
        ("mkfs.ext4 -q -F -b 4096 -J size=8 DEV 100M", "ext4", Some(8)),
        ("tune2fs -O ^has_journal DEV", "ext4", None),
        ("tune2fs -J size=16 DEV", "ext4", Some(16)),
        ("e2fsck -fy DEV && resize2fs DEV 300M", "ext4", Some(16)),
        ("mkfs.xfs -q -f -s size=4096 DEV", "xfs", None),
        ("mkfs.ext4 -q -F -b 4096 -J size=4 DEV", "ext4", Some(4)),
    ];
    for (command, kind, journal_mib) in steps {
        sh(&command.replace("DEV", &device));
        is(kind, journal_mib);
        if journal_mib.is_some() {
            // What was found is where the kernel writes its journal.
            let before = copies(&home);
            bridge.mount("ext4", "data=journal");
            let files = Files::write(&home.path("mnt"), 4);
            bridge.unmount();
            bridge.mount("ext4", "data=journal");
            files.check();
            let here = home.path("mnt");
            sh(&format!("cd {} && ls | grep -v lost+found | xargs rm -r", here.display()));
            bridge.unmount();
            let now = copies(&home);
            assert!(now > before + (10 << 20), "after {command}: {before}, {now} bytes were copies");
        }
    }
    drop(bridge);
    assert_eq!(server.interrupt().0, 0);
    disk_is_well(&home, "d");
}
