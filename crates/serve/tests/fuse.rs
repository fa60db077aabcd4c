//! The FUSE file, by system calls and under a loop device. Skipped, saying so, without root or FUSE.

use crate::rig::{Rigged, can_mount, noise};
use rustix::fs::{FallocateFlags, SeekFrom};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use vellum_base::Kind;
use vellum_serve::fuse::{FuseOptions, is_mounted, mount};

const BYTES: u64 = 16 << 20;

fn open(path: &std::path::Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

#[test]
fn it_is_a_file_of_the_disks_size_and_content() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let rigged = Arc::new(Rigged::new(BYTES));
    let mut mounted = mount(rigged.clone(), &path, &FuseOptions::default()).unwrap();
    assert!(is_mounted(&path).unwrap());
    let file = open(&path);
    assert_eq!(file.metadata().unwrap().len(), BYTES);
    let data = noise(1, 3_000_001);
    file.write_all_at(&data, 777).unwrap();
    let mut seen = vec![0; data.len()];
    file.read_exact_at(&mut seen, 777).unwrap();
    assert!(seen == data);
    assert_eq!(file.read_at(&mut [0; 100], BYTES - 10).unwrap(), 10);
    assert_eq!(file.read_at(&mut [0; 100], BYTES).unwrap(), 0);
    assert_eq!(file.write_at(&[1; 100], BYTES - 10).unwrap(), 10);
    assert_eq!(file.write_at(&[1; 100], BYTES).unwrap_err().raw_os_error(), Some(28));
    assert_eq!(file.set_len(BYTES / 2).unwrap_err().raw_os_error(), Some(1));
    file.sync_data().unwrap();
    assert_eq!(rigged.flushes.load(SeqCst), 1);

    let busy = mount(rigged.clone(), &path, &FuseOptions::default());
    assert_eq!(busy.err().map(|e| e.kind()), Some(Kind::Busy));
    drop(file);
    mounted.unmount().unwrap();
    mounted.unmount().unwrap();
    assert!(!path.exists(), "the file made to mount over is removed");
    assert_eq!(rigged.flushes.load(SeqCst), 2, "unmounting flushes");
}

#[test]
fn holes_are_punched_sought_and_zeroed() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let rigged = Arc::new(Rigged::new(BYTES));
    let _mounted = mount(rigged.clone(), &path, &FuseOptions::default()).unwrap();
    let file = open(&path);
    file.write_all_at(&noise(2, 1 << 20), 1 << 20).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, (1 << 20) + 100, 65_536).unwrap();
    assert_eq!(rigged.trimmed_sectors.load(SeqCst), 15, "whole sectors are trimmed, the rest patched");
    let mut seen = vec![1; 65_536];
    file.read_exact_at(&mut seen, (1 << 20) + 100).unwrap();
    assert!(seen.iter().all(|b| *b == 0));
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 0, 4096).unwrap();
    assert_eq!(rigged.zeroed_sectors.load(SeqCst), 1);
    let beyond = rustix::fs::fallocate(&file, FallocateFlags::empty(), BYTES, 4096);
    assert!(beyond.is_err(), "a disk does not grow");

    assert_eq!(rustix::fs::seek(&file, SeekFrom::Data(0)).unwrap(), 1 << 20);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(1 << 20)).unwrap(), (1 << 20) + 4096);
    assert_eq!(rustix::fs::seek(&file, SeekFrom::Hole(2 << 20)).unwrap(), 2 << 20);
    assert!(rustix::fs::seek(&file, SeekFrom::Data(2 << 20)).is_err());
}

#[test]
fn holes_are_refused_where_they_would_be_written_as_zeros() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let rigged = Arc::new(Rigged::that_writes_zeros(BYTES));
    let _mounted = mount(rigged.clone(), &path, &FuseOptions::default()).unwrap();
    let file = open(&path);
    file.write_all_at(&[7; 8192], 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for offset in [0, BYTES] {
        let refused = rustix::fs::fallocate(&file, punch, offset, 4096).unwrap_err();
        assert_eq!(refused, rustix::io::Errno::OPNOTSUPP, "at {offset}");
    }
    rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, 4096, 4096).unwrap();
    let mut seen = vec![1; 8192];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert!(seen[..4096] == [7; 4096] && seen[4096..] == [0; 4096]);
    assert_eq!(rigged.trimmed_sectors.load(SeqCst), 0);
}

#[test]
fn a_read_only_file_takes_no_writes() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let options = FuseOptions { read_only: true, ..Default::default() };
    let _mounted = mount(Arc::new(Rigged::new(BYTES)), &path, &options).unwrap();
    assert!(OpenOptions::new().write(true).open(&path).is_err());
    assert_eq!(File::open(&path).unwrap().read_at(&mut [1; 4096], 0).unwrap(), 4096);
}

#[test]
fn device_errors_reach_the_caller() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let rigged = Arc::new(Rigged::new(BYTES));
    let _mounted = mount(rigged.clone(), &path, &FuseOptions::default()).unwrap();
    let file = open(&path);
    for (kind, errno) in [(Kind::Corrupt, 5), (Kind::NoSpace, 28), (Kind::Poisoned, 30)] {
        *rigged.bad.lock() = Some((vellum_base::Lba(3), kind));
        assert_eq!(file.write_at(&[1; 4096], 3 * 4096).unwrap_err().raw_os_error(), Some(errno));
        assert_eq!(file.read_at(&mut [1; 4096], 3 * 4096).unwrap_err().raw_os_error(), Some(errno));
    }
    *rigged.bad.lock() = None;
    file.write_all_at(&[1; 4096], 3 * 4096).unwrap();
}

#[test]
fn files_with_content_and_directories_are_not_covered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    std::fs::write(&path, "data").unwrap();
    for place in [path.as_path(), dir.path()] {
        let refused = mount(Arc::new(Rigged::new(BYTES)), place, &FuseOptions::default());
        assert_eq!(refused.err().map(|e| e.kind()), Some(Kind::Invalid));
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"data");
}

/// A server that was killed leaves a mount that answers nothing; the next one clears it away.
#[test]
fn the_remains_of_a_dead_server_are_cleared() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    std::fs::write(&path, "").unwrap();
    let dead = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let options =
        format!("fd={},rootmode=100600,user_id=0,group_id=0", std::os::fd::AsRawFd::as_raw_fd(&dead));
    let options = std::ffi::CString::new(options).unwrap();
    let flags = rustix::mount::MountFlags::NOSUID;
    rustix::mount::mount("dead", &path, "fuse", flags, Some(options.as_c_str())).unwrap();
    drop(dead);
    assert_eq!(std::fs::metadata(&path).unwrap_err().raw_os_error(), Some(107));
    let mut mounted = mount(Arc::new(Rigged::new(BYTES)), &path, &FuseOptions::default()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), BYTES);
    mounted.unmount().unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0, "the user's own file stays");
}

/// What the kernel still has to say of a file that is closed may meet the end of the mount: that is no failure.
#[test]
fn it_is_unmounted_the_moment_it_is_closed() {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let rigged = Arc::new(Rigged::new(BYTES));
    for round in 0..500 {
        let mut mounted = mount(rigged.clone(), &path, &FuseOptions::default()).unwrap();
        drop([open(&path), open(&path), open(&path)]);
        mounted.unmount().unwrap_or_else(|e| panic!("in round {round}: {e}"));
    }
}
