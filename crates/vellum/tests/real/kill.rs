//! kill -9 of the server under a mounted file system, at random moments: after the kernel's replay every synced file is
//! there, every rewritten page is at least as new as its last sync, and e2fsck finds nothing.
//!
//! The moments are drawn from VELLUM_SEED (printed), 1 by default.

use super::bridge::{BRIDGE_TOOLS, Bridge, NBD_DOOR, Way};
use super::host::{EXT_TOOLS, all_is_well, can_mount, have, kernel_has, sh};
use super::kinds::Kind;
use super::synced::{Synced, seed, until_a_random_moment};
use crate::support::Home;
use std::sync::atomic::Ordering::SeqCst;

const ROUNDS: u64 = 3;

#[test]
fn synced_files_survive_kill_9_of_a_mount() {
    each_file_system(&[Kind::USUAL], &["ext4", "ext3"], EXT_TOOLS, killed_mount);
}

#[test]
fn synced_files_survive_kill_9_of_a_mount_with_dedup_by_code() {
    each_file_system(&Kind::ECC, &["ext4"], EXT_TOOLS, killed_mount);
}

#[test]
fn synced_files_survive_kill_9_of_an_nbd_server() {
    each_file_system(&[Kind::USUAL], &["ext4", "ext3"], BRIDGE_TOOLS, killed_nbd_server);
}

#[test]
fn synced_files_survive_kill_9_of_an_nbd_server_with_dedup_by_code() {
    each_file_system(&Kind::ECC, &["ext4"], BRIDGE_TOOLS, killed_nbd_server);
}

/// A file system on a disk of some kind.
struct Case {
    kind: Kind,
    fs: &'static str,
    data: &'static str,
    seed: u64,
}

impl Case {
    fn when(&self, what: &str) -> String {
        format!("{} on {} {}, {what}, seed {}", self.kind.name(), self.fs, self.data, self.seed)
    }
}

/// Runs a test with each kind, file system and `data=`, if this machine can.
fn each_file_system(kinds: &[Kind], file_systems: &[&'static str], tools: &[&str], test: fn(&Case)) {
    if !can_mount(EXT_TOOLS) || !have(tools) {
        return;
    }
    let seed = seed();
    for kind in kinds {
        for fs in file_systems.iter().copied().filter(|fs| kernel_has(fs)) {
            for data in ["journal", "ordered"] {
                test(&Case { kind: *kind, fs, data, seed });
            }
        }
    }
}

fn killed_mount(case: &Case) {
    let (fs, data, seed) = (case.fs, case.data, case.seed);
    let home = Home::new();
    let opened = case.kind.create(&home, "192MiB");
    let mount = format!("disk mount d mnt --fs {fs} --data {data} --mkfs-options -Jsize=8 {opened}");
    let mut synced = Synced::new();
    for round in 0..ROUNDS {
        let when = case.when(&format!("round {round}"));
        let (mounted, _) = home.start(&mount);
        synced.check(&home.path("mnt"), &when);
        let (count, before) = (synced.count.clone(), synced.count.load(SeqCst));
        let writer = synced.go_on(&home.path("mnt"));
        until_a_random_moment(&count, before, seed << 8 | round);
        mounted.kill();
        synced = writer.join().unwrap();
        assert!(synced.files.len() as u64 > before, "{when}: nothing was synced");
        assert_eq!(home.json("disk check d")["clean"], true, "{when}");
    }
    // Clears the remains, and the kernel replays its journal.
    let (mounted, _) = home.start(&mount);
    synced.check(&home.path("mnt"), &case.when("at the end"));
    assert_eq!(mounted.interrupt().0, 0, "{fs} {data}");
    all_is_well(&home, "d");
    assert_eq!(home.json("disk stat d")["smart"]["unsafe_shutdowns"], ROUNDS, "{fs} {data}");
}

fn killed_nbd_server(case: &Case) {
    let (fs, data, seed) = (case.fs, case.data, case.seed);
    let home = Home::new();
    let opened = case.kind.create(&home, "192MiB");
    let mut synced = Synced::new();
    for round in 0..ROUNDS {
        let when = case.when(&format!("through NBD, round {round}"));
        let (server, _) = home.start(&format!("disk serve d {NBD_DOOR} {opened}"));
        let bridge = Bridge::new(&home, &Way::default());
        if round == 0 {
            sh(&format!("mkfs.{fs} -q -b 4096 -J size=8 {}", bridge.device));
        }
        bridge.mount(fs, &format!("data={data}"));
        synced.check(&home.path("mnt"), &when);
        let (count, before) = (synced.count.clone(), synced.count.load(SeqCst));
        let writer = synced.go_on(&home.path("mnt"));
        until_a_random_moment(&count, before, seed << 8 | 64 | round);
        server.kill();
        synced = writer.join().unwrap();
        drop(bridge);
        assert_eq!(home.json("disk check d")["clean"], true, "{when}");
    }
    let (mounted, _) = home.start(&format!("disk mount d mnt --fs {fs} --data {data} {opened}"));
    synced.check(&home.path("mnt"), &case.when("through NBD, at the end"));
    assert_eq!(mounted.interrupt().0, 0, "{fs} {data}");
    all_is_well(&home, "d");
}
