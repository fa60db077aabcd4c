//! The host's file system is full: clean errors, nothing synced is lost, and the disk can be reopened.

use super::files::{Files, noise};
use super::host::{EXT_TOOLS, all_is_well, can_mount, disk_is_well, sh, try_sh};
use crate::support::Home;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A small file system in memory, below a home.
struct Small(PathBuf);

impl Small {
    fn new(home: &Home) -> Small {
        let small = Small(home.path("small"));
        std::fs::create_dir(&small.0).unwrap();
        sh(&format!("mount -t tmpfs -o size=24m tmpfs {}", small.0.display()));
        small
    }

    fn grow(&self) {
        sh(&format!("mount -o remount,size=300m {}", self.0.display()));
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        try_sh(&format!("umount -l {}", self.0.display()));
    }
}

#[test]
fn a_disk_on_a_full_file_system_keeps_what_was_synced() {
    if !can_mount(&[]) {
        return;
    }
    let home = Home::new();
    let small = Small::new(&home);
    home.ok("disk create small/d --size 256MiB");
    let (server, _) = home.start("disk serve small/d --fuse file");
    let file = OpenOptions::new().write(true).open(home.path("file")).unwrap();
    let mut synced = 0u64;
    let refused: io::Error = loop {
        let piece = noise(synced, 1 << 20);
        match file.write_all_at(&piece, synced << 20).and_then(|()| file.sync_data()) {
            Ok(()) => synced += 1,
            Err(e) => break e,
        }
        assert!(synced < 64, "64 MiB do not fit into 24");
    };
    assert!(synced >= 8, "only {synced} MiB before {refused}");
    // Existing data can still be read.
    let still = std::fs::read(home.path("file")).unwrap();
    assert!(still[..1 << 20] == noise(0, 1 << 20));
    drop(file);
    let code = server.interrupt().0;
    assert!(code == 0 || code == 3, "an error, not a panic: {code}");
    assert_eq!(home.json("disk check small/d")["clean"], true, "while it is still full");
    small.grow();
    disk_is_well(&home, "small/d");
    let (server, _) = home.start("disk serve small/d --fuse file");
    let bytes = std::fs::read(home.path("file")).unwrap();
    for number in 0..synced {
        let at = (number << 20) as usize;
        assert!(bytes[at..at + (1 << 20)] == noise(number, 1 << 20), "MiB {number} of {synced} is lost");
    }
    std::fs::write(home.path("small/more"), "there is room").unwrap();
    assert_eq!(server.interrupt().0, 0);
}

#[test]
fn a_file_system_on_a_disk_on_a_full_one_keeps_what_was_synced() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    let small = Small::new(&home);
    home.ok("disk create small/d --size 256MiB");
    let mount = "disk mount small/d mnt --data journal --mkfs-options -Jsize=8";
    let (mounted, _) = home.start(mount);
    let mut files = Files::default();
    let refused = (0..64).find_map(|number| {
        files.write_synced(&home.path(&format!("mnt/{number}")), &noise(number, 1 << 20)).err()
    });
    assert!(refused.is_some(), "64 MiB do not fit into 24");
    assert!(files.len() >= 4, "only {} MiB before {refused:?}", files.len());
    let code = mounted.interrupt().0;
    assert!(code == 0 || code == 3, "an error, not a panic: {code}");
    small.grow();
    let (mounted, _) = home.start(mount);
    files.check();
    std::fs::write(home.path("mnt/more"), "there is room").unwrap();
    assert_eq!(mounted.interrupt().0, 0);
    all_is_well(&home, "small/d");
}

/// A member that cannot grow has not failed.
#[test]
fn an_array_on_a_full_file_system_keeps_its_members_and_what_was_synced() {
    if !can_mount(&[]) {
        return;
    }
    let home = Home::new();
    let small = Small::new(&home);
    let members = "--size 64MiB --members small/d0 small/d1 small/d2";
    home.ok(&format!("array create a.toml --level 5 {members} --cache ssd --policy kdd-paper"));
    let serve = "array serve a.toml --fuse file";
    let (server, _) = home.start(serve);
    let file = OpenOptions::new().write(true).open(home.path("file")).unwrap();
    let write = |number: u64| file.write_all_at(&noise(number, 1 << 20), number << 20);
    let synced = (0..64).take_while(|number| write(*number).and_then(|()| file.sync_data()).is_ok()).count();
    assert!((2..64).contains(&synced), "{synced} MiB were synced");
    drop(file);
    let said = home.run("array detail a.toml --json");
    assert_eq!(said.code, 1, "{}", said.err);
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(shown["state"], "clean", "{shown}");
    assert!(
        shown["ended"].as_str().unwrap().contains("make room there, then open the array again"),
        "{shown}"
    );
    assert_eq!(server.interrupt().0, 3);
    let said = home.run("array create b.toml --level 5 --size 64MiB --members small/e0 small/e1 small/e2");
    let is_told = said.err.contains("next: free space where that file is") && said.err.contains("array");
    assert!(said.code == 3 && is_told, "{}", said.err);
    small.grow();
    let (server, _) = home.start(serve);
    let bytes = std::fs::read(home.path("file")).unwrap();
    for number in 0..synced {
        assert!(bytes[number << 20..(number + 1) << 20] == noise(number as u64, 1 << 20), "MiB {number}");
    }
    assert_eq!(home.json("array detail a.toml")["state"], "clean");
    assert_eq!(server.interrupt().0, 0);
    home.ok("array scrub a.toml");
}
