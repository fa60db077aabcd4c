//! Vocabulary of the stack: unit types, [`Geometry`], the traits [`Flash`] and [`BlockDevice`],
//! [`Env`] (clock, tasks), [`sync`] (locks), [`IoClass`], [`Ledger`] and the error kinds.
//!
//! All crates of Vellum communicate through these types; nothing here depends on files, sockets or an engine.
//! Start with [`flash`] and [`block`], the lower and the upper interface of the stack.

pub mod block;
pub mod env;
pub mod error;
pub mod flash;
mod freed;
pub mod geometry;
pub mod hash;
pub mod ledger;
pub mod parity;
pub mod reason;
pub mod size;
pub mod sync;
pub mod syncing;
pub mod units;
pub mod zones;

pub use block::{Allocation, BlockDevice, DeviceInfo};
pub use env::{Env, RealEnv, Task, spawn_or_run};
pub use error::{Error, Kind, Reason, Result};
pub use flash::{
    BlockReport, BlockState, Done, Flash, FlashCounters, FlashError, FlashOp, IoClass, Nvram, Source,
};
pub use geometry::{Geometry, PAGE_BYTES_MAX};
pub use ledger::{Avoided, Cause, Ledger, LedgerSnapshot};
pub use parity::{PLAIN_SEED, Parity, Scrambling};
pub use syncing::Syncing;
pub use units::{BlockAddr, Lba, Nanos, PageAddr, SECTOR_BYTES, SlotAddr};
pub use zones::{ZoneReport, Zones, ZonesShape};
