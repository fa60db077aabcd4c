//! Stores of the log engine from the command line, and removal of bubbles.

use crate::support::Home;
use std::fs;
use std::process::Command;

/// Records that are overwritten in runs, so that collection keeps most of them.
fn overwritten(home: &Home, name: &str, engine: &str) {
    let value = "v".repeat(400);
    let line = |key: u32, round: u32| format!("key{key:05}\t{round}{value}\n");
    let all: String = (0..4000).map(|key| line(key, 0)).collect();
    fs::write(home.path("all.tsv"), all).unwrap();
    home.ok(&format!("kv load {name} all.tsv --engine {engine} --memtable 256KiB"));
    let some: String =
        (0..40).flat_map(|run| (0..20).map(move |at| run * 97 + at)).map(|key| line(key, 1)).collect();
    fs::write(home.path("some.tsv"), some).unwrap();
    home.ok(&format!("kv load {name} some.tsv --reuse bubbles --memtable 256KiB"));
    home.ok(&format!("kv compact {name} --reuse bubbles"));
}

#[test]
fn a_log_store_is_used_like_any_other_and_knows_what_it_is() {
    let home = Home::new();
    home.ok("kv open s --engine log");
    assert_eq!(home.json("kv stat s")["engine"], "log");
    home.ok("kv put s recto right");
    home.ok("kv put s verso left --engine log");
    assert_eq!(home.ok("kv get s recto"), "right\n");
    fs::write(home.path("steps"), "put\tquire\tfour\ndel\tverso\n").unwrap();
    home.ok("kv batch s steps");
    home.ok("kv del s nobody");
    assert_eq!(home.run("kv get s verso").code, 1);
    let mut lines: Vec<String> = home.ok("kv dump s").lines().map(String::from).collect();
    lines.sort();
    assert_eq!(lines, ["quire\tfour", "recto\tright"]);
    assert!(home.ok("kv verify s").contains("all is well"));
    home.ok("kv compact s");
    home.ok("kv checkpoint s copy");
    assert_eq!(home.json("kv stat copy")["engine"], "log");
    assert_eq!(home.ok("kv get copy quire"), "four\n");
    let stat = home.json("kv stat s");
    assert_eq!((stat["entries"].as_u64(), stat["garbage_bytes"].as_u64()), (Some(2), Some(0)), "{stat}");
    assert!(home.ok("kv stat s").contains("a log store: 2 keys"));
}

#[test]
fn what_needs_an_order_or_another_engine_is_told() {
    let home = Home::new();
    home.ok("kv put log a 1 --engine log");
    home.ok("kv put lsm a 1");
    let before = home.ok("kv dump log");
    for (line, told) in [
        ("kv scan log", "kv dump log"),
        ("kv dump log --prefix a", "have no order"),
        ("kv compact log --from a", "have no order"),
        ("kv ingest log steps", "have no order"),
        ("kv drop log x", "no keyspaces"),
        ("kv put log a 2 --engine lsm", "leave --engine out"),
        ("kv put lsm a 2 --engine log", "leave --engine out"),
        ("kv put log a 2 --keyspace x", "no keyspaces"),
        ("kv get log a --keyspace x", "no keyspaces"),
    ] {
        fs::write(home.path("steps"), "b\t1\n").unwrap();
        let said = home.run(line);
        assert_ne!(said.code, 0, "{line}");
        assert!(said.err.contains(told), "{line}: {}", said.err);
    }
    assert_eq!((home.ok("kv dump log"), home.ok("kv get lsm a")), (before, "1\n".into()));
}

#[test]
fn stat_shows_what_was_kept_and_what_it_cost() {
    let home = Home::new();
    overwritten(&home, "s", "log");
    let stat = home.json("kv stat s");
    let reuse = &stat["lifetime"]["reuse"];
    let of = |name: &str| reuse[name].as_f64().unwrap();
    assert!(of("islands") > 10.0 && of("bubbles") > 10.0, "{reuse}");
    assert!(of("bubble_share") > 0.0 && of("bubble_share") <= 0.125, "{reuse}");
    assert!(of("padding_share") > 0.0 && of("padding_share") <= 0.05, "{reuse}");
    assert_eq!((of("hashed_bytes"), of("remapped_bytes")), (of("kept_bytes"), 0.0), "{reuse}");
    assert!(of("kept_bytes") > 0.5 * stat["live_bytes"].as_f64().unwrap(), "{stat}");
    assert!(stat["bubble_bytes"].as_u64().unwrap() > 0, "{stat}");
    let text = home.ok("kv stat s");
    assert!(
        text.contains("islands") && text.contains("--bubble-cap") && text.contains("--global-cap"),
        "{text}"
    );
}

/// Superblocks are the same for both engines.
#[test]
fn a_log_store_on_flash_shows_its_superblocks() {
    let home = Home::new();
    home.ok("kv open s --flash 64MiB --engine log");
    let written = |keys: &dyn Fn(&u32) -> bool, round: u32| {
        let value = "v".repeat(400);
        let keys = (0..10_000).filter(keys);
        let lines: String = keys.map(|key| format!("key{key:05}\t{round}{value}\n")).collect();
        fs::write(home.path("r.tsv"), lines).unwrap();
        home.ok("kv load s r.tsv --reuse relink");
    };
    written(&|_| true, 0);
    written(&|key| key % 250 < 50, 1);
    home.ok("kv compact s --reuse relink");
    let stat = home.json("kv stat s");
    let of = |name: &str| stat["placement"][name].as_u64().unwrap_or_else(|| panic!("{name}: {stat}"));
    assert!(of("superblocks") > of("superblocks_free") && of("superblocks_pinned") > 0, "{stat}");
    assert!(of("pinned_live_bytes") > 0 && of("pinned_bytes") > of("pinned_live_bytes"), "{stat}");
    let text = home.ok("kv stat s");
    let told = format!("superblocks: {}, {} of them free", of("superblocks"), of("superblocks_free"));
    assert!(text.contains(&told) && text.contains(" pinned, "), "{text}");
}

/// Moves everything into tables; in an ordered store, into those of one level.
fn compact(home: &Home, name: &str) {
    let stat = home.json(&format!("kv stat {name}"));
    let levels = stat["levels"].as_array();
    assert!(levels.is_none_or(|levels| levels.len() == 1 && levels[0]["level"] != 0), "{stat}");
    let files = fs::read_dir(home.path(name)).unwrap().map(|entry| entry.unwrap());
    let logs = files.filter(|file| file.file_name().to_string_lossy().ends_with(".log"));
    let bytes: u64 = logs.map(|log| log.metadata().unwrap().len()).sum();
    assert!(bytes < 1000, "{bytes} bytes of logs in {name}");
}

#[test]
fn a_store_without_bubbles_holds_the_same_in_less() {
    let home = Home::new();
    for engine in ["log", "lsm"] {
        let (from, into, other) =
            (format!("{engine}-in"), format!("{engine}-out"), format!("{engine}-other"));
        overwritten(&home, &from, engine);
        let made = home.json(&format!("debubble {from} {into}"));
        assert_eq!((made["engine"].as_str(), made["keys"].as_u64()), (Some(engine), Some(4000)), "{made}");
        assert!(made["bytes"].as_u64() < made["bytes_before"].as_u64(), "{made}");
        let stat = home.json(&format!("kv stat {into}"));
        assert_eq!(stat["lifetime"]["reuse"]["bubble_bytes"], 0, "{stat}");
        assert!(home.ok(&format!("debubble {from} {into} --check")).contains("both hold the same 4000 keys"));
        let opposite = if engine == "log" { "lsm" } else { "log" };
        let made = home.json(&format!("debubble {from} {other} --engine {opposite}"));
        assert!(made["log_bytes"] == 0 && made["bytes"].as_u64() > Some(0), "{made}");
        assert_eq!(home.json(&format!("kv stat {other}"))["engine"], opposite);
        assert_eq!(home.json(&format!("debubble {from} {other} --check"))["same"], true);
        compact(&home, &other);
        home.ok(&format!("kv put {into} key00003 changed"));
        home.ok(&format!("kv put {into} its-own 1"));
        home.ok(&format!("kv del {into} key00007"));
        for (first, second) in [(&from, &into), (&other, &into)] {
            let said = home.run(&format!("debubble {first} {second} --check --json"));
            let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
            assert_eq!(
                (said.code, &told["different"], &told["only_in_out"]),
                (1, &2.into(), &1.into()),
                "{told}"
            );
        }
        let said = home.run(&format!("debubble {from} {into}"));
        assert!(said.code == 2 && said.err.contains("nothing is replaced"), "{}", said.err);
    }
}

#[test]
fn what_is_no_store_or_is_cut_short_is_not_rid_of_bubbles() {
    let home = Home::new();
    fs::write(home.path("foreign"), vec![7; 10_000]).unwrap();
    fs::create_dir(home.path("empty")).unwrap();
    for name in ["foreign", "empty", "nowhere"] {
        let said = home.run(&format!("debubble {name} out"));
        assert!(said.code >= 2 && !home.path("out").exists(), "{name}: {} {}", said.code, said.err);
    }
    for engine in ["log", "lsm"] {
        let name = format!("{engine}-cut");
        overwritten(&home, &name, engine);
        let table = fs::read_dir(home.path(&name)).unwrap().map(|entry| entry.unwrap().path());
        let table = table.filter(|path| path.extension().is_some_and(|end| end == "table")).min().unwrap();
        let bytes = fs::read(&table).unwrap();
        fs::write(&table, &bytes[..bytes.len() - 1000]).unwrap();
        let said = home.run(&format!("debubble {name} {engine}-out"));
        assert!(said.code == 4 && said.err.contains("repair"), "{name}: {} {}", said.code, said.err);
    }
    home.ok("kv put spaced a 1 --keyspace x");
    let said = home.run("debubble spaced spaced-out --engine log");
    assert!(said.code != 0 && said.err.contains("has no keyspaces"), "{}", said.err);
}

#[test]
fn the_log_store_is_measured_beside_the_ordered_one() {
    let home = Home::new();
    let plan = "--workload fillrandom,overwrite,readrandom --keys 3000 --value 200";
    let bench = home.json(&format!("kv bench --engine vellum,vellum-log {plan}"));
    assert!(bench.to_string().contains("vellum-log"), "{bench}");
    let said = home.run("kv bench --engine vellum-log --workload ycsb-e --keys 1000");
    assert!(said.code != 0 && said.err.contains("cannot scan"), "{}", said.err);
}

/// Nothing is padded if sharing is impossible: `relink` reports that, `auto` does without.
#[test]
fn relink_is_refused_where_nothing_can_be_shared() {
    let home = Home::new();
    home.ok("kv put s recto right");
    fs::write(home.path("one"), [7; 8192]).unwrap();
    let (from, to) = (home.path("one"), home.path("two"));
    let cp = Command::new("cp").arg("--reflink=always").args([from, to]).output().unwrap();
    let said = home.run("kv put s verso left --reuse relink");
    match cp.status.success() {
        true => assert_eq!(said.code, 0, "{}", said.err),
        false => {
            assert_ne!(said.code, 0);
            assert!(said.err.contains("--reuse relink") && said.err.contains("--reuse auto"), "{}", said.err);
        }
    }
    home.ok("kv put s verso left --reuse auto");
    home.ok("kv compact s --reuse auto");
    assert_eq!(home.ok("kv get s verso"), "left\n");
}
