//! Clearing the marks of rows on the members that are no longer stale.
//!
//! 1. An outdated mark loses a chunk if a member is lost in a power cut. So marks are cleared when the array is idle
//!    and before there are many; and early while a member is out, when each of them would lose data.
//! 2. With an NVRAM, a row that is current again is recorded there until its mark is cleared: after a crash such marks
//!    are ignored.

use super::core::Core;
use super::nvram::Record;
use vellum_base::Result;

/// Most outdated marks while a member is out: clearing them takes a flush and a write on each member.
const MARKS_MAX: u64 = 16;

impl Core {
    /// Clears the marks of all rows that are no longer stale.
    pub fn tell_whole_rows(&self) -> Result<()> {
        let array = self.array.core();
        let _one_at_a_time = self.telling.lock();
        match &self.nvram {
            Some(nvram) if nvram.knows_whole_rows() => {
                nvram.append([Record::Telling]);
                array.settle_marks()?;
                nvram.append([Record::Told]);
                Ok(())
            }
            _ => array.settle_marks(),
        }
    }

    /// The same, if there are many.
    pub fn tell_many_whole_rows(&self) -> Result<()> {
        let most = match self.array.lost_members() {
            0 => self.stale_rows_max / 8,
            _ => MARKS_MAX,
        };
        if self.array.core().stale.lag() > most { self.tell_whole_rows() } else { Ok(()) }
    }
}
