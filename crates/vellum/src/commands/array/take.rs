//! What may be lost on a device that is taken.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::fs::Metadata;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use vellum::array::{Device, Id, owner};
use vellum::base::{Error, Kind};

/// What may be lost.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, clap::Args)]
pub struct Take {
    /// Take a device that is there already: what it holds is lost. One that another array has is refused all the same
    #[arg(long)]
    pub erase: bool,
    /// With --erase: also what another array has, as a member, a copy, a log, a cache or its NVRAM
    #[arg(long, requires = "erase")]
    pub erase_foreign: bool,
}

impl Take {
    /// Refuses an existing file or device, unless its contents may be lost.
    pub fn check_there(&self, path: &Path) -> Result<(), Failure> {
        if self.erase || path.symlink_metadata().is_err() {
            return Ok(());
        }
        let is_device = |found: Metadata| found.is_file() || found.file_type().is_block_device();
        let (what, next) = match path.metadata().is_ok_and(|found| !is_device(found)) {
            true => ("is neither a file nor a block device", "name a file or a block device"),
            false => ("is there already, and what it holds would be lost", "say --erase if that is meant"),
        };
        Err(Failure::with_next(Error::invalid(format!("{} {what}", path.display())), next))
    }

    /// Refuses a device of an array other than `ours`, unless that may be lost as well.
    pub fn check(&self, path: &Path, device: &Device, ours: Option<&Id>) -> Result<(), Failure> {
        let is_ours = |array: &Option<Id>| ours.is_some() && array.as_ref() == ours;
        match owner(device).filter(|owner| !is_ours(&owner.array)) {
            Some(owner) if !self.erase_foreign => {
                let what = format!("{} is {owner}", path.display());
                let next =
                    "name another device; if that array is not needed any more, say --erase-foreign, too";
                Err(Failure::with_next(Error::new(Kind::Busy, what), next))
            }
            _ => Ok(()),
        }
    }
}
