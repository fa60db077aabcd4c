//! RAID-5 and RAID-6 over any block devices: [`create`] formats devices, [`assemble`] returns an [`Array`], which is a
//! [`BlockDevice`](vellum_base::BlockDevice).
//!
//! A row is a stripe: one chunk of every member at the same place. A column is a position in it: data chunks, then P,
//! then Q. After a crash each sector is either old or new, even if a member is lost at the same time: the new content
//! of a row is logged before the row changes (docs/decisions/0022-array.md). Start reading at [`layout`] and [`plan`],
//! which are pure, then `row.rs`.
//!
//! ```
//! use vellum_array::{Device, Format, Level, Options, assemble, create};
//! use vellum_base::{BlockDevice, Lba, RealEnv};
//! use vellum_media::{RamDisk, ramdisk::Power};
//!
//! let (env, power) = (RealEnv::new(), Power::new(1));
//! let disks: Vec<Device> = (0..4).map(|_| RamDisk::new(4096, &power) as Device).collect();
//! create(&disks, None, &*env, &Format::new(Level::Raid5))?;
//! let array = assemble(&disks, None, env.clone(), Options::default())?;
//! array.write(Lba(7), &[5; 4096], false)?;
//! array.close()?;
//!
//! // Without one of its disks it has everything.
//! let array = assemble(&disks[1..], None, env, Options::default())?;
//! let mut sector = vec![0; 4096];
//! array.read(Lba(7), &mut sector)?;
//! assert!(array.status().is_degraded() && sector == [5; 4096]);
//! # Ok::<(), vellum_base::Error>(())
//! ```

mod access;
mod array;
mod assemble;
mod bell;
mod below;
mod bitmap;
pub mod cache;
mod change;
mod core;
mod deferred;
#[doc(hidden)]
pub mod fuzz;
mod give_up;
mod intent;
mod lane;
pub mod layout;
mod log;
mod mark;
mod owner;
pub mod plan;
mod rebuild;
mod recover;
mod replace;
mod row;
mod scrub;
mod stuck;
mod superblock;
mod survey;

pub use array::{Array, MemberStatus, Status};
pub use assemble::{Device, Format, Options, assemble, create, examine, hex, take_back};
pub use deferred::Delta;
pub use layout::{Level, Shape};
pub use mark::{Mark, examine_mark};
pub use owner::{Owner, Part, owner};
pub use rebuild::{Progress, Rebuilt};
pub use scrub::{Repair, Scrubbed, WrongMember};
pub use superblock::{Entry, Id, LogPlace, Plot, State, Superblock};
pub use survey::{StaleRows, Standing, Survey, Verdict, survey};
