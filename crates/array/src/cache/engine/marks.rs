//! What the members hear of rows that are whole again.
//!
//! 1. A mark on them that nobody needs any more costs a chunk if a member goes with the power. So they hear of whole
//!    rows when nothing is going on, before there are many, and soon while a member is out, when each mark does.
//! 2. With an NVRAM a row that is whole is so there until they have been told: after a cut their marks do not count.

use super::core::Core;
use super::nvram::Record;
use vellum_base::Result;

/// So many marks may be there too long while a member is out: telling is a flush and a write to each member.
const MARKS_MAX: u64 = 16;

impl Core {
    /// Tells the members of all rows that are whole.
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

    /// The same, if they are many.
    pub fn tell_many_whole_rows(&self) -> Result<()> {
        let most = match self.array.lost_members() {
            0 => self.stale_rows_max / 8,
            _ => MARKS_MAX,
        };
        if self.array.core().stale.lag() > most { self.tell_whole_rows() } else { Ok(()) }
    }
}
