//! Arrays as users have them: files, a server that is killed, a member that is lost, a rebuild, a scrub.

use crate::nbd::Client;
use crate::real::host::wait_until;
use crate::support::{Home, Running};
use rustix::process::{Pid, Signal};
use std::process::Child;

pub const SECTORS: u64 = 700;

/// The content of a sector in its n-th generation.
pub fn content(sector: u64, generation: u64) -> Vec<u8> {
    let word = sector << 32 | generation;
    word.to_le_bytes().into_iter().cycle().take(4096).collect()
}

/// Every sector is one of these generations, whole.
pub fn assert_generations(home: &Home, line: &str, of: std::ops::RangeInclusive<u64>) {
    let (server, _) = home.start(line);
    let mut client = Client::connect(&home.path("a.sock"));
    for sector in 0..SECTORS {
        let mut bytes = vec![0; 4096];
        client.read(sector * 4096, &mut bytes).unwrap();
        let generation = u64::from_le_bytes(bytes[..8].try_into().unwrap()) & 0xFFFF_FFFF;
        assert!(
            of.contains(&generation) && bytes == content(sector, generation),
            "sector {sector}: {generation}"
        );
    }
    drop(client);
    assert_eq!(server.interrupt().0, 0);
}

#[test]
fn an_array_survives_kill_9_and_the_loss_of_a_member_in_it() {
    let home = Home::new();
    let serve = "array serve a.toml --nbd unix:a.sock";
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 d3");
    let (server, _) = home.start(serve);
    let mut client = Client::connect(&home.path("a.sock"));
    for generation in 1..=2 {
        for sector in 0..if generation == 1 { SECTORS } else { SECTORS / 2 } {
            client.write(sector * 4096, &content(sector, generation)).unwrap();
        }
        if generation == 1 {
            client.flush().unwrap();
        }
    }
    server.kill();
    std::fs::remove_file(home.path("d2")).unwrap();
    assert_eq!(home.run("array detail a.toml").code, 1, "a member is missing");
    assert_generations(&home, serve, 1..=2);

    let shown = home.json("array add a.toml d4");
    assert_eq!(shown["members"][2]["state"], "rebuilding", "{shown}");
    assert_eq!(home.json("array rebuild a.toml")["complete"], true);
    let scrubbed = home.json("array scrub a.toml");
    assert_eq!((&scrubbed["mismatches"], &scrubbed["complete"]), (&0.into(), &true.into()), "{scrubbed}");
    assert_eq!(home.json("array detail a.toml")["closed"], true);

    home.ok("array fail a.toml 0");
    assert_generations(&home, serve, 1..=2);
    home.run("array fail a.toml 1").failed(2, "cannot do without member 1");
}

/// The server is killed, then the SSD is lost, then there is another: the data are on the array all the time.
#[test]
fn a_cached_array_survives_kill_9_and_the_loss_of_its_ssd() {
    let home = Home::new();
    let serve = "array serve a.toml --nbd unix:a.sock";
    let made = home.json(
        "array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 d3 --cache ssd --policy kdd-paper",
    );
    assert_eq!((&made["cache"]["policy"], &made["cache"]["stale_rows"]), (&"kdd-paper".into(), &0.into()));
    for ssd_stays in [true, false] {
        let (server, _) = home.start(serve);
        let mut client = Client::connect(&home.path("a.sock"));
        for generation in 1..=3 {
            for sector in 0..SECTORS {
                client.write(sector * 4096, &content(sector, generation)).unwrap();
            }
            client.flush().unwrap();
        }
        let shown = home.json("array detail a.toml");
        let cache = &shown["cache"];
        assert!(cache["write_hits"].as_u64().unwrap() >= SECTORS, "{cache}");
        assert!(cache["flash_bytes"]["delta"].as_u64().unwrap() > 0, "{cache}");
        server.kill();
        if !ssd_stays {
            std::fs::remove_file(home.path("ssd")).unwrap();
        }
        assert_generations(&home, serve, 3..=3);
    }
    home.ok("array flush a.toml");
    home.ok("array detach-cache --force a.toml");
    let scrubbed = home.json("array scrub a.toml");
    assert_eq!((&scrubbed["mismatches"], &scrubbed["stale_rows"]), (&0.into(), &0.into()), "{scrubbed}");
    home.run("array detach-cache a.toml").failed(2, "has no cache");

    std::fs::File::create(home.path("new")).unwrap().set_len(20 << 20).unwrap();
    home.run("array attach-cache a.toml new").failed(2, "would be lost");
    let shown = home.json("array attach-cache a.toml new --erase --policy kdd");
    assert_eq!(shown["cache"]["policy"], "kdd");
    home.run("array attach-cache a.toml new --erase").failed(2, "has a cache");
    let (server, _) = home.start(serve);
    let shown = home.json("array detach-cache a.toml");
    assert!(shown.get("cache").is_none(), "it is let go of: {shown}");
    // Another array may take it at once.
    home.ok("array create b.toml --level 5 --size 20MiB --members e0 e1 e2 --cache new --erase");
    assert_eq!(server.interrupt().0, 0);
    assert_generations(&home, serve, 3..=3);
    assert!(home.json("array scrub a.toml")["mismatches"] == 0);
}

/// A budget of flash writes is set when the cache is made, stored on the SSD, and shown; an impossible one is refused
/// before anything is made.
#[test]
fn a_budget_of_flash_writes_is_kept_by_the_ssd() {
    let home = Home::new();
    let create = "array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 --cache ssd";
    for (more, what) in [
        ("--dwpd 0", "leaves ssd a cache that is never written"),
        ("--tbw 0TB", "leaves ssd a cache that is never written"),
        ("--dwpd 1 --policy wt", "only policy kdd"),
        ("--dwpd -1", ""),
        ("--dwpd NaN", "--dwpd NaN: it is a number from 0"),
        ("--dwpd inf", "--dwpd inf: it is a number from 0"),
        ("--dwpd 1e300", "it is a number from 0 to 1000000"),
        ("--tbw 1TB --years 1e-9", "is never written over 1000000 times a day"),
        ("--tbw 1TB --years 0", "--years 0: what --tbw allows is spread over more than 0 years"),
        ("--dwpd 1 --tbw 1TB", "cannot be used with"),
    ] {
        let said = home.run(&format!("{create} {more}"));
        assert!(said.code == 2 && said.err.contains(what), "{more}: {}", said.err);
        assert!(!home.path("d0").exists() && !home.path("a.toml").exists(), "{more}");
    }
    let made = home.json(&format!("{create} --cache-size 20MiB --dwpd 0.5"));
    assert_eq!(made["cache"]["budget"]["bytes_a_day"], 10 << 20, "{made}");
    assert_eq!(home.path("ssd").metadata().unwrap().len(), 20 << 20);
    let seen = home.json("array stat a.toml");
    let cache = &seen["cache"];
    assert_eq!(
        (&cache["state"], &cache["budget"]["bytes_a_day"]),
        (&"closed".into(), &(10 << 20).into()),
        "{cache}"
    );
    let before = cache["flash_bytes_before"].as_u64().unwrap();

    let (server, _) = home.start("array serve a.toml --nbd unix:a.sock");
    let mut client = Client::connect(&home.path("a.sock"));
    (0..4000).for_each(|i| client.write(i % SECTORS * 4096, &content(i % SECTORS, i)).unwrap());
    drop(client);
    let shown = home.json("array stat a.toml");
    let cache = &shown["cache"];
    let written: u64 =
        cache["flash_bytes"].as_object().unwrap().values().map(|bytes| bytes.as_u64().unwrap()).sum();
    let granted = 10 * (1 << 20) * (cache["open_ms"].as_u64().unwrap() + 1) / 86_400_000;
    assert!(written <= granted + 2 * 4096, "{written} bytes, {granted} were granted: {cache}");
    assert_eq!(server.interrupt().0, 0);
    let closed = home.json("array detail a.toml");
    assert!(closed["cache"]["flash_bytes_before"].as_u64().unwrap() > before, "{closed}");

    home.ok("array detach-cache a.toml");
    let tbw = home.json("array attach-cache a.toml ssd --erase --tbw 1TB --years 1");
    let a_day = tbw["cache"]["budget"]["bytes_a_day"].as_u64().unwrap();
    assert_eq!(a_day, (1e12 / 365.25) as u64);
}

/// The SSD is detached by force while the array is served; one that does not exist is created if a size is given.
#[test]
fn a_cache_is_taken_away_by_force_under_load() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 d3");
    home.run("array attach-cache a.toml ssd").failed(3, "ssd");
    home.ok("array attach-cache a.toml ssd --size 20MiB --policy kdd-paper");
    let (server, _) = home.start("array serve a.toml --nbd unix:a.sock");
    let mut client = Client::connect(&home.path("a.sock"));
    for generation in 1..=3 {
        (0..SECTORS).for_each(|sector| client.write(sector * 4096, &content(sector, generation)).unwrap());
    }
    let shown = home.json("array detach-cache --force a.toml");
    assert!(shown.get("cache").is_none(), "it is let go of: {shown}");
    assert_eq!(shown["stale_rows"], 0, "{shown}");
    (0..SECTORS).for_each(|sector| client.write(sector * 4096, &content(sector, 4)).unwrap());
    drop(client);
    assert_eq!(server.interrupt().0, 0);
    assert!(!std::fs::read_to_string(home.path("a.toml")).unwrap().contains("cache"));
    let scrubbed = home.json("array scrub a.toml");
    assert_eq!((&scrubbed["mismatches"], &scrubbed["stale_rows"]), (&0.into(), &0.into()), "{scrubbed}");
    assert_generations(&home, "array serve a.toml --nbd unix:a.sock", 4..=4);
}

/// A device is replaced under load; a foreign file found in place of the replacement is left alone.
#[test]
fn a_member_is_replaced_and_only_by_what_was_meant_for_it() {
    let home = Home::new();
    let serve = "array serve a.toml --nbd unix:a.sock";
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 d3 --cache ssd");
    let (server, _) = home.start(serve);
    let mut client = Client::connect(&home.path("a.sock"));
    (0..SECTORS).for_each(|sector| client.write(sector * 4096, &content(sector, 1)).unwrap());
    let shown = home.json("array replace a.toml d1 d5");
    assert_eq!((&shown["members"][1]["device"], &shown["state"]), (&"d5".into(), &"clean".into()), "{shown}");
    home.run("array replace a.toml d1 d6").failed(2, "d1 is no member");
    home.run("array replace a.toml d0 d2").failed(2, "d2 is the array's own: it is its member d2");
    client.flush().unwrap();
    server.kill();

    // A device without the mark of the copy is not taken because of its name; nor is one created.
    let named = std::fs::read_to_string(home.path("a.toml")).unwrap();
    assert!(named.contains("\"d5\"") && !named.contains("\"d1\"") && !named.contains("replacing"), "{named}");
    std::fs::write(home.path("d6"), vec![7; 40 << 20]).unwrap();
    for (new, is_named) in [("d6", false), ("d8", true)] {
        let begun =
            format!("{named}[replacing]\nold = \"d2\"\nnew = \"{new}\"\nmark = \"{}\"\n", "07".repeat(16));
        std::fs::write(home.path("a.toml"), begun).unwrap();
        let (server, _) = home.start(serve);
        assert_eq!(home.json("array detail a.toml")["members"][2]["device"], "d2");
        assert_eq!(server.interrupt().0, 0);
        let now = std::fs::read_to_string(home.path("a.toml")).unwrap();
        assert_eq!(now.contains("replacing"), is_named, "what is not there now may be later: {now}");
    }
    assert!(
        std::fs::read(home.path("d6")).unwrap().iter().all(|byte| *byte == 7) && !home.path("d8").exists()
    );

    std::fs::write(home.path("a.toml"), named).unwrap();
    home.run("array replace a.toml d2 d6").failed(2, "there already");
    home.ok("array replace a.toml d2 d6 --erase");
    std::fs::remove_file(home.path("d2")).unwrap();

    home.ok("array replace a.toml 0 d7");
    home.ok("array flush a.toml");
    let scrubbed = home.json("array scrub a.toml");
    assert_eq!((&scrubbed["mismatches"], &scrubbed["degraded_rows"]), (&0.into(), &0.into()), "{scrubbed}");
    home.ok("array fail a.toml d3");
    home.run("array replace a.toml 3 d8").failed(2, "add the device instead");
    assert!(!home.path("d8").exists(), "nothing is made for what is refused");
    assert_generations(&home, serve, 1..=1);
}

/// Starts a copy that takes long enough to be stopped: members are as slow as disks.
fn begin_to_replace(home: &Home, serve: &str) -> (Running, Child) {
    let (server, _) = home.start(&format!("{serve} --pace sata-1tb"));
    let (replace, _) = home.listen("array replace a.toml d1 d5");
    wait_until("rows are copied", || {
        home.json("array detail a.toml")["replacing"]["rows_copied"].as_u64() > Some(2)
    });
    (server, replace)
}

/// The server is killed, or ends, while it copies; the copy is cancelled; and states as left by kills between writes.
#[test]
fn a_replacement_goes_on_after_a_kill_and_not_after_ctrl_c() {
    let home = Home::new();
    let serve = "array serve a.toml --nbd unix:a.sock";
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 24MiB --members d0 d1 d2 d3");
    let (server, _) = home.start(serve);
    let mut client = Client::connect(&home.path("a.sock"));
    (0..SECTORS).for_each(|sector| client.write(sector * 4096, &content(sector, 1)).unwrap());
    client.flush().unwrap();
    drop(client);
    assert_eq!(server.interrupt().0, 0);
    let read = || std::fs::read_to_string(home.path("a.toml")).unwrap();
    let before = read();

    let (server, mut replace) = begin_to_replace(&home, serve);
    rustix::process::kill_process(Pid::from_child(&replace), Signal::INT).unwrap();
    assert_eq!(replace.wait().unwrap().code(), Some(1));
    assert!(read() == before && !home.path("d5").exists(), "{}", read());
    assert_eq!(server.interrupt().0, 0);

    for is_killed in [false, true] {
        let (server, mut replace) = begin_to_replace(&home, serve);
        if is_killed {
            server.kill();
        } else {
            assert_eq!(server.interrupt().0, 0);
        }
        replace.wait().unwrap();
        let shown = home.run("array detail a.toml");
        assert!(shown.out.contains("d1 is copied to d5 (stopped"), "{}", shown.out);
        if !is_killed {
            home.ok("array replace a.toml d1 d5"); // The same command continues.
            assert!(
                read().contains("\"d5\"") && !read().contains("\"d1\"") && !read().contains("replacing"),
                "{}",
                read()
            );
            home.ok("array replace a.toml d5 d1 --erase");
            std::fs::remove_file(home.path("d5")).unwrap();
        }
    }
    let begun = read();
    let (server, _) = home.start(serve);
    wait_until("the copy", || home.json("array detail a.toml")["members"][1]["device"] == "d5");
    wait_until("its name in the file", || !read().contains("replacing"));
    server.kill();
    let done = read();
    assert!(done.contains("\"d5\"") && !done.contains("\"d1\"") && !done.contains("replacing"), "{done}");

    // The replacement counts, but the file does not say so yet; or does not yet say that nothing is left to do.
    let both = format!("{done}{}", &begun[begun.find("[replacing]").unwrap()..]);
    for left in [begun, both] {
        std::fs::write(home.path("a.toml"), left).unwrap();
        assert_generations(&home, serve, 1..=1);
        assert_eq!(read(), done);
    }
    std::fs::remove_file(home.path("d1")).unwrap();
    let scrubbed = home.json("array scrub a.toml");
    assert_eq!((&scrubbed["mismatches"], &scrubbed["degraded_rows"]), (&0.into(), &0.into()), "{scrubbed}");
}

/// A request to rebuild waits for a rebuild in progress, which is done for both.
#[test]
fn two_who_rebuild_do_not_disturb_each_other() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 6MiB --members d0 d1 d2");
    home.ok("array fail a.toml d1");
    let (server, _) = home.start("array serve a.toml --nbd unix:a.sock --pace sata-1tb");
    home.ok("array add a.toml d3");
    std::thread::scope(|threads| {
        let both = [(); 2].map(|()| threads.spawn(|| home.json("array rebuild a.toml")));
        for rebuilt in both.map(|rebuild| rebuild.join().unwrap()) {
            assert_eq!(rebuilt["complete"], true, "{rebuilt}");
        }
    });
    assert_eq!(server.interrupt().0, 0);
}

/// No socket can be bound beside a file with a path that long, so the array cannot be served.
#[test]
fn a_file_with_a_long_path_is_an_array_s_too() {
    let home = Home::new();
    let dir = "long".repeat(40);
    std::fs::create_dir(home.path(&dir)).unwrap();
    let file = format!("{dir}/a.toml");
    home.ok(&format!("array create {file} --level 5 --size 8MiB --members d0 d1 d2"));
    assert_eq!(home.json(&format!("array detail {file}"))["closed"], true);
    home.ok(&format!("array fail {file} d1"));
}

#[test]
fn a_server_rebuilds_what_was_added() {
    let home = Home::new();
    home.ok("array create a.toml --level 6 --chunk 16KiB --size 20MiB --members d0 d1 d2 d3 --log device --log-device log");
    home.ok("array fail a.toml 3");
    home.ok("array add a.toml d4");
    let (server, _) = home.start("array serve a.toml --nbd unix:a.sock");
    let mut client = Client::connect(&home.path("a.sock"));
    client.write(0, &content(0, 1)).unwrap();
    drop(client);
    server.interrupt();
    if home.run("array detail a.toml").code == 1 {
        home.ok("array rebuild a.toml");
    }
    assert_eq!(home.json("array scrub a.toml")["mismatches"], 0);
}

#[test]
fn a_served_array_is_looked_after_without_stopping_it() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 d3");
    let (server, _) = home.start("array serve a.toml --nbd unix:a.sock");
    let mut client = Client::connect(&home.path("a.sock"));
    let mut write = |generation| {
        (0..SECTORS).for_each(|sector| client.write(sector * 4096, &content(sector, generation)).unwrap());
    };
    write(1);
    let shown = home.json("array detail a.toml");
    assert_eq!((&shown["state"], &shown["members"][1]["device"]), (&"clean".into(), &"d1".into()), "{shown}");
    home.run("array add a.toml d4").failed(2, "no member is lost");
    home.run("array remove a.toml d1").failed(2, "fail it first");
    home.run("array fail a.toml d7").failed(2, "d7 is no member");
    assert_eq!(home.json("array fail a.toml d1")["members"][1]["state"], "missing");
    assert_eq!(home.run("array detail a.toml").code, 1);
    home.run("array fail a.toml d0").failed(2, "cannot do without member 0");
    write(2);
    home.ok("array remove a.toml 1");
    home.run("array add a.toml d1").failed(2, "there already");
    assert_ne!(home.json("array add a.toml d4")["members"][1]["state"], "missing");
    write(3);
    // The rebuild may be complete already.
    let rebuilt = home.run("array rebuild a.toml --json");
    assert!(rebuilt.code == 0 || rebuilt.err.contains("nothing to rebuild"), "{}", rebuilt.err);
    assert_eq!(home.json("array detail a.toml")["state"], "clean");
    let scrubbed = home.json("array scrub a.toml");
    assert_eq!((&scrubbed["mismatches"], &scrubbed["complete"]), (&0.into(), &true.into()), "{scrubbed}");
    assert_eq!(server.interrupt().0, 0);
    let named = std::fs::read_to_string(home.path("a.toml")).unwrap();
    assert!(named.contains("\"d4\"") && !named.contains("\"d1\""), "{named}");
    home.ok("array fail a.toml d0");
    assert_generations(&home, "array serve a.toml --nbd unix:a.sock", 3..=3);
}

#[test]
fn what_is_there_is_not_erased_unless_asked() {
    let home = Home::new();
    std::fs::write(home.path("d0"), vec![5; 20 << 20]).unwrap();
    let create = "array create a.toml --level 5 --size 20MiB --members d0 d1 d2";
    home.run(create).failed(2, "there already");
    assert_eq!(std::fs::read(home.path("d0")).unwrap(), vec![5; 20 << 20]);
    home.ok(&format!("{create} --erase"));
    home.run(create).failed(2, "exists already");
    home.run("array detail b.toml").failed(3, "b.toml");
    home.run("array rebuild a.toml").failed(2, "nothing to rebuild");
    home.run("array add a.toml d9").failed(2, "no member is lost");
}

/// For an NVRAM that is missing, is none, or is the one from before the last opening.
fn assert_detail_says_of_the_nvram_what_serve_does(home: &Home, serve: &str) {
    let seen = |state: &str, problem: Option<&str>| {
        let said = home.run("array detail a.toml --json");
        let shown: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let nvram = &shown["nvram"];
        assert_eq!((&nvram["state"], said.code), (&state.into(), i32::from(problem.is_some())), "{nvram}");
        let described = home.run("array detail a.toml").out;
        assert_eq!(described.contains("serve` refuses it; with --force"), problem.is_some(), "{described}");
        let Some(problem) = problem else { return };
        assert!(nvram["problem"].as_str().unwrap().contains(problem), "{nvram}");
        assert!(described.contains(problem), "{described}");
        assert!(home.run(serve).code > 1, "{state}");
    };
    seen("ours", None);
    let (nvram, own) = (home.path("nvram"), std::fs::read(home.path("nvram")).unwrap());
    let file = std::fs::read_to_string(home.path("a.toml")).unwrap();
    std::fs::remove_file(&nvram).unwrap();
    seen("away", Some("nvram"));
    home.run(serve).failed(3, "NVRAM nvram cannot be opened");
    std::fs::write(home.path("a.toml"), file.replace("nvram = \"nvram\"\n", "")).unwrap();
    seen("away", Some("it is not named"));
    std::fs::write(home.path("a.toml"), file).unwrap();
    std::fs::write(&nvram, vec![5; own.len()]).unwrap();
    seen("unknown", Some("it does not say whose it is"));
    std::fs::copy(home.path("earlier"), &nvram).unwrap();
    seen("ours", Some("it is an earlier copy"));
    std::fs::copy(home.path("d0"), &nvram).unwrap();
    seen("foreign", Some("it is a member of array"));
    std::fs::write(&nvram, own).unwrap();
    seen("ours", None);
}

/// A server with an NVRAM is killed: its cache is unchanged; an NVRAM that is no longer named is missed.
#[test]
fn a_cache_with_an_nvram_survives_kill_9() {
    let home = Home::new();
    let serve = "array serve a.toml --nbd unix:a.sock";
    home.run("array create b.toml --level 5 --size 40MiB --members e0 e1 e2 --nvram n")
        .failed(2, "is for --cache");
    let create = "array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 --cache ssd --nvram nvram";
    home.run(&format!("{create} --policy leavo")).failed(2, "only kdd and kdd-paper");
    home.ok(&format!("{create} --policy kdd-paper"));
    std::fs::copy(home.path("nvram"), home.path("earlier")).unwrap();
    let (server, _) = home.start(serve);
    let mut client = Client::connect(&home.path("a.sock"));
    for generation in 1..=3 {
        for sector in 0..SECTORS {
            client.write(sector * 4096, &content(sector, generation)).unwrap();
        }
    }
    client.flush().unwrap();
    server.kill();
    assert_detail_says_of_the_nvram_what_serve_does(&home, serve);
    let (server, _) = home.start(serve);
    let shown = home.json("array detail a.toml");
    let cache = &shown["cache"];
    assert!(cache["emptied"].is_null(), "{cache}");
    assert!(
        cache["pages"]["clean"].as_u64().unwrap() + cache["pages"]["old"].as_u64().unwrap() > 10,
        "{cache}"
    );
    assert_eq!(server.interrupt().0, 0);
    assert_generations(&home, serve, 3..=3);
    home.ok("array flush a.toml");
    assert!(home.json("array scrub a.toml")["mismatches"] == 0);
    home.ok("array detach-cache a.toml");
    assert!(!std::fs::read_to_string(home.path("a.toml")).unwrap().contains("nvram"));
}
