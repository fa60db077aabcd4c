//! The machine under the tests: its tools, its kernel, and what is left on it.

use crate::support::Home;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Tools for mounting an ext file system.
pub const EXT_TOOLS: &[&str] = &["losetup", "mount", "umount", "mkfs.ext4", "mkfs.ext3", "e2fsck"];
const TOOL_LIMIT: &str = "150";
const POLL_MS: u64 = 20;

/// True if all tools are installed; otherwise reports the skipped test.
pub fn have(tools: &[&str]) -> bool {
    let missing: Vec<_> = tools.iter().filter(|tool| !try_sh(&format!("command -v {tool}")).0).collect();
    if !missing.is_empty() {
        skipped(&format!("not installed: {missing:?}"));
    }
    missing.is_empty()
}

/// True if file systems can be mounted and all tools are installed; otherwise reports the skipped test.
pub fn can_mount(tools: &[&str]) -> bool {
    let devices = ["/dev/fuse", "/dev/loop-control"];
    let able = rustix::process::geteuid().is_root() && devices.iter().all(|d| Path::new(d).exists());
    if !able {
        skipped("needs root, /dev/fuse and loop devices");
    }
    able && have(tools)
}

/// True if the kernel can mount this kind of file system; otherwise reports the skipped test.
pub fn kernel_has(kind: &str) -> bool {
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let has = known.split_whitespace().any(|word| word == kind) || try_sh(&format!("modprobe {kind}")).0;
    if !has {
        skipped(&format!("this kernel has no {kind}"));
    }
    has
}

/// Reports why a test is skipped, bypassing the harness that captures the output of passing tests.
pub fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {why}");
}

/// Runs a shell command with a time limit; returns whether it succeeded, and all its output.
pub fn try_sh(command: &str) -> (bool, String) {
    let limited = ["-k", "5", TOOL_LIMIT, "sh", "-c", command];
    let out = Command::new("timeout").args(limited).env("LC_ALL", "C").output().unwrap();
    (out.status.success(), String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned())
}

/// The same, but must succeed.
#[track_caller]
pub fn sh(command: &str) -> String {
    let (fine, said) = try_sh(command);
    assert!(fine, "{command}: {said}");
    said
}

/// Makes a file system. mkfs.btrfs inspects what every mount of the machine is on, and gives up if the server under one
/// has been killed, as other tests do: here it sees no mounts.
#[track_caller]
pub fn make_fs(mkfs: &str) {
    sh(&format!("unshare -m sh -c 'mount --bind /dev/null /proc/$$/mounts && exec {mkfs}'"));
}

/// Waits until a condition holds, at most a minute.
#[track_caller]
pub fn wait_until(what: &str, mut so: impl FnMut() -> bool) {
    for _ in 0..60_000 / POLL_MS {
        if so() {
            return;
        }
        pause_ms(POLL_MS);
    }
    panic!("a minute was not enough for: {what}");
}

/// Pauses a test in real time, for an arbitrary moment.
#[expect(clippy::disallowed_methods, reason = "real servers and kernels take real time")]
pub fn pause_ms(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

/// Runs a task concurrently with the test.
#[expect(clippy::disallowed_methods, reason = "a real workload beside a real server")]
pub fn beside<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    std::thread::spawn(run)
}

/// The disk and its ledger are in order, and an ext file system on it passes e2fsck. The disk must be closed.
#[track_caller]
pub fn all_is_well(home: &Home, disk: &str) {
    disk_is_well(home, disk);
    fsck_is_content(home, &format!("disk serve {disk} --read-only"));
}

/// The ext file system on the device that a command serves passes e2fsck.
#[track_caller]
pub fn fsck_is_content(home: &Home, serve: &str) {
    let (server, _) = home.start(&format!("{serve} --fuse for-fsck"));
    let (fine, said) = try_sh(&format!("e2fsck -fn {}", home.path("for-fsck").display()));
    assert!(fine && !said.contains("Fix") && !said.contains("WARNING"), "{said}");
    assert_eq!(server.interrupt().0, 0);
}

/// A closed disk is clean, and its ledger equals what the flash reports as programmed.
#[track_caller]
pub fn disk_is_well(home: &Home, disk: &str) {
    let checked = home.json(&format!("disk check {disk}"));
    assert_eq!(checked["clean"], true, "{checked}");
    let ledger = &home.json(&format!("disk stat {disk}"))["ledger"];
    assert_eq!(ledger["programmed_bytes"], ledger["device_programmed_bytes"], "{ledger}");
}

/// Nothing of `vellum` process `id` and its children is left: no mount, loop device, file in /run or process.
#[track_caller]
pub fn nothing_is_left(home: &Home, id: u32) {
    let ours = [home.dir().display().to_string(), format!("/run/vellum-{id}-")];
    let named = |text: &str| ours.iter().any(|name| text.contains(name));
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!named(&mounts), "still mounted: {mounts}");
    let loops = sh("losetup --list --noheadings --output BACK-FILE");
    assert!(!named(&loops), "still attached: {loops}");
    let run: Vec<_> = std::fs::read_dir("/run").unwrap().map(|e| e.unwrap().path()).collect();
    assert!(!run.iter().any(|path| named(&path.display().to_string())), "{run:?}");
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        // Every child inherits the directory.
        let cwd = std::fs::read_link(process.path().join("cwd")).unwrap_or_default();
        assert!(!cwd.starts_with(home.dir()), "{} still runs", process.path().display());
    }
}
