//! Dump, restore, repair and inspect.

use crate::nbd::Client;
use crate::support::Home;
use vellum::base::{BlockDevice, Lba};
use vellum::{OpenMode, Stack};

/// Serves the disk, calls `work` with a client, and closes it.
fn with_disk(home: &Home, work: impl FnOnce(&mut Client)) {
    let (server, _) = home.start("disk serve d --nbd unix:s");
    let mut client = Client::connect(&home.path("s"));
    work(&mut client);
    drop(client);
    assert_eq!(server.interrupt().0, 0);
}

fn read(home: &Home, offset: u64) -> u8 {
    let mut bytes = [0; 4096];
    with_disk(home, |client| client.read(offset, &mut bytes).unwrap());
    assert!(bytes.iter().all(|b| *b == bytes[0]));
    bytes[0]
}

#[test]
fn a_dump_brings_the_old_map_back() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB --dedup none");
    with_disk(&home, |client| client.write(4096, &[1; 4096]).unwrap());
    let text = home.ok("disk dump d");
    assert!(text.lines().count() > 3 && text.starts_with('{'), "{text}");
    home.ok("disk dump d --to d.dump");
    assert_eq!(std::fs::read_to_string(home.path("d.dump")).unwrap(), text);
    home.run("disk dump d --to d.dump").failed(2, "exists already");

    with_disk(&home, |client| client.write(4096, &[2; 4096]).unwrap());
    assert_eq!(read(&home, 4096), 2);
    home.run("disk restore d --from d.dump").failed(2, "forgets");
    assert_eq!(read(&home, 4096), 2);
    let restored = home.json("disk restore d --from d.dump --forget-newer");
    assert_eq!(restored["newer_writes_lost"], 1);
    assert_eq!(read(&home, 4096), 1);
    home.run("disk restore d --from nowhere --forget-newer").failed(3, "nowhere");
    std::fs::write(home.path("bad.dump"), "not a dump\n").unwrap();
    home.run("disk restore d --from bad.dump --forget-newer").failed(4, "bad.dump");
    assert_eq!(home.json("disk check d")["clean"], true);
}

#[test]
fn repair_says_first_and_writes_only_when_told() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB");
    with_disk(&home, |client| client.write(0, &[3; 40960]).unwrap());
    let before = std::fs::read(home.path("d")).unwrap();
    let found = home.json("disk repair d");
    assert_eq!((&found["written"], &found["damaged_sectors"]["count"]), (&false.into(), &0.into()));
    assert_eq!(std::fs::read(home.path("d")).unwrap(), before);
    assert_eq!(home.json("disk repair d --write")["written"], true);
    assert_eq!(read(&home, 4096), 3);
    assert_eq!(home.json("disk check d")["clean"], true);
}

#[test]
fn repair_gives_a_cut_image_its_length_back() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB --dedup none");
    let content = |i: u64| [i as u8 + 1; 4096];
    with_disk(&home, |client| (0..64).for_each(|i| client.write(i * 4096, &content(i)).unwrap()));
    let whole = std::fs::read(home.path("d")).unwrap();
    let places: Vec<usize> = (0..64)
        .map(|i| (0..whole.len()).step_by(4096).find(|at| whole[*at..*at + 4096] == content(i)).unwrap())
        .collect();
    let last_used = whole.iter().rposition(|b| *b != 0).unwrap();
    // After everything; through the middle of what is stored.
    let middle = {
        let mut sorted = places.clone();
        sorted.sort();
        sorted[40]
    };
    for (cut, all) in [(last_used + 1, true), (middle, false)] {
        std::fs::write(home.path("d"), &whole[..cut]).unwrap();
        let said = home.run("disk check d");
        said.failed(4, "was cut");
        assert!(said.err.contains("vellum disk repair d"), "{}", said.err);
        let found = home.run("disk repair d --json");
        let report: serde_json::Value = serde_json::from_str(&found.out).unwrap();
        assert!(
            found.code == i32::from(!all)
                && report["image_problems"][0].as_str().unwrap().contains("are gone"),
            "{report}"
        );
        assert_eq!(std::fs::read(home.path("d")).unwrap(), whole[..cut], "it only looked");
        let there = places.iter().filter(|at| **at < cut).count();
        assert_eq!(report["lost_sectors"]["count"] == 0, all, "{report}");
        let said = home.run("disk repair d --write");
        assert_eq!(said.code, i32::from(!all), "{}", said.out);
        assert_eq!(said.out.starts_with("d: everything is there\n"), all, "{}", said.out);
        assert!(said.out.contains("are gone, with whatever was in them; put right"), "{}", said.out);
        assert_eq!(home.path("d").metadata().unwrap().len(), whole.len() as u64);
        assert_eq!(home.run("disk check d").code, i32::from(!all), "what is lost cannot be read");
        let mut kept = 0;
        let stack =
            Stack::open(&home.path("d"), OpenMode { read_only: true, ..OpenMode::default() }).unwrap();
        for i in 0..64 {
            let mut bytes = [0; 4096];
            let read = stack.disk().read(Lba(i), &mut bytes);
            assert!(read.is_err() || bytes == content(i), "never anything else");
            kept += usize::from(read.is_ok());
        }
        stack.close().unwrap();
        assert_eq!((kept == 64, kept <= there), (all, true), "{kept} of {there} that were there");
        assert!(all || kept > 0);
    }
    std::fs::write(home.path("d"), &whole[..20_000]).unwrap();
    let said = home.run("disk repair d");
    said.failed(4, "none of its pages is left");
    assert!(said.err.contains("restore it from a copy"), "{}", said.err);
}

/// The last root and much of what was written last are in the part that is cut off.
#[test]
fn repair_of_a_cut_image_says_that_anything_may_be_older() {
    let home = Home::new();
    home.ok("disk create d --size 64MiB");
    with_disk(&home, |client| client.write(0, &[0x11; 2 << 20]).unwrap());
    with_disk(&home, |client| {
        client.write(0, &[0x22; 2 << 20]).unwrap();
        let distinct = |i: u64| (0..1 << 18).flat_map(move |w: u32| (u64::from(w) << 20 | i).to_le_bytes());
        (1..12).for_each(|i| client.write(i << 21, &distinct(i).collect::<Vec<u8>>()).unwrap());
    });
    let whole = std::fs::read(home.path("d")).unwrap();
    let (mut old, mut cuts_felt) = (0, 0);
    for percent in [4, 8, 12, 16, 20, 24] {
        std::fs::write(home.path("d"), &whole[..whole.len() * percent / 100]).unwrap();
        let said = home.run("disk repair d --write --json");
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert!(said.code == 1 && report["unreadable_pages"].as_u64().unwrap() > 0, "{report}");
        cuts_felt += u32::from(report["newer_may_be_gone"] == true);
        let stale = report["stale_sectors"]["ranges"].as_array().unwrap();
        let is_listed = |sector: u64| {
            stale
                .iter()
                .any(|r| (r[0].as_u64().unwrap()..).zip(0..r[1].as_u64().unwrap()).any(|(s, _)| s == sector))
        };
        let stack =
            Stack::open(&home.path("d"), OpenMode { read_only: true, ..OpenMode::default() }).unwrap();
        for sector in 0..12 << 9 {
            let mut bytes = [0; 4096];
            let is_read = stack.disk().read(Lba(sector), &mut bytes).is_ok();
            let is_current = match sector >> 9 {
                0 => bytes == [0x22; 4096],
                i => u64::from_le_bytes(bytes[..8].try_into().unwrap()) & 0xFFFFF == i,
            };
            if is_read && !is_current {
                old += 1;
                assert!(is_listed(sector), "sector {sector} is not what it was, and nobody says so");
            }
        }
        stack.close().unwrap();
    }
    assert!(old > 0 && cuts_felt > 0, "the cuts must be felt: {old} sectors, {cuts_felt} cuts");
    let said = home.run("disk repair d");
    assert!(said.out.contains("sectors perhaps too old"), "{}", said.out);
}

/// `check` and `repair` of `d` report it, and after `repair --write` they no longer do.
#[track_caller]
fn one_of_two_is_damaged(home: &Home, says: &str) {
    let said = home.run("disk check d");
    assert!(said.code == 1 && said.out.contains(says), "{}", said.out);
    assert!(said.out.ends_with("then: vellum disk repair d\n"), "{}", said.out);
    for repair in ["disk repair d", "disk repair d --write"] {
        let said = home.ok(repair);
        assert!(said.starts_with("d: everything is there\n") && said.contains(says), "{said}");
    }
    assert_eq!(home.json("disk check d")["clean"], true);
    assert_eq!(home.run("disk repair d").code, 0);
}

#[test]
fn headers_and_counters_are_recovered() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB --dedup none");
    with_disk(&home, |client| client.write(0, &[3; 40960]).unwrap());
    let whole = std::fs::read(home.path("d")).unwrap();
    std::fs::write(home.path("whole"), &whole).unwrap();
    for header in [0, 4096] {
        let mut damaged = whole.clone();
        damaged[header..header + 100].fill(0x5A);
        std::fs::write(home.path("d"), &damaged).unwrap();
        assert_eq!(
            home.json("disk stat d")["uuid"],
            home.json("disk stat whole")["uuid"],
            "one header is enough"
        );
        one_of_two_is_damaged(&home, "two headers is damaged");
        assert_eq!(std::fs::read(home.path("d")).unwrap()[..8192], whole[..8192]);
    }
    for counters in [8192, 12288] {
        let mut damaged = whole.clone();
        damaged[counters..counters + 64].fill(0x5A);
        std::fs::write(home.path("d"), &damaged).unwrap();
        // A power cut leaves this state, and nothing depends on it.
        home.ok("disk check d");
        home.ok("disk repair d");
    }
    let mut damaged = whole.clone();
    damaged[..8192].fill(0);
    std::fs::write(home.path("d"), &damaged).unwrap();
    for command in ["disk check d", "disk repair d"] {
        let said = home.run(command);
        said.failed(4, "both headers of the image are gone");
        assert!(said.err.contains("dd if=like.vellum of=d bs=4096 count=2 conv=notrunc"), "{}", said.err);
    }
    // As advised.
    home.ok("disk create like.vellum --size 16MiB");
    damaged[..8192].copy_from_slice(&std::fs::read(home.path("like.vellum")).unwrap()[..8192]);
    std::fs::write(home.path("d"), &damaged).unwrap();
    assert_eq!(home.run("disk repair d").code, 0);
    assert_eq!(read(&home, 4096), 3);
}

#[test]
fn inspect_names_pages_as_flash_has_them() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB");
    with_disk(&home, |client| client.write(0, &[3; 4096]).unwrap());
    let inspected = home.json("disk inspect d");
    let root = &inspected["roots"][0];
    let page = home.json(&format!("disk inspect d --page {}:{}", root["block"], root["page"]));
    assert!(page["slots"].as_array().unwrap().iter().any(|slot| slot["kind"] == "root"), "{page}");
    assert!(home.ok("disk inspect d").contains("roots, newest first"));
    home.run("disk inspect d --page 99999:0").failed(2, "99999");
    assert_eq!(home.run("disk inspect d --page here").code, 2);
}

#[test]
fn a_dump_of_another_disk_is_refused_in_one_line() {
    let home = Home::new();
    for name in ["d", "other"] {
        home.ok(&format!("disk create {name} --size 16MiB --dedup none"));
    }
    with_disk(&home, |client| client.write(0, &[5; 1 << 20]).unwrap());
    home.ok("disk dump d --to d.dump");
    let before = std::fs::read(home.path("other")).unwrap();
    let said = home.run("disk restore other --from d.dump --forget-newer");
    said.failed(2, "this dump is of another disk");
    let (own, foreign) = (home.json("disk stat other"), home.json("disk stat d"));
    for stat in [own, foreign] {
        assert!(said.err.contains(stat["uuid"].as_str().unwrap()), "{}", said.err);
    }
    assert!(said.err.len() < 500, "{}", said.err);
    let after = std::fs::read(home.path("other")).unwrap();
    assert!(after[16384..] == before[16384..], "but for the counters of the device nothing was written");

    // The same disk after its blocks were reused: a few reasons are enough.
    with_disk(&home, |client| {
        (0..40).for_each(|i| client.write((i % 4) << 20, &[i as u8; 1 << 20]).unwrap())
    });
    let said = home.run("disk restore d --from d.dump --forget-newer");
    said.failed(4, "does not hold what the dump names");
    assert!(said.err.contains(" more") && said.err.len() < 2000, "{}", said.err);
}

#[test]
fn damaged_sectors_are_listed_in_order_and_as_ranges() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB --dedup none");
    let marks = |i: u8| [&[i + 1][..], &[0xA7; 4095]].concat();
    // Written backwards, so that the order on flash is not that of the sectors.
    with_disk(&home, |client| {
        (0..40u8).rev().for_each(|i| client.write(u64::from(i) * 4096, &marks(i)).unwrap());
    });
    let mut image = std::fs::read(home.path("d")).unwrap();
    for i in (0..40u8).filter(|i| matches!(i, 3..=9 | 20 | 30..=31)) {
        let at = (0..image.len()).step_by(4096).find(|at| image[*at..*at + 4096] == marks(i)).unwrap();
        image[at + 2000..at + 2050].iter_mut().for_each(|byte| *byte ^= 0x5A);
    }
    std::fs::write(home.path("d"), image).unwrap();
    let said = home.run("disk check d");
    assert!(
        said.code == 1
            && said.out.contains(
                "  10 sectors cannot be read (each range without its end): 3..10, 20..21, 30..32\n"
            ),
        "{}",
        said.out
    );
    let next = "next: what those sectors held is gone, and no repair brings it back: restore the files in them from a \
                backup; a sector that is written anew or trimmed is whole again\n";
    assert!(said.out.ends_with(next) && !said.out.contains("vellum disk repair"), "{}", said.out);
    let said = home.run("disk check d --json");
    let found: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(found["damaged_ranges"], serde_json::json!([[3, 7], [20, 1], [30, 2]]));
    assert_eq!(found["damaged_sectors"], serde_json::json!([3, 4, 5, 6, 7, 8, 9, 20, 30, 31]));
    // As advised.
    with_disk(&home, |client| (3..=20).for_each(|i| client.write(i * 4096, &[9; 4096]).unwrap()));
    let stack = Stack::open(&home.path("d"), OpenMode::default()).unwrap();
    stack.disk().trim(Lba(30), 2).unwrap();
    stack.close().unwrap();
    assert_eq!(home.json("disk check d")["clean"], true);
}
