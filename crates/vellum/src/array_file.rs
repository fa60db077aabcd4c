//! The file that names the devices of an array. Their state is on the devices; this only says where they are.
//!
//! ```toml
//! array = "5f0e..." # its id: devices that another array has taken are not it
//! members = ["d0.img", "/dev/sdb", "/dev/sdc"]
//! log = "nvram.img" # only if the log is on a device of its own
//! cache = "ssd.img" # only if there is one
//! nvram = "nvram.img" # beside a cache, only if it has one
//! [replacing] # only while one member's device is copied to another
//! old = "d0.img"
//! new = "d4.img"
//! mark = "..." # what the new device says until it counts
//! ```

mod draft;

pub use draft::Draft;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_array::{Device, examine, survey};
use vellum_base::{Error, Kind, Result};
use vellum_media::FileDisk;

/// Largest file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// See the module. Paths are relative to the file's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayFile {
    /// The array's id, in hexadecimal. Without it, the file means the array to which most of its devices belong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// Files or block devices.
    pub members: Vec<PathBuf>,
    /// Device of the log, if that is not on the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// The SSD used as its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// Preserves the cache's state across a power cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvram: Option<PathBuf>,
    /// A member's device that is being replaced by another, which is being filled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<Replacing>,
}

/// A replacement in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacing {
    /// Device of one of the members.
    pub old: PathBuf,
    /// The new device; it counts as soon as its superblock says so.
    pub new: PathBuf,
    /// Random id from its preparation, in hexadecimal; a device without it is another one.
    #[serde(default)]
    pub mark: String,
}

/// Opened devices.
pub struct Devices {
    /// Those of the members, with their paths as in the file.
    pub members: Vec<(PathBuf, Device)>,
    /// The log device.
    pub log: Option<Device>,
    /// The cache's SSD.
    pub cache: Option<Device>,
    /// The cache's NVRAM.
    pub nvram: Option<Device>,
    /// Devices of members, log, cache or NVRAM that could not be opened, and why.
    pub absent: Vec<(PathBuf, Error)>,
}

impl ArrayFile {
    /// Reads the file at `path`.
    pub fn load(path: &Path) -> Result<ArrayFile> {
        let said = |e: std::io::Error| match e.kind() {
            ErrorKind::NotFound => Error::new(
                Kind::Io,
                format!(
                    "{} is not there: `vellum array create` makes an array, and this file of it",
                    path.display()
                ),
            ),
            ErrorKind::IsADirectory => Error::invalid(format!("{} is a directory", path.display())),
            _ => Error::io(format!("read {}", path.display()), e),
        };
        let bytes = std::fs::metadata(path).map_err(said)?.len();
        if bytes > BYTES_MAX {
            return Err(Error::invalid(format!("{} is no file of an array: it is too long", path.display())));
        }
        let text = std::fs::read_to_string(path).map_err(said)?;
        toml::from_str(&text).map_err(|e| Error::invalid(format!("{}: {e}", path.display())))
    }

    /// Writes a new file beside `path`, where there must be none yet.
    pub fn draft(self, path: &Path) -> Result<Draft> {
        if path.symlink_metadata().is_ok() {
            return Err(Error::invalid(format!("{} exists already", path.display())));
        }
        Draft::write(self, path, None)
    }

    /// Changes the file. Concurrent changes wait for each other, also across processes.
    pub fn edit(path: &Path, change: impl FnOnce(&mut ArrayFile)) -> Result<()> {
        ArrayFile::prepare(path, change)?.commit()
    }

    /// Like [`ArrayFile::edit`] up to the point where it takes effect: for actions that need the change to be writable.
    pub fn prepare(path: &Path, change: impl FnOnce(&mut ArrayFile)) -> Result<Draft> {
        let alone = lock(path)?;
        let mut named = ArrayFile::load(path)?;
        change(&mut named);
        Draft::write(named, path, Some(alone))
    }

    /// Whether it names the device, as a member or as a replacement.
    pub fn names(&self, device: &Path) -> bool {
        self.members.iter().chain(self.replacing.as_ref().map(|r| &r.new)).any(|named| named == device)
    }

    /// Refuses a device that it already names, by any path. `at` is the path of the file.
    pub fn check_other(&self, at: &Path, device: &Path) -> Result<()> {
        let wanted = real(at, device);
        match self.parts().into_iter().find(|(_, path)| real(at, path) == wanted) {
            Some((part, path)) => Err(Error::invalid(format!(
                "{} is the array's own: it is its {part} {} already",
                device.display(),
                path.display()
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a device that it names twice, by any paths: the second opening would find it in use.
    pub fn check_each_once(&self, at: &Path) -> Result<()> {
        let mut seen = BTreeMap::new();
        for (part, path) in self.parts() {
            let Some((before, as_path)) = seen.insert(real(at, path), (part, path)) else { continue };
            return Err(Error::invalid(format!(
                "one device is named twice: as {before} {} and as {part} {}",
                as_path.display(),
                path.display()
            )));
        }
        Ok(())
    }

    /// All devices, each with its function.
    fn parts(&self) -> Vec<(&'static str, &PathBuf)> {
        let parts = [("log", &self.log), ("cache", &self.cache), ("cache's NVRAM", &self.nvram)];
        let parts = parts.into_iter().filter_map(|(part, path)| Some((part, path.as_ref()?)));
        self.members.iter().map(|path| ("member", path)).chain(parts).collect()
    }

    /// Opens the devices. Members that cannot be opened are listed, except that a device in use is an error.
    pub fn open(&self, at: &Path) -> Result<Devices> {
        self.check_each_once(at).map_err(|error| error.context(at.display()))?;
        self.open_by(at, FileDisk::open)
    }

    /// Opens the devices read-only, even while they are in use, and does not lock them.
    pub fn look(&self, at: &Path) -> Result<Devices> {
        self.open_by(at, FileDisk::look)
    }

    fn open_by(&self, at: &Path, open: impl Fn(&Path) -> Result<FileDisk>) -> Result<Devices> {
        let base = at.parent().unwrap_or(Path::new(""));
        let mut devices =
            Devices { members: Vec::new(), log: None, cache: None, nvram: None, absent: Vec::new() };
        for member in &self.members {
            match open(&base.join(member)) {
                Ok(disk) => devices.members.push((member.clone(), Arc::new(disk))),
                Err(error) if error.kind() == Kind::Busy => return Err(error),
                Err(error) => devices.absent.push((member.clone(), error)),
            }
        }
        let replacing = self.replacing.as_ref().filter(|replacing| !self.members.contains(&replacing.new));
        if let Some(Replacing { new, .. }) = replacing {
            let array = |device: &Device| examine(device).ok().map(|found| found.array);
            let members: Vec<Device> = devices.members.iter().map(|(_, device)| device.clone()).collect();
            let ours = survey(&members).ok().map(|survey| survey.newest.array);
            match open(&base.join(new)) {
                Ok(disk) => {
                    let disk: Device = Arc::new(disk);
                    devices
                        .members
                        .extend((ours.is_some() && array(&disk) == ours).then(|| (new.clone(), disk)));
                }
                Err(error) if error.kind() == Kind::Busy => return Err(error),
                Err(error) => devices.absent.push((new.clone(), error)),
            }
        }
        for (path, place) in [
            (&self.log, &mut devices.log),
            (&self.cache, &mut devices.cache),
            (&self.nvram, &mut devices.nvram),
        ] {
            let Some(path) = path else { continue };
            match open(&base.join(path)) {
                Ok(disk) => *place = Some(Arc::new(disk)),
                Err(error) if error.kind() == Kind::Busy => return Err(error),
                Err(error) => devices.absent.push((path.clone(), error)),
            }
        }
        Ok(devices)
    }
}

/// Resolves a path in the file at `at`.
fn real(at: &Path, path: &Path) -> PathBuf {
    let path = at.parent().unwrap_or(Path::new("")).join(path);
    let there = path.canonicalize().ok();
    // A file that is yet to be made does not exist, but its directory does.
    let parent = path.parent().map(|parent| if parent == Path::new("") { Path::new(".") } else { parent });
    let beside = || Some(parent?.canonicalize().ok()?.join(path.file_name()?));
    there.or_else(beside).unwrap_or(path)
}

/// Locks the file that is there now: while waiting for the lock, it may have been replaced by another.
fn lock(path: &Path) -> Result<File> {
    let lock = || loop {
        let file = File::open(path)?;
        file.lock()?;
        let (ours, now) = (file.metadata()?, std::fs::metadata(path)?);
        if (ours.dev(), ours.ino()) == (now.dev(), now.ino()) {
            return Ok(file);
        }
    };
    lock().map_err(|e| Error::io(format!("lock {}", path.display()), e))
}
