//! `array create`.

use super::cache::{CacheArgs, attach};
use super::made::Made;
use super::order::Order;
use super::take::Take;
use super::target::Target;
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;
use clap::ValueEnum;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum::Size;
use vellum::array::layout::MEMBERS_MAX;
use vellum::array::{Device, Format, Level, LogPlace, create, examine, hex, take_back};
use vellum::array_file::ArrayFile;
use vellum::base::size::format_size;
use vellum::base::{Error, Kind, RealEnv, SECTOR_BYTES};
use vellum::media::FileDisk;

/// Make an array of files or block devices, whose contents are lost
#[derive(clap::Args)]
#[command(after_help = "\
FILE names the devices from then on; paths that are not absolute begin where FILE is. Devices are
zeroed, so that parity is right at once; with --size those that are not there are made as sparse
files. --size is the size of each. Keep room for them: when their file system is full the array
takes no writes until there is room and it is opened again.

Example:
  vellum array create a.toml --level 5 --members /dev/sdb /dev/sdc /dev/sdd --erase
  vellum array create a.toml --level 6 --chunk 64KiB --size 1GiB --members d0 d1 d2 d3 d4
  vellum array create a.toml --level 5 --size 1GiB --members d0 d1 d2 d3 --cache ssd.img

Exit codes: 0 made, 2 usage, 3 I/O, 5 a device is in use, or holds an array")]
pub struct Args {
    /// The file to make
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How many members may be lost: 5 (one) or 6 (two)
    #[arg(long, value_name = "5|6", value_parser = parse_level)]
    level: Level,
    /// Files or block devices, 3 to 64 of them (--level 6: 4 to 64), relative to where FILE is; the smallest decides
    #[arg(long, value_name = "PATH", num_args = 1.., required = true)]
    members: Vec<PathBuf>,
    /// Make members (and the log's device, and the cache's) that are not there as files of this size each
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// What of a row one member has
    #[arg(long, value_name = "SIZE", default_value = "64KiB")]
    chunk: Size,
    /// What closes the write hole
    #[arg(long, value_name = "WHERE", default_value = "members")]
    log: LogArg,
    /// The log's device, with --log device; relative to where FILE is, as are all devices
    #[arg(long, value_name = "PATH")]
    log_device: Option<PathBuf>,
    /// An SSD that is to be the array's cache
    #[arg(long, value_name = "SSD")]
    cache: Option<PathBuf>,
    /// Make the cache's SSD as a file of this size if it is not there [default: as --size]
    #[arg(long, value_name = "SIZE", requires = "cache")]
    cache_size: Option<Size>,
    #[command(flatten)]
    cache_args: CacheArgs,
    #[command(flatten)]
    take: Take,
}

/// `--log`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogArg {
    /// Records on the parity members: one more write for each parity
    Members,
    /// Records on a device of their own
    Device,
    /// None: after a crash rows are resynced, and with a member lost in it sectors may be wrong
    None,
}

fn parse_level(text: &str) -> Result<Level, String> {
    let number = text.parse().map_err(|_| format!("'{text}' is not 5 or 6"))?;
    Level::from_number(number).ok_or_else(|| format!("level {number} is not 5 or 6"))
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let chunk_sectors = u32::try_from(self.chunk.0 / SECTOR_BYTES as u64)
            .ok()
            .filter(|sectors| *sectors > 0 && self.chunk.0.is_multiple_of(SECTOR_BYTES as u64))
            .ok_or_else(|| {
                let error =
                    Error::invalid(format!("a chunk of {} is not whole sectors of 4 KiB", self.chunk));
                Failure::with_next(error, "--chunk 64KiB, or another power of two of 4 KiB or more")
            })?;
        let log = match self.log {
            LogArg::Members => LogPlace::Members,
            LogArg::Device => LogPlace::Device,
            LogArg::None => LogPlace::None,
        };
        let mut named = ArrayFile {
            array: None,
            members: self.members.clone(),
            log: self.log_device.clone(),
            cache: None,
            nvram: None,
            replacing: None,
        };
        if self.file.symlink_metadata().is_ok() {
            let file = self.file.display();
            let error = Error::invalid(format!("{file} exists already"));
            let next = format!("vellum array detail {file} shows the array that it names; name another file");
            return Err(Failure::with_next(error, next));
        }
        match (&self.cache, self.cache_args.given()) {
            (Some(ssd), _) => self.cache_args.check(ssd)?,
            (None, Some(given)) => {
                let error = Error::invalid(format!("{given} for --cache"));
                return Err(Failure::with_next(error, "name the SSD, too: --cache SSD"));
            }
            (None, None) => {}
        }
        let mut made = Made::default();
        self.check_each_once()?;
        self.make_devices(&mut made)?;
        let format = Format { chunk_sectors, log, force: self.take.erase_foreign, ..Format::new(self.level) };
        let devices = named.open(&self.file)?;
        if let Some((path, error)) = devices.absent.into_iter().next() {
            let is_there = self.file.parent().unwrap_or(Path::new("")).join(path).symlink_metadata().is_ok();
            return Err(match is_there {
                true => Failure::with_next(error, "name files or block devices that can be read and written"),
                false => Failure::with_next(error, "with --size files that are not there are made"),
            });
        }
        let members: Vec<_> = devices.members.into_iter().map(|(_, device)| device).collect();
        self.check_owners(&members, devices.log.as_ref())?;
        let file = named.clone().draft(&self.file)?;
        create(&members, devices.log.as_ref(), &*RealEnv::new(), &format)
            .map_err(|error| self.not_created(error, &members))?;
        let is_named = examine(&members[0]).and_then(|first| {
            named.array = Some(hex(&first.array));
            file.commit_as(named)
        });
        is_named.inspect_err(|_| take_back(&members, devices.log.as_ref()))?;
        drop((members, devices.log)); // Reopened by the assembly.
        made.note(&self.file);
        let target = Target { file: self.file.clone(), force: false, degraded: false, detaches: false };
        if let Some(ssd) = &self.cache
            && let Err(failure) = attach(&target, ssd, &self.cache_args, self.take, &mut made, ui)
        {
            return Err(self.without_cache(failure, made));
        }
        made.keep();
        Order::Show.give(&target, ui)
    }

    /// Failure if the devices cannot form an array, with advice.
    fn not_created(&self, error: Error, members: &[Device]) -> Failure {
        let sized = self.members.iter().zip(members).map(|(path, device)| (device.info().bytes(), path));
        let log_is_named = self.log != LogArg::Device || self.log_device.is_some();
        let takes = self.level.parities() + 2..=MEMBERS_MAX;
        match (error.kind(), sized.min()) {
            (Kind::Invalid, _) if !takes.contains(&self.members.len()) => {
                let next = format!("name {} to {} devices with --members", takes.start(), takes.end());
                Failure::with_next(error, next)
            }
            (Kind::Invalid, _) if self.log != LogArg::Device && self.log_device.is_some() => {
                Failure::with_next(error, "--log device puts the log there")
            }
            (Kind::Invalid, _) if !log_is_named => Failure::with_next(error, "--log-device PATH names it"),
            (Kind::Invalid, Some((bytes, smallest))) => {
                let next = format!(
                    "the smallest device is {}, of {}; with another --chunk, more or larger devices it may do",
                    smallest.display(),
                    format_size(bytes)
                );
                Failure::with_next(error, next)
            }
            _ => error.into(),
        }
    }

    /// The array was made, its cache was not. If all its devices were created now, they are removed; else it stays.
    fn without_cache(&self, failure: Failure, mut made: Made) -> Failure {
        let base = self.file.parent().unwrap_or(Path::new(""));
        if self.members.iter().all(|path| made.has(&base.join(path))) {
            return failure;
        }
        made.keep();
        let file = self.file.display();
        let next = format!("the array is made, without a cache: vellum array attach-cache {file} SSD");
        failure.instead_next(next)
    }

    /// Refuses devices of another array before anything is written. This includes the cache, which is checked again
    /// when it is attached, so that the array is not made without it.
    fn check_owners(&self, members: &[Device], log: Option<&Device>) -> Result<(), Failure> {
        let base = self.file.parent().unwrap_or(Path::new(""));
        let named = self.members.iter().zip(members).chain(self.log_device.iter().zip(log));
        for (path, device) in named {
            self.take.check(path, device, None)?;
        }
        for path in self.cache.iter().chain(&self.cache_args.nvram).map(|path| base.join(path)) {
            if path.symlink_metadata().is_ok() {
                let device: Device = Arc::new(FileDisk::open(&path)?);
                self.take.check(&path, &device, None)?;
            }
        }
        if let Some(ssd) = self.cache.as_ref().map(|ssd| base.join(ssd)) {
            self.cache_args.check_size(&ssd, &FileDisk::open(&ssd)?)?;
        }
        Ok(())
    }

    /// Refuses a device that is named twice, including those that are created or attached later.
    fn check_each_once(&self) -> Result<(), Failure> {
        let all = ArrayFile {
            members: self.members.clone(),
            log: self.log_device.clone(),
            cache: self.cache.clone(),
            nvram: self.cache_args.nvram.clone(),
            ..ArrayFile::default()
        };
        all.check_each_once(&self.file).map_err(|error| Failure::with_next(error, "name each device once"))
    }

    /// Creates files for devices that do not exist; refuses existing ones unless they may be erased.
    fn make_devices(&self, made: &mut Made) -> Result<(), Failure> {
        let base = self.file.parent().unwrap_or(Path::new(""));
        let paths =
            self.members.iter().chain(&self.log_device).chain(&self.cache).chain(&self.cache_args.nvram);
        let paths: Vec<PathBuf> = paths.map(|p| base.join(p)).collect();
        paths.iter().try_for_each(|path| self.take.check_there(path))?;
        let cache = self.cache.as_ref().map(|path| base.join(path));
        let nvram = self.cache_args.nvram.as_ref().map(|path| base.join(path));
        for path in paths.iter().filter(|path| path.symlink_metadata().is_err()) {
            if nvram.as_ref() == Some(path) {
                continue; // Created with the cache.
            }
            let own = self.cache_size.filter(|_| cache.as_ref() == Some(path));
            if let Some(size) = own.or(self.size) {
                made.device(path, size.0)?;
            }
        }
        Ok(())
    }
}
