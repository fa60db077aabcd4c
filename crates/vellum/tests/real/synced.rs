//! A workload that records what it has synced, for tests in which the disk below can disappear at any moment.

use super::files::{Files, noise};
use super::host::{beside, pause_ms, wait_until};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

const PAGES: u64 = 24;

/// What must be on a file system, whatever happens to its disk.
#[derive(Default)]
pub struct Synced {
    pub files: Files,
    /// By page of the file `hot`: the last generation whose fdatasync has returned.
    pages: Vec<u64>,
    generation: u64,
    /// Number of syncs that have returned, for observers.
    pub count: Arc<AtomicU64>,
}

impl Synced {
    /// Nothing synced yet.
    pub fn new() -> Synced {
        Synced { pages: vec![0; PAGES as usize], ..Synced::default() }
    }

    /// Writes and syncs below `dir`, concurrently with the test, until the disk is dead.
    pub fn go_on(mut self, dir: &Path) -> JoinHandle<Synced> {
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
        // Overwriting a file is not atomic, so each has its own name; every third is deleted soon.
        let size = [100, 4096, 30_000, 200_000][now as usize % 4];
        self.files.write_synced(&dir.join(format!("f{now}")), &noise(now, size))?;
        let scratch = dir.join("scratch");
        std::fs::write(&scratch, noise(!now, 9000))?;
        std::fs::remove_file(scratch)
    }

    /// Checks that all of it is there.
    #[track_caller]
    pub fn check(&self, dir: &Path, when: &str) {
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

/// Waits until the workload has got as far as the seed says, and some milliseconds more.
pub fn until_a_random_moment(count: &AtomicU64, from: u64, seed: u64) {
    let draw = u64::from_le_bytes(noise(seed, 8).try_into().unwrap());
    let syncs = from + 3 + draw % 30;
    wait_until(&format!("{syncs} syncs"), || count.load(SeqCst) >= syncs);
    pause_ms(draw >> 32 & 31);
}

/// The seed from VELLUM_SEED, which is printed; 1 by default.
pub fn seed() -> u64 {
    let seed = std::env::var("VELLUM_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    eprintln!("VELLUM_SEED={seed}");
    seed
}
