//! After a crash: sectors whose write may not have been completed are written again.

use super::core::Core;
use crate::lane::{Call, Lanes, together};
use std::sync::Arc;
use vellum_base::{Kind, Lba, Result};

impl Core {
    /// Writes sectors again, in order. Those of a row are written one after the other, as they would wait for the row's
    /// lock anyway; rows are written concurrently. The cache has the deltas that parity will lack. The sectors are
    /// durable before anybody reads them: content that was read once must stay, with or without the SSD.
    pub fn redo(self: &Arc<Self>, intents: &[Lba], lanes: &Lanes) -> Result<()> {
        let again = |row: &[Lba]| {
            let (core, row) = (self.clone(), row.to_vec());
            Call { lanes, run: Box::new(move || row.into_iter().try_for_each(|lba| core.write_again(lba))) }
        };
        let rows = intents.chunk_by(|a, b| self.row_of(*a) == self.row_of(*b));
        together(rows.map(again).collect()).into_iter().collect::<Result<()>>()?;
        if intents.is_empty() { Ok(()) } else { self.flush() }
    }

    fn write_again(&self, lba: Lba) -> Result<()> {
        let newest = self.brain.lock().newest(lba);
        let Some((base, delta)) = newest else { return Ok(()) };
        match self.read_changed(base, &delta) {
            Ok(content) => self.array.write_data_only(lba, &content, false),
            Err(error) if error.kind() == Kind::PowerLost => Err(error),
            Err(_) => {
                self.lose_track(self.row_of(lba));
                Ok(())
            }
        }
    }
}
