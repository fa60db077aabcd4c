//! Which devices the commands of an array take, inspect, and name in its file.

use crate::support::Home;
use std::sync::Arc;
use vellum::array::{Device, examine};
use vellum::array_file::ArrayFile;
use vellum::base::{BlockDevice, Lba};
use vellum::media::FileDisk;

/// A device of one array is taken by another only with two options.
#[test]
fn what_another_array_has_is_taken_by_nobody_unless_forced() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --cache ssd --nvram nv");
    home.ok("array create b.toml --level 5 --size 20MiB --members e0 e1 e2");
    let before = ["d1", "ssd", "nv"].map(|name| std::fs::read(home.path(name)).unwrap());
    for taken in ["d1", "ssd", "nv"] {
        home.run(&format!("array replace b.toml 0 {taken} --erase")).failed(5, "of array");
        home.run(&format!("array attach-cache b.toml {taken} --erase")).failed(5, "of array");
        let create = format!("array create c.toml --level 5 --size 20MiB --members f0 f1 {taken} --erase");
        home.run(&create).failed(5, "of array");
        let create =
            format!("array create c.toml --level 5 --size 20MiB --members f0 f1 f2 --cache {taken} --erase");
        home.run(&create).failed(5, "of array");
    }
    std::fs::write(home.path("new"), vec![0; 20 << 20]).unwrap();
    home.run("array attach-cache b.toml new --nvram nv --erase").failed(5, "the NVRAM of the cache of array");
    assert_eq!(home.json("array detail b.toml")["closed"], true, "what is refused changes nothing");
    home.ok("array fail b.toml 1");
    home.run("array add b.toml d1 --erase").failed(5, "a member of array");
    home.run("array add b.toml ssd --erase").failed(5, "the cache of array");
    let after = ["d1", "ssd", "nv"].map(|name| std::fs::read(home.path(name)).unwrap());
    assert!(before == after && !home.path("c.toml").exists());
    // What the array itself used before is its own.
    home.ok("array add b.toml e1 --erase");
    home.ok("array rebuild b.toml");
    home.ok("array fail b.toml 1");
    home.ok("array add b.toml d1 --erase --erase-foreign");
    assert_eq!(home.run("array detail a.toml").code, 1);
}

/// Watching an array that is not served does not lock its devices.
#[test]
fn who_only_looks_at_an_array_is_in_nobody_s_way() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    let held: Vec<_> = ["d0", "d1", "d2"].map(|name| FileDisk::open(&home.path(name)).unwrap()).into();
    let shown = home.json("array detail a.toml");
    assert_eq!(shown["devices"][2]["state"], "active", "{shown}");
    drop(held);
    let looked_at = FileDisk::look(&home.path("d1")).unwrap();
    home.ok("array scrub a.toml");
    assert!(looked_at.write(Lba(0), &[0; 4096], false).is_err());
}

/// A device that was missing while the others continued may have their event number, but is unknown to them: it does
/// not determine what is shown, nor what is assembled.
#[test]
fn what_is_shown_is_what_would_be_assembled() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    std::fs::copy(home.path("d1"), home.path("d9")).unwrap();
    let away: Device = Arc::new(FileDisk::open(&home.path("d9")).unwrap());
    let mut found = examine(&away).unwrap();
    found.table[1].id = [9; 16];
    for sector in [0, found.plot.member_sectors - 1] {
        away.write(Lba(sector), &found.encode(), true).unwrap();
    }
    drop(away);
    std::fs::write(home.path("a.toml"), "members = [\"d0\", \"d1\", \"d2\", \"d9\"]\n").unwrap();
    let shown = home.json("array detail a.toml");
    let states: Vec<_> = (0..4).map(|at| shown["devices"][at]["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["active", "active", "active", "stale"], "{shown}");
    assert_eq!(home.json("array scrub a.toml")["degraded_rows"], 0);
}

/// Concurrent changes of the file, as made by several commands.
#[test]
fn nobody_s_change_of_the_file_is_lost() {
    let home = Home::new();
    let file = home.path("a.toml");
    std::fs::write(&file, "members = []\n").unwrap();
    std::thread::scope(|scope| {
        for task in 0..4 {
            let file = &file;
            scope.spawn(move || {
                for change in 0..40 {
                    let name = format!("{task}-{change}").into();
                    ArrayFile::edit(file, |named| named.members.push(name)).unwrap();
                }
            });
        }
    });
    assert_eq!(ArrayFile::load(&file).unwrap().members.len(), 160);
}

/// Where the log is, its size, and whether the array is opened with it.
#[test]
fn detail_says_of_a_log_device_what_serve_does_with_it() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --log device --log-device log");
    let shows = |state: &str, code: i32| {
        let said = home.run("array detail a.toml --json");
        let seen: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let log = &seen["log_device"];
        assert_eq!((&log["state"], said.code), (&state.into(), code), "{seen}");
        assert!(log["device"] == "log" && (log["bytes"] == 20 << 20 || state == "away"), "{log}");
        let is_refused = code == 1;
        assert_eq!(log["problem"].is_string(), is_refused, "{log}");
        if is_refused {
            let said = home.refused("array serve a.toml --nbd unix:s");
            assert!([2, 3].contains(&said.code) && said.err.contains("log"), "{}", said.err);
        }
    };
    let kept = std::fs::read(home.path("log")).unwrap();
    shows("ours", 0);
    assert!(home.ok("array detail a.toml").contains("log device: log, 20.00 MiB, as it was left\n"));
    std::fs::write(home.path("log"), vec![5; kept.len()]).unwrap();
    shows("refused", 1);
    std::fs::remove_file(home.path("log")).unwrap();
    shows("away", 1);
    std::fs::write(home.path("log"), kept).unwrap();
    let (server, _) = home.start("array serve a.toml --nbd unix:s");
    shows("in use", 0);
    assert!(home.ok("array detail a.toml").contains("log device: log, 20.00 MiB, in use\n"));
    assert_eq!(server.interrupt().0, 0);
}

/// The advice for a log device that is gone for good works, and the array has another log device then.
#[test]
fn a_log_device_that_is_gone_is_replaced_as_its_error_says() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --log device --log-device log");
    std::fs::remove_file(home.path("log")).unwrap();
    let detail = home.run("array detail a.toml");
    for said in [home.run("array flush a.toml").err, home.run("array flush a.toml --force").err, detail.out] {
        assert!(said.contains("name another device as log in"), "{said}");
        assert!(
            said.contains("(truncate -s SIZE") && said.contains("say --force: that one takes its place"),
            "{said}"
        );
    }
    let help = home.ok("array flush --help");
    assert!(help.contains("once FILE names another in its place"), "{help}");
    std::fs::File::create(home.path("log")).unwrap().set_len(20 << 20).unwrap();
    home.ok("array flush a.toml --force");
    home.ok("array flush a.toml");
}
