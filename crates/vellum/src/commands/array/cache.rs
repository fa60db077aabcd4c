//! `array attach-cache`, `array detach-cache` and `array flush`.

use super::budget::BudgetArgs;
use super::control;
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
use vellum::array::cache::Scheme;
use vellum::array::cache::engine::{CacheFormat, CacheOptions, CachePlot, CachedArray};
use vellum::array::{Device, hex};
use vellum::array_file::ArrayFile;
use vellum::base::{BlockDevice, Error};
use vellum::media::FileDisk;

/// Size of an NVRAM that is created as a file.
const NVRAM_BYTES: u64 = 16 << 20;

/// Put an SSD in front of an array: small writes need no parity update at once
#[derive(clap::Args)]
#[command(after_help = "\
Data are always on the array: the SSD may be lost at any time. The array must not be served.

With --dwpd or --tbw no more flash is written than that: what would be too much is served by the
array, and parity is brought up to date instead of being put off.

Example:
  vellum array attach-cache a.toml /dev/nvme0n1 --erase --dwpd 0.5
  vellum array attach-cache a.toml ssd.img --size 8GiB --tbw 300TB
  vellum array attach-cache a.toml /dev/nvme0n1 --erase --nvram /mnt/pmem/a.nvram

Exit codes: 0 it is the cache, 2 usage, 3 I/O, 4 corrupt, 5 in use, or it is another array's")]
pub struct Attach {
    #[command(flatten)]
    target: Target,
    /// A file or a block device
    #[arg(value_name = "SSD")]
    ssd: PathBuf,
    #[command(flatten)]
    cache: CacheArgs,
    /// Make the SSD as a file of this size if it is not there
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    #[command(flatten)]
    take: Take,
}

/// Let go of an array's cache; its SSD may be gone
#[derive(clap::Args)]
#[command(after_help = "\
Parity that was put off is brought up to date first, from the cache or, without it, from data.
Works while the array is served, too. If a member is lost and the SSD with it, sectors whose parity
was put off are lost with them: they are named, and `vellum array rebuild --give-up` makes them
zeros.

Example:
  vellum array detach-cache a.toml
  vellum array detach-cache --force a.toml

Exit codes: 0 the array has no cache, 1 it has none, and sectors are lost, 2 usage, 3 I/O, 4
corrupt, 5 in use")]
pub struct Detach {
    /// The file that names the array's devices
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Do not look at the SSD: it is gone for good, or not this array's
    #[arg(long)]
    force: bool,
    /// Also without members that were there when the array was last used: they are out from then on
    #[arg(long)]
    degraded: bool,
}

/// Bring all parity up to date that a cache has put off
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum array flush a.toml

Exit codes: 0 no row is stale, 2 usage, 3 I/O, 4 corrupt, 5 in use")]
pub struct Flush {
    #[command(flatten)]
    target: Target,
}

/// How a cache works.
#[derive(clap::Args)]
pub struct CacheArgs {
    /// What decides what is kept [default: kdd]
    #[arg(long, value_name = "POLICY")]
    policy: Option<PolicyArg>,
    #[command(flatten)]
    pub budget: BudgetArgs,
    /// Keep what the cache knows here, so that it survives a power cut: a file or device of 512 KiB or more on memory
    /// that does (pmem, NVRAM, an SSD with capacitors); made with 16 MiB if it is not there. kdd and kdd-paper only.
    /// Experimental: keep a backup
    #[arg(long, value_name = "PATH")]
    pub nvram: Option<PathBuf>,
}

impl CacheArgs {
    /// Refuses impossible options before anything is changed.
    pub fn check(&self, ssd: &Path) -> Result<(), Failure> {
        let keeps = matches!(self.policy(), PolicyArg::Kdd | PolicyArg::KddPaper);
        if self.nvram.is_some() && !keeps {
            let what = "only kdd and kdd-paper keep what they know in an NVRAM";
            return Err(Failure::with_next(Error::invalid(what), "--policy kdd, or without --nvram"));
        }
        self.budget.check(ssd, self.policy())
    }

    /// The first given option on how a cache works, if there is to be no cache.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.policy.is_some(), "--policy is"),
            (self.budget.is_given(), "--dwpd and --tbw are"),
            (self.nvram.is_some(), "--nvram is"),
        ];
        given.into_iter().find_map(|(is_given, what)| is_given.then_some(what))
    }

    fn policy(&self) -> PolicyArg {
        self.policy.unwrap_or(PolicyArg::Kdd)
    }

    /// Refuses an SSD that is too small.
    pub fn check_size(&self, path: &Path, ssd: &FileDisk) -> Result<(), Failure> {
        let format = CacheFormat::new(self.policy().scheme());
        CachePlot::divide(ssd.info().sectors, format.ways).map(drop).map_err(|error| {
            let next = "name a larger SSD; --size and --cache-size are for files that are not there";
            Failure::with_next(error.context(path.display()), next)
        })
    }

    /// Opens the NVRAM if there is to be one, creating it if it does not exist.
    fn open_nvram(&self, target: &Target, made: &mut Made) -> Result<Option<Device>, Failure> {
        let Some(nvram) = &self.nvram else { return Ok(None) };
        let path = beside(&target.file, nvram);
        let disk = match path.symlink_metadata() {
            Ok(_) => FileDisk::open(&path).map_err(|error| target.in_use(error))?,
            Err(_) => made.device(&path, NVRAM_BYTES)?,
        };
        Ok(Some(Arc::new(disk)))
    }
}

/// A policy by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyArg {
    /// Data and deltas; what proves itself comes in
    Kdd,
    /// As in the paper: everything comes in
    KddPaper,
    /// Old and new versions
    Leavo,
    /// Writes go to both
    Wt,
    /// Writes go to both if they were missed before, not long ago
    Larc,
    /// Writes pass by
    Wa,
}

impl PolicyArg {
    fn scheme(self) -> Scheme {
        match self {
            PolicyArg::Kdd => Scheme::Kdd,
            PolicyArg::KddPaper => Scheme::KddPaper,
            PolicyArg::Leavo => Scheme::Leavo,
            PolicyArg::Wt => Scheme::WriteThrough,
            PolicyArg::Larc => Scheme::Larc,
            PolicyArg::Wa => Scheme::WriteAround,
        }
    }
}

impl Attach {
    pub fn run(self, ui: &Ui) -> Outcome {
        self.cache.check(&self.ssd)?;
        let path = beside(&self.target.file, &self.ssd);
        let nvram = self.cache.nvram.as_ref().map(|nvram| beside(&self.target.file, nvram));
        nvram.iter().chain([&path]).try_for_each(|path| self.take.check_there(path))?;
        let mut made = Made::default();
        match (path.symlink_metadata(), self.size) {
            (Err(_), Some(size)) => drop(made.device(&path, size.0)?),
            (Err(e), None) => {
                let error = Error::io(format!("open {}", self.ssd.display()), e);
                return Err(Failure::with_next(error, "with --size it is made"));
            }
            _ => {}
        }
        attach(&self.target, &self.ssd, &self.cache, self.take, &mut made, ui)?;
        Order::Show.give(&self.target, ui)
    }
}

/// Resolves a path relative to the array's file.
fn beside(file: &Path, path: &Path) -> PathBuf {
    file.parent().unwrap_or(Path::new("")).join(path)
}

/// Makes the SSD the cache of an array that is not being served, and names it in the file. Creates the NVRAM if it does
/// not exist.
pub fn attach(
    target: &Target,
    ssd: &Path,
    args: &CacheArgs,
    take: Take,
    made: &mut Made,
    ui: &Ui,
) -> Result<(), Failure> {
    if let Some(cache) = &ArrayFile::load(&target.file)?.cache {
        let error = Error::invalid(format!("the array has a cache: {}", cache.display()));
        let next = format!("vellum array detach-cache {}, then this again", target.file.display());
        return Err(Failure::with_next(error, next));
    }
    let named = ArrayFile::load(&target.file)?;
    for device in std::iter::once(ssd).chain(args.nvram.as_deref()) {
        named.check_other(&target.file, device)?;
    }
    let wanted = ArrayFile { cache: Some(ssd.into()), nvram: args.nvram.clone(), ..named };
    wanted
        .check_each_once(&target.file)
        .map_err(|error| Failure::with_next(error, "name each device once"))?;
    // A server may still hold an SSD that died: then the error should name the server.
    let disk = FileDisk::open(&beside(&target.file, ssd)).map_err(|error| target.in_use(error))?;
    args.check_size(ssd, &disk)?;
    let device: Device = Arc::new(disk);
    let budget = args.budget.bytes_a_day(ssd, device.info().bytes())?;
    let nvram = args.open_nvram(target, made)?;
    let (array, ..) = target.assemble_bare(None, ui, false)?;
    let ours = array.status().array;
    let with_nvram = args.nvram.as_deref().zip(nvram.as_ref());
    let taken = take.check(ssd, &device, Some(&ours)).and_then(|()| match with_nvram {
        Some((path, nvram)) => take.check(path, nvram, Some(&ours)),
        None => Ok(()),
    });
    // It can be named before it belongs to the array: the array would not be opened without it anyway.
    let named = taken.and_then(|()| {
        Ok(ArrayFile::prepare(&target.file, |named| {
            named.array = Some(hex(&ours));
            (named.cache, named.nvram) = (Some(ssd.to_path_buf()), args.nvram.clone());
        })?)
    });
    let named = match named {
        Ok(named) => named,
        Err(refused) => {
            array.close()?;
            return Err(refused);
        }
    };
    let format = CacheFormat { force: true, budget, ..CacheFormat::new(args.policy().scheme()) };
    let cached = CachedArray::attach_with_nvram(array, device, nvram, &format, target.cache_options())?;
    made.keep();
    // While we hold the devices: the next opener finds a file that matches them.
    let named = named.commit();
    cached.close()?;
    Ok(named?)
}

impl Detach {
    pub fn run(self, ui: &Ui) -> Outcome {
        let target = Target { file: self.file, force: false, degraded: self.degraded, detaches: true };
        let named = ArrayFile::load(&target.file)?;
        if named.cache.is_none() && !(self.force && target.is_bound(&named)) {
            return Err(target.names_no_cache(&named));
        }
        if !self.force {
            return Order::DetachCache { force: false }.give(&target, ui);
        }
        // Opening the array does not need the SSD: a server that has it open is asked, otherwise it is opened without.
        let order = Order::DetachCache { force: true };
        if let Some(answer) = control::ask(&target.file, &order, &mut |_, _| true)? {
            return Ok(answer.tell(ui));
        }
        {
            let (array, ..) = target.assemble_bare(None, ui, false)?;
            let without = CacheOptions { without_cache: true, ..target.cache_options() };
            let cached = CachedArray::open(array, None, without)?;
            let cleaned = cached.clean_all(|_| true);
            ArrayFile::edit(&target.file, |named| (named.cache, named.nvram) = (None, None))?;
            let is_lost = !cached.lost_sectors().is_empty();
            cached.close()?;
            match cleaned {
                Err(_) if is_lost => {} // The output lists the sectors.
                result => result?,
            }
        }
        Order::Show.give(&target, ui)
    }
}

impl Flush {
    pub fn run(self, ui: &Ui) -> Outcome {
        Order::Flush.give(&self.target, ui)
    }
}
