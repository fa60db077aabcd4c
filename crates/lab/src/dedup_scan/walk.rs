//! The walk through directory trees: what there is to read, each file once.

use super::queue::Open;
use super::reader;
use super::{LeftOut, Shared};
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use vellum_base::hash::FixedSet;
use vellum_base::{Error, Result};

/// Files handed over at a time.
const BATCH: usize = 64;

/// File systems of the kernel's own making, which hold no data: proc, sysfs, debugfs, tracefs, securityfs, cgroup,
/// cgroup2, pstore, bpf, configfs (magic numbers of statfs(2)).
const PSEUDO: [u64; 10] = [
    0x9fa0,
    0x6265_6572,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x0027_e0eb,
    0x6367_7270,
    0x6165_676c,
    0xcafe_4a11,
    0x6265_6570,
];

/// What was asked for.
pub enum Root {
    /// A tree.
    Tree(PathBuf, Metadata),
    /// A file or a block device.
    Image(Open, Metadata),
}

/// Looks at the paths. Here, and only here, symbolic links are followed.
pub fn roots(paths: &[PathBuf]) -> Result<Vec<Root>> {
    paths.iter().map(|path| root(path)).collect()
}

/// Walks through all `roots` and hands over what is to be read.
pub fn run(roots: Vec<Root>, cross: bool, shared: &Shared<'_>) -> LeftOut {
    let (left_out, met, batch) = Default::default();
    let mut walk = Walk { shared, cross, left_out, met, batch };
    let (images, trees): (Vec<_>, Vec<_>) =
        roots.into_iter().partition(|root| matches!(root, Root::Image(..)));
    images.into_iter().chain(trees).for_each(|root| walk.root(root));
    walk.hand_over();
    walk.left_out
}

struct Walk<'a, 'b> {
    shared: &'a Shared<'b>,
    cross: bool,
    left_out: LeftOut,
    /// Device and inode of directories, of files with several names, and of files that were asked for.
    met: FixedSet<(u64, u64)>,
    batch: Batch,
}

#[derive(Default)]
struct Batch {
    files: Vec<PathBuf>,
    bytes: u64,
}

fn root(path: &Path) -> Result<Root> {
    let failed = |e| Error::io(path.display(), e);
    let meta = path.metadata().map_err(failed)?;
    if meta.is_dir() {
        if is_pseudo(path) {
            return Err(Error::invalid(format!("{}: the kernel makes these files up", path.display())));
        }
        std::fs::read_dir(path).map_err(failed)?;
        return Ok(Root::Tree(path.to_path_buf(), meta));
    }
    if !meta.is_file() && !meta.file_type().is_block_device() {
        return Err(Error::invalid(format!("{}: no directory, file or block device", path.display())));
    }
    Ok(Root::Image(reader::open_named(path).map_err(failed)?, meta))
}

fn is_pseudo(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|fs| PSEUDO.contains(&(fs.f_type as u64)))
}

impl Walk<'_, '_> {
    fn root(&mut self, root: Root) {
        match root {
            Root::Image(file, meta) => {
                let first = match meta.is_file() {
                    true => self.met.insert((meta.dev(), meta.ino())),
                    // A device is told from others by its own number.
                    false => self.met.insert((u64::MAX, meta.rdev())),
                };
                if !first {
                    self.left_out.hard_links += 1;
                    return;
                }
                self.shared.progress.expect_more(file.bytes);
                self.shared.queue.push_large(file);
            }
            Root::Tree(path, meta) => self.tree(path, &meta),
        }
    }

    fn tree(&mut self, path: PathBuf, meta: &Metadata) {
        if !self.met.insert((meta.dev(), meta.ino())) {
            return; // within another tree that was asked for
        }
        let mut left = vec![(path, meta.dev())];
        while let Some((path, device)) = left.pop() {
            match std::fs::read_dir(&path) {
                Err(e) => self.shared.troubles.error(&path, &e),
                Ok(entries) => {
                    for entry in entries {
                        match entry {
                            Err(e) => self.shared.troubles.error(&path, &e),
                            Ok(entry) => self.entry(&entry, device, &mut left),
                        }
                    }
                }
            }
        }
    }

    fn entry(&mut self, entry: &std::fs::DirEntry, device: u64, left: &mut Vec<(PathBuf, u64)>) {
        let meta = match entry.metadata() {
            Ok(meta) => meta,
            Err(e) => return self.shared.troubles.error(&entry.path(), &e),
        };
        if meta.is_symlink() {
            self.left_out.symlinks += 1;
        } else if !meta.is_dir() && !meta.is_file() {
            self.left_out.special += 1;
        } else if meta.is_file() {
            self.file(entry, &meta);
        } else if meta.dev() != device && (!self.cross || is_pseudo(&entry.path())) {
            self.left_out.other_file_systems += 1;
        } else if self.met.insert((meta.dev(), meta.ino())) {
            left.push((entry.path(), meta.dev()));
        }
    }

    fn file(&mut self, entry: &std::fs::DirEntry, meta: &Metadata) {
        let id = (meta.dev(), meta.ino());
        let again = match meta.nlink() {
            1 => self.met.contains(&id),
            _ => !self.met.insert(id),
        };
        if again {
            self.left_out.hard_links += 1;
            return;
        }
        self.batch.files.push(entry.path());
        self.batch.bytes += meta.len();
        if self.batch.files.len() == BATCH {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        if !batch.files.is_empty() {
            self.shared.progress.expect_more(batch.bytes);
            self.shared.queue.push_files(batch.files);
        }
    }
}
