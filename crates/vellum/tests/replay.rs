//! Replays and the tour.

use crate::nbd::Client;
use crate::support::Home;

#[test]
fn the_tour_needs_nothing_and_shows_every_mode() {
    let home = Home::new();
    let said = home.run("tour");
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.is_empty(), "nothing is at risk in virtual time: {}", said.err);
    for word in [
        "none",
        "strong",
        "woj-paper",
        "journal",
        "ecc",
        "sha256",
        "host sectors",
        "write amplification",
        "p99",
        "next:",
    ] {
        assert!(said.out.contains(word), "{word}: {}", said.out);
    }
    assert!(std::fs::read_to_string(home.path("vellum-tour.html")).unwrap().starts_with("<!doctype html>"));
    let first = home.json("tour --seed 5");
    assert_eq!(first, home.json("tour --seed 5"), "the same seed, the same answer");
    assert_eq!(first["modes"].as_array().unwrap().len(), 6);
    let removed = |mode: usize| {
        let home = &first["modes"][mode]["home"];
        home["removed"].as_f64().unwrap() / home["written"].as_f64().unwrap()
    };
    assert!(removed(3) > 0.995 && removed(3) > removed(2), "journal removes more than the paper's rule");
    assert!(removed(4) > 0.9 && removed(4) < 1.0, "a table of parity finds nearly all: {}", removed(4));
    let wrong = [0, 1, 2, 3, 4, 5].map(|mode: usize| first["modes"][mode]["wrong_sectors"].as_u64().unwrap());
    assert_eq!(
        [wrong[0], wrong[1], wrong[3], wrong[4], wrong[5]],
        [0; 5],
        "whoever compares bytes corrupts nothing"
    );
    assert!(wrong[2] > 0, "the paper's rule maps inode tables to what begins like them");
    let said = home.run("tour --report no/such/dir/t.html");
    said.failed(3, "write no/such/dir/t.html");
    assert!(said.out.is_empty(), "said before the work: {}", said.out);
    home.run("tour --report vellum-tour.html/t.html").failed(3, "write vellum-tour.html/t.html");
    std::fs::remove_file(home.path("vellum-tour.html")).unwrap();
    std::fs::create_dir(home.path("vellum-tour.html")).unwrap();
    let said = home.run("tour");
    said.failed(3, "write vellum-tour.html");
    assert!(said.out.contains("write amplification") && !said.out.contains("charts:"), "{}", said.out);
    assert!(said.err.contains("vellum tour --report PATH"), "{}", said.err);
    std::fs::write(home.path("own.html"), "mine").unwrap();
    let said = home.run("tour --report own.html");
    said.failed(2, "own.html exists already");
    assert!(said.out.is_empty() && said.err.contains("--force"), "{}", said.err);
    assert_eq!(std::fs::read(home.path("own.html")).unwrap(), b"mine");
    home.ok("tour --report own.html --force");
    assert!(std::fs::read_to_string(home.path("own.html")).unwrap().starts_with("<!doctype html>"));
}

#[test]
fn what_was_recorded_is_replayed() {
    let home = Home::new();
    let (recorder, _) = home.start("disk record --ram 32MiB --nbd unix:v.sock --to w.vtrace");
    let mut client = Client::connect(&home.path("v.sock"));
    for i in 0..40u64 {
        client.write(i * 4096, &[i as u8 % 10 + 1; 4096]).unwrap();
    }
    drop(client);
    assert_eq!(recorder.interrupt().0, 0);
    let replayed = home.json("replay w.vtrace --compare none,strong --device slc --report w.html");
    let sectors =
        |mode: usize| replayed["modes"][mode]["ledger"]["programmed"]["host_data"].as_u64().unwrap() / 4096;
    assert_eq!((sectors(0), sectors(1)), (40, 10));
    let page = std::fs::read(home.path("w.html")).unwrap();
    let again = "replay w.vtrace --compare none --device slc --report";
    let said = home.run(&format!("{again} w.html"));
    said.failed(2, "w.html exists already");
    assert!(said.out.is_empty() && std::fs::read(home.path("w.html")).unwrap() == page);
    home.ok(&format!("{again} w.html --force"));
    assert_ne!(std::fs::read(home.path("w.html")).unwrap(), page);
    home.run(&format!("{again} no/such/dir/t.html")).failed(3, "write no/such/dir/t.html");
    home.run(&format!("{again} . --force")).failed(2, "is a directory");
    // Before the trace is inspected.
    home.run("replay nowhere --report w.html").failed(2, "w.html exists already");
    home.run("lab run woj-fig5 --report w.html").failed(2, "w.html exists already");
}

/// A page of records, one of which changes with every write.
fn page(lba: u64, version: u64) -> Vec<u8> {
    let record = |n: u64| {
        let changes = if n == version % 40 { version } else { 0 };
        let mut bytes =
            format!("record {n:04} of page {lba:04}, balance {:08}, ", changes * 12_345).into_bytes();
        bytes.extend((0..56).map(|i| b'a' + ((lba * 31 + n * 7 + i * i) % 26) as u8));
        bytes
    };
    (0..40).flat_map(record).chain(std::iter::repeat(b'.')).take(4096).collect()
}

#[test]
fn deltas_are_made_of_what_was_recorded() {
    let home = Home::new();
    let record = |options: &str, to: &str| {
        let line = format!("disk record --ram 32MiB --nbd unix:v.sock {options} --to {to}");
        let (recorder, _) = home.start(&line);
        let mut client = Client::connect(&home.path("v.sock"));
        for version in 0..10u64 {
            (0..60).for_each(|lba| client.write(lba * 4096, &page(lba, version)).unwrap());
        }
        drop(client);
        recorder.interrupt().1.pop().unwrap()
    };
    let recorded = record("--bytes", "b.vtrace");
    assert_eq!((&recorded["writes"], &recorded["kept_sectors"]), (&600.into(), &600.into()));
    let line = "--array raid5 --cache 100% --compare wt,kdd-12,kdd";
    let replayed = home.json(&format!("replay b.vtrace {line} --deltas recorded"));
    assert_eq!(replayed["deltas"], "recorded");
    let kept = serde_json::json!({ "real": 600, "fingerprints": 0, "unknown": 0 });
    assert_eq!(replayed["contents"], kept);
    let flash =
        |replayed: &serde_json::Value, mode: usize| replayed["modes"][mode]["flash_bytes"].as_u64().unwrap();
    let figures = home.json(&format!("replay b.vtrace {line}"));
    assert!(figures["contents"].is_null() && figures["modes"][1]["deltas"].is_null());
    let (real, drawn, through) = (flash(&replayed, 1), flash(&figures, 1), flash(&replayed, 0));
    assert!(real < drawn && drawn < through && through == flash(&figures, 0), "{real} {drawn} {through}");
    let made = &replayed["modes"][1]["deltas"];
    assert!(made["bases"].as_u64().unwrap() >= 200 && made["none"] == 0, "cleaned pages go: {made}");
    assert!(
        (0.001..0.02).contains(&made["mean_share"].as_f64().unwrap()),
        "two of 40 records differ: {made}"
    );
    let said = home.ok(&format!("replay b.vtrace {line} --deltas recorded"));
    assert!(
        said.contains("recorded (real bytes of 600 of 600 written sectors)") && said.contains("mean delta")
    );
    let none =
        |said: &str| said.lines().find(|line| line.trim_start().starts_with("no delta")).map(String::from);
    assert!(none(&said).unwrap().contains("0.0% of bases"), "{said}");
    assert!(replayed["notes"].as_array().unwrap().is_empty(), "{replayed}");

    // Fingerprints show that pages differ, but not by how much.
    let recorded = record("", "f.vtrace");
    assert_eq!(recorded["kept_sectors"], 0);
    let said = home.run(&format!("replay f.vtrace {line} --deltas recorded --json"));
    assert!(said.code == 0 && said.err.contains("of 600 of 600 written sectors"), "{}", said.err);
    let guessed: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(guessed["modes"][1]["deltas"]["mean_share"].as_f64().unwrap() > 0.9, "{guessed}");
    assert!(guessed["notes"][0].as_str().unwrap().starts_with("of 600 of 600 written sectors"), "{guessed}");
    std::fs::write(home.path("t.csv"), "0,h,0,Write,0,4096,1\n1000,h,0,Write,0,4096,1\n").unwrap();
    let said = home.run("replay t.csv --format msr --array raid5 --deltas recorded");
    said.failed(2, "t.csv: the trace does not say what was written");
    assert!(said.err.contains("vellum disk record --bytes") && said.out.is_empty(), "{}", said.err);
}

#[test]
fn a_trace_without_contents_is_told() {
    let home = Home::new();
    let rows: String =
        (0..200).map(|i| format!("{},host,0,Write,{},4096,100\n", i * 1000, i % 50 * 4096)).collect();
    std::fs::write(home.path("t.csv"), rows).unwrap();
    let command = "replay t.csv --format msr --compare none,strong --device slc";
    let without = home.json(command);
    assert_eq!(
        (&without["setup"]["content"], &without["setup"]["modelled_content_sectors"]),
        (&"unique".into(), &200.into())
    );
    let programmed = |replayed: &serde_json::Value, mode: usize| {
        replayed["modes"][mode]["ledger"]["programmed"]["host_data"].as_u64().unwrap()
    };
    assert_eq!(programmed(&without, 0), programmed(&without, 1));
    let noted =
        "does not say what 200 written sectors hold. By the content model (unique) no two of them are alike";
    assert!(without["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains(noted)));
    assert!(home.ok(command).contains(noted));
    let modelled = home.json(&format!("{command} --content duplicates:40%"));
    assert_eq!(modelled["setup"]["content"], "duplicates:40%");
    assert!(programmed(&modelled, 1) < programmed(&modelled, 0));
    assert!(!home.ok("tour").contains("does not say what"), "the tour's trace has contents");
}

#[test]
fn a_trace_of_few_places_on_a_huge_disk_is_replayed() {
    let home = Home::new();
    let place = |i: u64| i * i % 7 * 37_000_000_000 / 4096 * 4096 + i * 4096;
    let end = 1_600_000_000_000u64;
    let mut rows: String =
        (0..500).map(|i| format!("{},h,0,Write,{},8192,100\n", i * 1000, place(i))).collect();
    rows += &format!("600000,h,0,Read,{},4096,100\n", end / 4096 * 4096 - 4096);
    std::fs::write(home.path("t.csv"), rows).unwrap();
    let replayed = home.json("replay t.csv --format msr --compare journal");
    assert_eq!(replayed["setup"]["device_bytes"], end / 4096 * 4096);
    assert_eq!(replayed["modes"][0]["ledger"]["programmed"]["host_data"], 1000 * 4096);
    assert_eq!(replayed["modes"][0]["wrong_sectors"], 0);
}

/// Nothing of a trace is dropped silently.
#[test]
fn rows_that_are_left_out_or_odd_are_told() {
    let home = Home::new();
    let row = |time: u64, bytes: u64| format!("{time},h,0,Write,8192,{bytes},100\n");
    let good: String = (0..20).map(|i| row(1000 * i, 4096)).collect();
    let odd = row(20_000, 0) + &row(20_000, 0) + &row(20_001, 1 << 40) + &row(5, 4096) + "words\n";
    std::fs::write(home.path("t.csv"), good + &odd).unwrap();
    for command in ["--compare none --device slc", "--array raid5 --compare nossd"] {
        let line = format!("replay t.csv --format msr {command}");
        let said = home.run(&format!("{line} --json"));
        assert_eq!(said.code, 0, "{}", said.err);
        for what in [
            "t.csv: rows left out as empty: 2, the first at line 21",
            "t.csv: rows left out as too long: 1, the first at line 23",
            "t.csv: rows out of order, taken as they come: 1, the first at line 24",
            "t.csv: rows left out as malformed: 1, the first at line 25",
        ] {
            assert!(said.err.contains(what), "{line}: {}", said.err);
        }
        let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        let empty = &told["odd_rows"][1];
        assert_eq!(*empty, serde_json::json!({ "kind": "empty", "rows": 2, "first": "line 21" }));
        std::fs::write(home.path("none.csv"), row(0, 0) + &row(1, 1 << 40)).unwrap();
        let none = home.run(&line.replace("t.csv", "none.csv"));
        none.failed(4, "none.csv: all rows of the trace were left out: 1 empty (first: line 1), 1 too long");
    }
}

#[test]
fn traces_that_are_none() {
    let home = Home::new();
    home.run("replay nowhere").failed(3, "nowhere");
    std::fs::write(home.path("text"), "some words\n").unwrap();
    let said = home.run("replay text");
    said.failed(2, "error: text: cannot tell its trace format: say which it is");
    std::fs::write(home.path("numbers"), "938513000 4 264719034 16 0\n").unwrap();
    home.run("replay numbers").failed(2, "error: numbers: five numbers a line may be");
    std::fs::write(home.path("empty"), "").unwrap();
    home.run("replay empty").failed(2, "error: empty: it is empty: there is nothing to replay");
    for more in ["", " --array raid5"] {
        home.run(&format!("replay empty --format msr{more}")).failed(2, "error: empty: the trace has no re");
    }
    std::fs::write(home.path("cut.vtrace"), &b"VELTRACE\x01\0\0\0"[..]).unwrap();
    home.run("replay cut.vtrace").failed(4, "ends within its header");
    for line in
        ["--compare magic", "--device magic", "--core magic", "--content magic", "--journal 1+1", "--op lots"]
    {
        assert_eq!(home.run(&format!("replay text {line}")).code, 2, "{line}");
    }
    assert_eq!(home.run("lab run nonsense").code, 2);
    assert_eq!(home.run("lab list").code, 0);
}

/// The contents of a page before the trace wrote it give no delta, and are not part of any length.
#[test]
fn writes_without_a_delta_have_a_row() {
    let home = Home::new();
    let (recorder, _) = home.start("disk record --ram 32MiB --nbd unix:v.sock --bytes --to b.vtrace");
    let mut client = Client::connect(&home.path("v.sock"));
    for lba in 0..20u64 {
        client.read(lba * 4096, &mut [0; 4096]).unwrap();
        client.write(lba * 4096, &page(lba, 1)).unwrap();
    }
    drop(client);
    assert_eq!(recorder.interrupt().0, 0);
    let line = "replay b.vtrace --array raid5 --cache 100% --compare wt,kdd-12 --deltas recorded";
    let replayed = home.json(line);
    let made = &replayed["modes"][1]["deltas"];
    assert!(made["bases"].as_u64().unwrap() > 0 && made["bases"] == made["none"], "{made}");
    assert!(made["mean_share"].is_null(), "{made}");
    let said = home.ok(line);
    let row = |name: &str| {
        let line = said.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        line.trim_start().trim_start_matches(name).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!((row("mean delta").as_str(), row("no delta").as_str()), ("- -", "- 100.0% of bases"));
}

/// Requests come at the trace's times: if disks cannot keep up, that is reported, with the caches concerned.
#[test]
fn an_array_whose_disks_are_overloaded_is_told() {
    let home = Home::new();
    let far = |i: u64| i * 7919 % 1000 * (1 << 20);
    let rows = (0..500).map(|i| format!("{},h,0,Write,{},4096,100\n", 1_000_000 * i, far(i)));
    std::fs::write(home.path("t.csv"), rows.collect::<String>()).unwrap();
    let line = "replay t.csv --format msr --array raid5 --compare nossd";
    let at_leisure = home.run(line);
    assert!(at_leisure.code == 0 && !at_leisure.err.contains("overloaded"), "{}", at_leisure.err);
    let hurried = home.run(&format!("{line} --speed 1000"));
    assert!(
        hurried.code == 0 && hurried.err.contains("the disks of nossd are overloaded"),
        "{}",
        hurried.err
    );
    let told = home.json(&format!("{line} --speed 1000"));
    assert!(told["notes"][0].as_str().unwrap().starts_with("the disks of nossd are overloaded"), "{told}");
}

/// Options that leave nothing of a trace are refused, with the reason.
#[test]
fn a_device_that_a_trace_has_not_and_a_shift_beyond_it_are_told() {
    let home = Home::new();
    let rows: String = (0..20).map(|i| format!("{},h,0,Write,8192,4096,100\n", 1000 * i)).collect();
    std::fs::write(home.path("t.csv"), rows).unwrap();
    let line = "replay t.csv --format msr --array raid5 --compare nossd";
    home.run(&format!("{line} --only 7")).failed(2, "no reads and writes of device 7");
    home.run(&format!("{line} --shift 18446744073709551615"))
        .failed(2, "beyond all requests: the last is at 8192");
    home.ok(&format!("{line} --only 0 --shift 8192"));
}

/// Errors in cache options are explained, and options without effect are refused.
#[test]
fn options_of_an_array_are_for_arrays_and_each_cache_is_named_once() {
    let home = Home::new();
    let rows: String = (0..20).map(|i| format!("{},h,{},Write,8192,4096,100\n", 1000 * i, i % 2)).collect();
    std::fs::write(home.path("t.csv"), rows).unwrap();
    for option in ["--members 7", "--cache 10%", "--chunk 16KiB", "--shift 4096"] {
        let said = home.run(&format!("replay t.csv --format msr --only 0 {option}"));
        assert!(said.code == 2 && said.err.contains("--array <LEVEL>"), "{}", said.err);
    }
    for option in [
        "--fill 80%",
        "--overwrite 10%",
        "--op 7%",
        "--size 1GiB",
        "--core free",
        "--content duplicates:40%",
        "--journal 0+4096",
        "--queue-depth 1",
    ] {
        let said = home.run(&format!("replay t.csv --format msr --only 0 --array raid5 {option}"));
        let name = option.split(' ').next().unwrap();
        let is_named = said.err.contains(name) && said.err.contains("cannot be used with");
        assert!(said.code == 2 && is_named, "{}", said.err);
    }
    let line = "replay t.csv --format msr --array raid5 --compare";
    home.run(&format!("{line} nossd,wt,nossd")).failed(2, "'nossd' is named twice");
    for (more, next) in
        [("", "--only N takes the device N"), (" --only 0 --members 2", "what --format, --only")]
    {
        let said = home.run(&format!("{line} nossd{more}"));
        assert!(said.code == 2 && said.err.contains(next), "{}", said.err);
    }
    let told = home.ok(&format!("{line} nossd --only 0"));
    let response = told.lines().find(|line| line.contains("read response, mean")).unwrap();
    assert!(response.trim_end().ends_with(" -"), "there were no reads: {response}");
}
