//! Members that are temporarily missing: commands that only look, or are refused, do not make them lost.

use crate::nbd::Client;
use crate::support::{Home, Running};

const SERVE: &str = "array serve a.toml --nbd unix:a.sock";

fn all(home: &Home, names: &[&str]) -> Vec<Vec<u8>> {
    names.iter().map(|name| std::fs::read(home.path(name)).unwrap()).collect()
}

/// A member that comes back counts as before, unless the array was started without it on purpose.
#[test]
fn a_member_that_is_away_for_a_moment_is_not_out_by_what_is_refused() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2 d3 --cache ssd");
    std::fs::write(home.path("plain"), "").unwrap();
    std::fs::write(home.path("full"), "full").unwrap();
    let names = ["d0", "d1", "d2", "away", "ssd", "a.toml"];
    std::fs::rename(home.path("d3"), home.path("away")).unwrap();
    let before = all(&home, &names);
    let away = "members that were there when the array was last used are not: role 3; d3: open";
    for line in [
        "array fail a.toml 99",
        "array fail a.toml 1",
        "array remove a.toml 3",
        "array add a.toml d4",
        "array replace a.toml d0 d5",
        "array rebuild a.toml",
        "array scrub a.toml",
        "array flush a.toml",
        "array detach-cache a.toml",
        "array detach-cache --force a.toml",
    ] {
        let said = home.run(line);
        said.failed(3, away);
        assert!(said.err.contains("--degraded"), "{}", said.err);
        assert!(all(&home, &names) == before, "{line}");
    }
    home.run("array attach-cache a.toml more --size 1MiB").failed(2, "has a cache");
    home.run("array serve a.toml --nbd unix:no/such/a.sock").failed(3, "no/such/a.sock");
    home.run("array serve a.toml --fuse no/such/a.raw").failed(3, "no/such");
    home.run("array serve a.toml --fuse full").failed(2, "not an empty file");
    home.run("array mount a.toml plain --fs ext4").failed(3, "plain");
    assert_eq!(home.run("array detail a.toml").code, 1);
    assert!(all(&home, &names) == before && !home.path("a.sock").exists());

    std::fs::rename(home.path("away"), home.path("d3")).unwrap();
    assert_eq!(home.json("array scrub a.toml")["degraded_rows"], 0);
    assert_eq!(home.json("array detail a.toml")["state"], "clean");

    std::fs::rename(home.path("d3"), home.path("away")).unwrap();
    home.ok("array flush a.toml --degraded");
    std::fs::rename(home.path("away"), home.path("d3")).unwrap();
    assert_eq!(home.run("array detail a.toml").code, 1, "it is out");
    let said = home.run("array scrub a.toml");
    assert_eq!(said.code, 1, "nothing could be compared: {}", said.out);
    assert!(said.out.contains("0 rows compared") && said.out.contains("a member is missing"), "{}", said.out);
    home.ok("array add a.toml d3 --erase");
    home.ok("array rebuild a.toml");
    home.ok("array scrub a.toml");
}

/// For a device that is not the member, the refusal says which it is, why, and what replaces it.
#[test]
fn a_device_that_is_not_the_member_any_more_is_named_with_the_reason() {
    let home = Home::new();
    home.ok("array create b.toml --level 5 --size 20MiB --members e0 e1 e2");
    home.ok("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    let older = std::fs::read(home.path("d0")).unwrap();
    let (server, _) = home.start(SERVE);
    Client::connect(&home.path("a.sock")).write(0, &[7; 4096]).unwrap();
    assert_eq!(server.interrupt().0, 0);
    let theirs = std::fs::read(home.path("e0")).unwrap();
    for (bytes, why) in [
        (older[..10 << 20].to_vec(), "d0: it was cut short: it has 10MiB"),
        (theirs, "d0: it belongs to another array"),
        (older, "d0: it does not count any more"),
    ] {
        std::fs::write(home.path("d0"), bytes).unwrap();
        let said = home.run("array scrub a.toml");
        said.failed(3, why);
        assert!(said.err.contains("vellum array add a.toml PATH --degraded takes one in"), "{}", said.err);
    }
    let said = home.run("array fail a.toml 1 --degraded");
    assert!(said.err.contains("going on without d0: it does not count any more"), "{}", said.err);
    std::fs::File::create(home.path("d9")).unwrap().set_len(20 << 20).unwrap();
    home.ok("array add a.toml d9 --erase --degraded");
    home.ok("array rebuild a.toml");
    assert!(!home.run("array scrub a.toml").err.contains("going on without"));
}

/// Rows that a scrub skips are not reported as compared.
#[test]
fn a_scrub_says_what_has_stale_rows_compared() {
    let home = put_off("--log members", |server| assert_eq!(server.interrupt().0, 0));
    assert!(home.ok("array scrub a.toml").contains("`vellum array flush`"));
    home.ok("array flush a.toml");
    let said = home.ok("array scrub a.toml");
    assert!(said.contains(", 0 stale") && !said.contains("flush"), "{said}");
}

/// An array with stale rows whose server was killed; its log is present.
fn put_off_and_killed(log: &str) -> Home {
    put_off(log, Running::kill)
}

/// An array with stale rows whose server is ended by `end`.
fn put_off(log: &str, end: impl FnOnce(Running)) -> Home {
    let home = Home::new();
    let create = "array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2";
    home.ok(&format!("{create} --cache ssd --policy kdd-paper {log}"));
    let (server, _) = home.start(SERVE);
    let mut client = Client::connect(&home.path("a.sock"));
    for generation in 1..4u8 {
        for sector in 0..128 {
            let mut bytes = [7; 4096];
            bytes[..8].fill(generation);
            client.write(sector * 4096, &bytes).unwrap();
        }
    }
    assert!(home.json("array detail a.toml")["stale_rows"].as_u64().unwrap() > 0);
    end(server);
    home
}

/// A power cut empties the cache, and a member is missing: the process that has the array open names what is lost.
#[test]
fn what_a_cut_and_a_member_cost_is_named() {
    for log in ["--log members", "--log device --log-device lg"] {
        what_a_cut_and_a_member_cost(log);
    }
}

fn what_a_cut_and_a_member_cost(log: &str) {
    let home = put_off_and_killed(log);
    let shown = home.json("array detail a.toml");
    assert_eq!(shown["stale_rows_become"], "made anew", "{shown}");
    std::fs::rename(home.path("d1"), home.path("away")).unwrap();
    assert_stale_is_lost(&home);
    let (server, _) = home.start(&format!("{SERVE} --degraded"));
    let said = home.run("array detail a.toml --json");
    assert_eq!(said.code, 1, "{}", said.err);
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let lost = shown["lost"].as_array().unwrap();
    assert!(!lost.is_empty() && shown["cache"]["at_risk_bytes"] == 0, "{shown}");
    let mut client = Client::connect(&home.path("a.sock"));
    for sector in 0..128 {
        let is_lost = lost.iter().any(|range| {
            let (first, count) = (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
            (first..first + count).contains(&sector)
        });
        match is_lost {
            true => assert_ne!(client.read_failing(sector * 4096, 4096).unwrap(), 0, "sector {sector}"),
            false => client.read(sector * 4096, &mut [0; 4096]).unwrap(),
        }
    }
    assert_eq!(server.interrupt().0, 0);
    let said = home.run("array detail a.toml").out;
    assert!(
        said.contains("what it lacks of role 1 is lost\n") && said.contains("closed with the array"),
        "{said}"
    );
    let shown: serde_json::Value = serde_json::from_str(&home.run("array detail a.toml --json").out).unwrap();
    assert_eq!(shown["stale_rows_become"], "lost", "{shown}");
}

/// For a killed array with a missing member: it reports the loss, and is not served.
fn assert_stale_is_lost(home: &Home) {
    let said = home.run("array detail a.toml --json");
    assert_eq!(said.code, 1, "{}", said.err);
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(shown["stale_rows_become"], "lost", "{shown}");
    let rows = shown["stale_rows"].as_u64().unwrap();
    let said = home.run("array detail a.toml").out;
    let stale = format!(
        "stale rows: {rows}: their parity was put off or is in doubt; what it lacks of role 1 is lost, unless"
    );
    assert!(rows > 0 && said.contains(&stale) && !said.contains("no data are lost"), "{said}");
    home.refused(SERVE).failed(
        3,
        &format!("parity of {rows} rows was put off or is in doubt, and what it lacks of them would be lost"),
    );
}

/// Only the log device records which rows are stale.
#[test]
fn without_the_log_device_it_is_not_known_what_a_member_costs() {
    let home = put_off_and_killed("--log device --log-device lg");
    std::fs::rename(home.path("d1"), home.path("away")).unwrap();
    std::fs::rename(home.path("lg"), home.path("log")).unwrap();
    for (is_there, why) in [(false, "which is not there"), (true, "it is no log of array")] {
        if is_there {
            std::fs::File::create(home.path("lg")).unwrap().set_len(20 << 20).unwrap();
        }
        let said = home.run("array detail a.toml");
        assert!(said.out.contains("stale rows: not known") && said.out.contains(why), "{}", said.out);
        let state = if is_there {
            "log device: lg, 20.00 MiB, refused: "
        } else {
            "log device: lg, cannot be opened: "
        };
        assert!(said.out.contains(state), "{}", said.out);
        assert!(!home.run("array detail a.toml --json").out.contains("\"stale_rows\""));
        for force in ["", " --force"] {
            let said = home.refused(&format!("{SERVE}{force}"));
            said.failed(
                3,
                "of which rows parity was put off or is in doubt is not known, and what it lacks of them would be lost",
            );
            assert!(said.err.contains(why), "{}", said.err);
        }
    }
    std::fs::rename(home.path("log"), home.path("lg")).unwrap();
    assert_stale_is_lost(&home);
}

/// What parity lacks is known after a kill if there is an NVRAM, and lost if that and a member are missing.
#[test]
fn without_the_nvram_a_member_costs_what_parity_lacks() {
    let home = put_off_and_killed("--nvram nv");
    std::fs::rename(home.path("d1"), home.path("away")).unwrap();
    let shown = home.run("array detail a.toml --json").out;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["stale_rows_become"], "updated", "{shown}");
    std::fs::rename(home.path("nv"), home.path("other")).unwrap();
    assert_stale_is_lost(&home);
    std::fs::rename(home.path("other"), home.path("nv")).unwrap();
    let (server, _) = home.start(SERVE);
    let mut bytes = [7; 4096];
    bytes[..8].fill(3);
    let mut found = [0; 4096];
    for sector in 0..128 {
        Client::connect(&home.path("a.sock")).read(sector * 4096, &mut found).unwrap();
        assert!(found == bytes, "sector {sector}");
    }
    assert_eq!(server.interrupt().0, 0);
}

/// A closed cache has what parity lacks, but not after a power cut during its opening, although the members still say
/// that it was closed with them.
#[test]
fn what_a_cut_at_the_opening_costs_is_named() {
    let members = ["d0", "d1", "d2"];
    let home = put_off("--log members", |server| assert_eq!(server.interrupt().0, 0));
    let closed = all(&home, &members);
    std::fs::rename(home.path("d1"), home.path("away")).unwrap();
    let shown = home.run("array detail a.toml --json").out;
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert!(shown["stale_rows"].as_u64().unwrap() > 0, "{shown}");
    assert_eq!(
        (&shown["stale_rows_become"], &shown["cache"]["state"]),
        (&"updated".into(), &"closed".into())
    );
    std::fs::rename(home.path("away"), home.path("d1")).unwrap();
    home.start(SERVE).0.kill();
    for (name, bytes) in members.iter().zip(&closed) {
        std::fs::write(home.path(name), bytes).unwrap();
    }
    std::fs::rename(home.path("d1"), home.path("away")).unwrap();
    assert_stale_is_lost(&home);
}

/// What only the SSD had of a lost member is lost: the SSD is detached all the same, and the sectors are named.
#[test]
fn a_cache_is_detached_by_force_from_a_degraded_array_and_what_is_lost_is_named() {
    let home = put_off_and_killed("--log members");
    std::fs::remove_file(home.path("ssd")).unwrap();
    std::fs::remove_file(home.path("d1")).unwrap();
    let said = home.run("array detach-cache --force a.toml --degraded --json");
    assert_eq!(said.code, 1, "{}", said.err);
    let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let lost = shown["lost"].as_array().unwrap().clone();
    assert!(!lost.is_empty(), "{shown}");
    assert!(!std::fs::read_to_string(home.path("a.toml")).unwrap().contains("ssd"));
    let first = lost[0][0].as_u64().unwrap();
    let (server, _) = home.start(SERVE);
    assert_ne!(Client::connect(&home.path("a.sock")).read_failing(first * 4096, 4096).unwrap(), 0);
    let seen = home.run("array stat a.toml").out;
    assert!(seen.contains("stale rows: ") && seen.contains("parity of those is made anew"), "{seen}");
    assert_eq!(server.interrupt().0, 0);
    assert!(home.run("array add a.toml d4").out.contains("--give-up"));
    assert_eq!(home.run("array rebuild a.toml").code, 3);
    let given_up = home.run("array rebuild a.toml --give-up --json");
    assert_eq!(given_up.code, 1, "{}", given_up.err);
    let given_up: serde_json::Value = serde_json::from_str(&given_up.out).unwrap();
    assert_eq!(given_up["lost"].as_array().unwrap(), &lost);
    home.ok("array scrub a.toml");
}

/// Errors name the device they are about.
#[test]
fn what_is_wrong_with_a_device_is_said_with_its_name() {
    let home = Home::new();
    let create = "array create a.toml --level 5 --size 20MiB";
    home.run(&format!("{create} --members d0 d1 ./d1"))
        .failed(2, "one device is named twice: as member d1 and as member ./d1");
    home.run(&format!("{create} --members d0 d1 d2 --cache d2"))
        .failed(2, "one device is named twice: as member d2 and as cache d2");
    std::fs::write(home.path("empty"), "").unwrap();
    home.run(&format!("{create} --members d0 d1 empty --erase")).failed(2, "device 2, the smallest, has 0B");
    home.ok(&format!("{create} --members d0 d1 d2 --log device --log-device lg"));
    home.run("array attach-cache a.toml ./d2 --erase")
        .failed(2, "./d2 is the array's own: it is its member d2");
    home.run("array attach-cache a.toml lg --erase").failed(2, "lg is the array's own: it is its log lg");
    home.run("array attach-cache a.toml empty --erase").failed(2, "empty:");
    home.ok("array fail a.toml 2");
    home.run("array add a.toml d1 --erase").failed(2, "d1 is the array's own: it is its member d1");
    std::fs::remove_file(home.path("lg")).unwrap();
    for force in ["", " --force"] {
        let said = home.run(&format!("array scrub a.toml{force}"));
        said.failed(3, "the log device lg cannot be opened");
        assert!(said.err.contains("name another") && said.err.contains("--force"), "{}", said.err);
    }
    std::fs::File::create(home.path("lg")).unwrap().set_len(20 << 20).unwrap();
    assert_eq!(home.run("array scrub a.toml --force").code, 1, "nothing could be compared");
}

/// A member larger than the others has the copy of its superblock where they end, and is identified by it.
#[test]
fn a_larger_member_whose_first_sector_is_lost_is_found_by_what_the_others_say() {
    use std::os::unix::fs::FileExt;
    let home = Home::new();
    for (name, mib) in [("d0", 20), ("d1", 21), ("d2", 20)] {
        std::fs::write(home.path(name), vec![0; mib << 20]).unwrap();
    }
    home.ok("array create a.toml --level 5 --members d0 d1 d2 --erase");
    let d1 = std::fs::File::options().write(true).open(home.path("d1")).unwrap();
    d1.write_all_at(&[7; 4096], 0).unwrap();
    assert_eq!(home.json("array detail a.toml")["state"], "clean");
    assert_eq!(home.json("array scrub a.toml")["degraded_rows"], 0);
    let (server, _) = home.start(SERVE);
    assert_eq!(home.json("array detail a.toml")["members"][1]["device"], "d1");
    assert_eq!(server.interrupt().0, 0);
}

/// A cache with a damaged log is not emptied while it may have the only copy of sectors of a missing member; nothing is
/// written that would prevent the member from coming back.
#[test]
fn a_member_comes_back_beside_a_cache_that_cannot_be_read() {
    let home = put_off("--log members", |server| assert_eq!(server.interrupt().0, 0));
    std::fs::rename(home.path("d1"), home.path("away")).unwrap();
    let log = 4096..1 << 20;
    let mut ssd = std::fs::read(home.path("ssd")).unwrap();
    ssd[log].fill(0);
    std::fs::write(home.path("ssd"), ssd).unwrap();
    let names = ["d0", "d2", "ssd", "a.toml"];
    let before = all(&home, &names);
    for line in [SERVE, "array flush a.toml", "array scrub a.toml", "array detach-cache a.toml"] {
        let said = home.refused(&format!("{line} --degraded"));
        assert_eq!(said.code, 3, "{line}: {}", said.err);
        assert!(said.err.contains("the cache's log: it has no page that is valid"), "{}", said.err);
        assert!(said.err.contains("next: bring d1 back: nothing was changed"), "{}", said.err);
        assert!(all(&home, &names) == before, "{line}");
    }
    std::fs::rename(home.path("away"), home.path("d1")).unwrap();
    let said = home.run("array scrub a.toml");
    assert!(said.err.contains("the cache is empty"), "{}", said.err);
    let shown = home.json("array detail a.toml");
    assert_eq!((&shown["state"], &shown["stale_rows"]), (&"clean".into(), &0.into()), "{shown}");
}

/// A truncated list says where all of it is, and sectors given up are in the server's log.
#[test]
fn all_sectors_that_are_given_up_are_named_somewhere() {
    let home = put_off_and_killed("--log members");
    std::fs::rename(home.path("d1"), home.path("away")).unwrap();
    let remarks = std::fs::File::create(home.path("remarks")).unwrap();
    let mut server = home.begin_with_remarks_to(&format!("{SERVE} --degraded"), remarks.into());
    server.next_line().unwrap();
    let shown: serde_json::Value = serde_json::from_str(&home.run("array detail a.toml --json").out).unwrap();
    let lost = shown["lost"].as_array().unwrap();
    let more = format!(" and {} more: --json has all; their parity", lost.len() - 8);
    let said = home.run("array detail a.toml").out;
    assert!(said.contains(&more), "{said}");
    home.run("array add a.toml d4");
    let given_up = home.run("array rebuild a.toml --give-up");
    assert_eq!(given_up.code, 1, "{}{}", given_up.out, given_up.err);
    assert!(given_up.out.contains(" more: --json has all\n"), "{}", given_up.out);
    assert_eq!(server.interrupt().0, 0);
    let said = std::fs::read_to_string(home.path("remarks")).unwrap();
    let line = said.lines().find(|line| line.contains("a.toml: sectors were given up, and are zeros: "));
    let line = line.unwrap_or_else(|| panic!("{said}"));
    for range in lost {
        let (first, count) = (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
        assert!(line.contains(&format!("{first}..{}", first + count)), "{first}: {said}");
    }
}
