//! What key-value commands report of a store, and what they leave when they refuse.

use crate::support::Home;
use std::fs;
use vellum::kv::{AnyStore, Batch, Durability, Engine, Options};

fn there(home: &Home) -> Vec<String> {
    let names = fs::read_dir(home.dir()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Exit codes are those of docs/COMMANDS.md, and if nothing was created nothing is left.
#[test]
fn what_is_refused_ends_with_its_code_and_leaves_nothing() {
    let home = Home::new();
    fs::create_dir(home.path("empty")).unwrap();
    fs::write(home.path("small"), vec![0; 1 << 19]).unwrap();
    fs::write(home.path("r.tsv"), "a\t1\n").unwrap();
    home.ok("kv put lsm a 1");
    home.ok("kv put log a 1 --engine log");
    home.ok("kv open flash --flash 64MiB");
    let before = there(&home);
    for (line, code, what) in [
        ("kv get none k", 3, "none is not there"),
        ("kv stat empty", 3, "holds no key-value store"),
        ("kv repair none --write", 3, "none is not there"),
        ("kv repair empty", 3, "holds no key-value store"),
        ("kv repair empty --write", 3, "holds no key-value store"),
        ("kv put lsm a 2 --engine log", 2, "lsm: it is a store of engine lsm, not log"),
        ("kv put log a 2 --engine lsm", 2, "store of engine log, not lsm"),
        ("kv ingest new r.tsv --engine log", 2, "has no order of keys"),
        ("kv compact lsm --keyspace typo", 2, "there is no keyspace"),
        ("kv compact log --keyspace typo", 2, "has no keyspaces"),
        ("kv get log a --keyspace x", 2, "has no keyspaces"),
        ("kv put log a 1 --keyspace x", 2, "has no keyspaces"),
        ("kv dump log --keyspace x", 2, "has no keyspaces"),
        ("kv drop log x", 2, "has no keyspaces"),
        ("kv dump lsm --skip-damaged", 2, "--skip-damaged is for log stores"),
        ("kv load lsm - -", 2, "can be read once"),
        ("kv dump lsm --output lsm/CURRENT --force", 2, "is in the store that is read"),
        ("kv dump flash --output flash --force", 2, "is in the store that is read"),
        ("kv open new --device small", 2, "a store needs 8"),
        ("kv open empty --device small", 2, "a store needs 8"),
        ("kv open new --device nowhere", 3, "nowhere"),
        ("debubble r.tsv new", 2, "r.tsv: this is not a flash image"),
    ] {
        let said = home.run(line);
        assert!(!said.err.contains("r.tsv: r.tsv"), "{line}: {}", said.err);
        said.failed(code, what);
        assert_eq!(there(&home), before, "{line}");
        assert_eq!(fs::read_dir(home.path("empty")).unwrap().count(), 0, "{line}");
    }
    for line in ["kv put lsm a 2 --bubble-cap 101%", "kv put new a 2 --global-cap 1000% --engine log"] {
        let said = home.run(line);
        assert!(said.code == 2 && said.err.contains("more than the whole: say 100%"), "{line}: {}", said.err);
        assert_eq!(there(&home), before, "{line}");
    }
}

/// A repair that had to guess which tables are current says so by its exit code.
#[test]
fn a_repair_without_a_manifest_is_told_from_one_that_lost_nothing() {
    let home = Home::new();
    home.ok("kv put s a 1");
    home.ok("kv compact s");
    for entry in fs::read_dir(home.path("s")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "manifest") {
            fs::remove_file(path).unwrap();
        }
    }
    let said = home.run("kv repair s --write --json");
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &report["without_manifest"]), (1, &true.into()), "{report}");
    assert_eq!(home.ok("kv dump s"), "a\t1\n");
    let again = home.json("kv repair s --write");
    assert_eq!((&again["without_manifest"], &again["written"]), (&false.into(), &false.into()));
}

/// What is only in memory is counted by keys and values; ratios of or to nothing are not printed.
#[test]
fn stat_counts_what_users_wrote_and_never_goes_backwards() {
    let home = Home::new();
    home.ok("kv put s hello 0123456789012");
    let stat = home.json("kv stat s");
    assert_eq!(stat["unflushed_bytes"], 18);
    let said = home.ok("kv stat s");
    assert!(said.contains("18 B of keys and values not yet in tables"), "{said}");
    assert!(said.contains("write amplification - (nothing is in tables yet)"), "{said}");
    home.ok("kv put log a b --engine log");
    assert_eq!(home.json("kv stat log")["open_bytes"], 16, "one record");

    fs::write(home.path("r.tsv"), (0..2000).map(|n| format!("k{n}\tv{n}\n")).collect::<String>()).unwrap();
    for store in ["s", "log"] {
        let mut told = 0;
        for line in
            ["load STORE r.tsv", "stat STORE", "compact STORE", "stat STORE", "open STORE", "stat STORE"]
        {
            let shown = home.json(&format!("kv {}", line.replace("STORE", store)));
            let now = shown["lifetime"]["written"]["store_metadata"].as_u64().unwrap();
            assert!(now >= told && now > 0, "{line}: {now} bytes of metadata, {told} before");
            told = now;
        }
    }
    let compacted = home.ok("kv compact s");
    assert!(!compacted.contains("amplification 0.000"), "{compacted}");
}

/// Logs are part of a store.
#[test]
fn debubble_counts_what_is_in_logs() {
    let home = Home::new();
    home.ok("kv put s hello 0123456789012");
    let made = home.json("debubble s t");
    assert_eq!((&made["bytes_before"], &made["log_bytes_before"]), (&0.into(), &18.into()), "{made}");
    assert!(made["bytes"].as_u64() > Some(0) && made["log_bytes"] == 0, "{made}");
    let said = home.ok("debubble s u --engine log");
    assert!(said.contains("before 0 B of tables and 18 B in logs"), "{said}");
}

/// `--json` prints JSON, as for every command.
#[test]
fn a_dump_is_json_where_that_is_asked_for() {
    let home = Home::new();
    home.ok("kv put s a 1");
    assert_eq!(home.ok("kv dump s --json"), "{\"key\":\"a\",\"value\":\"1\"}\n");
    let refused = home.run("kv dump s --json --form tsv");
    assert_eq!((refused.code, &refused.out[..]), (2, ""), "{}", refused.err);
    assert!(refused.err.contains("with --json what is printed is JSON"), "{}", refused.err);
    home.ok("kv dump s --json --form tsv --output t.tsv");
    assert_eq!(home.ok("kv dump s"), "a\t1\n");
    home.ok("kv dump s --output d.tsv --json");
    assert_eq!(fs::read_to_string(home.path("d.tsv")).unwrap(), "a\t1\n");
}

/// The number of zones depends on the device, and a small number is remarked on.
#[test]
fn a_device_has_as_many_zones_as_a_store_wants() {
    let home = Home::new();
    for name in ["d", "e"] {
        fs::File::create(home.path(name)).unwrap().set_len(64 << 20).unwrap();
    }
    let mut lines = String::new();
    let mut random = 1u64;
    for _ in 0..32_000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        lines.push_str(&format!("{random:016x}\t{}\n", format!("{random:x}").repeat(62)));
    }
    fs::write(home.path("r.tsv"), &lines).unwrap();
    home.ok("kv open s --device d");
    home.ok("kv load s r.tsv");
    assert_eq!(home.ok("kv dump s").lines().count(), 32_000);
    let few = home.run("kv open t --device e --zone 4MiB");
    assert!(few.code == 0 && few.err.contains("e has 16 zones"), "{}", few.err);
}

/// What would fail halfway is refused at once, and memory that an engine cannot have is reported.
#[test]
fn a_bench_says_before_it_runs_what_an_engine_cannot() {
    let home = Home::new();
    let said = home.run("kv bench --keys 1000 --engine vellum-log --workload ycsb-a,ycsb-e");
    said.failed(2, "vellum-log has no order of keys, so it cannot scan, as ycsb-e does");
    assert!(said.err.contains("--workload ycsb-a, or without vellum-log"), "{}", said.err);
    let bench =
        home.json("kv bench --keys 1000 --engine vellum,vellum-flash --workload fillrandom --flash 1GiB");
    assert_eq!(bench["results"].as_array().unwrap().len(), 2, "{bench}");
    let memtables = [0, 1].map(|at| bench["engines"][at]["memtable_bytes"].as_u64().unwrap());
    assert_eq!(memtables, [64 << 20, 25 << 20]);
}

/// For a store that was killed, and whose log has rotted since: with `--strict` that is not a torn tail.
#[test]
fn a_log_damaged_in_its_middle_is_refused_strictly_and_repaired() {
    let home = Home::new();
    for engine in [Engine::Lsm, Engine::Log] {
        let (open, killed) = (home.path("open"), home.path("s"));
        let store = AnyStore::open(&open, Some(engine), Options::default()).unwrap();
        for key in ["a", "b", "c", "d"] {
            let mut batch = Batch::new();
            batch.put(key.as_bytes(), format!("value of {key}").as_bytes()).unwrap();
            store.map().write(&batch, Durability::Buffered).unwrap();
        }
        fs::create_dir(&killed).unwrap();
        for file in fs::read_dir(&open).unwrap().map(|file| file.unwrap()) {
            fs::copy(file.path(), killed.join(file.file_name())).unwrap();
        }
        let files = fs::read_dir(&killed).unwrap().map(|file| file.unwrap().path());
        let log = files.into_iter().find(|file| file.extension().is_some_and(|end| end == "log")).unwrap();
        let mut bytes = fs::read(&log).unwrap();
        let second = bytes.windows(10).position(|window| window == b"value of b").unwrap();
        bytes[second] ^= 4;
        fs::write(&log, bytes).unwrap();
        for line in ["kv open s --strict", "kv verify s --strict"] {
            let said = home.run(line);
            assert!(said.err.contains("without --strict the log ends there"), "{}", said.err);
            said.failed(4, "damaged in its middle (a record follows at byte");
        }
        if engine == Engine::Lsm {
            assert!(home.run("kv repair s").out.contains("damaged in its middle"));
            home.run("kv repair s --write");
            assert_eq!(home.ok("kv scan s"), "a\tvalue of a\nc\tvalue of c\nd\tvalue of d\n");
        } else {
            home.ok("kv open s");
            assert_eq!(home.ok("kv dump s"), "a\tvalue of a\n");
        }
        store.close().unwrap();
        fs::remove_dir_all(open).unwrap();
        fs::remove_dir_all(killed).unwrap();
    }
}

/// A store that another process writes can be inspected as far as its manifest goes.
#[test]
fn a_store_in_use_shows_what_its_manifest_says() {
    let home = Home::new();
    let path = home.path("s");
    for engine in [Engine::Lsm, Engine::Log] {
        let store = AnyStore::open(&path, Some(engine), Options::default()).unwrap();
        let stat = home.json("kv stat s");
        assert_eq!((&stat["as_of_manifest"], &stat["entries"]), (&true.into(), &0.into()), "{stat}");
        (0..100u8).for_each(|key| store.map().put(&[key], &[key; 100]).unwrap());
        store.map().flush().unwrap();
        let stat = home.json("kv stat s");
        assert_eq!((&stat["engine"], &stat["entries"]), (&engine.name().into(), &100.into()), "{stat}");
        let lifetime = &stat["lifetime"];
        assert_eq!((&lifetime["user_bytes"], &lifetime["flushes"]), (&10_100.into(), &1.into()), "{stat}");
        let said = home.ok("kv stat s");
        assert!(said.starts_with("as of the last flush or merge") && said.contains("  flush "), "{said}");
        home.run("kv get s k").failed(5, "open in another process");
        store.close().unwrap();
        let closed = home.json("kv stat s");
        assert!(closed.get("as_of_manifest").is_none() && closed["lifetime"]["flushes"] == 1, "{closed}");
        fs::remove_dir_all(&path).unwrap();
    }
    home.run("kv stat none --watch").failed(3, "none is not there");
}

/// A flash image that was in use when the power failed, and has rotted since; then one that was truncated.
#[test]
fn a_damaged_image_is_put_right_before_its_store() {
    let home = Home::new();
    home.ok("kv open open.flash --flash 16MiB");
    let store = AnyStore::open(home.path("open.flash"), None, Options::default()).unwrap();
    for key in ["a", "b", "c", "d"] {
        store.map().put(key.as_bytes(), format!("value of {key}").as_bytes()).unwrap();
        store.map().sync().unwrap();
    }
    let mut bytes = fs::read(home.path("open.flash")).unwrap();
    store.close().unwrap();
    let second = bytes.windows(10).rposition(|window| window == b"value of b").unwrap();
    bytes[second] ^= 1;
    fs::write(home.path("s.flash"), bytes).unwrap();
    for line in ["kv get s.flash a", "kv put s.flash e 1", "kv verify s.flash"] {
        home.run(line).failed(4, "the journal of the image's NVRAM is damaged");
    }
    for (line, written) in [("kv repair s.flash --json", false), ("kv repair s.flash --write --json", true)] {
        let said = home.run(line);
        let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!((said.code, &told["written"]), (1, &written.into()), "{told}");
        assert!(told["problems"][0].as_str().unwrap().contains("all after them, are lost"), "{told}");
    }
    assert_eq!(home.ok("kv scan s.flash"), "a\tvalue of a\n");
    assert_eq!(home.ok("kv repair s.flash"), "nothing is wrong\n");

    // The same for a log store.
    home.ok("kv open log.flash --flash 16MiB --engine log");
    let store = AnyStore::open(home.path("log.flash"), None, Options::default()).unwrap();
    for key in ["a", "b"] {
        store.map().put(key.as_bytes(), b"valueof").unwrap();
        store.map().sync().unwrap();
    }
    let mut bytes = fs::read(home.path("log.flash")).unwrap();
    store.close().unwrap();
    let last = bytes.windows(7).rposition(|window| window == b"valueof").unwrap();
    let first = bytes[..last].windows(7).rposition(|window| window == b"valueof").unwrap();
    bytes[first] ^= 1;
    fs::write(home.path("log.flash"), bytes).unwrap();
    home.run("kv get log.flash a").failed(4, "the journal of the image's NVRAM is damaged");
    for line in ["kv repair log.flash", "kv repair log.flash --write"] {
        let said = home.run(line);
        assert!(said.code == 1 && said.out.contains("are lost"), "{line}: {} {}", said.code, said.out);
    }
    assert_eq!(home.ok("kv repair log.flash"), "nothing is wrong\n");
    home.ok("kv put log.flash c 1");

    let image = fs::File::options().write(true).open(home.path("s.flash")).unwrap();
    image.set_len(image.metadata().unwrap().len() / 2).unwrap();
    home.run("kv get s.flash a").failed(4, "bytes long and should be");
    assert!(home.run("kv repair s.flash").out.contains("bytes are gone"));
    assert!(home.run("kv repair s.flash --write").out.contains("bytes are gone"));
    assert_eq!(home.ok("kv scan s.flash"), "a\tvalue of a\n");
    image.set_len(5000).unwrap();
    let said = home.run("kv repair s.flash --write");
    assert!(!said.err.contains("see what `vellum kv repair`") && said.err.contains("a copy"), "{}", said.err);
}

/// Of several keys, existing ones are printed; bounds can be combined; a count prints only a number.
#[test]
fn several_keys_bounds_within_a_prefix_and_counts() {
    let home = Home::new();
    for key in ["a", "ab", "ac", "b"] {
        home.ok(&format!("kv put s {key} of-{key}"));
    }
    let said = home.run("kv get s b a none");
    assert_eq!((said.code, &said.out[..]), (1, "b\tof-b\na\tof-a\n"));
    assert!(said.err.contains("there is no key none"), "{}", said.err);
    assert_eq!(
        home.ok("kv get s a b --json"),
        "{\"key\":\"a\",\"value\":\"of-a\"}\n{\"key\":\"b\",\"value\":\"of-b\"}\n"
    );
    for line in ["kv get s a b --raw", "kv get s a --raw --json"] {
        let said = home.run(line);
        assert!(
            said.code == 2 && said.err.contains("--raw prints the bytes of one value"),
            "{line}: {}",
            said.err
        );
    }
    for (bounds, keys) in [
        ("", "a ab ac b"),
        ("--prefix a", "a ab ac"),
        ("--prefix a --from ab", "ab ac"),
        ("--prefix a --to ab", "a"),
        ("--prefix a --from ab --to ac", "ab"),
        ("--prefix a --from b", ""),
        ("--prefix b --to a", ""),
    ] {
        let count = keys.split_whitespace().count();
        let said = home.ok(&format!("kv scan s --keys {bounds}"));
        assert_eq!(said.split_whitespace().collect::<Vec<_>>().join(" "), keys, "{bounds}");
        assert_eq!(home.ok(&format!("kv scan s --count {bounds}")), format!("{count}\n"), "{bounds}");
    }
    home.ok("kv del s --prefix a --from ab");
    assert_eq!(home.ok("kv scan s --keys"), "a\nb\n");
}

/// What is on the image is not to be given up for a store.
#[test]
fn a_disk_is_told_from_a_store_and_is_not_to_be_formatted() {
    let home = Home::new();
    home.ok("disk create d.vellum --size 16MiB");
    for line in [
        "verify",
        "stat",
        "repair",
        "repair --write",
        "compact",
        "open",
        "get d.vellum k",
        "put d.vellum k v",
    ] {
        let line =
            if line.contains("d.vellum") { format!("kv {line}") } else { format!("kv {line} d.vellum") };
        let said = home.run(&line);
        assert!(
            !said.err.contains("format") && !said.err.contains("kv open d.vellum"),
            "{line}: {}",
            said.err
        );
        assert!(said.err.contains("`vellum kv open NEW --flash SIZE`"), "{line}: {}", said.err);
        said.failed(3, "d.vellum is a Vellum disk, and holds no key-value store");
    }
    home.ok("disk check d.vellum");
    let said = home.run("kv get /dev/null k");
    assert!(!said.err.contains("kv open /dev/null"), "{}", said.err);
    said.failed(3, "/dev/null holds no key-value store");
}

#[test]
fn a_dump_tells_of_the_keyspaces_that_it_leaves_out() {
    let home = Home::new();
    home.ok("kv put s k plain");
    assert_eq!(home.run("kv dump s").err, "");
    home.ok("kv put s k other --keyspace drafts");
    home.ok("kv put s k red --keyspace a\u{1b}[31m");
    let said = home.run("kv dump s");
    assert_eq!((said.code, &said.out[..]), (0, "k\tplain\n"));
    assert_eq!(said.err, "2 other keyspaces not dumped: drafts, a\\x1b[31m (--keyspace)\n");
    assert_eq!(home.run("kv dump s --keyspace drafts").err, "");
    let left_out = |line: &str| home.json(line)["keyspaces_left_out"].clone();
    assert_eq!(left_out("kv dump s --output a"), serde_json::json!(["drafts", "a\u{1b}[31m"]));
    assert_eq!(
        left_out("kv dump s --output b --keyspace drafts"),
        serde_json::json!(["default", "a\u{1b}[31m"])
    );
    let said = home.run("kv open s --engine log");
    assert!(
        said.err.contains("kv dump s --keyspace NAME | vellum kv load NEW --engine log`"),
        "{}",
        said.err
    );
    said.failed(2, "store of engine lsm, not log");
    home.ok("kv put plain k v");
    let said = home.run("kv open plain --engine log");
    assert!(said.err.contains("`vellum kv dump plain | vellum kv load NEW --engine log`"), "{}", said.err);
}

/// A terminal would execute them.
#[test]
fn names_of_keyspaces_are_printed_as_keys_are() {
    let home = Home::new();
    home.ok("kv put s k red --keyspace a\u{1b}[31m\nb");
    let store = AnyStore::open(home.path("s"), None, Options::default()).unwrap();
    let in_use = home.ok("kv stat s");
    store.close().unwrap();
    let told = ["get s k --keyspace none", "drop s none", "open s --engine log", "dump s"];
    let told = told.map(|line| home.run(&format!("kv {line}")).err);
    for said in [in_use, home.ok("kv stat s")].iter().chain(&told) {
        assert!(said.contains("a\\x1b[31m\\nb") && !said.contains('\u{1b}'), "{said:?}");
    }
    let said = home.run("debubble s t --engine log");
    assert!(!said.err.contains(['\u{1b}']), "{:?}", said.err);
    said.failed(3, "has no keyspaces");
}

/// There is nothing in it that could be of another store.
#[test]
fn an_empty_table_is_lost_and_not_doubtful() {
    let home = Home::new();
    home.ok("kv put s a 1");
    home.ok("kv compact s");
    let tables = fs::read_dir(home.path("s")).unwrap().map(|entry| entry.unwrap().path());
    let table = tables.into_iter().find(|path| path.extension().is_some_and(|end| end == "table")).unwrap();
    fs::write(table, "").unwrap();
    let said = home.run("kv repair s --json");
    let told: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let of = ["tables_lost", "tables_rewritten", "tables_doubtful", "entries_lost"].map(|name| &told[name]);
    assert_eq!((said.code, of), (1, [&1.into(), &0.into(), &0.into(), &1.into()]), "{told}");
    let said = home.run("kv repair s --write").out;
    assert!(!said.contains("held what was not written there"), "{said}");
}
