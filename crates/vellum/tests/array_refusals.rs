//! What the commands of an array refuse: the device at fault, and a next step that works.

use crate::nbd::Client;
use crate::support::{Home, Said};

const SERVE: &str = "array serve a.toml --nbd unix:a.sock";

fn open_and_close(home: &Home) {
    let (server, _) = home.start(SERVE);
    Client::connect(&home.path("a.sock")).write(0, &[7; 4096]).unwrap();
    assert_eq!(server.interrupt().0, 0);
}

/// The command ended with `code`; its last two lines say what happened, and what to do.
#[track_caller]
fn assert_refused(said: &Said, code: i32, what: &str, next: &str) {
    assert_eq!(said.code, code, "{}{}", said.out, said.err);
    let lines: Vec<_> = said.err.lines().rev().take(2).collect();
    assert!(lines[1].starts_with("error: ") && lines[1].contains(what), "{}", said.err);
    assert!(lines[0].starts_with(" next: ") && lines[0].contains(next), "{}", said.err);
    assert!(!lines[0].contains("--help"), "{}", said.err);
}

/// `detail` reports what opening the array will say about the cache, and which file that is.
#[test]
fn detail_says_of_a_cache_what_serve_does_with_it() {
    let home = Home::new();
    home.ok("array create b.toml --level 5 --size 20MiB --members e0 e1 e2 --cache theirs");
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --cache ssd");
    open_and_close(&home);
    std::fs::copy(home.path("ssd"), home.path("older")).unwrap();
    open_and_close(&home);
    std::fs::copy(home.path("ssd"), home.path("own")).unwrap();
    assert_eq!(home.json("array detail a.toml")["cache"]["state"], "closed");
    let cut = std::fs::read(home.path("own")).unwrap()[..10 << 20].to_vec();
    let garbage = vec![5; 20 << 20];
    for (state, bytes) in [
        ("cut short", Some(cut)),
        ("foreign", Some(std::fs::read(home.path("theirs")).unwrap())),
        ("unknown", Some(garbage)),
        ("out of step", Some(std::fs::read(home.path("older")).unwrap())),
        ("unknown", None),
    ] {
        std::fs::remove_file(home.path("ssd")).unwrap();
        bytes.into_iter().for_each(|bytes| std::fs::write(home.path("ssd"), bytes).unwrap());
        let looked = home.run("array detail a.toml --json");
        let shown: serde_json::Value = serde_json::from_str(&looked.out).unwrap();
        assert_eq!((&shown["cache"]["state"], looked.code), (&state.into(), 1), "{shown}");
        let described = home.run("array detail a.toml").out;
        assert!(described.contains("serve` refuses it; with --force"), "{described}");
        let served = home.run(SERVE);
        assert_refused(&served, 3, "the cache ssd", "--force goes on without it");
        assert!(served.err.contains("detach-cache --force a.toml"), "{}", served.err);
        let let_go = home.run("array detach-cache a.toml");
        assert_refused(&let_go, served.code, "the cache ssd", "vellum array detach-cache --force a.toml");
        std::fs::write(home.path("ssd"), "").unwrap();
    }
    std::fs::copy(home.path("own"), home.path("ssd")).unwrap();
    home.ok("array detail a.toml");
    let (server, _) = home.start(SERVE);
    server.kill();
    assert_eq!(home.json("array detail a.toml")["cache"]["state"], "not closed");
    std::fs::remove_file(home.path("ssd")).unwrap();
    let looked = home.run("array detail a.toml");
    assert!(looked.code == 1 && looked.out.contains("the array goes on without it"), "{}", looked.out);
    open_and_close(&home);
    std::fs::write(home.path("ssd"), vec![5; 20 << 20]).unwrap();
    let looked = home.run("array detail a.toml");
    assert!(looked.code == 1 && looked.out.contains("the array goes on without it"), "{}", looked.out);
    open_and_close(&home);
}

/// What `detail` finds in order is served, and anything else is refused.
#[test]
fn detail_says_of_what_the_file_names_what_serve_does_with_it() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --cache ssd");
    open_and_close(&home);
    let file = std::fs::read_to_string(home.path("a.toml")).unwrap();
    let without_cache = file.replace("cache = \"ssd\"\n", "");
    let twice = file.replace("\"d2\"", "\"d2\", \"./d2\"");
    let with_copy = file.replace("\"d2\"", "\"d2\", \"copy\"");
    std::fs::copy(home.path("d2"), home.path("copy")).unwrap();
    home.ok("array detail a.toml");
    for (changed, seen, refused, next) in [
        (without_cache, "cache: not named", "closed with its cache", "name it in a.toml"),
        (twice, "copy", "one device is named twice", "vellum array serve --help"),
        (with_copy, "copy", "which another device is, too", "take one of the two out"),
    ] {
        assert_ne!(changed, file);
        std::fs::write(home.path("a.toml"), changed).unwrap();
        let looked = home.run("array detail a.toml");
        assert!(looked.code == 1 && looked.out.contains(seen), "{}", looked.out);
        let served = home.refused(SERVE);
        assert!(served.err.contains(refused) && served.err.contains(next), "{}", served.err);
    }
    std::fs::write(home.path("a.toml"), file.replace("cache = \"ssd\"\n", "")).unwrap();
    let shown: serde_json::Value = serde_json::from_str(&home.run("array detail a.toml --json").out).unwrap();
    assert_eq!(shown["cache"]["state"], "not named", "{shown}");
    std::fs::write(home.path("a.toml"), file).unwrap();
    home.ok("array detail a.toml");
}

/// An NVRAM that grew is used as before; for one that was truncated, the advice helps.
#[test]
fn an_nvram_of_another_size_is_taken_as_it_was_or_refused_with_what_helps() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --cache ssd --nvram nv");
    let resize = |bytes| {
        std::fs::File::options().write(true).open(home.path("nv")).unwrap().set_len(bytes).unwrap();
    };
    // Each opening continues with the other half.
    for mib in 17..20 {
        open_and_close(&home);
        resize(mib << 20);
        assert_eq!(home.json("array detail a.toml")["nvram"]["state"], "ours");
        let (server, _) = home.start(SERVE);
        assert!(home.json("array detail a.toml")["cache"]["emptied"].is_null());
        assert_eq!(server.interrupt().0, 0);
    }
    for (bytes, code, what) in [
        (1 << 20, 3, "it was cut short: it has 1MiB, and 16MiB of it were used"),
        (4096, 3, "NVRAM nv cannot be opened"),
        (0, 3, "NVRAM nv cannot be opened"),
    ] {
        resize(bytes);
        let looked = home.run("array detail a.toml");
        assert!(looked.code == 1 && looked.out.contains("with --force it goes on"), "{}", looked.out);
        assert_refused(&home.run(SERVE), code, what, "--force goes on without it");
        home.ok("array flush a.toml --force");
        open_and_close(&home);
        resize(16 << 20);
        open_and_close(&home);
    }
}

/// An NVRAM too small to be one, which the cache does not need: the cache is opened unchanged, with a remark on it.
#[test]
fn an_nvram_that_a_cache_does_not_need_changes_nothing() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --cache ssd");
    open_and_close(&home);
    std::fs::write(home.path("nv"), vec![0; 4096]).unwrap();
    let file = std::fs::read_to_string(home.path("a.toml")).unwrap();
    let with_nvram = file.replace("cache = \"ssd\"\n", "cache = \"ssd\"\nnvram = \"nv\"\n");
    std::fs::write(home.path("a.toml"), with_nvram).unwrap();
    let said = home.run("array scrub a.toml").err;
    assert!(said.contains("NVRAM nv: ") && said.contains("the cache is as it was"), "{said}");
    assert!(!said.contains("made anew"), "{said}");
}

/// An array with an open write hole that has lost a member since: the advised options force it open.
#[test]
fn an_array_with_an_open_write_hole_is_opened_by_what_its_error_says() {
    let home = Home::new();
    let create = "array create a.toml --level 5 --size 20MiB --members d0 d1 d2 --log none --cache ssd";
    home.ok(create);
    let cut = || {
        let (server, _) = home.start(SERVE);
        Client::connect(&home.path("a.sock")).write(0, &[7; 4096]).unwrap();
        server.kill();
    };
    cut();
    std::fs::rename(home.path("d2"), home.path("away")).unwrap();
    let what = "lacks member 2 and has no log: sectors may be wrong; open d2";
    assert_refused(&home.run(SERVE), 4, what, "bring the member back; --force goes on without it");
    // An order is told at once all options that it needs.
    let (what_is_away, both) = ("not: role 2", "--degraded --force goes on without it");
    assert_refused(&home.run("array scrub a.toml"), 3, what_is_away, both);
    let scrub = "array scrub a.toml --degraded";
    assert_refused(&home.run(scrub), 4, what, "--force goes on without it");
    for detach in ["array detach-cache a.toml --degraded", "array detach-cache --force a.toml --degraded"] {
        assert_refused(&home.run(detach), 4, what, "vellum array flush a.toml --force --degraded goes on");
    }
    std::fs::rename(home.path("away"), home.path("d2")).unwrap();
    home.ok("array scrub a.toml");
    cut();
    std::fs::remove_file(home.path("d2")).unwrap();
    home.ok("array flush a.toml --force --degraded");
    home.ok("array detach-cache --force a.toml --degraded");
    home.ok("array fail a.toml 2");
    let (server, _) = home.start(SERVE);
    assert_eq!(server.interrupt().0, 0);
}

/// The next step names the command that helps.
#[test]
fn what_an_order_lacks_is_a_command_away() {
    let home = Home::new();
    let create = "array create a.toml --level 5 --size 20MiB --members d0 d1 d2";
    assert_refused(&home.run(&format!("{create} --chunk 5KiB")), 2, "5KiB", "--chunk 64KiB");
    assert_refused(&home.run(&format!("{create} --dwpd 1")), 2, "for --cache", "--cache SSD");
    assert_refused(&home.run(&format!("{create} --policy wt")), 2, "for --cache", "--cache SSD");
    assert_refused(&home.run(&format!("{create} --log-device lg")), 2, "log", "--log device puts");
    home.run("array create a.toml --level 5 --size 1KiB --members d0 d1 d2").failed(2, "d0 would have 1KiB");
    assert_refused(
        &home.run(&format!("{create} /dev/null --erase")),
        3,
        "null",
        "name files or block devices",
    );
    assert_refused(&home.run(&format!("{create} --log device")), 2, "log", "--log-device PATH");
    std::fs::write(home.path("empty"), "").unwrap();
    std::fs::write(home.path("small"), vec![0; 1 << 20]).unwrap();
    let with_empty =
        home.run("array create a.toml --level 5 --members small small2 empty --size 1MiB --erase");
    assert_refused(&with_empty, 2, "has 0B", "the smallest device is empty, of 0B");
    home.ok(create);
    assert_refused(&home.run(create), 2, "exists", "vellum array detail a.toml");
    for (order, what, next) in [
        ("fail a.toml 7", "no member 7: the last is 2", "vellum array detail a.toml shows both"),
        ("fail a.toml d7", "d7 is no member", "vellum array detail a.toml shows both"),
        ("remove a.toml d1", "member 1 is in use", "vellum array fail a.toml 1"),
        ("add a.toml d4", "no member is lost", "vellum array replace a.toml MEMBER PATH"),
        ("rebuild a.toml", "nothing to rebuild", "all members are active"),
        ("detach-cache a.toml", "has no cache", "vellum array attach-cache a.toml SSD"),
        ("replace a.toml d1 small --erase", "small has 1MiB, members have 20MiB", "of 20MiB or more"),
    ] {
        assert_refused(&home.run(&format!("array {order}")), 2, what, next);
    }
    for (ssd, what, next) in [
        (
            "ssd --nvram ./ssd --size 20MiB",
            "named twice: as cache ssd and as cache's NVRAM ./ssd",
            "each device once",
        ),
        ("empty --erase --size 64MiB", "empty: ", "--size and --cache-size are for files that are not there"),
    ] {
        assert_refused(&home.run(&format!("array attach-cache a.toml {ssd}")), 2, what, next);
        assert!(!home.path("ssd").exists());
    }
    home.ok("array fail a.toml 2");
    for (order, what, next) in [
        ("fail a.toml 1", "cannot do without member 1", "vellum array add a.toml PATH"),
        ("rebuild a.toml", "nothing to rebuild", "vellum array add a.toml PATH"),
        ("replace a.toml 2 d5", "member 2 is lost", "vellum array add a.toml d5"),
        ("add a.toml small --erase", "small has 1MiB, members have 20MiB", "of 20MiB or more"),
        ("add a.toml empty --erase", "empty has 0B, members have 20MiB", "of 20MiB or more"),
    ] {
        assert_refused(&home.run(&format!("array {order}")), 2, what, next);
    }
    home.ok("array add a.toml d4");
    assert_refused(&home.run("array fail a.toml 1"), 2, "cannot do without", "vellum array rebuild a.toml");
    home.ok("array rebuild a.toml");
    assert_eq!(home.json("array detail a.toml")["state"], "clean");
}

/// No device would be accepted with --erase either.
#[test]
fn a_directory_is_not_asked_to_be_erased() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    std::fs::create_dir(home.path("dir")).unwrap();
    home.ok("array fail a.toml d1");
    for command in [
        "add a.toml dir",
        "replace a.toml d0 dir",
        "attach-cache a.toml dir",
        "attach-cache a.toml ssd --size 20MiB --nvram dir",
        "create b.toml --level 5 --size 20MiB --members e0 dir e2",
    ] {
        let said = home.run(&format!("array {command}"));
        assert_refused(&said, 2, "dir is neither a file nor a block device", "name a file or a block device");
    }
}

/// The next step is for the given command, with this array's names.
#[test]
fn next_steps_are_of_the_command_that_was_given() {
    let home = Home::new();
    let said = home.run("array create a.toml --level 6 --size 20MiB --members d0 d1 d2");
    said.failed(2, "RAID-6 takes 4 to 64 members, not 3");
    assert!(said.err.contains("name 4 to 64 devices with --members"), "{}", said.err);
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    let said = home.run("array attach-cache a.toml ssd --size 20MiB --dwpd NaN");
    said.failed(2, "it is a number from 0");
    assert!(said.err.contains("vellum array attach-cache --help"), "{}", said.err);
    home.ok("array fail a.toml 1");
    let said = home.run("array add a.toml d3");
    assert!(said.code == 0 && said.err.contains("next: vellum array rebuild a.toml"), "{}", said.err);
    home.ok("array rebuild a.toml");
}
