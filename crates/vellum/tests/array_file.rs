//! The file that names an array's devices: it stays in step with the array, and errors in it are reported.

use crate::nbd::Client;
use crate::support::Home;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

const SERVE: &str = "array serve a.toml --nbd unix:a.sock";

fn write_a_sector(home: &Home) -> crate::support::Running {
    let (server, _) = home.start(SERVE);
    Client::connect(&home.path("a.sock")).write(0, &[7; 4096]).unwrap();
    server
}

fn change(home: &Home, from: &str, to: &str) {
    let text = std::fs::read_to_string(home.path("a.toml")).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(home.path("a.toml"), text.replace(from, to)).unwrap();
}

/// If the new file cannot be written, nothing is done: new devices are not taken, and the array is unchanged.
#[test]
fn nothing_is_changed_where_the_file_cannot_be() {
    let home = Home::new();
    let blocked = |is| match is {
        true => std::fs::create_dir(home.path("a.toml.new")).unwrap(),
        false => std::fs::remove_dir(home.path("a.toml.new")).unwrap(),
    };
    let create = "array create a.toml --level 5 --size 20MiB --members d0 d1 d2";
    blocked(true);
    home.run(create).failed(3, "write");
    assert!(!home.path("a.toml").exists() && !home.path("d0").exists());
    blocked(false);
    home.ok(create);

    let before = std::fs::read(home.path("a.toml")).unwrap();
    home.ok("array fail a.toml 1");
    blocked(true);
    home.run("array add a.toml d3").failed(3, "write");
    home.run("array attach-cache a.toml ssd --size 20MiB").failed(3, "write");
    assert!(!home.path("d3").exists() && !home.path("ssd").exists());
    assert!(std::fs::read(home.path("a.toml")).unwrap() == before);
    let shown: serde_json::Value = serde_json::from_str(&home.run("array detail a.toml --json").out).unwrap();
    assert_eq!(
        (&shown["missing_roles"], &shown["closed"]),
        (&serde_json::json!([1]), &true.into()),
        "{shown}"
    );
    blocked(false);
    home.ok("array add a.toml d3");
    home.ok("array rebuild a.toml");
    home.ok("array attach-cache a.toml ssd --size 20MiB");
    write_a_sector(&home).interrupt();
    home.ok("array scrub a.toml");
    assert!(!home.path("a.toml.new").exists());
}

/// Existing devices are not part of an array if the array could not be named.
#[test]
fn devices_of_an_array_that_was_not_made_are_nobody_s() {
    let home = Home::new();
    for name in ["d0", "d1", "d2"] {
        std::fs::write(home.path(name), vec![5; 20 << 20]).unwrap();
    }
    std::fs::create_dir(home.path("a.toml.new")).unwrap();
    let create = "array create a.toml --level 5 --members d0 d1 d2 --erase";
    home.run(create).failed(3, "write");
    assert!(std::fs::read(home.path("d0")).unwrap().iter().all(|byte| *byte == 5), "nothing was written");
    std::fs::remove_dir(home.path("a.toml.new")).unwrap();
    home.ok(create);
}

#[test]
fn a_file_behind_a_link_stays_there_and_keeps_its_mode_and_owner() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    std::fs::create_dir(home.path("conf")).unwrap();
    std::fs::rename(home.path("a.toml"), home.path("conf/real")).unwrap();
    symlink("conf/real", home.path("a.toml")).unwrap();
    std::fs::set_permissions(home.path("conf/real"), PermissionsExt::from_mode(0o640)).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(home.path("conf/real"), Some(1234), Some(4321)).unwrap();
    }
    let before = home.path("conf/real").metadata().unwrap();
    home.ok("array attach-cache a.toml ssd --size 20MiB");
    assert!(home.path("a.toml").is_symlink());
    assert!(std::fs::read_to_string(home.path("conf/real")).unwrap().contains("ssd"));
    let after = home.path("conf/real").metadata().unwrap();
    let told = |of: &std::fs::Metadata| (of.mode(), of.uid(), of.gid());
    assert_eq!(told(&after), told(&before));
    assert!(after.ino() != before.ino(), "another took its place at once");
    let names: Vec<_> =
        std::fs::read_dir(home.path("conf")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["real"]);
}

/// A missing file has its own exit code, with advice on how to make one.
#[test]
fn a_file_that_is_not_there_is_one_to_create() {
    let home = Home::new();
    for command in ["array stat a.toml", "array flush a.toml", SERVE] {
        home.run(command).failed(3, "a.toml is not there: `vellum array create` makes an array");
    }
    home.run("array detail .").failed(2, ". is a directory");
}

/// The members were closed with a cache that the file does not name: both ways out are reported, and work.
#[test]
fn a_cache_that_the_file_does_not_name_can_be_let_go_of() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    home.run("array detach-cache a.toml").failed(2, "the array has no cache");
    home.run("array detach-cache --force a.toml").failed(2, "the array has no cache");
    home.ok("array attach-cache a.toml ssd --size 20MiB");
    write_a_sector(&home).interrupt();
    change(&home, "cache = \"ssd\"\n", "");
    for refused in
        ["array detach-cache a.toml", "array flush a.toml", SERVE, "array attach-cache a.toml n --size 20MiB"]
    {
        let said = home.refused(refused);
        assert!(
            said.code > 1 && said.err.contains("vellum array detach-cache --force a.toml"),
            "{}",
            said.err
        );
        assert!(said.err.contains("cache = \"SSD\""), "{}", said.err);
    }
    home.ok("array detach-cache --force a.toml");
    home.ok("array scrub a.toml");
}

/// A command refused because the cache is missing changes nothing, and does not replay the log.
#[test]
fn an_array_without_its_cache_is_refused_before_anything_is_written() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --cache ssd --nvram nv");
    write_a_sector(&home).kill();
    let members = || ["d0", "d1", "d2"].map(|name| std::fs::read(home.path(name)).unwrap());
    let before = members();
    std::fs::rename(home.path("ssd"), home.path("away")).unwrap();
    for refused in ["array flush a.toml", "array scrub a.toml", SERVE, "array detach-cache a.toml"] {
        let said = home.refused(refused);
        assert!(said.err.contains("the cache ssd cannot be opened"), "{}", said.err);
        assert!(said.err.contains("vellum array detach-cache --force a.toml"), "{}", said.err);
        assert!(members() == before, "{refused}");
    }
    std::fs::rename(home.path("away"), home.path("ssd")).unwrap();
    home.ok("array flush a.toml");
    home.ok("array scrub a.toml");
}

#[test]
fn what_is_no_device_or_is_named_twice_is_said() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --cache ssd");
    let good = std::fs::read_to_string(home.path("a.toml")).unwrap();
    change(&home, "\"ssd\"", "\"./d1\"");
    home.run("array flush a.toml").failed(2, "one device is named twice: as member d1 and as cache ./d1");
    std::fs::write(home.path("a.toml"), &good).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, home.path("p"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    change(&home, "\"d1\"", "\"p\"");
    let detail = home.run("array detail a.toml");
    assert!(detail.out.contains("neither a file nor a block device"), "{}{}", detail.out, detail.err);
    home.run("array flush a.toml").failed(3, "p is neither a file nor a block device");
}

/// In RAID-6 a scrub names the wrong member's device and the rows, and still compares with one member missing.
#[test]
fn a_scrub_names_the_member_that_was_wrong() {
    let home = Home::new();
    home.ok("array create a.toml --level 6 --chunk 16KiB --size 20MiB --members d0 d1 d2 d3 d4");
    write_a_sector(&home).interrupt();
    let start = home.json("array detail a.toml")["data_start_bytes"].as_u64().unwrap();
    let mut bytes = std::fs::read(home.path("d2")).unwrap();
    for row in [3, 5] {
        bytes[start as usize + row * (16 << 10)] ^= 1;
    }
    std::fs::write(home.path("d2"), bytes).unwrap();
    let said = home.run("array scrub a.toml");
    assert_eq!(said.code, 1);
    assert!(said.out.contains("member 2, d2 was wrong, 2 sectors; rows 3, 5\n"), "{}", said.out);
    assert!(said.out.contains("next: `vellum array scrub FILE --repair located` puts"), "{}", said.out);
    let scrubbed: serde_json::Value =
        serde_json::from_str(&home.run("array scrub a.toml --repair located --json").out).unwrap();
    let wrong = serde_json::json!([{ "role": 2, "device": "d2", "sectors": 2, "rows": [3, 5] }]);
    assert_eq!((&scrubbed["wrong_members"], &scrubbed["corrected"]), (&wrong, &2.into()), "{scrubbed}");
    home.ok("array fail a.toml 2");
    let degraded = home.run("array scrub a.toml");
    assert!(degraded.code == 0 && degraded.out.contains("compared by the other parity"), "{}", degraded.out);
}
