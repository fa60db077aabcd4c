//! A process that is killed in the middle of its writes, on real files: what it was told is there survives it.

use crate::harness::{directory, open};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use vellum_kv::{Batch, Bounds, Durability, Store};

/// Tells the child where to write.
const CHILD: &str = "VELLUM_KV_KILL_CHILD";

fn next_of(store: &Store) -> u64 {
    let mut iter = store.iter(Bounds::all()).unwrap();
    iter.seek_to_last().unwrap();
    if iter.is_valid() { u64::from_be_bytes(iter.key().try_into().unwrap()) + 1 } else { 0 }
}

/// Writes numbers from where the store ends, and says each that was acknowledged. Does nothing unless told to.
#[test]
fn child() {
    let Ok(dir) = std::env::var(CHILD) else { return };
    let store = open(directory(Path::new(&dir))).unwrap();
    for number in next_of(&store).. {
        let mut batch = Batch::new();
        batch.put(&number.to_be_bytes(), &[number as u8; 300]).unwrap();
        store.write(&batch, Durability::Buffered).unwrap();
        println!("wrote {number}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn a_killed_process_loses_nothing_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..12 {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture"])
            .env(CHILD, dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let numbers = lines.filter_map(|line| line.unwrap().rsplit_once("wrote ")?.1.parse::<u64>().ok());
        let wanted = 40 + round * 97 % 700;
        acknowledged = numbers.take(wanted as usize).last().expect("the child writes");
        process.kill().unwrap();
        process.wait().unwrap();
        let store = open(directory(dir.path())).unwrap_or_else(|e| panic!("round {round}: {e}"));
        let next = next_of(&store);
        assert!(next > acknowledged, "round {round}: {acknowledged} was acknowledged, {next} comes next");
        for number in 0..next {
            let value = store.get(&number.to_be_bytes()).unwrap();
            assert_eq!(value, Some(vec![number as u8; 300]), "round {round}: {number} of {next}");
        }
        if round % 3 == 0 {
            store.close().unwrap();
        }
    }
    assert!(acknowledged > 2000, "only {acknowledged} writes");
}
