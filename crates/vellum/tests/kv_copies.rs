//! Stores made from others, by `debubble` and `kv checkpoint`: whole, or not at all.

use crate::support::Home;
use rustix::process::Signal;
use std::fs;
use std::path::Path;
use vellum::kv::Building;

/// Names in a directory, sorted.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A store with this many incompressible records of a KiB.
fn filled(home: &Home, name: &str, engine: &str, records: u32) {
    let mut random = 1u64;
    let mut letter = || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        char::from(b'0' + (random >> 58) as u8)
    };
    let mut value = || (0..1000).map(|_| letter()).collect::<String>().replace('\\', "|");
    let lines: String = (0..records).map(|n| format!("key{n:06}\t{}\n", value())).collect();
    fs::write(home.path("r.tsv"), lines).unwrap();
    home.ok(&format!("kv load {name} r.tsv --engine {engine} --memtable 1MiB"));
}

/// Damages the middle of the last table, including at least one record: what precedes it can be copied. Returns the
/// table's number.
fn damage_last_table(home: &Home, name: &str) -> u64 {
    let tables = names(&home.path(name)).into_iter().filter(|name| name.ends_with(".table"));
    let last = tables.max().unwrap();
    let table = home.path(name).join(&last);
    let mut bytes = fs::read(&table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 500].iter_mut().step_by(499).for_each(|byte| *byte ^= 1);
    fs::write(&table, bytes).unwrap();
    last.trim_end_matches(".table").parse().unwrap()
}

#[test]
fn what_fails_half_way_leaves_nothing() {
    let home = Home::new();
    fs::create_dir(home.path("empty")).unwrap();
    for engine in ["lsm", "log"] {
        filled(&home, engine, engine, 5000);
        damage_last_table(&home, engine);
        for out in ["new", "empty"] {
            home.run(&format!("debubble {engine} {out}")).failed(4, "");
            assert_eq!((home.path("new").exists(), names(&home.path("empty"))), (false, vec![]), "{engine}");
        }
    }
    home.ok("kv put spaced a 1 --keyspace x");
    home.run("debubble spaced new --engine log").failed(3, "has no keyspaces");
    assert!(!home.path("new").exists());
}

#[test]
fn what_was_killed_is_no_store_and_is_begun_anew() {
    let home = Home::new();
    filled(&home, "s", "lsm", 30_000);
    let killed = home.begin_unheard("debubble s out");
    while names(&home.path("out/UNFINISHED")).is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(killed.end(Signal::KILL).0, -1);
    assert!(home.path("out/UNFINISHED").exists() && !home.path("out/CURRENT").exists());
    for line in ["kv verify out", "kv stat out", "kv open out", "kv put out a 1", "kv compact out"] {
        home.run(line).failed(3, "out holds a store that was not finished");
    }
    home.run("kv repair out --write").failed(3, "");
    home.ok("debubble s out");
    assert!(home.ok("debubble s out --check").contains("both hold the same 30000 keys"));
    assert!(!home.path("out/UNFINISHED").exists());
    home.run("debubble s out").failed(2, "out is not empty");
}

#[test]
fn a_checkpoint_that_was_cut_short_is_begun_anew() {
    let home = Home::new();
    for engine in ["lsm", "log"] {
        filled(&home, engine, engine, 3000);
        let out = format!("{engine}-copy");
        // The state left between two renames.
        fs::create_dir_all(home.path(&out).join("UNFINISHED")).unwrap();
        for name in ["LOCK", "000001.table", "UNFINISHED/LOCK", "UNFINISHED/000099.manifest"] {
            fs::write(home.path(&out).join(name), "").unwrap();
        }
        home.ok(&format!("kv checkpoint {engine} {out}"));
        assert!(home.ok(&format!("kv verify {out}")).contains("all is well"));
        assert!(
            home.ok(&format!("debubble {engine} {out} --check")).contains("both hold the same 3000 keys")
        );
        assert!(
            !names(&home.path(&out)).iter().any(|name| name == "UNFINISHED" || name == "000099.manifest")
        );
        home.run(&format!("kv checkpoint {engine} {out}")).failed(2, "is not empty");
    }
}

#[test]
fn a_store_is_not_copied_into_itself() {
    let home = Home::new();
    home.ok("kv put s a 1");
    let before = names(&home.path("s"));
    fs::create_dir(home.path("beside")).unwrap();
    for out in ["s", "s/sub", "s/sub/deeper", "beside/../s/sub"] {
        for line in [format!("debubble s {out}"), format!("kv checkpoint s {out}")] {
            home.run(&line).failed(2, "the store that is read");
            assert_eq!(names(&home.path("s")), before, "{line}");
        }
    }
    home.ok("debubble s s-too");
}

/// The advice fits the store, and what is wrong with it.
#[test]
fn advice_is_of_stores() {
    let home = Home::new();
    filled(&home, "lsm", "lsm", 5000);
    filled(&home, "log", "log", 5000);
    home.ok("debubble lsm lsm-fine");
    home.ok("debubble log log-fine");
    let table = damage_last_table(&home, "lsm");
    damage_last_table(&home, "log");
    for line in ["debubble lsm new", "debubble lsm lsm-fine --check", "kv dump lsm --output d"] {
        let said = home.run(line);
        assert!(said.code == 4 && said.err.contains("`vellum kv repair`"), "{line}: {}", said.err);
        assert!(said.err.contains(&format!("table {table}: ")), "{line}: {}", said.err);
    }
    for line in ["debubble log new", "debubble log log-fine --check", "kv dump log --output e"] {
        let said = home.run(line);
        assert!(said.code == 4 && said.err.contains("`vellum kv repair`"), "{line}: {}", said.err);
    }
    assert_eq!(home.run("kv dump log --skip-damaged --output rest").code, 1);
    for line in ["kv repair log", "kv repair log --write"] {
        let said = home.run(line);
        assert!(said.code == 1 && said.out.contains("does not check out"), "{line}: {}", said.out);
    }
    home.ok("kv verify log");
    home.ok("kv dump log --output won-back");
    let lines = |name: &str| fs::read_to_string(home.path(name)).unwrap().lines().count();
    assert_eq!(lines("won-back"), lines("rest"));
    home.run("kv dump lsm --skip-damaged").failed(2, "is for log stores");
    home.ok("kv open s.flash --flash 16MiB");
    let image = fs::File::options().write(true).open(home.path("s.flash")).unwrap();
    image.set_len(image.metadata().unwrap().len() / 2).unwrap();
    let said = home.run("kv stat s.flash");
    assert!(said.code == 4 && said.err.contains("keep a copy of the image"), "{} {}", said.code, said.err);
}

/// The intact part of a damaged log store is dumped, and what is omitted is named.
#[test]
fn a_log_store_is_dumped_but_for_what_is_damaged() {
    let home = Home::new();
    filled(&home, "s", "log", 5000);
    damage_last_table(&home, "s");
    let said = home.run("kv dump s --skip-damaged --output rest.tsv --json");
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let (records, lost) =
        (told["records"].as_u64().unwrap(), told["problems"].as_array().unwrap().len() as u64);
    assert!(said.code == 1 && records + lost == 5000 && (1..=2).contains(&lost), "{} {told}", said.code);
    assert!(
        said.err.contains("LEFT OUT: segment ") && said.err.contains("does not check out"),
        "{}",
        said.err
    );
    home.ok("kv load saved rest.tsv --engine log");
    assert_eq!(home.json("kv stat saved")["entries"], records);
    home.ok("debubble saved whole");
    assert_eq!(home.json("kv dump whole --output w.tsv")["records"], records);
}

/// Damage found by background work is reported as damage, not as a store that only has to be reopened.
#[test]
fn compacting_what_is_damaged_ends_as_corrupt() {
    let home = Home::new();
    filled(&home, "s", "lsm", 5000);
    damage_last_table(&home, "s");
    home.ok("kv put s key000001 new");
    let said = home.run("kv compact s");
    assert!(said.code == 4 && said.err.contains("`vellum kv repair`"), "{} {}", said.code, said.err);
}

/// For the remains of a store that lost its head, no message claims that there is no store.
#[test]
fn a_store_without_current_and_manifest_is_a_damaged_one() {
    let home = Home::new();
    filled(&home, "s", "lsm", 5000);
    home.ok("kv compact s");
    for name in names(&home.path("s")) {
        if name == "CURRENT" || name.ends_with(".manifest") {
            fs::remove_file(home.path("s").join(name)).unwrap();
        }
    }
    for line in ["kv stat s", "kv get s a", "kv load s r.tsv", "kv put s a 1", "kv open s", "debubble s t"] {
        let said = home.run(line);
        let told = "CURRENT is missing, though there are tables or logs";
        assert!(said.code == 4 && said.err.contains(told), "{line}: {} {}", said.code, said.err);
        assert!(said.err.contains("kv repair"), "{line}: {}", said.err);
    }
    // Log files of others are not a store's.
    fs::create_dir(home.path("logs")).unwrap();
    fs::write(home.path("logs/diary.log"), "dear").unwrap();
    home.run("kv stat logs").failed(3, "logs holds no key-value store");
}

/// While one is being made, nobody is told to remove it.
#[test]
fn a_store_that_is_being_made_is_busy() {
    let home = Home::new();
    home.ok("kv put s a 1");
    let building = Building::begin(&home.path("out")).unwrap();
    fs::write(building.path().join("000001.table"), "the first of many").unwrap();
    for line in [
        "kv checkpoint s out",
        "debubble s out",
        "debubble s out --check",
        "kv stat out",
        "kv get out a",
        "kv put out a 1",
        "kv verify out",
        "kv repair out --write",
    ] {
        let said = home.run(line);
        assert!(!said.err.contains("rm -r") && !said.err.contains("cut short"), "{line}: {}", said.err);
        said.failed(5, "out is being made by another process");
    }
    drop(building);
    home.ok("kv checkpoint s out");
    assert_eq!(home.ok("kv get out a"), "1\n");
}

/// What was in memory only is in tables of the copy.
#[test]
fn a_checkpoint_counts_the_tables_that_it_made() {
    let home = Home::new();
    for engine in ["lsm", "log"] {
        for (round, compacted) in [false, true].into_iter().enumerate() {
            home.ok(&format!("kv put {engine} key{round} value --engine {engine}"));
            if compacted {
                home.ok(&format!("kv compact {engine}"));
            }
            let into = format!("{engine}-{round}");
            let made = home.json(&format!("kv checkpoint {engine} {into}"));
            let there = names(&home.path(&into)).iter().filter(|name| name.ends_with(".table")).count();
            assert_eq!((&made["tables"], there), (&1.into(), 1), "{made}");
            assert!(made["table_bytes"].as_u64() > Some(0), "{made}");
        }
    }
}
