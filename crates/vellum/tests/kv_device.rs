//! `vellum kv` where tables are on a device of their own.

use crate::kv::files;
use crate::support::Home;
use std::fs;
use vellum::base::{Env, Nanos, RealEnv};
use vellum::kv::{Directory, DirectoryOptions};

/// A file that represents a partition.
fn blank_device(home: &Home, name: &str, bytes: u64) {
    fs::File::create(home.path(name)).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_store_that_lost_the_name_of_its_device_gets_it_back() {
    let home = Home::new();
    ["device", "blank"].iter().for_each(|name| blank_device(&home, name, 64 << 20));
    home.ok("kv open s --device device --zone 4MiB");
    fs::write(home.path("r.tsv"), "k\tv\n").unwrap();
    home.ok("kv load s r.tsv");
    home.ok("kv compact s");
    let note = home.path("s/ZONES");
    let before = fs::read(&note).unwrap();
    for damage in [None, Some("garbage")] {
        match damage {
            None => fs::remove_file(&note).unwrap(),
            Some(bytes) => fs::write(&note, bytes).unwrap(),
        }
        let refused = home.run("kv repair s");
        refused.failed(if damage.is_some() { 4 } else { 3 }, "the file ZONES");
        assert!(refused.err.contains("kv open s --device DEV"), "{}", refused.err);
        for (bytes, device) in [(0, "empty"), (100, "tiny"), (20_000, "short")] {
            blank_device(&home, device, bytes);
            home.run(&format!("kv open s --device {device}")).failed(4, "has no tables of a store");
        }
        home.run("kv open s --device blank").failed(4, "has no tables of a store");
        home.ok("kv open s --device device");
        assert_eq!(home.ok("kv get s k"), "v\n");
        assert_eq!(fs::read(&note).unwrap(), before);
    }
    home.run("kv open s --device empty").failed(4, "is not the device that the tables of this store are on");
}

#[test]
fn tables_live_on_a_device_of_their_own() {
    let home = Home::new();
    blank_device(&home, "device", 64 << 20);
    home.ok("kv open s --device device --zone 4MiB");
    let lines: String =
        (0..40_000).map(|n| format!("key{n:06}\tvalue of {n}, and some more of it\n")).collect();
    fs::write(home.path("r.tsv"), &lines).unwrap();
    home.ok("kv load s r.tsv");
    home.ok("kv put s zz last");
    assert_eq!(home.ok("kv get s key039999"), "value of 39999, and some more of it\n");
    assert_eq!(home.ok("kv dump s"), format!("{lines}zz\tlast\n"));
    assert!(files(&home, "s").keys().all(|name| !name.ends_with(".table")), "tables are on the device");
    home.ok("kv compact s");
    home.ok("kv checkpoint s t");
    assert_eq!(home.ok("kv dump t"), home.ok("kv dump s"));

    // A copy of the directory alone lacks the tables; one of both has them.
    let copy = |from: &str, to: &str| {
        fs::create_dir(home.path(to)).unwrap();
        for name in files(&home, from).keys() {
            fs::copy(home.path(from).join(name), home.path(to).join(name)).unwrap();
        }
    };
    copy("s", "copy");
    let refused = home.run("kv get copy zz");
    refused.failed(3, "this directory is a copy");
    assert!(refused.err.contains("kv open copy --device COPY"), "{}", refused.err);
    home.run("kv repair copy --write").failed(3, "this directory is a copy");
    fs::copy(home.path("device"), home.path("device.copy")).unwrap();
    home.ok("kv open copy --device device.copy");
    home.ok("kv del copy zz");
    assert_eq!(home.ok("kv get s zz"), "last\n");
    home.run("kv open t --device device").failed(2, "has its tables in its directory");
    home.run("kv open other --device device --zone 4MiB").failed(2, "is not blank");
    blank_device(&home, "small", 1 << 19);
    home.run("kv open other --device small").failed(2, "a store needs 8");
    let short = home.run("kv open other --device small --zone 16KiB");
    short.failed(2, "zones of 16384 bytes: a store needs 131072, as a zone holds a table");
    assert!(short.err.contains("take a device of 1MiB or more"), "{}", short.err);
    home.run("kv open other --device nowhere").failed(3, "nowhere");
    blank_device(&home, "blank", 64 << 20);
    home.run("kv open third --device blank --unit 5KiB").failed(2, "a power of two from 4096");
    home.run("kv put third a 1").failed(3, "was not finished");
    assert_eq!(home.ok("kv open third --device blank"), "third: a new store\n");
    let again = home.run("kv open third --device small");
    again.failed(4, "is not the device that the tables of this store are on");
    // Other zones on the same device, by force; the previous store notices.
    home.ok("kv open other --device device --zone 2MiB --force");
    home.run("kv get s zz").failed(4, "is not the device");
    fs::remove_file(home.path("device")).unwrap();
    home.run("kv get other k").failed(3, "device");
}

/// States as a kill leaves them, one after the other.
#[test]
fn what_was_cut_short_is_finished_by_the_same_command() {
    let home = Home::new();
    for (state, is_labelled) in [("ZONES.new", false), ("ZONES", false), ("ZONES", true)] {
        blank_device(&home, "device", 64 << 20);
        home.ok("kv open s --device device --zone 4MiB");
        let note = fs::read(home.path("s/ZONES")).unwrap();
        files(&home, "s").keys().for_each(|name| fs::remove_file(home.path("s").join(name)).unwrap());
        fs::write(home.path("s").join(state), note).unwrap();
        if !is_labelled {
            blank_device(&home, "device", 64 << 20);
        }
        fs::write(home.path("r.tsv"), "k\tv\n").unwrap();
        fs::write(home.path("b.tsv"), "put\tk\tv\n").unwrap();
        let before = files(&home, "s");
        for line in [
            "kv put s k v",
            "kv load s r.tsv",
            "kv ingest s r.tsv",
            "kv batch s b.tsv",
            "kv get s k",
            "kv del s k",
            "kv stat s",
            "kv verify s",
            "kv compact s",
            "kv repair s --write",
            "kv checkpoint s t",
        ] {
            let said = home.run(line);
            said.failed(
                3,
                "s holds a store that was not finished: `kv open --device` failed, or was cut short",
            );
            assert!(said.err.contains("run `vellum kv open s --device "), "{line}: {}", said.err);
        }
        if !is_labelled {
            home.run("kv open s").failed(3, "was not finished");
        }
        let mut after = files(&home, "s");
        after.remove("LOCK");
        assert_eq!((after, home.path("t").exists()), (before, false), "{state}");
        let made = Directory::open(&home.path("s"), DirectoryOptions::default()).unwrap();
        home.run("kv put s k v").failed(5, "s is being made by another process: `kv open --device`");
        drop(made);
        assert_eq!(home.ok("kv open s --device device --zone 4MiB"), "s: a new store\n");
        home.ok("kv load s r.tsv");
        home.ok("kv compact s");
        assert_eq!(home.ok("kv get s k"), "v\n");
        assert!(files(&home, "s").keys().all(|name| !name.ends_with(".table")), "{state}");
        // What has tables is no beginning.
        fs::remove_file(home.path("s/CURRENT")).unwrap();
        home.run("kv open s --device device --zone 4MiB").failed(2, "there is a store in this directory");
        fs::remove_dir_all(home.path("s")).unwrap();
    }
}

/// Its tables are on the device, and what was ingested is in no log: the directory had nothing but a manifest left, and
/// was taken for one that was never finished.
#[test]
fn a_store_that_lost_its_current_is_not_begun_anew() {
    let home = Home::new();
    ["device", "other"].iter().for_each(|name| blank_device(&home, name, 64 << 20));
    fs::write(home.path("r.tsv"), "k\tv\n").unwrap();
    home.ok("kv open s --device device --zone 4MiB");
    home.ok("kv ingest s r.tsv");
    fs::remove_file(home.path("s/CURRENT")).unwrap();
    let before = files(&home, "s");
    for device in ["device", "other"] {
        let again = home.run(&format!("kv open s --device {device} --zone 4MiB"));
        again.failed(2, "there is a store in this directory already");
    }
    for line in ["kv get s k", "kv put s k v", "kv open s"] {
        let refused = home.run(line);
        refused.failed(4, "CURRENT is missing");
        assert!(refused.err.contains("see what `vellum kv repair` says"), "{line}: {}", refused.err);
    }
    assert_eq!(files(&home, "s"), before);
    home.ok("kv repair s --write");
    assert_eq!(home.ok("kv get s k"), "v\n");
}

#[test]
fn what_was_begun_on_one_device_is_not_finished_on_another() {
    let home = Home::new();
    ["device", "other"].iter().for_each(|name| blank_device(&home, name, 64 << 20));
    home.run("kv open s --device device --unit 5KiB").failed(2, "a power of two from 4096");
    home.run("kv open s").failed(3, "was not finished");
    home.run("kv open s --device other").failed(2, "or were to be");
    home.ok("kv open s --device other --force");
}

/// Kills at any time.
#[test]
fn what_is_killed_while_it_is_made_can_be_made_again() {
    let (home, env) = (Home::new(), RealEnv::new());
    let (mut unfinished, mut finished) = (0, 0);
    for round in 0..40 {
        blank_device(&home, "device", 32 << 20);
        for (line, path) in
            [("kv open s --device device --zone 1MiB", "s"), ("kv open s.flash --flash 16MiB", "s.flash")]
        {
            let making = home.begin_unheard(line);
            env.sleep_until(env.now() + Nanos::from_us(500 * round));
            making.kill();
            let said = home.run(&format!("kv stat {path}"));
            match said.code {
                0 => finished += 1,
                _ => {
                    let is_told = ["is not there", "holds no key-value store", "was not finished"];
                    assert!(is_told.iter().any(|what| said.err.contains(what)), "{round}: {}", said.err);
                    unfinished += 1;
                    home.ok(line);
                }
            }
            home.ok(&format!("kv put {path} k v"));
            let there: Vec<_> =
                fs::read_dir(home.dir()).unwrap().map(|file| file.unwrap().file_name()).collect();
            assert!(there.iter().all(|name| name == "device" || name == path), "{there:?}");
            let path = home.path(path);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
    assert!(unfinished > 0, "{unfinished} and {finished}");
}

#[test]
fn zones_are_of_the_device_and_stay_as_they_are() {
    let home = Home::new();
    for option in ["--zone 3", "--force"] {
        let said = home.run(&format!("kv open s.flash --flash 16MiB {option}"));
        assert!(said.code == 2 && said.err.contains("cannot be used with"), "{option}: {}", said.err);
        assert!(!home.path("s.flash").exists(), "{option}");
    }
    blank_device(&home, "device", 64 << 20);
    home.ok("kv open s --device device --zone 4MiB");
    let before = files(&home, "s");
    let said = home.run("kv open s --device device --zone 2MiB");
    said.failed(2, "s has zones of 4MiB, and keeps them");
    assert!(said.err.contains("leave --zone out"), "{}", said.err);
    assert_eq!(files(&home, "s"), before);
    home.ok("kv open s --device device --zone 4MiB");
}
