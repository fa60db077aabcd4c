//! Disks from creation to check.

use crate::nbd::Client;
use crate::support::Home;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use vellum::base::{Env, Nanos, RealEnv};

#[test]
fn a_disk_is_made_served_looked_at_and_checked() {
    let home = Home::new();
    let made = home.json("disk create d.vellum --size 64MiB --dedup strong:blake3 --op 20% --tbw 3TB");
    assert_eq!(made["size_bytes"], 64 << 20);
    assert_eq!(made["dedup"], "strong:blake3");
    assert!(made["flash_bytes"].as_u64().unwrap() as f64 > 1.2 * (64 << 20) as f64);

    let (server, ready) = home.start("disk serve d.vellum --nbd unix:v.sock");
    assert_eq!((&ready["event"], &ready["door"]), (&Value::from("ready"), &Value::from("nbd")));
    let mut client = Client::connect(&home.path("v.sock"));
    assert_eq!(client.bytes, 64 << 20);
    for sector in 0..16u64 {
        client.write(sector * 4096, &[sector as u8 % 4; 4096]).unwrap();
    }
    client.flush().unwrap();

    // A process has it open: the figures come from it.
    let live = home.json("disk stat d.vellum");
    assert_eq!(live["ledger"]["host_written_bytes"], 16 * 4096);
    assert_eq!(live["ledger"]["avoided"]["zero"], 4 * 4096);
    assert!(home.ok("disk stat d.vellum").contains("host wrote    64.00 KiB"));
    home.run("disk check d.vellum").failed(5, "open elsewhere");
    home.run("disk serve d.vellum --nbd unix:w.sock").failed(5, "open elsewhere");
    home.run("disk create d.vellum --size 1MiB --force").failed(5, "open somewhere");

    let (code, lines) = server.interrupt();
    assert_eq!(code, 0);
    assert_eq!(lines[0]["event"], "closed");
    assert_eq!(lines[0]["ledger"]["host_written_bytes"], 16 * 4096);
    let (_, still) = (client, home.json("disk stat d.vellum"));
    assert_eq!(still["ledger"]["host_written_bytes"], 16 * 4096);
    assert_eq!(still["smart"]["unsafe_shutdowns"], 0);
    assert_eq!(still["ledger"]["programmed_bytes"], still["ledger"]["device_programmed_bytes"]);
    let checked = home.json("disk check d.vellum");
    assert_eq!(checked["clean"], true);
    assert!(home.ok("disk check d.vellum").ends_with("clean\n"));
    assert_eq!(home.json("disk scrub d.vellum")["clean"], true);
    assert!(!home.path("d.vellum.sock").exists());
}

#[test]
fn force_replaces_a_disk_and_nothing_else_does() {
    let home = Home::new();
    home.ok("disk create d.vellum --size 8MiB");
    home.run("disk create d.vellum --size 16MiB").failed(2, "exists already");
    assert_eq!(home.json("disk stat d.vellum")["size_bytes"], 8 << 20);
    home.ok("disk create d.vellum --size 16MiB --force");
    assert_eq!(home.json("disk stat d.vellum")["size_bytes"], 16 << 20);
    home.run("disk create d.vellum --size 5000 --force").failed(2, "multiple of 4KiB");
    home.run("disk create d.vellum --size 16MiB --page 4000 --force").failed(2, "page size");
    assert_eq!(home.json("disk stat d.vellum")["size_bytes"], 16 << 20, "a failure leaves the old disk");
    let left: Vec<_> = std::fs::read_dir(home.dir()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

/// Kills at any time: a new disk is there whole or not at all, and what it replaces until then.
#[test]
fn a_disk_whose_making_is_killed_is_in_nobodys_way() {
    let (home, env) = (Home::new(), RealEnv::new());
    let begun = env.now();
    home.ok("disk create d --size 1GiB");
    let whole = env.now() - begun;
    std::fs::remove_file(home.path("d")).unwrap();
    let (mut old, mut new) = (0, 0);
    for round in 0..40 {
        let is_replaced = round % 2 == 1;
        if is_replaced {
            home.ok("disk create d --size 8MiB --force");
        }
        let making = home.begin_unheard("disk create d --size 1GiB --force");
        env.sleep_until(env.now() + Nanos(whole.0 * round / 20));
        making.kill();
        match home.path("d").exists() {
            true if home.json("disk stat d")["size_bytes"] == 1 << 30 => new += 1,
            true => {
                assert_eq!(home.json("disk stat d")["size_bytes"], 8 << 20);
                old += 1;
            }
            false => {
                assert!(!is_replaced, "{round}");
                old += 1;
            }
        }
        let left: Vec<_> =
            std::fs::read_dir(home.dir()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert!(left.iter().all(|name| name == "d"), "{round}: {left:?}");
        let _ = std::fs::remove_file(home.path("d"));
    }
    assert!(old > 2 && new > 0, "{old} killed in time, {new} too late");
}

#[test]
fn every_geometry_option_counts() {
    let home = Home::new();
    let made = home.json(
        "disk create d --size 256MiB --page 16KiB --channels 3 --dies 1 --pages-per-block 32 --nvram none --endurance 77",
    );
    let geometry = &made["geometry"];
    assert_eq!(geometry["page_bytes"], 16384);
    assert_eq!(geometry["channels"], 3);
    assert_eq!(geometry["dies_per_channel"], 1);
    assert_eq!(geometry["pages_per_block"], 32);
    assert_eq!(made["nvram_bytes"], 0);
    assert_eq!(home.json("disk stat d")["wear"]["rated_erases"], 77);
    assert_eq!(home.json("disk check d")["clean"], true);
}

#[test]
fn memory_leaves_nothing_behind() {
    let home = Home::new();
    let (server, _) = home.start("disk serve --ram 32MiB --nbd unix:v.sock --metrics unix:m.sock");
    let mut client = Client::connect(&home.path("v.sock"));
    client.write(0, &[9; 4096]).unwrap();
    let page = http(&home, "m.sock", "/metrics");
    assert!(page.contains("smartctl_device_percentage_used{device=\"ram\"} 0\n"), "{page}");
    assert!(page.contains("vellum_flash_programmed_bytes_total{device=\"ram\",cause="), "{page}");
    drop(client);
    assert_eq!(server.interrupt().0, 0);
    assert_eq!(std::fs::read_dir(home.dir()).unwrap().count(), 0);
}

/// Home writes that the disk found to be copies of the journal.
fn copied(lines: &[Value]) -> u64 {
    lines.last().unwrap()["ledger"]["avoided"]["journal_copy"].as_u64().unwrap_or(0)
}

#[test]
fn a_journal_can_be_named() {
    let home = Home::new();
    home.ok("disk create d --size 32MiB");
    for (journal, saved) in [("", 0), ("--journal 1MiB+64KiB --journal 4MiB+1MiB", 2 * 4096)] {
        let (server, _) = home.start(&format!("disk serve d --nbd unix:s {journal}"));
        let mut client = Client::connect(&home.path("s"));
        for (at, byte) in [(1u64 << 20, 7), (5 << 20, 9), (20 << 20, 7), ((5 << 20) - 4096, 8), (21 << 20, 8)]
        {
            client.write(at, &[byte + u8::from(saved > 0); 4096]).unwrap();
        }
        let named = home
            .ok("disk stat d")
            .contains("named by --journal (so none are looked for)\n  1MiB+64KiB\n  4MiB+1MiB\n");
        assert_eq!(named, !journal.is_empty());
        drop(client);
        let (code, lines) = server.interrupt();
        assert_eq!((code, copied(&lines)), (0, saved), "{lines:?}");
    }
    let refused = |journal: &str, what: &str| {
        home.run(&format!("disk serve d --nbd unix:s --journal {journal}")).failed(2, what);
    };
    refused("32MiB+4KiB", "outside the device");
    refused("1MiB+1MiB --journal 1MiB+4KiB", "two journals");
    assert_eq!(home.run("disk serve d --nbd unix:s --journal 1+1").code, 2);
    assert_eq!(home.json("disk stat d")["smart"]["unsafe_shutdowns"], 0);
    home.run("disk serve --ram 8MiB --dedup none --nbd unix:s --journal 1MiB+1MiB")
        .failed(2, "dedup mode none");
    let (recorder, _) = home.start("disk record --ram 8MiB --nbd unix:s --to t.vtrace --journal 1MiB+1MiB");
    let mut client = Client::connect(&home.path("s"));
    client.write(1 << 20, &[7; 4096]).unwrap();
    client.write(4 << 20, &[7; 4096]).unwrap();
    drop(client);
    let (code, lines) = recorder.interrupt();
    assert_eq!((code, copied(&lines[..1])), (0, 4096), "{lines:?}");
}

/// The scrub of a disk in use, once it has completed `passes` passes.
#[expect(clippy::disallowed_methods, reason = "the server runs in real time")]
fn scrubbed(home: &Home, passes: u64) -> Value {
    for _ in 0..200 {
        let stat = home.json("disk stat d");
        assert_eq!(stat["scrub"]["failed"], Value::Null);
        if stat["scrub"]["passes"].as_u64().unwrap() >= passes {
            return stat;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    panic!("no pass in ten seconds: {}", home.json("disk stat d")["scrub"]);
}

#[test]
fn a_disk_in_use_is_scrubbed_in_the_background() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB");
    let (server, _) = home.start("disk serve d --nbd unix:s --metrics unix:m --scrub-every 1s");
    let mut client = Client::connect(&home.path("s"));
    let marks: Vec<u8> = (0..4096).map(|i| (i * 7 % 251) as u8 | 1).collect();
    for i in 0..64u8 {
        client.write(u64::from(i) * 4096, &[&[i + 1][..], &marks[1..]].concat()).unwrap();
    }
    client.flush().unwrap();
    let before = scrubbed(&home, 1);
    let after = scrubbed(&home, before["scrub"]["passes"].as_u64().unwrap() + 2);
    assert_eq!(after["ledger"]["programmed"], before["ledger"]["programmed"], "a healthy disk stays at rest");
    let read = |stat: &Value| stat["scrub"]["slots_read"].as_u64().unwrap();
    assert!(read(&after) >= read(&before) + 64, "{}", after["scrub"]);
    assert_eq!(after["scrub"]["damaged_sectors"], 0);
    assert!(home.ok("disk stat d").contains("\nscrub (since the disk was opened; a pass takes 0"));
    let page = http(&home, "m", "/metrics");
    assert!(page.contains("vellum_scrub_damaged_sectors{device=\"d\"} 0\n"), "{page}");
    drop(client);
    assert_eq!(server.interrupt().0, 0);
    assert_eq!(home.json("disk stat d")["scrub"], Value::Null);

    // Three of its sectors rot, beyond correction.
    let mut image = std::fs::read(home.path("d")).unwrap();
    let places: Vec<usize> = (0..image.len() - 4096)
        .step_by(64)
        .filter(|at| image[at + 1..at + 4096] == marks[1..])
        .take(3)
        .collect();
    assert_eq!(places.len(), 3);
    places.iter().for_each(|at| image[at + 2000..at + 2050].iter_mut().for_each(|byte| *byte ^= 0x5A));
    std::fs::write(home.path("d"), image).unwrap();
    let (server, _) = home.start("disk serve d --nbd unix:s --scrub-every 1s");
    assert_eq!(scrubbed(&home, 1)["scrub"]["damaged_sectors"], 3);
    assert_eq!(server.interrupt().0, 0);
    let (server, _) = home.start("disk serve d --nbd unix:s --scrub-every off");
    assert_eq!(home.json("disk stat d")["scrub"], Value::Null);
    assert_eq!(server.interrupt().0, 0);
    assert_eq!(home.run("disk serve d --nbd unix:s --scrub-every often").code, 2);
}

#[test]
fn watching_prints_a_line_each_second() {
    let home = Home::new();
    home.ok("disk create d --size 8MiB");
    let (mut watcher, first) = home.start("disk stat d --watch");
    let second = watcher.next_line().unwrap();
    assert_eq!(first["uuid"], second["uuid"]);
    assert_eq!(watcher.interrupt().0, 0);
}

#[test]
fn a_recording_holds_what_was_sent() {
    let home = Home::new();
    let (recorder, _) = home.start("disk record --ram 32MiB --nbd unix:v.sock --to w.vtrace");
    let mut client = Client::connect(&home.path("v.sock"));
    for i in 0..50u64 {
        client.write(i * 8192, &[i as u8 + 1; 8192]).unwrap();
    }
    client.flush().unwrap();
    client.read(8192, &mut [0; 4096]).unwrap();
    drop(client);
    let (code, lines) = recorder.interrupt();
    let recorded = lines.last().unwrap();
    assert_eq!((code, &recorded["event"]), (0, &Value::from("recorded")));
    assert_eq!((&recorded["writes"], &recorded["reads"]), (&Value::from(50), &Value::from(1)));
    assert_eq!(recorded["written_bytes"], 50 * 8192);
    assert!(recorded["trace_bytes"].as_u64().unwrap() < 10_000);
    home.run("disk record --ram 32MiB --nbd unix:v.sock --to w.vtrace").failed(2, "exists already");
}

#[test]
fn opening_a_strong_disk_tells_how_far_it_is() {
    use vellum::base::{BlockDevice, Lba, RealEnv};
    let home = Home::new();
    home.ok("disk create d --size 64MiB --dedup strong");
    let sectors = (64 << 20) / 4096;
    let mut told = Vec::new();
    let stack = vellum::Stack::open_with_progress(
        &home.path("d"),
        RealEnv::new(),
        vellum::OpenMode::default(),
        &mut |done, all| told.push((done, all)),
    )
    .unwrap();
    stack.disk().read(Lba(0), &mut [0; 4096]).unwrap();
    stack.close().unwrap();
    assert!(told.len() >= 4 && told.windows(2).all(|pair| pair[0].0 < pair[1].0), "{told:?}");
    assert!(told.iter().all(|(_, all)| *all == sectors), "{told:?}");
}

fn http(home: &Home, socket: &str, page: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(home.path(socket)).unwrap();
    write!(stream, "GET {page} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Copies that a disk with parity found while writing, found later, and has yet to look for.
fn copies(stat: &Value) -> (u64, u64, u64) {
    let avoided = |reason| stat["ledger"]["avoided"][reason].as_u64().unwrap_or(0) / 4096;
    (avoided("duplicate"), avoided("duplicate_offline"), stat["dedup_waiting_sectors"].as_u64().unwrap())
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the server runs in real time")]
fn a_disk_finds_copies_while_written_when_idle_and_when_told_to() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB --dedup ecc");
    let content: Vec<u8> = (0..64 * 4096u32).map(|i| (i / 4096 + i % 4096 * 7 % 251) as u8 | 1).collect();
    let marked = |at: u64| {
        let mut bytes = content.clone();
        bytes.chunks_mut(4096).for_each(|sector| sector[..8].copy_from_slice(&at.to_le_bytes()));
        bytes
    };
    let write_twice = |options: &str, at: u64| {
        let (server, _) = home.start(&format!("disk serve d --nbd unix:s {options}"));
        let mut client = Client::connect(&home.path("s"));
        let bytes = marked(at);
        [at, at + 4].iter().for_each(|mib| client.write(mib << 20, &bytes).unwrap());
        client.flush().unwrap();
        let before = copies(&home.json("disk stat d"));
        std::thread::sleep(Duration::from_millis(300));
        let after = copies(&home.json("disk stat d"));
        drop(client);
        assert_eq!(server.interrupt().0, 0);
        (before, after)
    };
    let (before, after) = write_twice("--dedup-when inline --dedup-table 5%", 0);
    assert_eq!((before, after), ((64, 0, 0), (64, 0, 0)));
    let (_, after) = write_twice("--dedup-when offline", 1);
    assert_eq!(after, (64, 64, 0), "idle for a moment");
    let said = home.ok("disk stat d");
    assert!(said.contains("found while written, 256"), "{said}");
    assert!(said.contains("0 sectors still to be looked at"), "{said}");

    // What was stored before the disk was opened is known after some idle time.
    let (server, _) = home.start("disk serve d --nbd unix:s --dedup-when inline");
    let learned = || home.json("disk stat d")["learned_sectors"].as_u64().unwrap();
    let is_known = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        learned() >= 128
    });
    assert!(is_known, "{} sectors", learned());
    let before = copies(&home.json("disk stat d"));
    Client::connect(&home.path("s")).write(9 << 20, &marked(0)).unwrap();
    assert_eq!(copies(&home.json("disk stat d")).0, before.0 + 64);
    assert_eq!(server.interrupt().0, 0);

    // For a disk of any mode.
    home.ok("disk create e --size 16MiB --dedup none");
    let (server, _) = home.start("disk serve e --nbd unix:s");
    let mut client = Client::connect(&home.path("s"));
    [0u64, 4].iter().for_each(|mib| client.write(mib << 20, &content).unwrap());
    drop(client);
    assert_eq!(server.interrupt().0, 0);
    let found = home.json("disk scrub e --dedup");
    assert_eq!((&found["dedup"]["sectors_remapped"], &found["clean"]), (&64.into(), &true.into()), "{found}");
    assert_eq!(home.json("disk check e")["clean"], true);
}

/// Traces and dumps copy the contents of a disk or a store, whatever the umask is.
#[test]
fn what_is_written_out_is_for_its_owner_alone() {
    let home = Home::new();
    let mode = |name: &str| std::fs::metadata(home.path(name)).unwrap().permissions().mode() & 0o777;
    let record = |options: &str| {
        let (recorder, _) = home.start(&format!("disk record --ram 16MiB --nbd unix:s {options}"));
        Client::connect(&home.path("s")).write(0, &[1; 4096]).unwrap();
        assert_eq!(mode("t.vtrace"), 0o600, "{options}");
        assert_eq!(recorder.interrupt().0, 0);
    };
    record("--to t.vtrace --bytes");
    // An existing file that others can read is not filled while they can.
    let open = |name: &str| {
        std::fs::write(home.path(name), vec![b'x'; 100_000]).unwrap();
        std::fs::set_permissions(home.path(name), PermissionsExt::from_mode(0o664)).unwrap();
    };
    open("t.vtrace");
    record("--to t.vtrace --force");
    home.ok("replay t.vtrace --compare none --device slc");
    home.ok("disk create d --size 16MiB");
    home.ok("disk dump d --to d.dump");
    home.ok("ses write d --lba 1-9");
    home.ok("ses dump d --lba 1-9 --to raw");
    home.ok("kv put store recto right");
    home.ok("kv dump store --output kv.dump");
    for name in ["d.dump", "raw", "raw.bin", "kv.dump"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    open("kv.dump");
    home.ok("kv dump store --output kv.dump --force");
    let dumped = std::fs::read_to_string(home.path("kv.dump")).unwrap();
    assert!(mode("kv.dump") == 0o600 && dumped.len() < 100, "{dumped}");
}
