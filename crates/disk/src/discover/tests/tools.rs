//! File systems made by the real tools on sparse files, and their journals according to debugfs.

use super::discover::{Discovery, FileSystem, Journal, JournalState, Sectors, discover};
use super::image::{Image, discover_checked};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;
use vellum_base::{Error, Lba, Result, SECTOR_BYTES};

/// A disk in a sparse file.
pub struct Disk {
    folder: TempDir,
    pub path: PathBuf,
}

/// Makes a disk of `mib`; if a tool is missing, prints so and returns `None`.
pub fn disk(mib: u64, tools: &[&str]) -> Option<Disk> {
    if let Some(missing) = tools.iter().find(|tool| !has(tool)) {
        eprintln!("skipped: {missing} is not installed");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    File::create(&path).unwrap().set_len(mib << 20).unwrap();
    Some(Disk { folder, path })
}

pub const E2FS: [&str; 4] = ["mke2fs", "debugfs", "tune2fs", "dumpe2fs"];

fn has(tool: &str) -> bool {
    search_path().split(':').any(|folder| Path::new(folder).join(tool).exists())
}

fn search_path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

/// Runs a tool with `input` as its input. Returns its output, with the errors if it failed.
pub fn try_run(tool: &str, arguments: &[&str], input: &str) -> std::result::Result<String, String> {
    let mut child = Command::new(tool)
        .args(arguments)
        .env("PATH", search_path())
        .env("DEBUGFS_PAGER", "cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(printed),
        false => Err(format!("{tool} {arguments:?}: {printed}{}", String::from_utf8_lossy(&output.stderr))),
    }
}

pub fn run(tool: &str, arguments: &[&str]) -> String {
    try_run(tool, arguments, "").unwrap_or_else(|error| panic!("{error}"))
}

impl Disk {
    pub fn name(&self) -> &str {
        self.path.to_str().unwrap()
    }

    pub fn other(&self, name: &str, mib: u64) -> PathBuf {
        let path = self.folder.path().join(name);
        File::create(&path).unwrap().set_len(mib << 20).unwrap();
        path
    }

    /// Runs mke2fs with `options`; further arguments (sizes) may follow the device.
    pub fn mke2fs(&self, options: &str) -> &Disk {
        let mut words: Vec<&str> = vec!["-q", "-F"];
        words.extend(options.split_whitespace());
        words.push(self.name());
        run("mke2fs", &words);
        self
    }

    /// Makes a file system of `blocks` blocks that starts at byte `at`.
    pub fn mke2fs_at(&self, options: &str, at: u64, blocks: u64) -> &Disk {
        let (offset, blocks) = (format!("offset={at}"), blocks.to_string());
        let mut words: Vec<&str> = vec!["-q", "-F", "-E", &offset];
        words.extend(options.split_whitespace());
        words.extend([self.name(), &blocks]);
        run("mke2fs", &words);
        self
    }

    pub fn tune2fs(&self, options: &str) -> &Disk {
        let mut words: Vec<&str> = options.split_whitespace().collect();
        words.push(self.name());
        run("tune2fs", &words);
        self
    }

    /// Asks debugfs about the file system at byte `at`.
    pub fn debugfs(&self, at: u64, question: &str) -> String {
        run("debugfs", &["-R", question, &format!("{}?offset={at}", self.name())])
    }

    /// Changes the file system at byte 0 with debugfs.
    pub fn edit(&self, command: &str) {
        run("debugfs", &["-w", "-R", command, self.name()]);
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        File::options().write(true).open(&self.path).unwrap().write_all_at(bytes, at).unwrap();
    }

    pub fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        File::open(&self.path).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub fn set_bytes(&self, bytes: u64) {
        File::options().write(true).open(&self.path).unwrap().set_len(bytes).unwrap();
    }

    /// Discovers, and checks that the watched sectors alone give the same result.
    pub fn discover(&self) -> Discovery {
        let found = discover(&mut FileDisk(File::open(&self.path).unwrap()));
        assert_eq!(discover_checked(&mut self.watched(&found)), found);
        found
    }

    /// The watched sectors of the disk.
    pub fn watched(&self, found: &Discovery) -> Image {
        let mut disk = FileDisk(File::open(&self.path).unwrap());
        let mut image = Image { sectors: disk.sectors(), ..Image::default() };
        for lba in found.watch() {
            let mut content = [0; SECTOR_BYTES];
            disk.read(lba, &mut content).unwrap();
            image.content.insert(lba.0, content);
        }
        image
    }

    /// The blocks of inode `inode` in logical order, according to debugfs, of the file system at byte `at`.
    pub fn debugfs_blocks(&self, at: u64, inode: u32) -> Vec<Range<u64>> {
        let text = self.debugfs(at, &format!("stat <{inode}>"));
        let (_, map) = text.split_once("BLOCKS:\n").or_else(|| text.split_once("EXTENTS:\n")).unwrap();
        let mut pieces: Vec<Range<u64>> = Vec::new();
        for item in map.lines().next().unwrap().split(", ") {
            let (logical, physical) = item.split_once("):").unwrap();
            if logical.starts_with("(ETB") || logical.ends_with("IND") {
                continue;
            }
            let (first, last) = physical.split_once('-').unwrap_or((physical, physical));
            let (first, end) = (first.parse().unwrap(), last.parse::<u64>().unwrap() + 1);
            match pieces.last_mut() {
                Some(before) if before.end == first => before.end = end,
                _ => pieces.push(first..end),
            }
        }
        pieces
    }

    /// Sectors of the superblocks and group descriptors according to `dumpe2fs`, of the file system at byte 0.
    pub fn copies(&self) -> BTreeSet<u64> {
        let block_sectors = u64::from(self.dumpe2fs("Block size").unwrap()) as f64 / SECTOR_BYTES as f64;
        let text = run("dumpe2fs", &[self.name()]);
        let names =
            ["superblock at ", "Group descriptors at ", "Group descriptor at ", "Reserved GDT blocks at "];
        let mut sectors = BTreeSet::new();
        for line in text.lines().filter(|line| line.starts_with("  ")) {
            for after in names.iter().filter_map(|name| Some(line.split_once(name)?.1)) {
                let numbers: Vec<u64> = after
                    .split(',')
                    .next()
                    .unwrap_or_default()
                    .split('-')
                    .map(|n| n.trim().parse().unwrap())
                    .collect();
                let (first, last) = (numbers[0] as f64, numbers[numbers.len() - 1] as f64 + 1.0);
                let (first, end) = ((first * block_sectors).floor(), (last * block_sectors).ceil());
                sectors.extend(first as u64..end as u64);
            }
        }
        sectors
    }

    /// A number from `dumpe2fs -h` of the file system at byte 0, such as "Total journal blocks".
    pub fn dumpe2fs(&self, name: &str) -> Option<u32> {
        let text = run("dumpe2fs", &["-h", self.name()]);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().parse().ok()
    }
}

/// The only journal found, which must be the same as in debugfs: the same blocks in the same order.
pub fn same_as_debugfs(disk: &Disk, found: &Discovery, inode: u32) -> Journal {
    let journals: Vec<_> = found.journals().collect();
    let [(fs, journal)] = journals[..] else { panic!("not one journal: {found:?}") };
    assert_extents(fs, journal, &disk.debugfs_blocks(fs.region_bytes.start, inode));
    journal.clone()
}

pub fn assert_extents(fs: &FileSystem, journal: &Journal, blocks: &[Range<u64>]) {
    let sector = |block: u64| {
        let byte = fs.region_bytes.start + block * fs.block_bytes as u64;
        Lba(byte / SECTOR_BYTES as u64)
    };
    let expected: Vec<_> = blocks.iter().map(|piece| sector(piece.start)..sector(piece.end)).collect();
    assert_eq!(journal.extents, expected);
}

/// The reason why there is nothing to gain, if there is exactly one file system.
pub fn only_reason(found: &Discovery) -> &str {
    match &found.file_systems[..] {
        [FileSystem { journal: JournalState::NoBenefit { reason }, .. }] => reason,
        other => panic!("not one file system without benefit: {other:?}"),
    }
}

struct FileDisk(File);

impl Sectors for FileDisk {
    fn read(&mut self, lba: Lba, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        let at = lba.0 * SECTOR_BYTES as u64;
        self.0.read_exact_at(out, at).map_err(|error| Error::io("read the disk", error))
    }
    fn sectors(&self) -> u64 {
        self.0.metadata().unwrap().len() / SECTOR_BYTES as u64
    }
}
