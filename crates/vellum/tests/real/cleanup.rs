//! `disk mount` leaves nothing behind, whatever fails and whenever it is told to stop: no loop device, mount, process
//! or file.

use super::files::noise;
use super::host::{EXT_TOOLS, can_mount, disk_is_well, nothing_is_left, pause_ms, sh, wait_until};
use crate::support::Home;
use rustix::process::{Pid, Signal, kill_process};
use std::io::BufRead;
use std::os::unix::fs::symlink;

/// If mkfs has not run, the disk stays blank.
fn is_blank(home: &Home) -> bool {
    home.json("disk stat d")["ledger"]["host_written_bytes"] == 0
}

#[test]
fn after_every_failure() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    std::fs::write(home.path("file"), "in the way").unwrap();
    let failed = home.run("disk mount d mnt --read-only");
    failed.failed(3, "mount the file system");
    assert!(failed.err.contains("next: the disk is blank: "), "{}", failed.err);
    for (line, code, said) in [
        ("disk mount d mnt --mkfs-options --nonsense", 3, "make a file system"),
        ("disk mount d no/such/dir", 3, "no/such/dir"),
        ("disk mount d file", 3, "file"),
        ("disk mount d mnt --mount-options bind", 2, "bind"),
    ] {
        let failed = home.run(line);
        failed.failed(code, said);
        nothing_is_left(&home, failed.id);
        assert!(is_blank(&home) || line.contains("nonsense"), "{line}: formatted for nothing");
        assert!(!home.path("mnt").exists());
    }
    let failed = home.run("disk mount d mnt --mount-options data=nonsense");
    failed.failed(3, "mount the file system");
    assert!(failed.err.contains("does hold ext4: look at the mount options"), "{}", failed.err);
    nothing_is_left(&home, failed.id);
    // It is now formatted as ext4; mounting it as anything else fails with that information.
    let failed = home.run("disk mount d mnt --fs xfs");
    failed.failed(3, "mount the file system");
    let next = "the disk holds ext4: vellum disk mount d mnt --fs ext4 mounts it; --format would make a new one and DESTROY";
    assert!(failed.err.contains(next), "{}", failed.err);
    nothing_is_left(&home, failed.id);
    assert!(!home.path("mnt").exists());
    assert_eq!(home.json("disk stat d")["smart"]["unsafe_shutdowns"], 0, "failing closes the disk, too");
    disk_is_well(&home, "d");
}

#[test]
fn after_a_tool_that_is_missing() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    let tools = home.path("tools");
    std::fs::create_dir(&tools).unwrap();
    // Each tool is added in the order of use, so each is missing once.
    for (tool, package) in [("losetup", "util-linux"), ("mkfs.ext4", "e2fsprogs"), ("mount", "util-linux")] {
        let failed = home.run_with_path("disk mount d mnt", &tools);
        failed.failed(3, &format!("{tool} is not installed"));
        assert!(failed.err.contains(package), "{}", failed.err);
        nothing_is_left(&home, failed.id);
        let real = sh(&format!("command -v {tool}"));
        symlink(real.trim(), tools.join(tool)).unwrap();
    }
    assert!(!home.path("mnt").exists());
}

#[test]
fn after_a_signal_at_any_moment() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    let mut mounted = 0;
    for round in 0..14u64 {
        home.ok("disk create d --size 64MiB --force");
        let signal = if round % 2 == 0 { Signal::INT } else { Signal::TERM };
        let running = home.begin("disk mount d mnt");
        let id = running.id();
        // Mounting takes a fraction of a second: the moments are spread over it.
        pause_ms(round * 23);
        let (code, lines) = running.end(signal);
        let ready = lines.iter().any(|line| line["event"] == "ready");
        mounted += u32::from(ready);
        // Mounted and unmounted again; told to stop on the way; or dead before it listened for signals.
        let expected: &[i32] = if ready { &[0] } else { &[5, -1] };
        assert!(expected.contains(&code), "round {round}: exit code {code}, {lines:?}");
        nothing_is_left(&home, id);
        assert!(!home.path("mnt").exists());
        disk_is_well(&home, "d");
        assert_eq!(home.json("disk stat d")["smart"]["unsafe_shutdowns"], 0, "round {round}");
    }
    eprintln!("{mounted} of 14 were mounted when the signal came");
}

#[test]
fn after_each_signal_when_it_is_mounted() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    std::fs::create_dir(home.path("mnt")).unwrap();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (mounted, _) = home.start("disk mount d mnt --data journal");
        let id = mounted.id();
        let name = home.path(&format!("mnt/{}", signal.as_raw()));
        std::fs::write(&name, noise(1, 100_000)).unwrap();
        let (code, lines) = mounted.end(signal);
        assert_eq!((code, &lines[0]["event"]), (0, &"closed".into()), "{lines:?}");
        nothing_is_left(&home, id);
        assert!(home.path("mnt").exists(), "the user's own directory stays");
    }
    let (mounted, _) = home.start("disk mount d mnt --read-only");
    for name in ["mnt/2", "mnt/15", "mnt/1"] {
        assert!(std::fs::read(home.path(name)).unwrap() == noise(1, 100_000), "{name}");
    }
    assert_eq!(mounted.interrupt().0, 0);
    disk_is_well(&home, "d");
}

#[test]
fn after_it_was_unmounted_by_hand() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    for how in ["", "--lazy "] {
        let (mut mounted, _) = home.start("disk mount d mnt");
        let id = mounted.id();
        std::fs::write(home.path("mnt/kept"), noise(3, 100_000)).unwrap();
        sh(&format!("umount {how}{}", home.path("mnt").display()));
        assert_eq!(mounted.finish().0, 0);
        nothing_is_left(&home, id);
    }
    let (mut served, _) = home.start("disk serve d --fuse file");
    sh(&format!("umount {}", home.path("file").display()));
    assert_eq!(served.finish().0, 0);
    disk_is_well(&home, "d");
    let (mounted, _) = home.start("disk mount d mnt");
    assert!(std::fs::read(home.path("mnt/kept")).unwrap() == noise(3, 100_000));
    assert_eq!(mounted.interrupt().0, 0);
}

#[test]
fn after_its_user_has_gone() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    let (mut mounted, _) = home.start("disk mount d mnt");
    let id = mounted.id();
    let user = std::fs::File::create(home.path("mnt/open")).unwrap();
    mounted.signal(Signal::TERM);
    // It waits for its users; meanwhile the disk is open and the file system is there.
    pause_ms(300);
    home.run("disk check d").failed(5, "open elsewhere");
    drop(user);
    assert_eq!(mounted.finish().0, 0);
    nothing_is_left(&home, id);
    disk_is_well(&home, "d");
}

#[test]
fn after_a_second_signal_while_it_is_used() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    let (mut mounted, mut said) = home.listen("disk mount d mnt");
    wait_until("the mount", || home.path("mnt/lost+found").exists());
    std::fs::write(home.path("mnt/kept"), noise(2, 100_000)).unwrap();
    let user = std::fs::File::create(home.path("mnt/open")).unwrap();
    let mut line = || {
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        line
    };
    let signal = |signal| kill_process(Pid::from_child(&mounted), signal).unwrap();
    signal(Signal::INT);
    let (waiting, id) = (line(), std::process::id());
    assert!(waiting.starts_with("unmounting ") && waiting.contains(&format!("({id})")), "{waiting}");
    signal(Signal::INT);
    assert!(line().contains("what they wrote is kept, what they do now fails"));
    let ended = mounted.wait().unwrap();
    assert_eq!((ended.code(), line()), (Some(0), String::new()));
    assert!(!home.path("mnt").exists(), "the directory is gone although a file in it is open");
    drop(user);
    wait_until("the loop device is let go", || {
        !sh("losetup --list --noheadings").contains(&format!("/run/vellum-{}-", mounted.id()))
    });
    nothing_is_left(&home, mounted.id());
    disk_is_well(&home, "d");
    let (mounted, _) = home.start("disk mount d mnt");
    assert!(std::fs::read(home.path("mnt/kept")).unwrap() == noise(2, 100_000));
    assert_eq!(mounted.interrupt().0, 0);
}

#[test]
fn a_second_process_is_told_that_the_image_is_open() {
    if !can_mount(EXT_TOOLS) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    let (mounted, _) = home.start("disk mount d mnt");
    for line in [
        "disk mount d other",
        "disk serve d --nbd unix:v.sock",
        "disk serve d --fuse file",
        "disk record d --nbd unix:v.sock --to t.vtrace",
        "disk check d",
        "disk scrub d",
        "disk dump d --to dump",
        "disk repair d --write",
    ] {
        let failed = home.run(line);
        failed.failed(5, "open elsewhere");
        assert!(!home.path("other").exists() && !home.path("file").exists(), "{line}");
    }
    std::fs::write(home.path("mnt/f"), "still there").unwrap();
    assert_eq!(mounted.interrupt().0, 0);
    wait_until("the lock to be let go", || home.run("disk check d").code == 0);
}
