//! Devices that are let go of while an array is used: its cache's, and a member's that another replaces.

use super::cached::CachedArray;
use crate::assemble::Device;
use crate::mark::Mark;
use crate::rebuild::Progress;
use vellum_base::{Error, Kind, Lba, Result};

impl CachedArray {
    /// Copies a member to another device, as [`crate::Array::replace`] does. Parity may be put off meanwhile; a row
    /// that has a sector that cannot be read is cleaned first.
    pub fn replace(
        &self,
        role: usize,
        device: Device,
        force: bool,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool> {
        let mark = self.array().prepare(role, &device, force)?;
        self.replace_marked(&mark, device, go_on)
    }

    /// The same with a device that [`crate::Array::prepare`] has marked, perhaps before a crash.
    pub fn replace_marked(
        &self,
        mark: &Mark,
        device: Device,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool> {
        let row_sectors = self.core.array.core().shape.row_sectors();
        let clean = |row: u64| self.core.clean_range(Lba(row * row_sectors), row_sectors);
        self.array().replace_marked(mark, device, go_on, clean)
    }

    /// Cleans all rows and lets go of the SSD, which is no cache then. Requests go on.
    ///
    /// # Errors
    /// [`Kind::Io`] if the SSD could not be told: it is let go all the same.
    pub fn detach(&self) -> Result<()> {
        let _nothing = self.core.put_nothing_off();
        self.clean_for_good()?;
        let mut told = true;
        if let Some(ssd) = self.core.ssd() {
            told = ssd.erase_superblock()?;
            ssd.detach("it was detached");
            if let Some(nvram) = &self.core.nvram {
                match nvram.let_go() {
                    Err(error) if error.kind() == Kind::PowerLost => return Err(error),
                    result => told &= result.is_ok(),
                }
            }
        }
        self.clean_all(|_| true)?; // Requests went on meanwhile.
        match told {
            true => Ok(()),
            false => Err(Error::new(
                Kind::Io,
                "the array has no cache any more, but the SSD, or the NVRAM, could not be told: it still says that it is \
                 one, so wipe it before it is used again",
            )),
        }
    }

    /// Lets go of the SSD whatever becomes of it: rows are cleaned first, as far as that can be, for with a member lost
    /// nobody else knows what parity lacks of it. What is stale then is made anew from data.
    ///
    /// # Errors
    /// The first of a row that cannot be whole again; the SSD is let go all the same.
    pub fn detach_by_force(&self) -> Result<()> {
        let _nothing = self.core.put_nothing_off();
        match self.clean_for_good() {
            Err(error) if error.kind() == Kind::PowerLost => return Err(error),
            _ => {}
        }
        if let Some(ssd) = self.core.ssd() {
            ssd.detach("it was detached by force");
        }
        self.clean_all(|_| true)
    }
}
