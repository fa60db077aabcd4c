//! Key-value stores from the command line.

use crate::real::host::skipped;
use crate::support::Home;
use std::collections::BTreeMap;
use std::fs;
use vellum::base::{Env, Nanos, RealEnv};
use vellum::kv::Map;
use vellum::kv::{Options, Store};

fn store_with(home: &Home, name: &str, records: &[(&[u8], &[u8])]) {
    let store = Store::open(home.path(name), Options::default()).unwrap();
    records.iter().for_each(|(key, value)| store.put(key, value).unwrap());
    store.close().unwrap();
}

#[test]
fn a_key_is_set_found_and_removed() {
    let home = Home::new();
    home.ok("kv put s recto right");
    assert_eq!(home.ok("kv get s recto"), "right\n");
    assert_eq!(home.ok("kv get s recto --raw"), "right");
    assert_eq!(home.ok("kv get s 726563746f --hex"), "7269676874\n");
    fs::write(home.path("picture"), b"\x00\xff\n").unwrap();
    home.ok("kv put s picture --value-from picture");
    assert_eq!(home.ok("kv get s picture"), "\\x00\\xff\\n\n");
    home.ok("kv del s recto nobody");
    let said = home.run("kv get s recto");
    assert_eq!((said.code, &*said.out, &*said.err), (1, "", "there is no such key\n"));
    assert_eq!(home.json("kv get s picture")["value_hex"], "00ff0a");
}

/// More than a batch of a small flash image may have.
#[test]
fn ranges_of_long_keys_are_removed_from_a_flash_image() {
    let home = Home::new();
    let records: String = (0..400).map(|n| format!("k{n:04}{}\tv\n", "x".repeat(3000))).collect();
    std::fs::write(home.path("records"), records).unwrap();
    home.ok("kv open s.flash --flash 32MiB");
    home.ok("kv load s.flash records");
    assert_eq!(home.ok("kv del s.flash --prefix k"), "removed 400\n");
}

#[test]
fn ranges_of_keys_are_removed() {
    let home = Home::new();
    let records: String = (0..2500).map(|n| format!("k{n:04}\tv\n")).collect();
    std::fs::write(home.path("records"), records).unwrap();
    home.ok("kv load s records");
    home.ok("kv put s k0007 other --keyspace drafts");
    assert_eq!(home.ok("kv del s --from k0100 --to k2400"), "removed 2300\n");
    assert_eq!(home.ok("kv del s --prefix k00"), "removed 100\n");
    assert_eq!(home.ok("kv scan s --keys").lines().count(), 100);
    assert_eq!(home.json("kv del s --from k2499")["keys"], 1);
    assert_eq!(home.ok("kv scan s --keyspace drafts"), "k0007\tother\n");
    assert_eq!(home.ok("kv del s --prefix k --keyspace drafts"), "removed 1\n");
    for line in ["kv del s", "kv del s k2400 --prefix k", "kv del s --prefix=", "kv del s --from= --to k9"] {
        assert_eq!(home.run(line).code, 2, "{line}");
    }
    assert_eq!(home.ok("kv scan s --keys").lines().count(), 99);
    home.ok("kv put log a 1 --engine log");
    assert!(home.run("kv del log --prefix a").err.contains("have no order"));
}

#[test]
fn scans_keep_to_their_bounds_in_both_directions() {
    let home = Home::new();
    let records: Vec<(Vec<u8>, Vec<u8>)> =
        (0..30u8).map(|i| (format!("k{i:02}").into_bytes(), vec![b'v'])).collect();
    let records: Vec<(&[u8], &[u8])> = records.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    store_with(&home, "s", &records);
    let keys =
        |line: &str| home.ok(&format!("kv scan s --keys {line}")).lines().collect::<Vec<_>>().join(" ");
    assert_eq!(keys("--from k03 --to k06"), "k03 k04 k05");
    assert_eq!(keys("--prefix k2 --reverse --limit 2"), "k29 k28");
    assert_eq!(keys("--from k28"), "k28 k29");
    assert_eq!(keys("--from 6b3239 --hex"), "6b3239");
    assert_eq!(keys("--prefix x"), "");
    assert_eq!(home.ok("kv scan s --to k01"), "k00\tv\n");
}

#[test]
fn a_dump_loads_as_the_same_store_in_every_form() {
    let home = Home::new();
    let records: [(&[u8], &[u8]); 5] = [
        (b"", b"empty"),
        (b"\x00\xff", b""),
        (b"a\tb\\n", b"c\nd"),
        ("größe".as_bytes(), "naïve".as_bytes()),
        (b"z", &[7; 9000]),
    ];
    store_with(&home, "s", &records);
    for (i, how) in ["--form tsv", "--form json", "--form tsv --hex", "--form json --hex"].iter().enumerate()
    {
        let hex = if how.contains("--hex") { "--hex" } else { "" };
        home.ok(&format!("kv dump s --output d{i} {how}"));
        let form = how.split(" --hex").next().unwrap();
        home.ok(&format!("kv load t{i} d{i} {form} {hex}"));
        let store = Store::open(home.path(&format!("t{i}")), Options::default()).unwrap();
        let mut iter = store.iter(Default::default()).unwrap();
        iter.seek_to_first().unwrap();
        for (key, value) in records {
            assert_eq!((iter.key(), iter.value()), (key, value), "{how}");
            iter.next().unwrap();
        }
        assert!(!iter.is_valid());
    }
    assert_eq!(home.ok("kv dump s"), home.ok("kv dump t1"));
    home.run("kv dump s --output d0").failed(2, "d0 exists already");
    home.ok("kv dump s --output d0 --force --prefix z");
    assert!(fs::read_to_string(home.path("d0")).unwrap().starts_with("z\t"));
}

#[test]
fn a_batch_is_applied_whole_or_not_at_all() {
    let home = Home::new();
    home.ok("kv put s a 1");
    fs::write(home.path("b.tsv"), "put\tb\t2\ndel\ta\n").unwrap();
    assert_eq!(home.json("kv batch s b.tsv")["deletes"], 1);
    assert_eq!(home.ok("kv scan s"), "b\t2\n");
    fs::write(home.path("bad.tsv"), "put\tc\t3\n\nbogus\n").unwrap();
    home.run("kv batch s bad.tsv").failed(2, "bad.tsv, line 3: ");
    fs::write(home.path("b.jsonl"), "{\"kind\":\"put\",\"key\":\"d\",\"value_hex\":\"ff\"}\n").unwrap();
    home.ok("kv batch s b.jsonl");
    assert_eq!(home.ok("kv scan s"), "b\t2\nd\t\\xff\n");
}

#[test]
fn many_records_are_loaded_and_the_last_of_a_key_wins() {
    let home = Home::new();
    let lines: String = (0..50_000).map(|i| format!("key{:05}\tvalue{i}\n", i * 7919 % 30_000)).collect();
    let expected: BTreeMap<&str, &str> = lines.lines().map(|line| line.split_once('\t').unwrap()).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    let loaded = home.json("kv load s r.tsv --memtable 1MiB");
    assert_eq!(loaded["records"], 50_000);
    assert!(loaded["flushes"].as_u64() > Some(1) && loaded["write_amplification"].as_f64() > Some(1.0));
    home.ok("kv compact s");
    let stat = home.json("kv stat s");
    assert_eq!((&stat["entries"], &stat["levels"].as_array().unwrap().len()), (&expected.len().into(), &1));
    let dumped = home.ok("kv dump s");
    assert!(dumped.lines().map(|line| line.split_once('\t').unwrap()).eq(expected));
    assert!(home.ok("kv stat s").contains("level 1"));
}

#[test]
fn what_cannot_be_is_told_and_changes_nothing() {
    let home = Home::new();
    for line in
        ["get none k", "scan none", "stat none", "dump none", "compact none", "verify none", "repair none"]
    {
        home.run(&format!("kv {line}")).failed(3, "none is not there");
    }
    assert!(!home.path("none").exists());
    fs::create_dir(home.path("empty")).unwrap();
    home.run("kv get empty k").failed(3, "holds no key-value store");
    assert_eq!(fs::read_dir(home.path("empty")).unwrap().count(), 0);
    fs::write(home.path("file"), "x").unwrap();
    home.run("kv put file k v").failed(2, "not a flash image");
    home.run("kv get file k").failed(2, "not a flash image");
    home.ok("kv open s");
    home.run("kv put s \\q v").failed(2, "after a backslash");
    home.run("kv put s abc v --hex").failed(2, "hexadecimal");
    home.run("kv load s nofile").failed(3, "nofile");
    let key = "k".repeat(65_600);
    home.run(&format!("kv put s {key} v")).failed(2, "a key of 65600 bytes");
    assert_eq!(home.json("kv stat s")["entries"], 0);
}

#[test]
fn a_store_that_is_open_elsewhere_says_so() {
    let home = Home::new();
    let store = Store::open(home.path("s"), Options::default()).unwrap();
    for line in ["kv put s k v", "kv open s", "kv load s /dev/null"] {
        let said = home.run(line);
        said.failed(5, "is open in another process");
        assert!(said.err.contains("a store has one writer, or any number of readers"), "{}", said.err);
    }
    store.put(b"k", b"mine").unwrap();
    store.close().unwrap();
    assert_eq!(home.ok("kv get s k"), "mine\n");
}

/// Every file of a directory with its bytes.
pub(crate) fn files(home: &Home, name: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(home.path(name)).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), fs::read(e.path()).unwrap())).collect()
}

#[test]
fn whoever_only_reads_changes_nothing_and_is_not_alone() {
    let home = Home::new();
    fs::write(home.path("r.tsv"), "a\t1\nb\t2\n").unwrap();
    home.ok("kv load s r.tsv");
    home.ok("kv put s c 3"); // only in the log
    let before = files(&home, "s");
    let _reader = Store::open(home.path("s"), Options { read_only: true, ..Options::default() }).unwrap();
    assert_eq!(home.ok("kv scan s"), "a\t1\nb\t2\nc\t3\n");
    assert_eq!(home.ok("kv get s c"), "3\n");
    home.ok("kv stat s");
    home.ok("kv dump s --output d");
    home.ok("kv checkpoint s t");
    assert_eq!(home.ok("kv dump t"), home.ok("kv dump s"));
    assert_eq!(files(&home, "s"), before);
    home.run("kv put s d 4").failed(5, "is open in another process");
    home.run("kv checkpoint s t").failed(2, "t is not empty");
}

/// It was copied without a lock, and gets none.
#[test]
fn whoever_only_reads_leaves_nothing_where_the_store_is_damaged() {
    let home = Home::new();
    home.ok("kv put s a 1");
    fs::remove_file(home.path("s/LOCK")).unwrap();
    fs::write(home.path("s/CURRENT"), "damaged").unwrap();
    let before = files(&home, "s");
    let error = Store::open(home.path("s"), Options { read_only: true, ..Options::default() }).unwrap_err();
    assert_eq!((error.kind(), files(&home, "s")), (vellum::base::Kind::Corrupt, before));
}

#[test]
fn keyspaces_are_made_kept_apart_and_dropped() {
    let home = Home::new();
    home.ok("kv put s k plain");
    home.ok("kv put s k other --keyspace drafts");
    fs::write(home.path("b"), "put\tl\tother\n").unwrap();
    home.ok("kv batch s b --keyspace drafts");
    assert_eq!(home.ok("kv scan s --keyspace drafts"), "k\tother\nl\tother\n");
    assert_eq!(home.ok("kv scan s"), "k\tplain\n");
    let said = home.run("kv get s k --keyspace nothing");
    said.failed(2, "there is no keyspace \"nothing\"");
    assert!(said.err.contains("one of: default, drafts"), "{}", said.err);
    home.ok("kv load t b --keyspace x");
    assert_eq!(home.json("kv stat t")["keyspaces"], serde_json::json!(["default", "x"]));
    home.ok("kv drop s drafts");
    home.run("kv drop s drafts").failed(2, "there is no keyspace");
    home.run("kv drop s default").failed(2, "default");
    assert_eq!(home.json("kv stat s")["keyspaces"], serde_json::json!(["default"]));
}

#[test]
fn sorted_records_are_ingested_once_and_others_not_at_all() {
    let home = Home::new();
    let lines: String = (0..20_000).map(|i| format!("key{i:05}\tvalue{i}\n")).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    home.ok("kv put s key00007 old");
    let done = home.json("kv ingest s r.tsv");
    assert!(
        done["records"] == 20_000 && done["table_bytes"].as_u64() < Some(2 * lines.len() as u64),
        "{done}"
    );
    assert_eq!(home.ok("kv get s key00007"), "value7\n");
    assert_eq!(home.ok("kv dump s"), lines);
    fs::write(home.path("bad.tsv"), "a\t1\nc\t2\nb\t3\n").unwrap();
    let said = home.run("kv ingest s bad.tsv");
    said.failed(2, "bad.tsv, line 3: ");
    assert!(said.err.contains("kv load"), "{}", said.err);
    assert_eq!(home.ok("kv dump s"), lines, "nothing of it is there");
    home.ok("kv compact s --prefix key00");
    // Nor is a store that is made for them.
    home.run("kv ingest new bad.tsv").failed(2, "bad.tsv, line 3: ");
    let long = "k".repeat(300);
    home.run(&format!("kv ingest new r.tsv --keyspace {long}")).failed(2, "a keyspace's name");
    assert!(!home.path("new").exists());
    home.ok("kv ingest new r.tsv");
    assert_eq!(home.ok("kv dump new"), lines);
}

/// Kills at any time: a store made by an ingest has all records, or is none, and the same command makes it.
#[test]
fn an_ingest_that_is_killed_leaves_no_store_or_all_of_it() {
    let (home, env) = (Home::new(), RealEnv::new());
    let lines: String = (0..20_000).map(|i| format!("key{i:05}\tvalue{i}\n")).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    let begun = env.now();
    home.ok("kv ingest s r.tsv");
    let whole = env.now() - begun;
    fs::remove_dir_all(home.path("s")).unwrap();
    let (mut none, mut all) = (0, 0);
    for round in 0..20 {
        let ingest = home.begin_unheard("kv ingest s r.tsv");
        env.sleep_until(env.now() + Nanos(whole.0 * round / 10));
        ingest.kill();
        let said = home.run("kv dump s");
        match said.code {
            0 => {
                assert!(said.out == lines, "{round}: {} bytes", said.out.len());
                all += 1;
            }
            _ => {
                let is_told = ["is not there", "holds no key-value store", "was not finished"];
                assert!(is_told.iter().any(|what| said.err.contains(what)), "{round}: {}", said.err);
                none += 1;
                home.ok("kv ingest s r.tsv");
                assert_eq!(home.ok("kv dump s"), lines);
            }
        }
        fs::remove_dir_all(home.path("s")).unwrap();
    }
    assert!(none > 2 && all > 0, "{none} killed in time, {all} too late");
}

/// As if killed while it is moved to its place: the tables are there, CURRENT is not.
#[test]
fn an_ingest_that_is_killed_when_all_is_written_begins_anew() {
    let home = Home::new();
    fs::write(home.path("r.tsv"), "recto\tright\n").unwrap();
    home.ok("kv ingest s r.tsv");
    fs::create_dir(home.path("s/UNFINISHED")).unwrap();
    fs::rename(home.path("s/CURRENT"), home.path("s/UNFINISHED/CURRENT")).unwrap();
    home.run("kv load s r.tsv").failed(3, "was not finished");
    home.ok("kv ingest s r.tsv");
    assert_eq!(home.ok("kv dump s"), "recto\tright\n");
}

#[test]
fn a_rotten_table_is_an_error_with_advice() {
    let home = Home::new();
    let lines: String = (0..2000).map(|i| format!("key{i:05}\tvalue{i}\n")).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    home.ok("kv load s r.tsv");
    let files = fs::read_dir(home.path("s")).unwrap().map(|entry| entry.unwrap().path());
    let mut files = files.filter(|path| path.extension().is_some_and(|end| end == "table"));
    let table = files.next().unwrap();
    let mut bytes = fs::read(&table).unwrap();
    bytes[5000] ^= 1;
    fs::write(&table, bytes).unwrap();
    let said = home.run("kv scan s");
    assert_eq!(said.code, 4, "{}", said.err);
    assert!(said.err.contains("keep a copy of the directory"), "{}", said.err);
    let said = home.run("kv verify s");
    assert!(said.code == 1 && said.out.contains("PROBLEM: "), "{}", said.out);
    let before = self::files(&home, "s");
    let said = home.run("kv repair s --json");
    let mut foreseen: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &foreseen["written"]), (1, &false.into()), "{foreseen}");
    assert_eq!(self::files(&home, "s"), before);
    let said = home.run("kv repair s --write --json");
    let report: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((said.code, &report["tables_rewritten"]), (1, &1.into()), "{report}");
    foreseen["written"] = true.into();
    assert_eq!(foreseen, report);
    assert!(home.ok("kv verify s").ends_with("all is well\n"));
    let left = home.ok("kv dump s");
    assert!((1000..2000).contains(&left.lines().count()) && left.lines().all(|line| lines.contains(line)));
    assert_eq!(home.ok("kv repair s --write"), "nothing is wrong\n");
    fs::remove_file(home.path("s/CURRENT")).unwrap();
    for command in ["kv verify s", "kv get s key1", "kv stat s"] {
        let refused = home.run(command);
        assert_eq!(refused.code, 4, "{command}: {}", refused.err);
        assert!(
            refused.err.contains("CURRENT is missing") && refused.err.contains("vellum kv repair"),
            "{}",
            refused.err
        );
    }
    assert!(home.run("kv repair s").out.contains("PROBLEM: CURRENT is missing"));
    home.ok("kv repair s --write");
    assert_eq!(home.ok("kv dump s"), left);
    home.run("kv repair none --write").failed(3, "none is not there");
}

#[test]
fn engines_run_every_workload_side_by_side() {
    let home = Home::new();
    let engines = "vellum,rocksdb-tuned,leveldb-default";
    let workloads = "fillseq,ycsb-a,ycsb-e,readrandom";
    let bench = home.json(&format!(
        "kv bench --keys 3000 --workload {workloads} --engine {engines} --value 200 --threads 2"
    ));
    let results = bench["results"].as_array().unwrap();
    let here =
        bench["engines"].as_array().unwrap().iter().filter(|engine| engine["version"].is_string()).count();
    assert_eq!(results.len(), 4 * here);
    if here < 3 {
        skipped("RocksDB or LevelDB is not installed: our engine ran without them");
    }
    for result in results {
        let round = &result["rounds"][0];
        let absent = round["absent"].as_u64().unwrap();
        match round["workload"].as_str().unwrap() {
            // It follows a fillrandom, which omits about 37 % of the keys.
            "readrandom" => assert!((900..1300).contains(&absent), "{result}"),
            "fillseq" => assert!(round["user_bytes"].as_u64() >= Some(3000 * 216), "{result}"),
            _ => assert_eq!(absent, 0, "{result}"),
        }
        assert!(round["requests"] == 3000 && round["written_bytes"].as_u64() >= round["user_bytes"].as_u64());
    }
    assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 0, "nothing stays behind");
    home.run("kv bench --engine nobody").failed(2, "there is no engine 'nobody'");
    home.run("kv bench --workload nothing").failed(2, "there is no workload 'nothing'");
}

#[test]
fn stores_run_on_a_modelled_device_the_same_way_twice() {
    let home = Home::new();
    let plan = "--device open-channel-8 --block-pages 8 --keys 4000 --value 500 --threads 2 --cache 256KiB";
    let command = format!("kv bench {plan} --workload ycsb-load,ycsb-a --engine Vellum,flashkv,leveldb-ext4");
    let [first, again] = [1, 2].map(|_| home.json(&command));
    let results = first["results"].as_array().unwrap();
    let names: Vec<_> = results.iter().map(|result| (&result["workload"], &result["system"])).collect();
    assert_eq!(names.len(), 6, "{names:?}");
    for (result, again) in results.iter().zip(again["results"].as_array().unwrap()) {
        assert_eq!(result["events_hash"], again["events_hash"], "{result}");
        // After a load the last memtable is not programmed yet.
        let programmed = result["programmed_bytes"].as_u64().unwrap();
        assert!(programmed > result["user_bytes"].as_u64().unwrap() / 2, "{result}");
        let [p50, p999] = ["latency_ns_p50", "latency_ns_p999"].map(|field| result[field].as_u64().unwrap());
        match result["workload"].as_str() {
            Some("ycsb-load") => assert_eq!((p50, p999), (0, 0), "a load has no requests beside it"),
            _ => assert!(0 < p50 && p50 < p999, "{result}"),
        }
    }
    assert!(home.ok(&command).contains("LevelDB-ext4"));
    assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 0, "nothing here is written");
    home.run("kv bench --device open-channel-8 --engine rocksdb").failed(2, "there is no store 'rocksdb'");
    home.run("kv bench --device open-channel-8 --workload fillseq").failed(2, "fillseq is not for --device");
    for (line, what) in [
        ("--device closed-channel", "open-channel-N"),
        ("--device open-channel-8 --rounds 2", "cannot be used with"),
    ] {
        let said = home.run(&format!("kv bench {line}"));
        assert!(said.code == 2 && said.err.contains(what), "{line}: {}", said.err);
    }
}

#[test]
fn a_store_lives_on_a_flash_image() {
    let home = Home::new();
    home.ok("kv open s.flash --flash 64MiB");
    let lines: String =
        (0..40_000).map(|n| format!("key{n:06}\tvalue of {n}, and some more of it\n")).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    home.ok("kv load s.flash r.tsv");
    home.ok("kv put s.flash zz last");
    home.ok("kv compact s.flash");
    home.ok("kv ingest s.flash r.tsv --keyspace other");
    assert_eq!(home.ok("kv get s.flash key039999"), "value of 39999, and some more of it\n");
    assert_eq!(home.ok("kv dump s.flash"), format!("{lines}zz\tlast\n"));
    assert!(home.ok("kv verify s.flash").contains("all is well"));
    home.ok("kv checkpoint s.flash t");
    assert_eq!(home.ok("kv dump t --keyspace other"), lines);
    let stat = home.json("kv stat s.flash");
    assert!(stat["lifetime"]["written"]["compaction_l1"].as_u64().unwrap() > 512 << 10, "{stat}");
    assert!(
        stat["lifetime"]["user_bytes"].as_u64().unwrap() > 2 * (lines.len() as u64 - 2 * 40_000),
        "{stat}"
    );

    home.run("kv open s.flash --flash 64MiB").failed(2, "is there already");
    home.run("kv open u.flash --flash 1MiB").failed(2, "too few");
    home.run("kv open u.flash --flash 64MiB --unit 5KiB").failed(2, "a power of two from 64 to 16384");
    home.ok("kv open u.flash --flash 64MiB");
    home.ok("disk create d --size 16MiB");
    let said = home.run("kv get d k");
    assert!(said.code != 0, "a disk's image is no store");
    fs::write(home.path("text"), "no image\n").unwrap();
    home.run("kv get text k").failed(2, "not a flash image");
}

#[test]
fn stat_shows_the_units_of_tables_and_who_writes_is_told_those_in_force() {
    let home = Home::new();
    let lines: String = (0..2000).map(|n| format!("key{n:06}\tvalue of {n}\n")).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    for engine in ["lsm", "log"] {
        let path = format!("s.{engine}");
        let told = home.ok(&format!("kv load {path} r.tsv --engine {engine} --unit 16KiB --reuse bubbles"));
        assert!(told.contains("opened with reuse bubbles, units of 16KiB"), "{told}");
        assert_eq!(home.json(&format!("kv load {path} r.tsv"))["unit_bytes"], 4096);
    }
    let level = &home.json("kv stat s.lsm")["levels"][0];
    assert_eq!((&level["unit_bytes_min"], &level["unit_bytes_max"]), (&4096.into(), &16384.into()));
    assert!(home.ok("kv stat s.lsm").contains("4KiB to 16KiB"));
    home.ok("kv compact s.lsm --unit 64KiB");
    assert_eq!(home.json("kv stat s.lsm")["levels"][0]["unit_bytes_min"], 65536);
}

#[test]
fn an_opening_that_fails_leaves_nothing() {
    let home = Home::new();
    let never = Options { create_if_missing: false, ..Options::default() };
    Store::open(home.path("nowhere"), never.clone()).map(drop).unwrap_err();
    assert!(!home.path("nowhere").exists());
    fs::create_dir(home.path("own")).unwrap();
    for name in ["000001.log", "000002.table", "notes.txt"] {
        fs::write(home.path("own").join(name), b"nobody's").unwrap();
    }
    Store::open(home.path("own"), Options::default()).map(drop).unwrap_err();
    assert_eq!(fs::read_dir(home.path("own")).unwrap().count(), 3);
}
