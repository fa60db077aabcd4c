//! What of a device may be lost that is taken in.

use crate::failure::Failure;
use serde::{Deserialize, Serialize};
use std::path::Path;
use vellum::array::{Device, Id, owner};
use vellum::base::{Error, Kind};

/// `--erase`, and `--force` beside it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Take {
    /// What is there already.
    pub erase: bool,
    /// What another array has, too.
    #[serde(default)]
    pub force: bool,
}

impl Take {
    /// Refuses a device that another array has than `ours`, unless that is forced.
    pub fn check(&self, path: &Path, device: &Device, ours: Option<&Id>) -> Result<(), Failure> {
        match owner(device).filter(|owner| Some(&owner.array) != ours) {
            Some(owner) if !self.force => {
                let what = format!("{} is {owner}", path.display());
                let next = "name another device; if that array is not needed any more, say --force, too";
                Err(Failure::with_next(Error::new(Kind::Busy, what), next))
            }
            _ => Ok(()),
        }
    }
}
