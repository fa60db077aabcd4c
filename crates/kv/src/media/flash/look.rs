//! Areas and CURRENT in the contents of an NVRAM, to look at a store that another process may be changing: its
//! superblocks are not surveyed.

use super::nvram::{NvramAreas, is_formatted};
use crate::journal::Area;
use vellum_base::{FlashError, Nvram, Result};

/// See the module.
pub(crate) struct NvramLook<'a> {
    contents: Contents<'a>,
    areas: NvramAreas,
}

impl NvramLook<'_> {
    /// `None` if no store is there.
    pub(crate) fn at(contents: &[u8]) -> Result<Option<NvramLook<'_>>> {
        if !is_formatted(contents) {
            return Ok(None);
        }
        let contents = Contents(contents);
        let areas = NvramAreas::open(&contents)?;
        Ok(Some(NvramLook { contents, areas }))
    }

    pub(crate) fn current(&self) -> Result<Option<Vec<u8>>> {
        self.areas.current(&self.contents)
    }

    pub(crate) fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        self.areas.read(&self.contents, area)
    }

    pub(crate) fn areas(&self) -> Vec<Area> {
        self.areas.areas()
    }
}

/// An NVRAM as it was at a moment.
struct Contents<'a>(&'a [u8]);

impl Nvram for Contents<'_> {
    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), FlashError> {
        let there = offset.checked_add(out.len()).and_then(|end| self.0.get(offset..end));
        let there = there.ok_or_else(|| FlashError::Rule("read beyond the NVRAM".into()))?;
        out.copy_from_slice(there);
        Ok(())
    }

    fn write(&self, _offset: usize, _data: &[u8]) -> Result<(), FlashError> {
        Err(FlashError::Rule("write to what is only looked at".into()))
    }
}
