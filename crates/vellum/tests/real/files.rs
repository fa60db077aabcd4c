//! Workloads on a file system, and checks of the result.

use super::host::{have, sh};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const JBD2_MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];

/// Name and hash of every file.
#[derive(Default)]
pub struct Files {
    hashes: BTreeMap<PathBuf, u64>,
}

impl Files {
    /// Writes small, large, sparse, overwritten and deleted files below `dir`, and syncs.
    pub fn write(dir: &Path, seed: u64) -> Files {
        small(dir, seed);
        fs::write(dir.join("big"), noise(seed + 1000, 9 << 20)).unwrap();
        let sparse = File::create(dir.join("sparse")).unwrap();
        for number in 0..20 {
            sparse.write_all_at(&noise(seed + 1500 + number, 5000), number * 777_777).unwrap();
        }
        overwritten(&dir.join("hot"), seed);
        // What a journal must escape: blocks that begin with its magic number.
        let mut magic = noise(seed + 3000, 40 * 4096);
        magic.chunks_mut(4096).for_each(|block| block[..4].copy_from_slice(&JBD2_MAGIC));
        fs::write(dir.join("magic"), magic).unwrap();
        rustix::fs::syncfs(File::open(dir).unwrap()).unwrap();
        Files::of(dir)
    }

    /// Typical work: a git repository with a few commits, and an SQLite database that commits often.
    pub fn work(dir: &Path) -> Files {
        if have(&["git"]) {
            let git =
                format!("cd {} && git -c init.defaultBranch=main init -q repo && cd repo", dir.display());
            let commit = "git -c user.name=a -c user.email=a@b commit -q -m";
            sh(&format!(
                "{git} && for i in 1 2 3 4 5; do seq $i $((i * 3000)) >f$i; seq $i 900 >f0; git add . && \
                 {commit} $i; done && git gc -q && git fsck --strict"
            ));
        }
        if have(&["sqlite3"]) {
            let db = dir.join("db").display().to_string();
            let insert = "INSERT INTO t(x) SELECT hex(randomblob(200)) FROM generate_series(1, 5)";
            let updates = "UPDATE t SET x = hex(randomblob(150)) WHERE id % 7 = 3;";
            let script = format!("{}{updates}", format!("{insert};").repeat(60));
            let setup = "PRAGMA synchronous=FULL; CREATE TABLE t(id INTEGER PRIMARY KEY, x TEXT);";
            sh(&format!("sqlite3 {db} '{setup}{script}'"));
        }
        rustix::fs::syncfs(File::open(dir).unwrap()).unwrap();
        Files::of(dir)
    }

    /// The tools find what [`Files::work`] wrote intact.
    #[track_caller]
    pub fn work_is_whole(dir: &Path) {
        if dir.join("repo").exists() {
            sh(&format!("git -C {} fsck --strict && git -C {0} status", dir.join("repo").display()));
        }
        if dir.join("db").exists() {
            let said = sh(&format!("sqlite3 {} 'PRAGMA integrity_check'", dir.join("db").display()));
            assert_eq!(said.trim(), "ok");
        }
    }

    /// Writes a file, syncs it and its directory, and records it. Fails if the file system does.
    pub fn write_synced(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        File::open(path.parent().unwrap())?.sync_all()?;
        self.hashes.insert(path.to_path_buf(), hash(bytes));
        Ok(())
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.hashes.len()
    }

    /// Every file must be there with its content.
    #[track_caller]
    pub fn check(&self) {
        for (path, expected) in &self.hashes {
            let bytes = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert_eq!(hash(&bytes), *expected, "{} ({} bytes) has changed", path.display(), bytes.len());
        }
    }

    fn of(dir: &Path) -> Files {
        let mut files = Files::default();
        files.take(dir);
        assert!(files.len() > 2);
        files
    }

    fn take(&mut self, dir: &Path) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if path.ends_with("lost+found") => {}
                true => self.take(&path),
                false => drop(self.hashes.insert(path.clone(), hash(&fs::read(&path).unwrap()))),
            }
        }
    }
}

/// Bytes without repetition, determined by `seed`.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        out.extend(next().to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// A few hundred files in directories; every fifth is deleted again.
fn small(dir: &Path, seed: u64) {
    let name = |number: u64| dir.join(format!("d{}", number % 12)).join(number.to_string());
    for number in 0..240 {
        fs::create_dir_all(name(number).parent().unwrap()).unwrap();
        let size = [0, 17, 4096, 70_000][number as usize % 4];
        fs::write(name(number), noise(seed + number, size)).unwrap();
    }
    for number in (0..240).step_by(5) {
        fs::remove_file(name(number)).unwrap();
    }
}

/// Small random writes to a small file, with fdatasync after every fourth.
fn overwritten(path: &Path, seed: u64) {
    let hot = File::create(path).unwrap();
    for number in 0..120u64 {
        let offset = (number * 7919 % 64) * 4096 + number % 3 * 100;
        hot.write_all_at(&noise(seed + 2000 + number, 3000), offset).unwrap();
        if number % 4 == 3 {
            hot.sync_data().unwrap();
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
