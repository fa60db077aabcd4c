//! A flash storage stack in user space that writes flash as little as possible, and accounts for every byte.
//!
//! [`Config`] describes a disk, [`Stack`] is the open disk: a [`base::BlockDevice`] with a ledger.
//!
//! ```
//! use vellum::base::{BlockDevice, Lba};
//! use vellum::{Config, Stack};
//!
//! let stack = Stack::create(&Config::ram(64 << 20))?;
//! let disk = stack.disk();
//! disk.write(Lba(0), &[7; 4096], false)?;
//! disk.write(Lba(1), &[0; 4096], false)?; // zeros are mapped, never programmed
//! disk.flush()?;
//! let ledger = disk.ledger();
//! println!("{} bytes written, {} programmed", ledger.host_written_bytes, ledger.programmed_total());
//! assert_eq!(ledger.avoided_by(vellum::base::Avoided::Zero), 4096);
//! stack.close()?;
//! # Ok::<(), vellum::base::Error>(())
//! ```
//!
//! [`kv::Store`] is an embedded key-value store. All parts below these can be used separately: [`disk`] on any
//! [`base::Flash`], [`media`] for storage, [`trace`] for workloads, [`sim`] for virtual time, [`serve`] for NBD or
//! FUSE, [`lab`] for experiments. The command line is a thin layer over this crate.

pub mod array_file;
mod as_text;
pub mod coding;
pub mod config;
pub mod deduper;
pub mod journal_range;
pub mod kv;
pub mod metrics;
pub mod reason;
pub mod scrubber;
pub mod ses;
pub mod shape;
pub mod stack;
pub mod whole_file;

pub use config::{Config, DiskConfig, FlashConfig, Share, Size};
pub use deduper::Deduper;
pub use journal_range::JournalRange;
pub use scrubber::{ScrubEvery, ScrubStat, Scrubber};
pub use stack::{DedupTuning, OpenMode, Stack};

pub use vellum_array as array;
pub use vellum_base as base;
pub use vellum_codes as codes;
pub use vellum_disk as disk;
pub use vellum_lab as lab;
pub use vellum_media as media;
pub use vellum_serve as serve;
pub use vellum_sim as sim;
pub use vellum_trace as trace;
