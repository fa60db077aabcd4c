//! After a cut: sectors that may have been written when the power went, or not, are written again.

use super::core::Core;
use crate::lane::{Call, Lanes, together};
use std::sync::Arc;
use vellum_base::{Kind, Lba, Result};

/// Sectors that are written again at once, as far as there are lanes.
const TOGETHER: usize = 64;

impl Core {
    /// Writes sectors again; what parity lacks of them is what the cache says. They are durable before anybody reads
    /// them: what was read once stays, with or without the SSD.
    pub fn redo(self: &Arc<Self>, intents: &[Lba], lanes: &Lanes) -> Result<()> {
        let again = |lba: &Lba| {
            let (core, lba) = (self.clone(), *lba);
            Call { lanes, run: Box::new(move || core.write_again(lba)) }
        };
        for some in intents.chunks(TOGETHER) {
            together(some.iter().map(again).collect()).into_iter().collect::<Result<()>>()?;
        }
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
