//! Devices that are let go of while an array is used: its cache's, a member's that is failed, and one that another
//! replaces. `go_on` hears of the rows that are to be cleaned first, and stops it by false: then nothing has changed.

use super::cached::CachedArray;
use crate::assemble::Device;
use crate::mark::Mark;
use crate::rebuild::Progress;
use vellum_base::{Error, Kind, Result};

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
        self.array().replace_marked(mark, device, go_on, |row| self.core.resync(row))
    }

    /// Takes a member out, as [`crate::Array::fail`] does, when nothing is put off that it is needed for: what was
    /// flushed is there if the power goes in the next moment. False if it was stopped.
    ///
    /// # Errors
    /// As there, and of rows that cannot be cleaned: what is on the member would be lost. [`crate::Array::fail`] does
    /// not ask.
    pub fn fail(&self, role: usize, go_on: impl FnMut(u64) -> bool) -> Result<bool> {
        self.array().check_can_do_without(role)?;
        let _nothing = self.core.put_nothing_off();
        if !self.clean_for_good(go_on)? {
            return Ok(false);
        }
        self.array().fail(role).map(|()| true)
    }

    /// Cleans all rows and lets go of the SSD, which is no cache then. Requests go on. False if it was stopped.
    ///
    /// # Errors
    /// [`Kind::Io`] if the SSD could not be told: it is let go all the same.
    pub fn detach(&self, go_on: impl FnMut(u64) -> bool) -> Result<bool> {
        let _nothing = self.core.put_nothing_off();
        if !self.clean_for_good(go_on)? {
            return Ok(false);
        }
        // First: if the power goes here, members that name a cache that is erased could not be opened without force.
        self.core.array.core().bind(0)?;
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
            ssd.let_go();
        }
        self.clean_all(|_| true)?; // Requests went on meanwhile.
        match told {
            true => Ok(true),
            false => Err(Error::new(
                Kind::Io,
                "the array has no cache any more, but the SSD, or the NVRAM, could not be told: it still says that it is \
                 one, so wipe it before it is used again",
            )),
        }
    }

    /// Lets go of the SSD whatever becomes of it: rows are cleaned first, as far as that can be, for with a member lost
    /// nobody else knows what parity lacks of it. What is stale then is made anew from data. False if it was stopped.
    ///
    /// # Errors
    /// The first of a row that cannot be whole again; the SSD is let go all the same.
    pub fn detach_by_force(&self, go_on: impl FnMut(u64) -> bool) -> Result<bool> {
        let _nothing = self.core.put_nothing_off();
        match self.clean_for_good(go_on) {
            Err(error) if error.kind() == Kind::PowerLost => return Err(error),
            Ok(false) => return Ok(false),
            _ => {}
        }
        self.core.array.core().bind(0)?;
        if let Some(ssd) = self.core.ssd() {
            ssd.detach("it was detached by force");
            ssd.let_go();
        }
        self.clean_all(|_| true).map(|()| true)
    }
}
