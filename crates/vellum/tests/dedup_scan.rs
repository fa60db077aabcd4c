//! `dedup-scan` from the command line.

use crate::support::Home;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Ten files of 64 KiB, four of them equal.
fn home() -> Home {
    let home = Home::new();
    std::fs::create_dir(home.path("tree")).unwrap();
    for i in 0..10u8 {
        let content = if i < 4 { 200 } else { i };
        let bytes: Vec<u8> = (0..65536u32).map(|at| (at / 2048) as u8 ^ content | 1 << 6).collect();
        std::fs::write(home.path("tree").join(i.to_string()), bytes).unwrap();
    }
    home
}

/// Removes what differs from run to run.
fn figures(mut found: Value) -> Value {
    let fields = found.as_object_mut().unwrap();
    fields.remove("seconds").unwrap();
    fields.remove("threads").unwrap();
    found
}

#[test]
fn one_set_of_data_gives_one_answer() {
    let home = home();
    let one = figures(home.json("dedup-scan tree --threads 1"));
    assert_eq!(one, figures(home.json("dedup-scan tree --threads 4")));
    let twice = home.json("dedup-scan tree/0 tree --chunk 2KiB");
    assert_eq!((&one["sizes"], &twice["left_out"]["hard_links"]), (&twice["sizes"], &1.into()));
    assert_eq!((&one["files"], &one["file_bytes"]), (&10.into(), &655_360.into()));
    let at_32k = &one["sizes"][4];
    assert_eq!((&at_32k["chunks"], &at_32k["zero_chunks"]), (&20.into(), &0.into()));
}

#[test]
fn people_get_three_tables() {
    let home = home();
    let said = home.ok("dedup-scan tree --chunk 32KiB");
    for part in ["10 files of 640.00 KiB", "redundancy by chunk size", "skew at 32 KiB", "best", "100%"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("skew at 8 KiB") && !said.contains("SAMPLED"), "{said}");
    std::fs::write(home.path("alone"), b"hello").unwrap();
    let said = home.ok("dedup-scan alone");
    assert!(said.contains("no content is there twice at 8 KiB") && !said.contains("skew"), "{said}");
}

#[test]
fn a_report_has_charts_and_is_kept() {
    let home = home();
    home.ok("dedup-scan tree --chunk 4KiB --report r.html");
    let page = std::fs::read_to_string(home.path("r.html")).unwrap();
    assert_eq!(page.matches("<svg").count(), 3);
    assert!(page.contains("at 4 KiB") && page.contains("All chunk sizes"), "{page}");
    home.run("dedup-scan tree --report r.html").failed(2, "exists already");
}

#[test]
fn looking_changes_nothing() {
    let home = home();
    let atime = || std::fs::metadata(home.path("tree/5")).unwrap().accessed().unwrap();
    let before = atime();
    home.ok("dedup-scan tree");
    assert_eq!(atime(), before);
}

#[test]
fn mistakes_are_said() {
    let home = home();
    home.run("dedup-scan nowhere").failed(3, "nowhere");
    home.run("dedup-scan /dev/null").failed(2, "no directory, file or block device");
    home.run("dedup-scan tree --memory 4k").failed(2, "memory");
    for line in ["dedup-scan", "dedup-scan tree --chunk 3KiB", "dedup-scan tree --threads 0"] {
        assert_eq!(home.run(line).code, 2, "{line}");
    }
}

#[test]
fn what_cannot_be_read_is_named_and_ends_with_1() {
    /// An ordinary user: root can read everything.
    const NOBODY: u32 = 65534;
    let home = home();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(home.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(home.path("tree/closed")).unwrap();
    mode("tree/3", 0);
    mode("tree/closed", 0);
    mode("", 0o755);
    let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
    command.args(["dedup-scan", "tree", "--json"]).current_dir(home.dir());
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let said = match command.output() {
        Ok(said) => said,
        Err(e) => return eprintln!("skipped: an ordinary user may not run the binary: {e}"),
    };
    mode("tree/closed", 0o700);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let found: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((&found["files"], &found["left_out"]["unreadable"]), (&9.into(), &2.into()));
    let named: Vec<_> = found["unread"].as_array().unwrap().iter().map(|u| u["path"].clone()).collect();
    assert_eq!(named, ["tree/3", "tree/closed"]);
}
