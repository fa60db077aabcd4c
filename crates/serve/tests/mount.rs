//! File systems on a device of ours, up and down again. Skipped, saying so, without root, FUSE or the tools.

use crate::rig::{Rigged, can_mount, have, noise, start, tool};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use vellum_base::{BlockDevice, Kind};
use vellum_serve::Stop;
use vellum_serve::fuse::{is_mounted, wait_until_gone};
use vellum_serve::mount::{DiskMount, FileSystem, Make, MountOptions, mount};

const TOOLS: [&str; 6] = ["losetup", "mount", "umount", "mkfs.ext4", "fstrim", "e2fsck"];

fn up(device: &Arc<Rigged>, target: &Path, options: &MountOptions) -> DiskMount {
    mount(device.clone(), target, options, &Stop::new().unwrap()).unwrap()
}

fn options(dir: &Path) -> MountOptions {
    MountOptions { file: Some(dir.join("disk")), ..Default::default() }
}

/// Nothing of ours is left: no mount, no FUSE file, no loop device.
fn all_is_down(dir: &Path) {
    assert!(!is_mounted(&dir.join("mnt")).unwrap());
    assert!(!dir.join("disk").exists());
    let loops = tool("losetup", &["--list", "--noheadings", "-O", "BACK-FILE"]);
    assert!(!loops.contains(dir.to_str().unwrap()), "{loops}");
}

#[test]
fn ext4_with_data_journaling_survives_discard_and_remount() {
    if !can_mount() || !have(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("mnt");
    let device = Arc::new(Rigged::new(256 << 20));
    let journal = MountOptions { options: "data=journal".into(), ..options(dir.path()) };
    let mut mounted = up(&device, &target, &journal);
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    let line = table.lines().find(|l| l.contains(target.to_str().unwrap())).unwrap();
    assert!(line.contains("ext4") && line.contains("data=journal"), "{line}");

    let contents: Vec<Vec<u8>> = (0..20).map(|i| noise(i, 300_000 + i as usize * 1111)).collect();
    for (i, content) in contents.iter().enumerate() {
        std::fs::write(target.join(i.to_string()), content).unwrap();
    }
    for i in 0..10 {
        std::fs::remove_file(target.join(i.to_string())).unwrap();
    }
    rustix::fs::sync();
    let before = device.trimmed_sectors.load(SeqCst);
    tool("fstrim", &[target.to_str().unwrap()]);
    assert!(device.trimmed_sectors.load(SeqCst) > before + 1000, "discards reach the device");
    mounted.unmount().unwrap();
    mounted.unmount().unwrap();
    all_is_down(dir.path());
    assert!(!target.exists(), "the directory made for it is removed");

    let mut again = up(&device, &target, &options(dir.path()));
    for (i, content) in contents.iter().enumerate().skip(10) {
        assert!(std::fs::read(target.join(i.to_string())).unwrap() == *content, "file {i}");
    }
    assert!(!target.join("3").exists(), "a disk with data is not formatted again");
    again.unmount().unwrap();
    fsck(&device, dir.path());
}

#[test]
fn a_blank_device_is_not_trimmed_first_and_one_with_data_is() {
    if !can_mount() || !have(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("mnt");
    let device = Arc::new(Rigged::new(64 << 20));
    let all = device.info().sectors;
    up(&device, &target, &options(dir.path())).unmount().unwrap();
    let trimmed = device.trimmed_sectors.load(SeqCst);
    assert!(trimmed < all / 2, "{trimmed} of {all}");
    let again = MountOptions { make: Make::Always, ..options(dir.path()) };
    up(&device, &target, &again).unmount().unwrap();
    assert!(device.trimmed_sectors.load(SeqCst) >= trimmed + all * 9 / 10);
}

/// `mkfs` and `fstrim` would have every sector of a hard disk written.
#[test]
fn what_trims_by_writing_is_not_trimmed() {
    if !can_mount() || !have(&TOOLS) {
        return;
    }
    for file_system in [FileSystem::Ext4, FileSystem::Xfs] {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap();
        let kernel_has = known.lines().any(|line| line.trim() == file_system.name());
        if !kernel_has || !have(&[&format!("mkfs.{}", file_system.name())]) {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("mnt");
        let device = Arc::new(Rigged::that_writes_zeros(512 << 20));
        let mut mounted = up(&device, &target, &MountOptions { file_system, ..options(dir.path()) });
        std::fs::write(target.join("f"), noise(1, 1 << 20)).unwrap();
        rustix::fs::sync();
        // Some kernels call it done where the device refuses, and some ask no second time.
        let _ = std::process::Command::new("fstrim").arg(&target).output().unwrap();
        assert!(std::fs::read(target.join("f")).unwrap() == noise(1, 1 << 20));
        mounted.unmount().unwrap();
        assert_eq!(device.trimmed_sectors.load(SeqCst), 0);
        all_is_down(dir.path());
    }
}

fn fsck(device: &Arc<Rigged>, dir: &Path) {
    let path = dir.join("disk");
    let mut file = vellum_serve::fuse::mount(device.clone(), &path, &Default::default()).unwrap();
    tool("e2fsck", &["-fn", path.to_str().unwrap()]);
    file.unmount().unwrap();
}

#[test]
fn ext3_and_xfs_too() {
    if !can_mount() || !have(&TOOLS) {
        return;
    }
    for (file_system, mkfs) in [(FileSystem::Ext3, "mkfs.ext3"), (FileSystem::Xfs, "mkfs.xfs")] {
        let known = std::fs::read_to_string("/proc/filesystems").unwrap();
        if !have(&[mkfs]) || !known.lines().any(|l| l.trim() == file_system.name()) {
            eprintln!("skipped: {} cannot be made and mounted here", file_system.name());
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("mnt");
        let device = Arc::new(Rigged::new(512 << 20));
        let mut mounted = up(&device, &target, &MountOptions { file_system, ..options(dir.path()) });
        std::fs::write(target.join("f"), noise(1, 1 << 20)).unwrap();
        mounted.unmount().unwrap();
        let reader = MountOptions { file_system, read_only: true, ..options(dir.path()) };
        let mounted = up(&device, &target, &reader);
        assert!(std::fs::read(target.join("f")).unwrap() == noise(1, 1 << 20));
        assert!(std::fs::write(target.join("g"), "x").is_err());
        drop(mounted);
        all_is_down(dir.path());
    }
}

#[test]
fn every_failing_step_leaves_nothing_behind() {
    if !can_mount() || !have(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("mnt");
    let good = options(dir.path());
    let a_file = dir.path().join("a file");
    std::fs::write(&a_file, "x").unwrap();
    let cases: [(&str, &Path, MountOptions); 5] = [
        ("empty file", &target, MountOptions { file: Some(a_file.clone()), ..good.clone() }),
        ("mkfs.ext4", &target, MountOptions { make_args: vec!["--nonsense".into()], ..good.clone() }),
        ("mount the file system", &target, MountOptions { make: Make::Never, ..good.clone() }),
        ("mount the file system", &target, MountOptions { options: "data=nonsense".into(), ..good.clone() }),
        ("make the directory", &a_file, good.clone()),
    ];
    for (said, target, options) in cases {
        let device = Arc::new(Rigged::new(64 << 20));
        let failed = mount(device, target, &options, &Stop::new().unwrap()).err().expect("this cannot work");
        assert!(failed.to_string().contains(said), "{failed}");
        all_is_down(dir.path());
    }
    let stopped = Stop::new().unwrap();
    stopped.stop();
    let device = Arc::new(Rigged::new(64 << 20));
    assert_eq!(mount(device, &target, &good, &stopped).err().map(|e| e.kind()), Some(Kind::Busy));
    all_is_down(dir.path());
    assert!(!target.exists());
}

#[test]
fn a_stop_takes_it_down_and_a_user_of_it_holds_it_up() {
    if !can_mount() || !have(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("mnt");
    let device = Arc::new(Rigged::new(64 << 20));
    let stop = Stop::new().unwrap();
    let mut mounted = mount(device.clone(), &target, &options(dir.path()), &stop).unwrap();
    let loop_device = mounted.loop_device().unwrap().to_path_buf();
    assert_eq!(std::fs::metadata(&loop_device).unwrap().mode() & 0o170_000, 0o060_000);

    std::fs::write(target.join("f"), "text").unwrap();
    let user = std::fs::File::open(target.join("f")).unwrap();
    let told = stop.clone();
    let stopper = start(move || told.stop());
    assert!(!wait_until_gone(mounted.target(), &stop).unwrap(), "it is still there");
    assert_eq!(mounted.unmount().unwrap_err().kind(), Kind::Busy);
    stopper.join().unwrap();
    assert_eq!(std::fs::read(target.join("f")).unwrap(), b"text", "it stays while it is in use");
    drop(user);
    mounted.unmount().unwrap();
    all_is_down(dir.path());
}

#[test]
fn dropping_it_while_in_use_takes_it_out_of_sight() {
    if !can_mount() || !have(&TOOLS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("mnt");
    let device = Arc::new(Rigged::new(64 << 20));
    let mounted = up(&device, &target, &options(dir.path()));
    std::fs::write(target.join("f"), "text").unwrap();
    let user = std::fs::File::open(target.join("f")).unwrap();
    drop(mounted);
    assert!(!is_mounted(&target).unwrap());
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut &user, &mut seen).unwrap();
    assert_eq!(seen, "text", "who has a file open can still use it");
    drop(user);
    assert!(device.info().sectors > 0);
}

#[test]
fn options_that_are_no_options_are_refused() {
    assert_eq!(FileSystem::from_name("ext4").unwrap(), FileSystem::Ext4);
    assert_eq!(FileSystem::from_name("ntfs").unwrap_err().kind(), Kind::Invalid);
    if can_mount() {
        let dir = tempfile::tempdir().unwrap();
        let bind = MountOptions { options: "noatime,bind".into(), ..options(dir.path()) };
        let refused = mount(Arc::new(Rigged::new(1 << 20)), dir.path(), &bind, &Stop::new().unwrap());
        assert_eq!(refused.err().map(|e| e.kind()), Some(Kind::Invalid));
    }
}
