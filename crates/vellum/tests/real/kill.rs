//! kill -9 of the server below a mounted file system, at random moments: after the kernel's replay every file that
//! was synced is there, every rewritten page is as new as its last sync or newer, and e2fsck finds nothing.
//!
//! The moments are drawn from VELLUM_SEED (printed), 1 if it is not set.

use super::bridge::{BRIDGE_TOOLS, Bridge, NBD_DOOR, Way};
use super::files::{Files, noise};
use super::host::{EXT_TOOLS, all_is_well, beside, can_mount, have, kernel_has, pause_ms, sh, wait_until};
use super::kinds::Kind;
use crate::support::Home;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

const PAGES: u64 = 24;
const ROUNDS: u64 = 3;

/// What is known to be on a file system, whatever happens to its disk.
#[derive(Default)]
struct Synced {
    files: Files,
    /// By page of the file `hot`: the generation whose fdatasync has returned.
    pages: Vec<u64>,
    generation: u64,
    /// Syncs that have returned, for who watches.
    count: Arc<AtomicU64>,
}

impl Synced {
    fn new() -> Synced {
        Synced { pages: vec![0; PAGES as usize], ..Synced::default() }
    }

    /// Writes and syncs below `dir`, beside the test, until the disk is dead.
    fn go_on(mut self, dir: &Path) -> JoinHandle<Synced> {
        let dir = dir.to_path_buf();
        beside(move || {
            while self.step(&dir).is_ok() {
                self.count.fetch_add(1, SeqCst);
            }
            self
        })
    }

    fn step(&mut self, dir: &Path) -> io::Result<()> {
        self.generation += 1;
        let now = self.generation;
        let hot: PathBuf = dir.join("hot");
        let hot = OpenOptions::new().create(true).truncate(false).write(true).open(hot)?;
        let touched = [now * 7 % PAGES, now * 11 % PAGES, now * 13 % PAGES];
        for page in touched {
            hot.write_all_at(&page_content(page, now), page * 4096)?;
        }
        hot.sync_data()?;
        touched.into_iter().for_each(|page| self.pages[page as usize] = now);
        // Overwriting a file is not atomic, so each has a name of its own; every third is deleted soon.
        let size = [100, 4096, 30_000, 200_000][now as usize % 4];
        self.files.write_synced(&dir.join(format!("f{now}")), &noise(now, size))?;
        let scratch = dir.join("scratch");
        std::fs::write(&scratch, noise(!now, 9000))?;
        std::fs::remove_file(scratch)
    }

    /// All of it must be there.
    fn check(&self, dir: &Path, when: &str) {
        self.files.check();
        let Ok(hot) = File::open(dir.join("hot")) else {
            return assert_eq!(self.generation, 0, "{when}: the file is gone");
        };
        for (page, synced) in (0u64..).zip(&self.pages) {
            let mut bytes = vec![0; 4096];
            if *synced > 0 {
                hot.read_exact_at(&mut bytes, page * 4096).unwrap();
                let found = u64::from_le_bytes(bytes[..8].try_into().unwrap());
                assert!(found >= *synced, "{when}: page {page} fell back from {synced} to {found}");
                assert!(bytes == page_content(page, found), "{when}: page {page} is mixed");
            }
        }
    }
}

fn page_content(page: u64, generation: u64) -> Vec<u8> {
    let rest = noise(generation << 8 | page, 4088);
    [&generation.to_le_bytes()[..], &rest].concat()
}

/// Lets the workload get as far as the seed says, and some milliseconds on.
fn until_a_random_moment(count: &AtomicU64, from: u64, seed: u64) {
    let draw = u64::from_le_bytes(noise(seed, 8).try_into().unwrap());
    let syncs = from + 3 + draw % 30;
    wait_until(&format!("{syncs} syncs"), || count.load(SeqCst) >= syncs);
    pause_ms(draw >> 32 & 31);
}

fn seed() -> u64 {
    let seed = std::env::var("VELLUM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    eprintln!("VELLUM_SEED={seed}");
    seed
}

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
