//! Key-value commands at limits of the system: file sizes, space, features of a file system, signals.

use crate::real::host::skipped;
use crate::support::Home;
use rustix::fs::inotify;
use rustix::process::Signal;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;
use vellum::base::Kind;
use vellum::kv::{AnyStore, Engine, Options};

/// Reaching the limit on file sizes is an ordinary error, and does not end the process.
#[test]
fn a_limit_on_file_sizes_is_told() {
    let home = Home::new();
    let lines: String = (0..5000).map(|n| format!("key{n:05}\t{}\n", "v".repeat(100))).collect();
    fs::write(home.path("r.tsv"), lines).unwrap();
    for engine in ["lsm", "log"] {
        let line = format!(
            "ulimit -f 128; exec {} kv load {engine} r.tsv --engine {engine}",
            env!("CARGO_BIN_EXE_vellum")
        );
        let said = Command::new("sh").args(["-c", &line]).current_dir(home.dir()).output().unwrap();
        let err = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(3), "{engine}: {:?} {err}", said.status);
        assert!(err.contains("File too large") && err.contains("ulimit -f"), "{engine}: {err}");
        assert!(home.ok(&format!("kv verify {engine}")).contains("all is well"));
    }
}

/// A bench that is ended leaves no files, and no running engine.
#[test]
fn a_bench_that_is_ended_cleans_up() {
    let home = Home::new();
    let scratch = || fs::read_dir(home.dir()).unwrap().map(|entry| entry.unwrap().path()).next();
    for signal in [Signal::TERM, Signal::INT] {
        let bench = home.begin("kv bench --workload fillrandom --keys 100000000");
        while scratch().is_none_or(|path| !path.join("vellum/CURRENT").exists()) {
            std::thread::yield_now();
        }
        let (code, _) = bench.end(signal);
        assert_eq!((code, scratch()), (3, None), "{signal:?}");
    }
}

/// A refused operation has not begun.
#[test]
fn relink_is_refused_before_anything_is_made() {
    let home = Home::new();
    fs::write(home.path("r.tsv"), "a\t1\n").unwrap();
    fs::write(home.path("one"), [7; 8192]).unwrap();
    let cp = Command::new("cp").arg("--reflink=always").args([home.path("one"), home.path("two")]).output();
    if cp.unwrap().status.success() {
        return skipped("the file system here clones");
    }
    fs::create_dir(home.path("empty")).unwrap();
    for line in ["load new r.tsv", "put new a 1", "load new r.tsv --engine log", "open empty"] {
        let said = home.run(&format!("kv {line} --reuse relink"));
        assert!(said.code == 3 && said.err.contains("--reuse auto"), "{line}: {} {}", said.code, said.err);
        assert!(!home.path("new").exists(), "{line}");
        assert_eq!(fs::read_dir(home.path("empty")).unwrap().count(), 0, "{line}");
    }
    for engine in ["vellum", "vellum-log"] {
        let said = home.run(&format!("kv bench --keys 1000 --engine {engine} --reuse relink"));
        assert!(said.code == 3 && said.err.contains("--reuse auto"), "{engine}: {} {}", said.code, said.err);
    }
}

/// A value too long for any store is refused, and no store is created for it.
#[test]
fn a_value_that_is_too_long_makes_no_store() {
    let home = Home::new();
    fs::File::create(home.path("huge")).unwrap().set_len((64 << 20) + 1).unwrap();
    home.run("kv put new k --value-from huge").failed(2, "more bytes than any value");
    fs::File::create(home.path("long")).unwrap().set_len(6 << 20).unwrap();
    home.run("kv put new k --value-from long --engine log").failed(2, "a value of 6291456 bytes");
    fs::File::create(home.path("longer")).unwrap().set_len((8 << 20) + 1).unwrap();
    home.run("kv put new k --value-from longer")
        .failed(2, "a value of 8388609 bytes: 8388608 is the most here");
    assert!(!home.path("new").exists());
    home.ok("kv put new k --value-from long");
}

/// Each value that is put is checked, which must not list a directory each time.
#[test]
fn values_that_fit_a_log_store_are_checked_without_a_look_at_the_medium() {
    let home = Home::new();
    let opened = AnyStore::open(home.path("s"), Some(Engine::Log), Options::default()).unwrap();
    let looks = Looks::at(&home.path("s"));
    let told = |bytes: usize| opened.map().check_value(bytes).map_err(|error| error.kind());
    fs::read_dir(home.path("s")).unwrap();
    assert!(looks.is_any());
    assert_eq!(told(5 << 20), Err(Kind::Invalid));
    // The store may look once itself, as it begins.
    let seen = (0..1000).filter(|_| told(1000).is_err() || looks.is_any()).count();
    assert!(seen < 10, "{seen} of 1000 looked");
    opened.close().unwrap();
}

/// Tells when somebody lists a directory.
struct Looks(OwnedFd);

impl Looks {
    fn at(path: &Path) -> Looks {
        let listed = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&listed, path, inotify::WatchFlags::OPEN | inotify::WatchFlags::ONLYDIR).unwrap();
        Looks(listed)
    }

    /// True if somebody did since it was asked last.
    fn is_any(&self) -> bool {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        let flags = std::iter::from_fn(|| Some(events.next().ok()?.events()));
        // All of them are read.
        flags.filter(|flags| flags.contains(inotify::ReadFlags::ISDIR)).count() > 0
    }
}

/// What is refused has not begun, either.
#[test]
fn what_is_no_batch_makes_no_store() {
    let home = Home::new();
    let line = |bytes| format!("put\tk\t{}\n", "v".repeat(bytes));
    for (name, steps) in [
        ("none", "put\tk\n".into()),
        ("half", "put\ta\t1\nset\tb\t2\n".into()),
        ("key", format!("del\t{}\n", "k".repeat(70_000))),
        ("long", format!("put\ta\t1\n{}", line(5 << 20))),
        ("many", line(4 << 20).repeat(3)),
        ("fits", line(10)),
    ] {
        fs::write(home.path(name), steps).unwrap();
    }
    for engine in ["lsm", "log"] {
        for (name, what) in [("none", "line 1: "), ("half", "line 2: "), ("key", "line 1: a key of 70000")] {
            home.run(&format!("kv batch new {name} --engine {engine}")).failed(2, what);
        }
        home.run(&format!("kv batch new nowhere --engine {engine}")).failed(3, "nowhere");
        assert!(!home.path("new").exists(), "{engine}");
    }
    home.run("kv batch new long --engine log").failed(2, "long, line 2: new: a value of 5242880 bytes");
    home.run("kv batch new many --engine log").failed(2, "a batch of 12582");
    for line in ["batch new fits", "put new a 1", "load new fits"] {
        let said = home.run(&format!("kv {line} --keyspace x --engine log"));
        said.failed(2, "a log store has no keyspaces");
    }
    for line in ["batch new fits", "put new a 1", "load new fits", "ingest new fits"] {
        home.run(&format!("kv {line} --keyspace {}", "x".repeat(256))).failed(2, "has 1 to 255 bytes");
    }
    home.run(&format!("kv put new {} 1", "k".repeat(70_000))).failed(2, "a key of 70000 bytes");
    assert!(!home.path("new").exists());
    home.ok("kv batch new many");
    home.ok("kv batch new fits --keyspace x");
    assert_eq!(home.ok("kv dump new --keyspace x"), "k\tvvvvvvvvvv\n");
}

#[test]
fn a_value_that_is_too_long_is_refused_by_whatever_puts_it_into_a_log_store() {
    let home = Home::new();
    let (long, told) = ("v".repeat(5 << 20), "a value of 5242880 bytes: 4194304 is the most here");
    fs::write(home.path("long"), &long).unwrap();
    fs::write(home.path("r.tsv"), format!("a\t1\nb\t{long}\nc\t3\n")).unwrap();
    fs::write(home.path("b.tsv"), format!("put\td\t4\nput\tb\t{long}\n")).unwrap();
    home.ok("kv open s --engine log");
    home.run("kv load s r.tsv").failed(2, told);
    home.run("kv batch s b.tsv").failed(2, told);
    home.run("kv put s b --value-from long").failed(2, told);
    assert_eq!(home.ok("kv dump s"), "a\t1\n");
}

#[test]
fn tables_are_compressed_as_a_command_says() {
    let home = Home::new();
    let lines: String =
        (0..4000).map(|n| format!("key{n:06}\tsome words that come again and again\n")).collect();
    fs::write(home.path("r.tsv"), lines).unwrap();
    let bytes = |how: &str| {
        home.ok(&format!("kv load {how} r.tsv --compression {how}"));
        home.ok(&format!("kv compact {how} --compression {how}"));
        let stat: serde_json::Value =
            serde_json::from_str(&home.ok(&format!("kv stat {how} --json"))).unwrap();
        (stat["table_bytes"].as_u64().unwrap(), home.ok(&format!("kv get {how} key003999")))
    };
    let [none, lz4, zstd] = ["none", "lz4", "zstd:19"].map(bytes);
    assert!(none.0 > 2 * lz4.0 && lz4.0 >= zstd.0, "{none:?}, {lz4:?}, {zstd:?}");
    assert!(none.1 == lz4.1 && lz4.1 == zstd.1);
    home.run("kv load s r.tsv --engine log --compression zstd").failed(2, "a log store compresses nothing");
    assert!(!home.path("s").exists());
}
