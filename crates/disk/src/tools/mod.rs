//! Tools for a disk that is not open: inspect it, save its metadata as text, restore metadata, rebuild it.
//!
//! | tool | reads | writes |
//! |---|---|---|
//! | [`inspect`], [`inspect_page`] | roots, directories, NVRAM | nothing |
//! | [`dump`] | all metadata, as opening would | nothing |
//! | [`restore`] | a dump, every mapped slot | one checkpoint |
//! | [`repair`] | every out-of-band entry, every mapped slot | one checkpoint, if told to |
//!
//! No tool moves or erases a sector's bytes before the new checkpoint is valid. Both writers first do all their work on
//! a copy of the flash in memory, open the result there and compare it, and touch the flash only if that succeeded.
//! They are modelled on `thin_dump`, `thin_restore` and `thin_repair` of thin-provisioning-tools.

mod dump;
mod evidence;
mod inspect;
mod lines;
mod picture;
mod rebuild;
mod repair;
mod restore;
pub(crate) mod shadow;

pub use dump::{DumpReport, dump};
pub use inspect::{
    FoundRootInfo, Inspection, LimitsInfo, NvramInfo, PageInspection, SlotInspection, TreeInfo, inspect,
    inspect_page,
};
pub use repair::{IdentitySource, RepairOptions, RepairReport, SectorList, repair};
pub use restore::{RestoreReport, restore};
