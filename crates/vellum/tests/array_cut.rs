//! Files under an array that are truncated while it is served.

use crate::nbd::Client;
use crate::real::host::wait_until;
use crate::support::{Home, Running};
use std::io::Read;
use std::process::Stdio;

const SERVE: &str = "array serve a.toml --nbd unix:a.sock";
const PIECE: usize = 64 << 10;

/// Content of a piece of the array in its n-th generation: each sector identifies itself.
fn content(piece: u64, generation: u8) -> Vec<u8> {
    let sectors = (0..PIECE / 4096).flat_map(|sector| {
        let word = piece << 16 | (sector as u64) << 8 | u64::from(generation);
        word.to_le_bytes().into_iter().cycle().take(4096)
    });
    sectors.collect()
}

fn write(client: &mut Client, pieces: impl Iterator<Item = u64>, generation: u8) {
    for piece in pieces {
        client.write(piece * PIECE as u64, &content(piece, generation)).unwrap();
    }
}

fn assert_all(client: &mut Client, pieces: u64, generation: impl Fn(u64) -> u8, when: &str) {
    for piece in 0..pieces {
        let mut bytes = vec![0; PIECE];
        client.read(piece * PIECE as u64, &mut bytes).unwrap();
        assert!(bytes == content(piece, generation(piece)), "piece {piece} is wrong {when}");
    }
}

fn cut(home: &Home, name: &str, bytes: u64) {
    std::fs::File::options().write(true).open(home.path(name)).unwrap().set_len(bytes).unwrap();
}

fn length(home: &Home, name: &str) -> u64 {
    home.path(name).metadata().unwrap().len()
}

/// It is out as if it had been pulled: nothing is healed into the file, which would restore its end as zeros.
#[test]
fn a_member_that_is_cut_short_while_it_is_served_is_out() {
    const PIECES: u64 = 400;
    for reads_first in [true, false] {
        let home = Home::new();
        home.ok("array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 d3");
        let (server, _) = home.start(SERVE);
        let mut client = Client::connect(&home.path("a.sock"));
        write(&mut client, 0..PIECES, 1);
        client.flush().unwrap();
        cut(&home, "d3", 10 << 20);
        if reads_first {
            assert_all(&mut client, PIECES, |_| 1, "after the cut");
        }
        write(&mut client, (0..PIECES).step_by(2), 2);
        client.flush().unwrap();
        let newest = |piece: u64| if piece.is_multiple_of(2) { 2 } else { 1 };
        assert_all(&mut client, PIECES, newest, "after a write");
        let shown = home.run("array detail a.toml --json").out;
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        let member = &shown["members"][3];
        assert_eq!(member["state"], "missing", "{shown}");
        assert!(member["reason"].as_str().unwrap().contains("d3: it was cut short"), "{member}");
        assert_eq!(length(&home, "d3"), 10 << 20, "it is never written again");
        drop(client);
        assert_eq!(server.interrupt().0, 0);
        let (server, _) = home.start(SERVE);
        assert_all(&mut Client::connect(&home.path("a.sock")), PIECES, newest, "the next time");
        assert_eq!(server.interrupt().0, 0);
    }
}

/// It is detached; its contents are on the members, and parity is recomputed.
#[test]
fn an_ssd_that_is_cut_short_while_it_is_served_is_detached() {
    const PIECES: u64 = 100;
    for policy in ["kdd-paper", "wt"] {
        let home = Home::new();
        home.ok(&format!(
            "array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 --cache ssd --policy {policy}"
        ));
        let (server, _) = home.start(SERVE);
        let mut client = Client::connect(&home.path("a.sock"));
        write(&mut client, 0..PIECES, 1);
        write(&mut client, (0..PIECES).step_by(2), 2);
        let newest = |piece: u64| if piece.is_multiple_of(2) { 2 } else { 1 };
        assert_all(&mut client, PIECES, newest, "before the cut");
        let hits = home.json("array detail a.toml")["cache"]["read_hits"].as_u64().unwrap();
        assert!(hits > 0, "{policy}: nothing was read from the SSD");
        cut(&home, "ssd", 1 << 20);
        assert_all(&mut client, PIECES, newest, "after the cut");
        write(&mut client, (0..PIECES).step_by(4), 3);
        let newest = |piece: u64| if piece.is_multiple_of(4) { 3 } else { newest(piece) };
        assert_all(&mut client, PIECES, newest, "after a write");
        let detail = home.run("array detail a.toml --json");
        assert_eq!(detail.code, 1, "its cache cannot be used");
        let shown: serde_json::Value = serde_json::from_str(&detail.out).unwrap();
        let why = shown["cache"]["detached"].as_str().unwrap_or_default();
        assert!(why.contains("ssd: it was cut short"), "{policy}: {shown}");
        assert_eq!(length(&home, "ssd"), 1 << 20, "it is never written again");
        drop(client);
        assert_eq!(server.interrupt().0, 0);
        home.ok("array detach-cache --force a.toml");
        let scrubbed = home.json("array scrub a.toml");
        assert_eq!((&scrubbed["mismatches"], &scrubbed["stale_rows"]), (&0.into(), &0.into()), "{scrubbed}");
    }
}

/// Serves an array whose SSD is truncated, which is noticed.
fn with_a_dead_ssd(home: &Home, remarks: Stdio) -> Running {
    home.ok(
        "array create a.toml --level 5 --chunk 16KiB --size 40MiB --members d0 d1 d2 --cache ssd --policy wt",
    );
    let mut server = home.begin_with_remarks_to(SERVE, remarks);
    server.next_line().unwrap();
    let mut client = Client::connect(&home.path("a.sock"));
    write(&mut client, 0..100, 1);
    cut(home, "ssd", 1 << 20);
    write(&mut client, 0..100, 2);
    server
}

fn remarks(home: &Home) -> Stdio {
    std::fs::File::create(home.path("remarks")).unwrap().into()
}

/// Exactly one line of the remarks contains the first of these, and it contains the others as well.
fn said_once(home: &Home, what: &[&str]) {
    let said = std::fs::read_to_string(home.path("remarks")).unwrap();
    let lines: Vec<_> = said.lines().filter(|line| line.contains(what[0])).collect();
    assert_eq!(lines.len(), 1, "'{}': {said}", what[0]);
    what.iter().for_each(|what| assert!(lines[0].contains(what), "'{what}': {said}"));
}

/// The server reports it once, with what to do, without being asked.
#[test]
fn a_server_says_what_it_loses_and_not_what_an_order_takes() {
    let home = Home::new();
    let server = with_a_dead_ssd(&home, remarks(&home));
    assert_eq!(server.interrupt().0, 0);
    said_once(
        &home,
        &["the cache is detached", "ssd: it was cut short", "vellum array attach-cache a.toml SSD"],
    );

    home.ok("array detach-cache --force a.toml");
    home.ok("array attach-cache a.toml new --size 20MiB");
    let mut server = home.begin_with_remarks_to(SERVE, remarks(&home));
    server.next_line().unwrap();
    home.ok("array detach-cache a.toml");
    home.ok("array fail a.toml 0");
    home.ok("array add a.toml d3");
    home.ok("array rebuild a.toml");
    let mut client = Client::connect(&home.path("a.sock"));
    cut(&home, "d2", 10 << 20);
    write(&mut client, 0..400, 3);
    drop(client);
    assert_eq!(server.interrupt().0, 0);
    said_once(&home, &["a.toml: role 2, d2 is out", "d2: it was cut short"]);
    said_once(&home, &["degraded: role 2 is missing", "vellum array add a.toml PATH"]);
    let said = std::fs::read_to_string(home.path("remarks")).unwrap();
    assert!(!said.contains("cache") && !said.contains("role 0"), "{said}");
}

/// The server may still hold it: attaching it again says so, and it is no longer shown.
#[test]
fn an_ssd_that_died_is_let_go_of_while_the_array_is_served() {
    let home = Home::new();
    let server = with_a_dead_ssd(&home, Stdio::inherit());
    let seen = home.run("array stat a.toml");
    assert_eq!(seen.code, 1, "{}", seen.out);
    let is_told =
        seen.out.contains("ssd: it was cut short") && seen.out.contains("vellum array detach-cache");
    assert!(is_told && !seen.out.contains("read hits") && !seen.out.contains(" free"), "{}", seen.out);
    home.ok("array detach-cache a.toml");
    let shown = home.json("array stat a.toml");
    assert!(shown.get("cache").is_none(), "{shown}");
    home.run("array attach-cache a.toml ssd --erase").failed(5, "a.toml is served");
    assert_eq!(server.interrupt().0, 0);
}

/// A reason belongs to one device; a device that is out stays locked until it is released.
#[test]
fn a_new_member_has_nothing_of_the_fault_of_the_one_before_it() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 20MiB --members d0 d1 d2");
    let (server, _) = home.start(SERVE);
    let mut client = Client::connect(&home.path("a.sock"));
    cut(&home, "d1", 0);
    write(&mut client, 0..100, 1);
    let shown: serde_json::Value = serde_json::from_str(&home.run("array stat a.toml --json").out).unwrap();
    assert!(shown["members"][1]["reason"].as_str().unwrap().contains("d1: it was cut short"), "{shown}");
    let said = home.run("array add a.toml d1 --erase");
    said.failed(5, "d1");
    assert!(said.err.contains("next: vellum array remove a.toml d1 lets go of"), "{}", said.err);
    home.ok("array add a.toml d3");
    home.ok("array rebuild a.toml");
    let shown = home.json("array stat a.toml");
    let member = &shown["members"][1];
    assert_eq!((&member["device"], &member["state"]), (&"d3".into(), &"active".into()), "{shown}");
    assert!(member.get("reason").is_none(), "{shown}");
    drop(client);
    assert_eq!(server.interrupt().0, 0);
}

/// A command waiting for a server that is killed reports that, and what to do.
#[test]
fn a_server_that_is_killed_is_named_by_who_waits_for_it() {
    let home = Home::new();
    home.ok("array create a.toml --level 5 --chunk 16KiB --size 24MiB --members d0 d1 d2");
    let (server, _) = home.start(&format!("{SERVE} --pace sata-1tb"));
    let (mut replace, mut said) = home.listen("array replace a.toml d1 d5");
    wait_until("it copies", || home.json("array detail a.toml").get("replacing").is_some());
    server.kill();
    let mut err = String::new();
    said.read_to_string(&mut err).unwrap();
    assert_eq!(replace.wait().unwrap().code(), Some(3), "{err}");
    assert!(err.contains("the server of a.toml ended before it answered\n next: start it again"), "{err}");
    assert!(err.contains("vellum array detail a.toml"), "{err}");
}
