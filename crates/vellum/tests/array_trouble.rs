//! Arrays with faulty devices: what is reported, and what works all the same.

use crate::nbd::Client;
use crate::support::Home;
use std::process::Stdio;

const SERVE: &str = "array serve a.toml --nbd unix:a.sock";

/// Serves the array, writes and reads a sector, and ends it; returns the remarks.
fn serve(home: &Home) -> String {
    let remarks = std::fs::File::create(home.path("remarks")).unwrap();
    let mut server = home.begin_with_remarks_to(SERVE, Stdio::from(remarks));
    assert!(server.next_line().is_some(), "{}", std::fs::read_to_string(home.path("remarks")).unwrap());
    let mut client = Client::connect(&home.path("a.sock"));
    client.write(0, &[7; 4096]).unwrap();
    let mut bytes = vec![0; 4096];
    client.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [7; 4096]);
    drop(client);
    assert_eq!(server.interrupt().0, 0);
    std::fs::read_to_string(home.path("remarks")).unwrap()
}

fn assert_says(said: &str, what: &[&str]) {
    for what in what {
        assert!(said.contains(what), "'{what}' is not in: {said}");
    }
}

fn seen(home: &Home) -> serde_json::Value {
    serde_json::from_str(&home.run("array detail a.toml --json").out).unwrap()
}

fn cut(home: &Home, name: &str, bytes: u64) {
    std::fs::File::options().write(true).open(home.path(name)).unwrap().set_len(bytes).unwrap();
}

/// A truncated member counts as missing, and everything works without it.
#[test]
fn an_array_goes_on_without_a_member_that_was_cut_short() {
    let home = Home::new();
    home.ok("array create a.toml --level 6 --chunk 16KiB --size 20MiB --members g0 g1 g2 g3");
    serve(&home);
    cut(&home, "g1", 10 << 20);
    let detail = home.run("array detail a.toml");
    assert_eq!(detail.code, 1);
    assert_says(&detail.out, &["degraded", "cut short: it has 10MiB, its superblock says 20MiB"]);
    let shown = seen(&home);
    assert_eq!(
        (&shown["devices"][1]["state"], &shown["devices"][1]["role"], &shown["state"]),
        (&"cut short".into(), &1.into(), &"degraded".into()),
        "{shown}"
    );
    assert_eq!(shown["missing_roles"], serde_json::json!([1]), "{shown}");
    let said = serve(&home);
    assert_says(
        &said,
        &["going on without g1: it was cut short", "degraded: role 1 is missing", "array add"],
    );
    home.ok("array fail a.toml 2");
    home.ok("array add a.toml g4");
    home.ok("array add a.toml g5");
    assert_eq!(home.json("array rebuild a.toml")["complete"], true);
    assert_eq!(home.json("array detail a.toml")["state"], "clean");
    assert_eq!(home.json("array scrub a.toml")["mismatches"], 0);
}

/// The array to which most devices belong decides; a device of another one is left out, and a second copy is refused by
/// name.
#[test]
fn a_device_of_another_array_does_not_take_the_array_over() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 20MiB --members x0 x1 x2");
    let ours = seen(&home)["array"].clone();
    // Its event number is higher, which means nothing, as it belongs to another array.
    home.ok(
        "array create y.toml --level 5 --chunk 16KiB --size 20MiB --members x1 y1 y2 --erase --erase-foreign",
    );
    home.ok("array scrub y.toml");
    home.ok("array scrub y.toml");
    let shown = seen(&home);
    let states: Vec<_> = (0..3).map(|at| shown["devices"][at]["state"].as_str().unwrap()).collect();
    assert_eq!((&shown["array"], states), (&ours, vec!["active", "foreign", "active"]), "{shown}");
    assert_eq!((&shown["state"], &shown["missing_roles"][0]), (&"degraded".into(), &1.into()), "{shown}");
    assert_says(
        &home.run("array detail a.toml").out,
        &["x1", "belongs to another array", "role 1", "missing"],
    );
    let before = std::fs::read(home.path("x1")).unwrap();
    let said = serve(&home);
    assert_says(&said, &["without x1: it belongs to another array", "degraded: role 1 is missing"]);
    assert!(std::fs::read(home.path("x1")).unwrap() == before, "it is the other's");

    let named = std::fs::read_to_string(home.path("a.toml")).unwrap();
    std::fs::write(home.path("a.toml"), "members = [\"x0\", \"x2\", \"y1\", \"y2\"]\n").unwrap();
    home.run(SERVE).failed(2, "as many devices of one array as of another");
    std::fs::copy(home.path("x0"), home.path("copy")).unwrap();
    std::fs::write(home.path("a.toml"), "members = [\"x0\", \"x2\", \"copy\"]\n").unwrap();
    home.run(SERVE).failed(2, "copy: it is role 0, which another device is, too");
    assert_eq!(seen(&home)["devices"][2]["state"], "copy");
    std::fs::write(home.path("a.toml"), named).unwrap();
}

/// The file states the id of its array: if most of its devices were taken for another array, that is not started
/// instead.
#[test]
fn a_file_whose_devices_were_taken_does_not_start_the_array_that_took_them() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 20MiB --members x0 x1 x2");
    let file = std::fs::read_to_string(home.path("a.toml")).unwrap();
    home.ok(
        "array create y.toml --level 5 --chunk 16KiB --size 20MiB --members x1 x2 y0 --erase --erase-foreign",
    );
    let before = std::fs::read(home.path("x1")).unwrap();
    for command in [SERVE, "array detail a.toml", "array scrub a.toml", "array fail a.toml 0"] {
        home.run(command).failed(2, "x1, x2 belong to another one");
    }
    assert!(std::fs::read(home.path("x1")).unwrap() == before, "it is the other's");
    // An older file without the id, and one that was changed by hand.
    let without: String = file.lines().filter(|line| !line.starts_with("array")).collect();
    assert_ne!(without, file);
    std::fs::write(home.path("a.toml"), without).unwrap();
    assert_says(&home.run("array detail a.toml").out, &["x0", "belongs to another array"]);
    let theirs = std::fs::read_to_string(home.path("y.toml")).unwrap();
    let line = theirs.lines().find(|line| line.starts_with("array")).unwrap();
    home.ok("array fail y.toml x2");
    home.ok("array remove y.toml x2");
    let rewritten = std::fs::read_to_string(home.path("y.toml")).unwrap();
    assert!(rewritten.contains(line) && !rewritten.contains("x2"), "{rewritten}");
}

/// A loss of redundancy is reported, not found by chance.
#[test]
fn a_degraded_array_says_so() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 20MiB --members m0 m1 m2");
    assert!(!serve(&home).contains("degraded"));
    assert_eq!(
        (&seen(&home)["state"], &seen(&home)["missing_roles"]),
        (&"clean".into(), &serde_json::json!([]))
    );
    home.ok("array fail a.toml m1");
    assert_says(&serve(&home), &["degraded: role 1 is missing", "vellum array add a.toml PATH"]);
    home.ok("array remove a.toml 1");
    let detail = home.run("array stat a.toml");
    assert_eq!(detail.code, 1);
    assert_says(&detail.out, &["degraded", "role 1", "missing"]);
    std::fs::remove_file(home.path("m2")).unwrap();
    assert_eq!(seen(&home)["state"], "failed");
    let said = home.run(SERVE);
    assert_eq!(said.code, 3, "{}", said.err);
    assert_says(&said.err, &["going on without m2", "error: members 1, 2 of 3 are missing"]);
    std::fs::remove_file(home.path("m0")).unwrap();
    home.run("array detail a.toml").failed(3, "no device of a.toml can be opened");
    for name in ["m0", "m2"] {
        std::fs::write(home.path(name), vec![5; 1 << 20]).unwrap();
    }
    let said = home.run("array detail a.toml");
    said.failed(4, "no device of a.toml is one of an array; m0:");
    assert!(!said.err.contains("disk repair"), "{}", said.err);
}

/// A cache or NVRAM that the file names but is missing is reported by name, whether it was needed or not.
#[test]
fn a_cache_that_cannot_be_opened_is_told() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 20MiB --members d0 d1 d2 --cache ca");
    serve(&home);
    std::fs::rename(home.path("ca"), home.path("away")).unwrap();
    home.run(SERVE).failed(3, "the cache ca cannot be opened");
    std::fs::rename(home.path("away"), home.path("ca")).unwrap();
    let (server, _) = home.start(SERVE);
    home.run(SERVE).failed(5, "a.toml is served");
    home.run("array attach-cache a.toml more --size 20MiB").failed(2, "has a cache");
    server.kill();
    std::fs::rename(home.path("ca"), home.path("away")).unwrap();
    assert_says(
        &serve(&home),
        &[
            "going on without the cache ca",
            "what was acknowledged is on the members, and parity that was put off is made anew in the background",
            "vellum array stat a.toml",
        ],
    );
    assert_a_server_says_that_it_has_no_cache(&home);

    home.ok("array attach-cache a.toml ssd --size 20MiB --nvram nv");
    let (server, _) = home.start(SERVE);
    server.kill();
    std::fs::remove_file(home.path("nv")).unwrap();
    home.run(SERVE).failed(3, "the cache's NVRAM nv cannot be opened");
}

/// Reported as long as the file names one that was missing.
fn assert_a_server_says_that_it_has_no_cache(home: &Home) {
    let (server, _) = home.start(SERVE);
    let cache = &seen(home)["cache"];
    assert_eq!((&cache["device"], &cache["state"]), (&"ca".into(), &"away".into()), "{cache}");
    assert!(cache["problem"].as_str().unwrap().contains("open ca"), "{cache}");
    let stat = home.run("array stat a.toml");
    assert_eq!(stat.code, 1, "{}", stat.out);
    assert_says(&stat.out, &["cache: ca, not used: open ca", "vellum array detach-cache"]);
    home.ok("array detach-cache a.toml");
    assert!(home.json("array stat a.toml").get("cache").is_none(), "it was let go of");
    assert_eq!(server.interrupt().0, 0);
}

/// A failed command removes what it created, and keeps what existed: the corrected command works.
#[test]
fn what_is_refused_leaves_nothing_behind() {
    let home = Home::new();
    let there = |home: &Home| {
        let mut names: Vec<_> =
            std::fs::read_dir(home.dir()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    home.ok("array create y.toml --level 5 --size 20MiB --members y0 y1 y2");
    std::fs::create_dir(home.path("dir")).unwrap();
    std::fs::write(home.path("plain"), vec![5; 20 << 20]).unwrap();
    let before = there(&home);
    let plain = std::fs::read(home.path("plain")).unwrap();
    let create = "array create a.toml --level 5 --size 20MiB";
    for (more, code, what) in [
        ("--members d0 d1 d2 --log device", 2, "the device that the log is to be on"),
        ("--members d0 d1 d2 --cache ssd --cache-size 1MiB", 2, "an SSD of 1MiB is too small"),
        ("--members d0 d1 d2 --cache ssd --cache-size 9437184TiB", 3, "size ssd: "),
        ("--members plain d1 d2 --cache ssd --cache-size 1MiB --erase", 2, "an SSD of 1MiB is too small"),
        ("--members d0 d1 y1 --erase", 5, "of array"),
        ("--members d0 d1 dir --erase", 3, "dir"),
        ("--members d0 d1", 2, "takes 3 to 64 members"),
        ("--members d0 d1 d2 --chunk 12KiB", 2, "not 12KiB"),
    ] {
        let said = home.run(&format!("{create} {more}"));
        said.failed(code, what);
        assert_eq!(there(&home), before, "{more}");
    }
    let too_large = |line: &str| {
        let said = home.run(&format!("array {line} --size 9437184TiB"));
        assert!(said.code == 3 && said.err.contains("next: no file can be as large"), "{}", said.err);
    };
    too_large("create a.toml --level 5 --members d0 d1 d2");
    assert_eq!(there(&home), before);
    assert!(std::fs::read(home.path("plain")).unwrap() == plain);
    home.ok(&format!("{create} --members d0 d1 d2"));
    let before = there(&home);
    home.run("array attach-cache a.toml ssd --size 1MiB").failed(2, "an SSD of 1MiB is too small");
    home.run("array attach-cache a.toml ssd --size 20MiB --dwpd 0.0000001").failed(2, "is never written");
    too_large("attach-cache a.toml ssd");
    assert_eq!(there(&home), before);
    home.ok("array attach-cache a.toml ssd --size 20MiB --nvram nv");
}

/// A rebuild does not fill a file with zeros where nothing was ever written.
#[test]
fn an_array_that_was_never_written_to_is_sparse_after_a_rebuild() {
    use std::os::unix::fs::MetadataExt;
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2");
    home.ok("array fail a.toml d1");
    home.ok("array add a.toml d3");
    home.ok("array rebuild a.toml");
    let stored = home.path("d3").metadata().unwrap().blocks() * 512;
    assert!(stored < 8 << 20, "{stored} bytes are stored");
    serve(&home);
    home.ok("array fail a.toml d2");
    home.ok("array add a.toml d4");
    home.ok("array rebuild a.toml");
    home.ok("array fail a.toml d0");
    let (server, _) = home.start(SERVE);
    let mut client = Client::connect(&home.path("a.sock"));
    let mut bytes = vec![0; 8192];
    client.read(0, &mut bytes).unwrap();
    assert!(bytes[..4096] == [7; 4096] && bytes[4096..] == [0; 4096]);
    drop(client);
    assert_eq!(server.interrupt().0, 0);
}
