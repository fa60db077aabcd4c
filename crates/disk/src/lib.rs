//! A disk of 4 KiB sectors on raw flash: mapping, allocation, garbage collection, wear levelling, deduplication,
//! recovery.
//!
//! [`Disk`] takes any [`vellum_base::Flash`] and [`vellum_base::Env`], and is a [`vellum_base::BlockDevice`]. Reading
//! order: `ftl` (how a write is placed), `store` (how it is programmed), `map`, `gc`, `policy`, `checkpoint`,
//! `recover`. The on-flash format is in docs/formats/disk.md.

pub mod discover;
pub mod ses;
pub mod tools;

mod blocks;
mod budget;
mod capacity;
mod check;
mod checked;
mod checkpoint;
mod copying;
mod disk;
mod format;
mod frontier;
mod ftl;
mod gc;
mod huge_pages;
mod journal_watch;
mod journals;
mod keeping;
mod learn;
mod log;
mod map;
mod marks;
mod nodes;
mod offline;
mod offline_all;
mod options;
mod persist;
mod policy;
mod read;
mod recover;
mod refill;
mod remap;
mod room;
mod roots;
mod sampling;
mod seeds;
mod stat;
mod store;

pub use capacity::sectors_max;
pub use check::CheckReport;
pub use disk::Disk;
pub use offline_all::DedupReport;
pub use options::{CpuModel, DedupMode, DedupWhen, Format, GcPolicy, Options};
pub use stat::{CodeStat, DiskStat, FileSystemStat, JournalStat, LedgerStat, MemoryStat, SmartLog, WearStat};

/// Maximum number of slots per page.
pub(crate) const SLOTS_PER_PAGE_MAX: usize = vellum_base::PAGE_BYTES_MAX as usize / vellum_base::SECTOR_BYTES;
/// Maximum number of out-of-band bytes per page on flash that carries a disk.
pub(crate) const OOB_BYTES_MAX: usize = 1024;
