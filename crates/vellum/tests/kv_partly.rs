//! Key-value commands that end before their work is done: what is left, and what is reported.

use crate::support::Home;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use vellum::kv::{AnyStore, Options, Store};

fn lines(count: u32) -> String {
    (0..count).map(|n| format!("key{n:06}\tvalue of {n}, and some more of it\n")).collect()
}

/// Files of a store whose names end with `ending`.
fn files(home: &Home, store: &str, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(home.path(store)).unwrap().map(|file| file.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|end| end == ending)).collect()
}

/// Damages four bytes in the middle of a table.
fn damaged(home: &Home, store: &str) {
    fs::write(home.path("r.tsv"), lines(3000)).unwrap();
    home.ok(&format!("kv load {store} r.tsv"));
    home.ok(&format!("kv compact {store}"));
    let table = &files(home, store, "table")[0];
    let mut bytes = fs::read(table).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 4].iter_mut().for_each(|byte| *byte ^= 0xFF);
    fs::write(table, bytes).unwrap();
}

#[test]
fn what_was_read_before_damage_is_shown() {
    let home = Home::new();
    damaged(&home, "s");
    for (command, first) in [("kv scan s --keys", "key000000"), ("kv scan s --keys --reverse", "key002999")] {
        let said = home.run(command);
        said.failed(4, "byte ");
        let shown = said.out.lines().count();
        assert!((100..2900).contains(&shown) && said.out.starts_with(first), "{command}: {shown} lines");
    }
}

#[test]
fn a_dump_that_fails_leaves_what_was_there() {
    let home = Home::new();
    damaged(&home, "s");
    fs::write(home.path("d.tsv"), "of yesterday\n").unwrap();
    home.run("kv dump s --output d.tsv --force").failed(4, "checksum");
    assert_eq!(fs::read_to_string(home.path("d.tsv")).unwrap(), "of yesterday\n");
    home.run("kv dump s --output new.tsv").failed(4, "checksum");
    let names = fs::read_dir(home.path("")).unwrap().map(|file| file.unwrap().file_name());
    let left: Vec<_> =
        names.filter(|name| name == "new.tsv" || name.to_string_lossy().ends_with(".part")).collect();
    assert!(left.is_empty(), "{left:?}");
    home.run("kv dump s --output d.tsv").failed(2, "exists already");
    home.ok("kv put t a 1");
    home.ok("kv dump t --output d.tsv --force");
    assert_eq!(fs::read_to_string(home.path("d.tsv")).unwrap(), "a\t1\n");
    home.ok("kv dump t --output /dev/null --force");
}

#[test]
fn what_is_asked_of_a_store_that_cannot_have_it_is_refused_with_advice_that_helps() {
    let home = Home::new();
    home.ok("kv put l a 1 --engine log");
    home.ok("kv open f.flash --flash 16MiB");
    fs::write(home.path("device"), [0; 4096]).unwrap();
    fs::write(home.path("long.tsv"), format!("a\t1\n{}\t2\n", "k".repeat(70_000))).unwrap();
    fs::write(home.path("steps.tsv"), format!("del\ta\ndel\t{}\n", "k".repeat(70_000))).unwrap();
    let refused = [
        ("kv ingest l long.tsv", "`vellum kv load`"),
        ("kv drop l drafts", "`vellum kv del`"),
        ("kv open f.flash --device device", "leave --device out"),
        ("kv load s long.tsv", "line 2: a key of 70000 bytes; 65535 is the most"),
        ("kv batch s steps.tsv", "line 2: a key of 70000 bytes"),
    ];
    for (line, says) in refused {
        let said = home.run(line);
        assert!([2, 3].contains(&said.code) && said.err.contains(says), "{line}: {} {}", said.code, said.err);
    }
    assert_eq!(home.run("kv open f.flash --device device").code, 2);
}

#[test]
fn what_comes_before_a_line_that_is_no_record_is_loaded() {
    let home = Home::new();
    fs::write(home.path("r.tsv"), lines(20_000) + "no record\n" + &lines(1)).unwrap();
    for engine in ["lsm", "log"] {
        let said = home.run(&format!("kv load {engine} r.tsv --engine {engine}"));
        said.failed(2, "line 20001");
        assert!(said.err.contains("has the first 20000 records"), "{}", said.err);
        assert_eq!(home.ok(&format!("kv dump {engine}")).lines().count(), 20_000, "{engine}");
    }
}

/// It made a table of what was in the log, anew for each put before it.
#[test]
fn a_load_of_nothing_writes_no_table() {
    let home = Home::new();
    fs::write(home.path("empty.tsv"), "").unwrap();
    home.ok("kv put s a 1");
    home.ok("kv load s empty.tsv");
    assert_eq!((files(&home, "s", "table").len(), home.ok("kv get s a")), (0, "1\n".into()));
}

/// A directory was made for its lock, or the lock was left in one.
#[test]
fn a_repair_of_nothing_leaves_nothing() {
    let home = Home::new();
    fs::create_dir(home.path("empty")).unwrap();
    for path in ["missing", "empty"] {
        Store::repair(home.path(path)).unwrap_err();
    }
    assert!(!home.path("missing").exists());
    assert_eq!(fs::read_dir(home.path("empty")).unwrap().count(), 0);
}

/// What is still buffered in the process when writing fails is not counted.
#[test]
fn no_more_is_said_to_be_loaded_than_is_there() {
    let home = Home::new();
    fs::write(home.path("r.tsv"), lines(40_000)).unwrap();
    for engine in ["lsm", "log"] {
        let command =
            format!("exec {} kv load {engine} r.tsv --engine {engine}", env!("CARGO_BIN_EXE_vellum"));
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("ulimit -f 1000; {command}")]).current_dir(home.dir());
        let said = String::from_utf8(shell.output().unwrap().stderr).unwrap();
        let (_, rest) = said.split_once("has at least the first ").unwrap_or_else(|| panic!("{said}"));
        let told: usize = rest.split(' ').next().unwrap().parse().unwrap();
        let there = home.ok(&format!("kv dump {engine}")).lines().count();
        assert!(told > 5_000 && told <= there, "{engine}: told {told}, there {there}");
    }
}

/// An error names its store exactly once, for every command.
#[test]
fn errors_name_their_store() {
    let home = Home::new();
    home.ok("kv put s a 1");
    fs::remove_file(home.path("s/CURRENT")).unwrap();
    for line in ["kv get s a", "kv put s a 1", "kv open s", "kv stat s"] {
        let said = home.run(line);
        said.failed(4, "s: CURRENT is missing");
        assert!(!said.err.contains("s: s"), "{line}: {}", said.err);
    }
    for error in [
        Store::open(home.path("s"), Options::default()).unwrap_err(),
        AnyStore::open(home.path("s"), None, Options::default()).unwrap_err(),
        Store::move_to(home.path("s"), &home.path("none")).unwrap_err(),
    ] {
        let path = home.path("s").display().to_string();
        assert_eq!(error.to_string().matches(&path).count(), 1, "{error}");
    }
}

#[test]
fn a_device_in_use_is_not_a_store_in_use() {
    let home = Home::new();
    let device = fs::File::create(home.path("d")).unwrap();
    device.set_len(64 << 20).unwrap();
    device.try_lock().unwrap();
    let said = home.run("kv open s --device d");
    said.failed(5, "in use by something else");
    assert!(said.err.contains("mounted") && !said.err.contains("one writer"), "{}", said.err);
}

#[test]
fn what_is_printed_is_no_order_to_a_terminal() {
    let home = Home::new();
    fs::write(home.path("r.tsv"), "a\\q\u{1b}[2J\u{9b}\t1\n").unwrap();
    fs::write(home.path("r.jsonl"), "{\"key\":\"k\u{9b}\",\"value\":\"\u{7f}\"}\n").unwrap();
    fs::write(home.path("twice.jsonl"), "{\"key\":\"j\",\"key\":\"k\",\"value\":\"1\"}\n").unwrap();
    for line in ["kv load s r.tsv", "kv load s r.tsv --json"] {
        let said = home.run(line);
        assert!(said.code == 2 && said.err.contains("after a backslash comes"), "{}", said.err);
        assert!(!said.err.contains(['\u{1b}', '\u{9b}']), "{:?}", said.err);
    }
    home.ok("kv load s r.jsonl");
    let record = "{\"key\":\"k\\u009b\",\"value\":\"\\u007f\"}\n";
    for line in ["kv scan s --json", "kv dump s --form json"] {
        assert_eq!(home.ok(line), record, "{line}");
    }
    home.run("kv load s twice.jsonl").failed(2, "'key' is there twice");
}

#[test]
fn a_log_that_is_there_is_not_called_missing() {
    let home = Home::new();
    home.ok("kv put s a 1");
    let log = files(&home, "s", "log").into_iter().max().unwrap();
    let mut bytes = fs::read(&log).unwrap();
    bytes[1] ^= 1;
    fs::write(log, bytes).unwrap();
    home.run("kv get s a").failed(4, "lost its head (a record follows");
}

/// Keyspaces whose names a repair could not recover.
#[test]
fn a_repair_says_how_a_keyspace_gets_its_name_back() {
    let home = Home::new();
    home.ok("kv put s a 1 --keyspace alpha");
    home.ok("kv compact s");
    files(&home, "s", "manifest").into_iter().for_each(|file| fs::remove_file(file).unwrap());
    let said = home.run("kv repair s --write");
    assert!(
        said.code == 1 && said.out.contains("kv load PATH FILE --keyspace NAME"),
        "{} {}",
        said.out,
        said.err
    );
    home.ok("kv dump s --keyspace lost-1 --output f.tsv");
    home.ok("kv load s f.tsv --keyspace alpha");
    home.ok("kv drop s lost-1");
    assert_eq!(home.ok("kv get s a --keyspace alpha"), "1\n");
}
