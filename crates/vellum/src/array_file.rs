//! The file that names the devices of an array. What they are good for is on the devices; this only says where they
//! are.
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

/// Longest file that is read.
const BYTES_MAX: u64 = 1 << 20;

/// See the module. Paths are relative to the file's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArrayFile {
    /// The array's id, hexadecimal. A file without it means the array that most of its devices are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<String>,
    /// Files or block devices.
    pub members: Vec<PathBuf>,
    /// Where records go, if not to the members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// The SSD that is its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<PathBuf>,
    /// What keeps what the cache knows over a power cut.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvram: Option<PathBuf>,
    /// A member's device that another is to replace, and is being filled for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replacing: Option<Replacing>,
}

/// Which device takes whose place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Replacing {
    /// One of the members.
    pub old: PathBuf,
    /// It counts as soon as its superblock says so.
    pub new: PathBuf,
    /// What was drawn when it was prepared, hexadecimal: without it on the device that is another one.
    #[serde(default)]
    pub mark: String,
}

/// Devices that were opened.
pub struct Devices {
    /// Those of the members, with the paths as the file has them.
    pub members: Vec<(PathBuf, Device)>,
    /// The log's.
    pub log: Option<Device>,
    /// The cache's.
    pub cache: Option<Device>,
    /// The cache's NVRAM.
    pub nvram: Option<Device>,
    /// Members, the log, the cache or its NVRAM, that could not be opened, and why.
    pub absent: Vec<(PathBuf, Error)>,
}

impl ArrayFile {
    /// Reads it.
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

    /// Writes a new one beside where it is to be; nothing may be there.
    pub fn draft(self, path: &Path) -> Result<Draft> {
        if path.symlink_metadata().is_ok() {
            return Err(Error::invalid(format!("{} exists already", path.display())));
        }
        Draft::write(self, path, None)
    }

    /// Changes it. Others who change it wait, also in other processes.
    pub fn edit(path: &Path, change: impl FnOnce(&mut ArrayFile)) -> Result<()> {
        ArrayFile::prepare(path, change)?.commit()
    }

    /// The same up to the moment where the change counts: for what must not be done if it cannot be written.
    pub fn prepare(path: &Path, change: impl FnOnce(&mut ArrayFile)) -> Result<Draft> {
        let alone = lock(path)?;
        let mut named = ArrayFile::load(path)?;
        change(&mut named);
        Draft::write(named, path, Some(alone))
    }

    /// Whether it names the device, as a member or as what is to be one.
    pub fn names(&self, device: &Path) -> bool {
        self.members.iter().chain(self.replacing.as_ref().map(|r| &r.new)).any(|named| named == device)
    }

    /// Refuses a device that it names already, by whatever path. `at` is where the file is.
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

    /// Refuses a device that it names twice, by whatever paths: the second opening would find it in use.
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

    /// What each device is.
    fn parts(&self) -> Vec<(&'static str, &PathBuf)> {
        let parts = [("log", &self.log), ("cache", &self.cache), ("cache's NVRAM", &self.nvram)];
        let parts = parts.into_iter().filter_map(|(part, path)| Some((part, path.as_ref()?)));
        self.members.iter().map(|path| ("member", path)).chain(parts).collect()
    }

    /// Opens the devices. Members that cannot be opened are named, unless somebody else has them: that is an error.
    pub fn open(&self, at: &Path) -> Result<Devices> {
        self.check_each_once(at).map_err(|error| error.context(at.display()))?;
        self.open_by(at, FileDisk::open)
    }

    /// The same to look at them only, also while somebody else has them: nobody is kept from anything.
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

/// Where a path of the file at `at` leads.
fn real(at: &Path, path: &Path) -> PathBuf {
    let path = at.parent().unwrap_or(Path::new("")).join(path);
    let there = path.canonicalize().ok();
    // What is to be made is not there yet, its directory is.
    let parent = path.parent().map(|parent| if parent == Path::new("") { Path::new(".") } else { parent });
    let beside = || Some(parent?.canonicalize().ok()?.join(path.file_name()?));
    there.or_else(beside).unwrap_or(path)
}

/// Locks the file that is there now: while it was waited for another may have taken its place.
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
