//! Operations that remove devices under load: detaching the cache, failing a member, and replacing one. `go_on` gets
//! the number of rows still to be cleaned first, and stops the operation by returning false; then nothing has changed.

use super::cached::CachedArray;
use crate::assemble::Device;
use crate::mark::Mark;
use crate::rebuild::Progress;
use vellum_base::{Error, Kind, Result};

impl CachedArray {
    /// Copies a member to another device, as [`crate::Array::replace`] does. Parity may be deferred meanwhile; a stale
    /// row with an unreadable sector is cleaned first.
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

    /// The same with a device that was marked by [`crate::Array::prepare`], perhaps before a crash.
    pub fn replace_marked(
        &self,
        mark: &Mark,
        device: Device,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool> {
        self.array().replace_marked(mark, device, go_on, |row| self.core.resync(row))
    }

    /// Takes a member out, as [`crate::Array::fail`] does, but after cleaning all rows, whose deferred parity would
    /// need the member: so flushed data survive a power loss right afterwards. False if it was stopped.
    ///
    /// # Errors
    /// Those of [`crate::Array::fail`], and those of rows that cannot be cleaned: the member's data in them would be
    /// lost. [`crate::Array::fail`] does not check that.
    pub fn fail(&self, role: usize, go_on: impl FnMut(u64) -> bool) -> Result<bool> {
        self.array().check_can_do_without(role)?;
        let _nothing = self.core.put_nothing_off();
        if !self.clean_for_good(go_on)? {
            return Ok(false);
        }
        self.array().fail(role).map(|()| true)
    }

    /// Cleans all rows and detaches the SSD, which is no longer a cache. Requests go on. False if it was stopped.
    ///
    /// # Errors
    /// [`Kind::Io`] if the superblock could not be erased: the SSD is detached all the same.
    pub fn detach(&self, go_on: impl FnMut(u64) -> bool) -> Result<bool> {
        let _nothing = self.core.put_nothing_off();
        if !self.clean_for_good(go_on)? {
            return Ok(false);
        }
        // First: if the power is lost here, members bound to an erased cache could not be opened without force.
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

    /// Detaches the SSD in any case. Rows are cleaned first as far as possible, since with a member lost only the cache
    /// has the deltas that parity lacks. The remaining stale rows are resynchronised from data. False if it was
    /// stopped.
    ///
    /// # Errors
    /// The first error of a row that cannot be resynchronised; the SSD is detached all the same.
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
