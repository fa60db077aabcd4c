//! Processes that are killed in the middle of their writes, on real files: what they were told is there survives them.

use crate::harness::{directory, open, small};
use crate::image::{make, media};
use crate::log::harness as log;
use crate::zones::on_a_file;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use vellum_base::{RealEnv, Result};
use vellum_kv::{Batch, Durability, Map, Media, Options, Reuse, Store};

/// Tells the child where to write.
const CHILD: &str = "VELLUM_KV_KILL_CHILD";
/// Where the last number is.
const LAST: &[u8] = b"~last";

fn written_store(dir: &Path) -> Result<Store> {
    Store::open(directory(dir), RealEnv::new(), Options { map_files: false, ..small() })
}

fn mapped_store(dir: &Path) -> Result<Store> {
    open(directory(dir))
}

fn image_store(dir: &Path) -> Result<Store> {
    open(image(dir)?)
}

fn log_options() -> vellum_kv::log::Options {
    vellum_kv::log::Options { reuse: Reuse::Relink.into(), ..log::small() }
}

fn log_store(dir: &Path) -> Result<vellum_kv::log::Store> {
    log::open_with(directory(dir), log_options())
}

fn log_image_store(dir: &Path) -> Result<vellum_kv::log::Store> {
    log::open_with(image(dir)?, log_options())
}

fn zones_store(dir: &Path) -> Result<Store> {
    open(on_a_file(dir)?)
}

fn log_zones_store(dir: &Path) -> Result<vellum_kv::log::Store> {
    log::open_with(on_a_file(dir)?, log_options())
}

/// A flash image in `dir`.
fn image(dir: &Path) -> Result<Arc<dyn Media>> {
    let path = dir.join("image");
    if !path.exists() {
        make(&path, 1 << 20);
    }
    media(&path, false)
}

fn next_of(store: &impl Map) -> u64 {
    let last = store.get(LAST).unwrap().map(|last| u64::from_be_bytes(last.try_into().unwrap()));
    last.map_or(0, |last| last + 1)
}

/// Writes numbers from where the store ends, and says each that was acknowledged. Does nothing unless told to.
fn write_until_killed<M: Map>(open: impl Fn(&Path) -> Result<M>) {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let store = open(Path::new(&dir)).unwrap();
    for number in next_of(&store).. {
        let mut batch = Batch::new();
        batch.put(&number.to_be_bytes(), &[number as u8; 300]).unwrap();
        batch.put(LAST, &number.to_be_bytes()).unwrap();
        // What was written since the last sync is the harder part.
        let durability = if number % 500 == 499 { Durability::Sync } else { Durability::Buffered };
        store.write(&batch, durability).unwrap();
        println!("wrote {number}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn written_child() {
    write_until_killed(written_store);
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn mapped_child() {
    write_until_killed(mapped_store);
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn image_child() {
    write_until_killed(image_store);
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn log_child() {
    write_until_killed(log_store);
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn log_image_child() {
    write_until_killed(log_image_store);
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn zones_child() {
    write_until_killed(zones_store);
}

#[test]
#[ignore = "a process of its own, which another test starts"]
fn log_zones_child() {
    write_until_killed(log_zones_store);
}

/// Lets the test `child` write, kills it, and looks; `close` is what becomes of the store then.
fn kill_again_and_again<M: Map>(child: &str, open: impl Fn(&Path) -> Result<M>, close: impl Fn(M)) {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..10 {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", child, "--ignored", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let numbers = lines.filter_map(|line| line.unwrap().rsplit_once("wrote ")?.1.parse::<u64>().ok());
        let wanted = 40 + round * 97 % 700;
        acknowledged = numbers.take(wanted).last().expect("the child writes");
        process.kill().unwrap();
        process.wait().unwrap();
        let store = open(dir.path()).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let next = next_of(&store);
        assert!(next > acknowledged, "round {round}: {acknowledged} was acknowledged, {next} comes next");
        for number in 0..next {
            let value = store.get(&number.to_be_bytes()).unwrap();
            assert_eq!(value, Some(vec![number as u8; 300]), "round {round}: {number} of {next}");
        }
        if round % 3 == 0 {
            close(store);
        }
    }
    assert!(acknowledged > 2000, "only {acknowledged} writes");
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    kill_again_and_again("kill::written_child", written_store, |store| store.close().unwrap());
    kill_again_and_again("kill::mapped_child", mapped_store, |store| store.close().unwrap());
    kill_again_and_again("kill::log_child", log_store, |store| store.close().unwrap());
}

#[test]
fn so_it_is_on_a_flash_image() {
    kill_again_and_again("kill::image_child", image_store, |store| store.close().unwrap());
    kill_again_and_again("kill::log_image_child", log_image_store, |store| store.close().unwrap());
}

/// A raw file as a device, divided into zones, and a directory beside it.
#[test]
fn so_it_is_on_a_raw_file() {
    kill_again_and_again("kill::zones_child", zones_store, |store| store.close().unwrap());
    kill_again_and_again("kill::log_zones_child", log_zones_store, |store| store.close().unwrap());
}
