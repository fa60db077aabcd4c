//! Finding the roots of a disk on its flash.

use crate::format::oob::SlotKind;
use crate::format::root::Root;
use crate::read::{read_checked, read_entries};
use vellum_base::{BlockAddr, Error, Flash, IoClass, PageAddr, Result, SECTOR_BYTES};

/// A root and where it was found.
pub(crate) struct FoundRoot {
    pub root: Root,
    pub seq: u64,
    pub at: PageAddr,
}

/// Finds every readable root on the device.
pub(crate) fn find_roots(flash: &dyn Flash) -> Result<Vec<FoundRoot>> {
    let mut roots = Vec::new();
    for block in (0..flash.geometry().blocks()).map(BlockAddr) {
        let written = flash.report(block).pages_written;
        if written > flash.geometry().pages_per_block {
            return Err(Error::corrupt(format!("{block} says that {written} pages of it are written")));
        }
        if written == 0 {
            continue;
        }
        // A root block is recognised by its first page; if that is torn, by the others.
        let first = read_entries(flash, block, 0, 1)?;
        let holds_roots = match first[0].first() {
            Some(Some(entry)) => entry.kind == SlotKind::Root,
            _ => written > 1,
        };
        if !holds_roots {
            continue;
        }
        for (page, entries) in read_entries(flash, block, 0, written)?.iter().enumerate() {
            let Some(Some(entry)) = entries.first() else { continue };
            if entry.kind == SlotKind::Root {
                let at = block.page(page as u32);
                let mut bytes = [0; SECTOR_BYTES];
                if read_checked(flash, IoClass::Metadata, at, 0, &mut bytes).is_ok()
                    && let Some(root) = Root::decode(&bytes)?
                {
                    roots.push(FoundRoot { root, seq: entry.seq, at });
                }
            }
        }
    }
    Ok(roots)
}
