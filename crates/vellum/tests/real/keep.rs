//! ext4 and ext3, with both ways to mount a file system: every file is there after unmounting, e2fsck finds nothing,
//! and the ledger shows what journaling saved.

use super::bridge::{BRIDGE_TOOLS, Bridge, NBD_DOOR, Way};
use super::files::Files;
use super::host::{EXT_TOOLS, all_is_well, can_mount, have, kernel_has, sh};
use super::kinds::Kind;
use crate::support::Home;

#[test]
fn what_is_written_on_a_mounted_disk_is_kept() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    for (fs, data, kind) in [
        ("ext4", "journal", Kind::USUAL),
        ("ext4", "ordered", Kind::USUAL),
        ("ext3", "journal", Kind::USUAL),
        ("ext3", "ordered", Kind::USUAL),
        ("ext4", "journal", Kind::of("none")),
        ("ext4", "journal", Kind::of("strong")),
        ("ext4", "journal", Kind::JOURNAL_HOST),
        ("ext4", "journal", Kind::ECC_DEVICE),
        ("ext4", "ordered", Kind::ECC_DEVICE),
        ("ext4", "journal", Kind::ECC_HOST),
        ("ext4", "ordered", Kind::ECC_HOST),
    ] {
        if !kernel_has(fs) {
            continue;
        }
        let home = Home::new();
        let opened = kind.create(&home, "192MiB");
        let mount = format!("disk mount d mnt --fs {fs} --data {data} {opened}");
        let (mounted, _) = home.start(&mount);
        let files = Files::write(&home.path("mnt"), 1);
        assert_eq!(mounted.interrupt().0, 0, "{fs} {data} {}", kind.name());
        all_is_well(&home, "d");
        let (mounted, _) = home.start(&mount);
        files.check();
        assert_eq!(mounted.interrupt().0, 0, "{fs} {data} {}", kind.name());
        copies_are_counted(&home, data, kind.dedup);
    }
}

#[test]
fn copies_of_files_are_stored_once_if_dedup_goes_by_code() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    for kind in Kind::ECC {
        let home = Home::new();
        let opened = kind.create(&home, "192MiB");
        let mount = format!("disk mount d mnt --data ordered {opened}");
        let (mounted, _) = home.start(&mount);
        std::fs::create_dir(home.path("mnt/original")).unwrap();
        let original = Files::write(&home.path("mnt/original"), 7);
        sh(&format!("cd {} && cp -a original copy && sync -f copy", home.path("mnt").display()));
        assert_eq!(mounted.interrupt().0, 0);
        home.ok("disk scrub d --dedup");
        all_is_well(&home, "d");
        let ledger = &home.json("disk stat d")["ledger"];
        let avoided = |reason: &str| ledger["avoided"][reason].as_u64().unwrap_or(0);
        let duplicate = avoided("duplicate") + avoided("duplicate_offline");
        assert!(duplicate > 8 << 20, "{}: {duplicate} of {ledger}", kind.name());
        let (mounted, _) = home.start(&mount);
        original.check();
        sh(&format!("cd {} && diff -r original copy", home.path("mnt").display()));
        assert_eq!(mounted.interrupt().0, 0);
    }
}

/// With journaled data nearly all of it is found to be copies; with ordered data only metadata is.
fn copies_are_counted(home: &Home, data: &str, dedup: &str) {
    let stat = home.json("disk stat d");
    let copies = stat["ledger"]["avoided"]["journal_copy"].as_u64().unwrap_or(0);
    match (data, dedup) {
        ("journal", "journal") => assert!(copies > 12 << 20, "only {copies} bytes were copies: {stat}"),
        (_, "journal") => assert!(copies > 0 && copies < 4 << 20, "{copies} bytes were copies: {stat}"),
        _ => assert_eq!(copies, 0),
    }
}

#[test]
fn what_is_written_through_nbd_and_a_loop_device_is_kept() {
    if !can_mount(EXT_TOOLS) || !have(BRIDGE_TOOLS) {
        return;
    }
    for (fs, data) in [("ext4", "journal"), ("ext4", "ordered"), ("ext3", "journal"), ("ext3", "ordered")] {
        if !kernel_has(fs) {
            continue;
        }
        let home = Home::new();
        home.ok("disk create d --size 192MiB");
        let (server, _) = home.start(&format!("disk serve d {NBD_DOOR}"));
        let bridge = Bridge::new(&home, &Way::default());
        sh(&format!("mkfs.{fs} -q -b 4096 {}", bridge.device));
        bridge.mount(fs, &format!("data={data}"));
        let files = Files::write(&home.path("mnt"), 5);
        bridge.unmount();
        sh(&format!("e2fsck -fn {}", bridge.device));
        drop(bridge);
        assert_eq!(server.interrupt().0, 0);

        let (mounted, _) = home.start(&format!("disk mount d mnt --fs {fs} --data {data}"));
        files.check();
        assert_eq!(mounted.interrupt().0, 0);
        all_is_well(&home, "d");
        copies_are_counted(&home, data, "journal");
    }
}

#[test]
fn git_and_sqlite_work_on_it() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 128MiB");
    let (mounted, _) = home.start("disk mount d mnt --data journal");
    let files = Files::work(&home.path("mnt"));
    assert_eq!(mounted.interrupt().0, 0);
    let (mounted, _) = home.start("disk mount d mnt --data journal");
    files.check();
    Files::work_is_whole(&home.path("mnt"));
    assert_eq!(mounted.interrupt().0, 0);
    all_is_well(&home, "d");
}
