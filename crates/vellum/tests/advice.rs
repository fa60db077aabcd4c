//! What commands advise to do about errors of one kind that they tell apart.

use crate::support::{Home, Said};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The command failed with `code`; its first line says `what`, and the advice `next`.
#[track_caller]
fn advised(said: &Said, code: i32, what: &str, next: &str) {
    said.failed(code, what);
    assert!(said.err.lines().nth(1).unwrap().contains(next), "{}", said.err);
}

fn blank_device(home: &Home, name: &str, bytes: u64) {
    fs::File::create(home.path(name)).unwrap().set_len(bytes).unwrap();
}

#[test]
fn for_options_of_a_disk() {
    let home = Home::new();
    home.ok("disk create d --size 32MiB");
    let serve = |options: &str| home.run(&format!("disk serve d --nbd unix:s {options}"));
    advised(&serve("--journal 32MiB+4KiB"), 2, "outside the device", "name journals that lie on the disk");
    let two = serve("--journal 1MiB+1MiB --journal 1MiB+4KiB");
    advised(&two, 2, "two journals", "name journals that lie on the disk");
    advised(
        &serve("--dedup-when inline"),
        2,
        "are for ecc",
        "leave these options out, or make a disk with --dedup",
    );
    advised(&serve("--dedup-table 0%"), 2, "at most 100%", "or write it like 15%");
    // By reasons, not by words: an image may be called anything.
    fs::write(home.path("journal header"), [7; 8192]).unwrap();
    let other = Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["disk", "check", "journal header"])
        .current_dir(home.dir())
        .output()
        .unwrap();
    let err = String::from_utf8(other.stderr).unwrap();
    assert!(err.contains("the file is left as it is") && !err.contains("name journals"), "{err}");
}

#[test]
fn for_places_that_hold_something_else() {
    let home = Home::new();
    home.ok("kv put s k v");
    fs::create_dir(home.path("taken")).unwrap();
    fs::write(home.path("taken/x"), "x").unwrap();
    for (place, what) in [("taken", "taken is not empty"), ("taken/x", "taken/x is a file, no directory")] {
        advised(&home.run(&format!("kv checkpoint s {place}")), 2, what, "choose another directory: nothing");
    }
    fs::create_dir(home.path("level")).unwrap();
    fs::write(home.path("level/CURRENT"), "MANIFEST-000004\n").unwrap();
    advised(&home.run("kv get level k"), 3, "LevelDB or RocksDB", "comes over by `vellum kv load`");
    home.ok("disk create d --size 16MiB");
    advised(&home.run("kv get d k"), 3, "d is a Vellum disk", "makes an image with a store on it");
    home.ok("kv put spaces k v --keyspace other");
    let none = home.run("debubble spaces log --engine log");
    advised(&none, 3, "has no keyspaces", "leave --engine log out, or dump one keyspace");
}

#[test]
fn for_what_a_store_does_not_take() {
    let home = Home::new();
    fs::write(home.path("r.tsv"), "b\t1\na\t2\n").unwrap();
    advised(
        &home.run("kv ingest s r.tsv"),
        2,
        "must ascend",
        "or use `vellum kv load`, which takes any order",
    );
    let zstd = home.run("kv put l k v --engine log --compression zstd");
    advised(&zstd, 2, "compresses nothing", "leave --compression out");
    let long = "v".repeat(6 << 20);
    fs::write(home.path("b.tsv"), format!("put\ta\t1\nput\tb\t{long}\n")).unwrap();
    home.run("kv batch l b.tsv --engine log").failed(2, "b.tsv, line 2: l: a value of 6291456 bytes");
    assert!(!home.path("l").exists());
}

#[test]
fn for_devices() {
    let home = Home::new();
    ["device", "other"].iter().for_each(|name| blank_device(&home, name, 64 << 20));
    fs::write(home.path("used"), vec![7; 64 << 20]).unwrap();
    let open = |device: &str| home.run(&format!("kv open s --device {device} --zone 1MiB"));
    advised(&open("used"), 2, "used is not blank", "with --force");
    let begun = home.run("kv open s --device device --zone 1MiB --unit 5KiB");
    begun.failed(2, "a power of two from 4096");
    advised(&open("other"), 2, "or were to be", "name that device; or");
    advised(&home.run("kv put s k v"), 3, "was not finished", "with the options of before");
    let zones = |bytes: &str| home.run(&format!("kv open s --device device --zone {bytes}"));
    advised(&zones("5000"), 2, "make it a multiple of 4 KiB", "choose other zones: 128KiB to 8MiB");
    advised(&zones("300000"), 2, "make it a multiple of 4 KiB", "--zone 256KiB would do");
    advised(&zones("9MiB"), 2, "7 zones of 9437184 bytes", "choose other zones: 128KiB to 8MiB");
    assert_eq!(open("device").code, 0);
    home.ok("kv put s k v");
    fs::remove_file(home.path("s/CURRENT")).unwrap();
    advised(&open("device"), 2, "in this directory already", "open it without --device: it knows");
}

/// The smallest device is said to be one, and is.
#[test]
fn for_devices_that_are_too_small() {
    let home = Home::new();
    ["least", "less"]
        .iter()
        .zip([1 << 20, (1 << 20) - 4096])
        .for_each(|(n, size)| blank_device(&home, n, size));
    advised(&home.run("kv open s --device less"), 2, "a store needs 8", "take a device of 1MiB or more");
    // That is all that the device can be cut into: no advice to take smaller zones.
    let made = home.run("kv open s --device least");
    assert_eq!((made.code, &*made.err), (0, ""));
    let lines: String = (0..1000).map(|n| format!("key{n:04}\t{n}\n")).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    for _ in 0..3 {
        home.ok("kv load s r.tsv");
        home.ok("kv compact s");
        assert_eq!(home.ok("kv dump s"), lines);
    }
}

#[test]
fn for_what_is_left_of_a_store() {
    let home = Home::new();
    home.ok("kv put s k v --keyspace other");
    home.ok("kv compact s --keyspace other");
    for file in fs::read_dir(home.path("s")).unwrap().map(|file| file.unwrap().path()) {
        let name = file.file_name().unwrap().to_str().unwrap();
        if name == "CURRENT" || name.ends_with(".manifest") {
            fs::remove_file(&file).unwrap();
        }
    }
    assert!(!home.run("kv repair s").out.contains("gets its name back"));
    let said = home.run("kv repair s --write");
    assert!(
        said.out.contains("the name of keyspace") && said.out.contains("gets its name back"),
        "{}",
        said.out
    );
}

/// The limit on file sizes stops the dump, not the store.
#[test]
fn for_a_file_that_is_dumped_to() {
    let home = Home::new();
    let lines: String = (0..3000).map(|n| format!("key{n:05}\t{}\n", "v".repeat(100))).collect();
    fs::write(home.path("r.tsv"), lines).unwrap();
    home.ok("kv load s r.tsv");
    let line = format!("ulimit -f 128; exec {} kv dump s --output out", env!("CARGO_BIN_EXE_vellum"));
    let said = Command::new("sh").args(["-c", &line]).current_dir(home.dir()).output().unwrap();
    let err = String::from_utf8(said.stderr).unwrap();
    let is_told = err.contains("write out: File too large") && err.contains("nothing of it was left there");
    assert!(said.status.code() == Some(3) && is_told, "{err}");
    assert!(!Path::new(&home.path("out")).exists());
}
