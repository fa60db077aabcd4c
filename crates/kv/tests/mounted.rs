//! Small file systems of their own, for who may mount them.

use crate::harness::skipped;
use std::path::PathBuf;
use std::process::Command;

/// A file system that is there as long as this.
pub(crate) struct Mounted {
    pub root: PathBuf,
    /// Where it is, if it is not in memory.
    image: PathBuf,
    _dir: tempfile::TempDir,
}

fn done(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|done| done.status.success())
}

impl Mounted {
    /// Small ones, of each kind that this user may make.
    pub(crate) fn all() -> Vec<Mounted> {
        [tmpfs, ext4].into_iter().filter_map(|make| Mounted::at(make, 40 << 20)).collect()
    }

    /// One of ext4 of so many bytes.
    pub(crate) fn ext4(bytes: u64) -> Option<Mounted> {
        Mounted::at(ext4, bytes)
    }

    /// One in memory.
    pub(crate) fn tmpfs(bytes: u64) -> Option<Mounted> {
        Mounted::at(tmpfs, bytes)
    }

    /// Mounts it anew, to be read: nothing of it is in memory then.
    pub(crate) fn remount(&self) {
        let root = self.root.display().to_string();
        assert!(done("umount", &[&root]));
        assert!(done("mount", &["-o", "loop,ro", &self.image.display().to_string(), &root]));
    }

    /// The device ends after so many bytes.
    pub(crate) fn lose_all_but(&self, bytes: u64) {
        std::fs::File::options()
            .write(true)
            .open(&self.image)
            .and_then(|image| image.set_len(bytes))
            .unwrap();
    }

    fn at(make: fn(&str, &str, u64) -> bool, bytes: u64) -> Option<Mounted> {
        let dir = tempfile::tempdir().unwrap();
        let (root, image) = (dir.path().join("root"), dir.path().join("image"));
        std::fs::create_dir(&root).unwrap();
        if !make(&root.display().to_string(), &image.display().to_string(), bytes) {
            skipped("one kind of file system cannot be made or mounted here");
            return None;
        }
        Some(Mounted { root, image, _dir: dir })
    }
}

fn tmpfs(root: &str, _: &str, bytes: u64) -> bool {
    done("mount", &["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs", root])
}

fn ext4(root: &str, image: &str, bytes: u64) -> bool {
    let made = std::fs::File::create(image).and_then(|file| file.set_len(bytes)).is_ok();
    made && done("mkfs.ext4", &["-q", "-m", "0", image]) && done("mount", &["-o", "loop", image, root])
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = done("umount", &[&self.root.display().to_string()]);
        assert!(unmounted || std::thread::panicking(), "{} stays mounted", self.root.display());
    }
}
