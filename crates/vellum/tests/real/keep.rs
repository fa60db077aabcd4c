//! ext4 and ext3, on both ways to a mounted file system: every file is there after unmounting, e2fsck finds nothing,
//! and the ledger says what journaling saved.

use super::bridge::{BRIDGE_TOOLS, Bridge, NBD_DOOR, Way};
use super::files::Files;
use super::host::{EXT_TOOLS, all_is_well, can_mount, have, kernel_has, sh};
use crate::support::Home;

#[test]
fn what_is_written_on_a_mounted_disk_is_kept() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    for (fs, data, dedup) in [
        ("ext4", "journal", "journal"),
        ("ext4", "ordered", "journal"),
        ("ext3", "journal", "journal"),
        ("ext3", "ordered", "journal"),
        ("ext4", "journal", "none"),
        ("ext4", "journal", "strong"),
    ] {
        if !kernel_has(fs) {
            continue;
        }
        let home = Home::new();
        home.ok(&format!("disk create d --size 192MiB --dedup {dedup}"));
        let mount = format!("disk mount d mnt --fs {fs} --data {data}");
        let (mounted, _) = home.start(&mount);
        let files = Files::write(&home.path("mnt"), 1);
        assert_eq!(mounted.interrupt().0, 0, "{fs} {data} {dedup}");
        all_is_well(&home, "d");
        let (mounted, _) = home.start(&mount);
        files.check();
        assert_eq!(mounted.interrupt().0, 0, "{fs} {data} {dedup}");
        copies_are_counted(&home, data, dedup);
    }
}

/// With journaled data nearly all of it is found again; with ordered data only metadata is.
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
