//! `disk mount` and `disk record --mount` with a real file system.

use super::host::{EXT_TOOLS, can_mount, skipped, wait_until};
use crate::support::Home;
use std::process::Command;

#[test]
fn files_survive_unmounting_and_are_never_formatted_over() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 256MiB");
    let (mounted, ready) = home.start("disk mount d mnt --data journal");
    assert_eq!(ready["door"], "mount");
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    let at = home.path("mnt").display().to_string();
    assert!(table.lines().any(|l| l.contains(&at) && l.contains("data=journal")), "{table}");
    std::fs::write(home.path("mnt/file"), vec![7; 3 << 20]).unwrap();
    assert_eq!(mounted.interrupt().0, 0);
    assert!(!home.path("mnt").exists(), "the directory that was made is gone");

    let stat = home.json("disk stat d");
    assert!(stat["ledger"]["avoided"]["journal_copy"].as_u64().unwrap() > 2 << 20, "{stat}");
    let (mounted, _) = home.start("disk mount d mnt --data ordered --mount-options noatime");
    assert_eq!(std::fs::read(home.path("mnt/file")).unwrap(), vec![7; 3 << 20]);
    assert_eq!(mounted.interrupt().0, 0);
    let (mounted, _) = home.start("disk mount d mnt --format --mkfs-options -N1000");
    assert!(!home.path("mnt/file").exists(), "--format starts anew");
    assert_eq!(mounted.interrupt().0, 0);
    assert_eq!(home.json("disk check d")["clean"], true);
}

#[test]
fn a_mount_that_nobody_listens_to_is_used_and_taken_down() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    let at = home.path("mnt").display().to_string();
    let is_mounted = || std::fs::read_to_string("/proc/mounts").unwrap().contains(&at);
    let mounted = home.begin_unheard("disk mount d mnt");
    wait_until("it is mounted", is_mounted);
    std::fs::write(home.path("mnt/file"), vec![7; 1 << 20]).unwrap();
    assert_eq!(mounted.interrupt().0, 0);
    assert!(!is_mounted() && !home.path("mnt").exists());
    assert_eq!(home.json("disk stat d")["smart"]["unsafe_shutdowns"], 0);
    assert_eq!(home.json("disk check d")["clean"], true);
}

#[test]
fn a_killed_server_leaves_nothing_in_the_way() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    let (mounted, _) = home.start("disk mount d mnt --data journal");
    std::fs::write(home.path("mnt/synced"), vec![1; 100_000]).unwrap();
    rustix::fs::syncfs(std::fs::File::open(home.path("mnt")).unwrap()).unwrap();
    home.run("disk mount --ram 64MiB mnt").failed(5, "mounted at");
    mounted.kill();
    assert_eq!(home.json("disk check d")["clean"], true);

    let (mounted, _) = home.start("disk mount d mnt --data journal");
    let here = home.dir().display().to_string();
    let table = std::fs::read_to_string("/proc/mounts").unwrap();
    assert_eq!(table.lines().filter(|l| l.contains(&here)).count(), 1, "the dead mount is gone: {table}");
    assert_eq!(std::fs::read(home.path("mnt/synced")).unwrap(), vec![1; 100_000]);
    assert_eq!(mounted.interrupt().0, 0);
}

#[test]
fn what_cannot_be_mounted_says_so() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.run("disk mount nowhere mnt").failed(3, "nowhere");
    home.ok("disk create d --size 64MiB");
    home.run("disk mount d mnt --fs xfs --data journal").failed(2, "XFS");
    home.run("disk mount d mnt --dedup strong").failed(2, "settled when it was created");
    assert_eq!(home.run("disk mount d mnt --fs ntfs").code, 2);
}

#[test]
fn without_root_it_says_what_to_do() {
    if !rustix::process::geteuid().is_root() {
        let home = Home::new();
        home.run("disk mount d mnt").failed(3, "needs root");
        return;
    }
    let setpriv = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let said = Command::new("setpriv")
        .args(setpriv)
        .arg(env!("CARGO_BIN_EXE_vellum"))
        .args(["disk", "mount", "d", "mnt"])
        .current_dir("/")
        .output();
    let Ok(said) = said else { return skipped("setpriv is not installed") };
    let text = String::from_utf8_lossy(&said.stderr);
    if text.contains("setpriv:") {
        return skipped(&format!("the binary cannot be run by others: {text}"));
    }
    assert_eq!(said.status.code(), Some(3), "{text}");
    assert!(text.contains("needs root") && text.contains("sudo"), "{text}");
}

#[test]
fn a_file_system_is_recorded() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    let (recorder, _) = home.start("disk record --ram 128MiB --mount mnt --data journal --to w.vtrace");
    for i in 0..20 {
        std::fs::write(home.path(&format!("mnt/{i}")), vec![i; 100_000]).unwrap();
    }
    let (code, lines) = recorder.interrupt();
    assert_eq!(code, 0);
    let recorded = lines.last().unwrap();
    assert!(recorded["written_bytes"].as_u64().unwrap() > 4_000_000, "journal and home: {recorded}");
    assert!(recorded["flushes"].as_u64().unwrap() > 0);
}
