//! docs/json documents exactly what `--json` prints: every field, and no other.

use crate::nbd::Client;
use crate::ses::{Drive, LBA, spread};
use crate::support::Home;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use vellum::kv::{AnyStore, Options};

/// The fields that a page documents, and whether they are optional: rows of its tables whose first cell is code.
/// `page#head` selects the section whose heading contains `head`.
fn documented(page: &str) -> BTreeMap<String, bool> {
    let (page, head) = page.split_once('#').unwrap_or((page, ""));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json").join(page);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut sections = text.split("\n## ");
    let text = match head {
        "" => &text,
        _ => sections.find(|section| section.lines().next().unwrap_or("").contains(head)).unwrap(),
    };
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let fields = rows.filter_map(|row| {
        let (field, rest) = row.split_once('`')?;
        Some((field.to_string(), rest.contains("optional")))
    });
    fields.collect()
}

/// The paths of all nested values: `a.b`, `list[].c`.
fn paths(value: &Value, at: &str, open: &BTreeSet<String>, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) if !open.contains(at) => {
            for (key, value) in fields {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                paths(value, &path, open, found);
            }
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            items.iter().for_each(|item| paths(item, &format!("{at}[]"), open, found));
        }
        _ => drop(found.insert(at.to_string())),
    }
}

/// Compares a page with values that were actually printed.
#[track_caller]
fn agree(page: &str, printed: &[&Value]) {
    let documented = documented(page);
    // A row `x.*` documents a map with arbitrary keys.
    let open = documented.keys().filter_map(|f| f.strip_suffix(".*").map(String::from)).collect();
    let mut found = BTreeSet::new();
    printed.iter().for_each(|value| paths(value, "", &open, &mut found));
    let known: BTreeSet<String> =
        documented.keys().map(|f| f.strip_suffix(".*").unwrap_or(f).to_string()).collect();
    let secret: Vec<_> = found.difference(&known).collect();
    assert!(secret.is_empty(), "{page} does not document {secret:?}");
    let absent = documented.iter().filter(|(field, optional)| {
        !**optional && !found.contains(field.strip_suffix(".*").unwrap_or(field))
    });
    let absent: Vec<_> = absent.collect();
    assert!(absent.is_empty(), "{page} documents what is not there: {absent:?}");
}

#[test]
fn create_stat_check_and_serve() {
    let home = Home::new();
    agree("create.md", &[&home.json("disk create d --size 16MiB")]);
    let (server, ready) = home.start("disk serve d --nbd unix:s --metrics unix:m");
    let mut client = Client::connect(&home.path("s"));
    client.write(0, &[1; 8192]).unwrap();
    client.flush().unwrap();
    agree("stat.md", &[&home.json("disk stat d")]);
    drop(client);
    let (_, lines) = server.interrupt();
    agree("serve.md", &[&ready, &lines[0]]);
    agree("stat.md", &[&home.json("disk stat d")]);
    agree("check.md", &[&home.json("disk check d")]);
    agree("check.md", &[&home.json("disk scrub d")]);
    agree("check.md", &[&home.json("disk scrub d --dedup")]);
    let (_server, _) = home.start("disk serve d --nbd unix:s --journal 1MiB+64KiB");
    let stat = home.json("disk stat d");
    assert_eq!(stat["named_journals"][0]["offset_bytes"], 1 << 20);
    agree("stat.md", &[&stat]);
}

#[test]
fn replay() {
    agree("replay.md", &[&Home::new().json("tour")]);
}

#[test]
fn replay_array() {
    let home = Home::new();
    // One sector is read and two are written, three times, a tenth of a second apart.
    let row = |i: u64| {
        let (lba, kind) = [(0, 1), (128, 0), (8, 0)][i as usize % 3];
        format!("{} 0 {lba} 8 {kind}\n", i * 100_000_000)
    };
    std::fs::write(home.path("t.ascii"), (0..9).map(row).collect::<String>()).unwrap();
    let line = "replay t.ascii --format mqsim --array raid5 --cache 100% --compare nossd,wt,kdd-12,kdd";
    let found = home.json(line);
    agree("replay-array.md", &[&found]);
    assert_eq!(found, home.json(line), "the same seed, the same answer");
    let of = |mode: usize, field: &str| found["modes"][mode]["totals"][field].as_u64().unwrap();
    assert_eq!((of(0, "reads"), of(0, "writes"), of(0, "read_hits")), (3, 6, 0));
    assert_eq!((of(1, "read_hits"), of(1, "write_hits"), of(1, "update_pages")), (2, 4, 4));
    assert_eq!((of(2, "write_hits"), of(2, "put_off"), of(3, "put_off")), (4, 4, 4));
    let mean = |mode: usize| found["modes"][mode]["times"]["writes"]["mean_ms"].as_f64().unwrap();
    assert!(mean(2) < mean(0) && mean(0) > 10.0, "{} {}", mean(2), mean(0));
    assert_eq!(home.run("replay t.ascii --format mqsim --array raid7").code, 2);
    let (recorder, _) = home.start("disk record --ram 16MiB --nbd unix:s --to t.vtrace --bytes");
    let mut client = Client::connect(&home.path("s"));
    [1, 2].into_iter().for_each(|byte| client.write(0, &[byte; 4096]).unwrap());
    drop(client);
    recorder.interrupt();
    let recorded = home.json("replay t.vtrace --array raid5 --compare kdd-12 --deltas recorded");
    let fields = |of: &Value| of.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    assert!(fields(&recorded["modes"][0]).contains("deltas") && fields(&recorded).contains("contents"));
    agree("replay-array.md", &[&recorded]);
    home.run("replay t.ascii --format mqsim --array raid5 --cache 0%").failed(2, "share");
    home.run("replay t.ascii --format mqsim --array raid5 --members 2").failed(2, "members");
}

#[test]
fn dedup_scan() {
    let home = Home::new();
    for name in ["a", "b", "c"] {
        std::fs::write(home.path(name), [7; 50_000]).unwrap();
    }
    agree("dedup-scan.md", &[&home.json("dedup-scan .")]);
}

#[test]
fn ses_learn() {
    let home = Home::new();
    Drive { period: None, wrong_one_in: 0 }.dump(&home, "lba", &spread(), LBA);
    let by_lba = home.json("ses learn lba.toml --to s.toml");
    let lbas: Vec<u64> = (0..200).collect();
    Drive { period: Some(64), wrong_one_in: 0 }.dump(&home, "page", &lbas, LBA);
    agree("ses-learn.md", &[&by_lba, &home.json("ses learn page.toml")]);
    home.ok("disk create d --size 16MiB");
    agree("ses-write.md", &[&home.json("ses write d --lba 1-9")]);
    agree("ses-dump.md", &[&home.json("ses dump d --lba 1-9 --to d.toml")]);
}

#[test]
fn kv() {
    let home = Home::new();
    agree("kv.md#put", &[&home.json("kv put s recto right")]);
    let opened = home.json("kv open s");
    std::fs::write(home.path("b"), "put\ta\t\\xff\ndel\trecto\n").unwrap();
    agree("kv.md#batch", &[&home.json("kv batch s b")]);
    agree("kv.md#get", &[&home.json("kv get s a")]);
    agree("kv.md#del", &[&home.json("kv del s b")]);
    agree("kv.md#dump --output", &[&home.json("kv dump s --output d")]);
    agree("kv.md#Records", &[&home.json("kv scan s")]);
    let bench = "kv bench --keys 500 --workload fillrandom,ycsb-a --engine vellum,leveldb-default --rounds 2";
    agree("kv.md#kv bench --json", &[&home.json(bench)]);
    let modelled =
        "kv bench --device open-channel-8 --block-pages 8 --keys 500 --engine flashkv,leveldb-ext4";
    agree("kv.md#bench --device", &[&home.json(modelled)]);
    let loaded = home.json("kv load t d");
    agree("kv.md#ingest", &[&home.json("kv ingest t d")]);
    agree("kv.md#checkpoint", &[&home.json("kv checkpoint t u")]);
    home.ok("kv put t k v --keyspace x");
    agree("kv.md#verify", &[&home.json("kv verify t")]);
    agree("kv.md#repair", &[&home.json("kv repair t"), &home.json("kv repair t --write")]);
    agree("kv.md#drop", &[&home.json("kv drop t x")]);
    let log = home.json("kv open l --engine log");
    let in_use = |name: &str| {
        let store = AnyStore::open(home.path(name), None, Options::default()).unwrap();
        let stat = home.json(&format!("kv stat {name}"));
        store.close().unwrap();
        stat
    };
    let (ordered, unordered) = (in_use("t"), in_use("l"));
    agree(
        "kv.md#vellum kv stat",
        &[&opened, &loaded, &home.json("kv compact t"), &home.json("kv stat t"), &log, &ordered, &unordered],
    );
    agree("kv.md#debubble IN OUT --json", &[&home.json("debubble s plain")]);
    agree("kv.md#debubble IN OUT --check", &[&home.json("debubble s plain --check")]);
}

#[test]
fn array() {
    let home = Home::new();
    let created = home.json("array create a.toml --level 5 --size 20MiB --members d0 d1 d2");
    let failed = home.json("array fail a.toml 0");
    let added = home.json("array add a.toml d3");
    let cached = home.json("array attach-cache a.toml ssd --size 20MiB --dwpd 1");
    agree("array.md#assembled", &[&created, &failed, &added, &cached]);
    let seen = |home: &Home| serde_json::from_str(&home.run("array detail a.toml --json").out).unwrap();
    let closed: Value = seen(&home);
    std::fs::rename(home.path("ssd"), home.path("away")).unwrap();
    let without = seen(&home);
    std::fs::rename(home.path("away"), home.path("ssd")).unwrap();
    agree("array.md#rebuild", &[&home.json("array rebuild a.toml")]);
    agree("array.md#scrub", &[&home.json("array scrub a.toml")]);
    let (server, ready) = home.start("array serve a.toml --nbd unix:v.sock");
    let served = home.json("array stat a.toml");
    agree("array.md#detail", &[&closed, &without, &served]);
    for field in ["served", "array", "level", "bytes", "chunk_bytes", "rows", "log", "state", "members"] {
        assert!(!closed[field].is_null() && !served[field].is_null(), "{field}: whether it is served or not");
    }
    for field in ["policy", "device", "bytes", "cache_pages", "state", "flash_bytes_before", "budget"] {
        let of = |seen: &Value| !seen["cache"][field].is_null();
        assert!(of(&closed) && of(&served), "cache.{field}: whether it is served or not");
    }
    let (_, lines) = server.interrupt();
    agree("array.md#serve", &[&ready, &lines[0]]);
    home.start("array serve a.toml --nbd unix:v.sock").0.kill();
    std::fs::rename(home.path("ssd"), home.path("away")).unwrap();
    let (_server, _) = home.start("array serve a.toml --nbd unix:v.sock");
    agree("array.md#detail", &[&closed, &served, &seen(&home)]);
    let create =
        "array create b.toml --level 5 --size 20MiB --members e0 e1 e2 --log device --log-device log";
    agree("array.md#assembled", &[&home.json(create)]);
    std::fs::write(home.path("log"), "").unwrap();
    let refused = home.run("array detail b.toml --json").out;
    agree("array.md#detail", &[&closed, &served, &serde_json::from_str(&refused).unwrap()]);
}

#[test]
fn lab() {
    let home = Home::new();
    agree("lab.md#lab list", &[&home.json("lab list")]);
    let said = home.run("lab run woj-fig5 --json");
    assert!(matches!(said.code, 0 | 1), "{}", said.err);
    agree("lab.md#lab run", &[&serde_json::from_str(&said.out).unwrap()]);
    // Writing it takes minutes; this is what would be printed.
    let score = vellum::lab::scoreboard::Score::default();
    agree("lab.md#lab scoreboard", &[&serde_json::to_value(score).unwrap()]);
}

#[test]
fn record() {
    let home = Home::new();
    let (recorder, _) = home.start("disk record --ram 16MiB --nbd unix:s --to t.vtrace");
    let (_, lines) = recorder.interrupt();
    agree("record.md", &[lines.last().unwrap()]);
}

#[test]
fn tools() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB");
    let (server, _) = home.start("disk serve d --nbd unix:s");
    let mut client = Client::connect(&home.path("s"));
    client.write(0, &[1; 8192]).unwrap();
    drop(client);
    server.interrupt();
    agree("inspect.md", &[&home.json("disk inspect d")]);
    agree("inspect-page.md", &[&home.json("disk inspect d --page 0:0")]);
    agree("dump.md", &[&home.json("disk dump d --to d.dump")]);
    agree("restore.md", &[&home.json("disk restore d --from d.dump --forget-newer")]);
    agree("repair.md", &[&home.json("disk repair d")]);
}
