//! Writing known patterns to a disk, and reading the raw bytes of its flash.

use super::{Manifest, Pattern};
use crate::Stack;
use vellum_base::{BlockDevice, Error, Flash, IoClass, Lba, Result, SECTOR_BYTES};

/// A raw dump that has not been written to files yet.
#[derive(Clone, Debug)]
pub struct RawDump {
    /// Describes the bytes.
    pub manifest: Manifest,
    /// The bytes of the pieces, concatenated.
    pub bytes: Vec<u8>,
    /// Number of sectors in it.
    pub sectors: u64,
    /// Sectors without a slot of flash of their own: zeros, copies, packed with others, or not yet on flash.
    pub not_on_flash: u64,
}

/// Writes the pattern to these sectors, durably.
pub fn write_pattern(device: &dyn BlockDevice, lbas: &[Lba], pattern: &Pattern) -> Result<()> {
    if matches!(pattern, Pattern::File(_)) {
        return Err(Error::invalid("a pattern from a file is not written: copy the file to the disk"));
    }
    let mut sector = [0; SECTOR_BYTES];
    for lba in lbas {
        pattern.fill(lba.0, &mut sector);
        device.write(*lba, &sector, false)?;
    }
    device.flush()
}

/// Dumps the contents of the cells for these sectors, before descrambling and correction.
/// [`vellum_base::Kind::Invalid`] if one does not hold the pattern, or none has a slot of flash of its own. `file` is
/// the name in the manifest of the file with the bytes.
pub fn dump(stack: &Stack, lbas: &[Lba], pattern: &Pattern, fresh: bool, file: &str) -> Result<RawDump> {
    if matches!(pattern, Pattern::File(_)) {
        return Err(Error::invalid("what a file holds is no pattern to dump: zero, ones, lba or hex:BYTES"));
    }
    let geometry = *stack.flash().geometry();
    let per_block = u64::from(geometry.slots_per_block());
    let manifest = Manifest::new(file, SECTOR_BYTES, Some(per_block));
    let mut dump = RawDump { manifest, bytes: Vec::new(), sectors: 0, not_on_flash: 0 };
    let (mut written, mut there) = ([0; SECTOR_BYTES], [0; SECTOR_BYTES]);
    for lba in lbas {
        pattern.fill(lba.0, &mut written);
        stack.disk().read(*lba, &mut there)?;
        if there != written {
            return Err(Error::invalid(format!("{lba} does not hold pattern {pattern}")));
        }
        let slot = stack.disk().slot_of(*lba)?.filter(|_| !stack.disk().is_shared(*lba).unwrap_or(true));
        let place = slot.map(|slot| (slot, geometry.page_of_slot(slot)));
        // What the opening recovered is only in memory, since the image is not changed.
        let place = place.filter(|(_, (page, _))| page.page < stack.flash().report(page.block).pages_written);
        let Some((slot, (page, index))) = place else {
            dump.not_on_flash += 1;
            continue;
        };
        let offset = index * SECTOR_BYTES as u32;
        stack.flash().inner().read(IoClass::Background, page, offset, &mut there, &mut [])?;
        dump.bytes.extend_from_slice(&there);
        dump.manifest.push(lba.0, u64::from(slot.0), pattern, fresh);
        dump.sectors += 1;
    }
    if dump.sectors == 0 {
        return Err(Error::invalid(format!(
            "none of {} sectors of pattern {pattern} has a slot of flash to itself: zeros and copies take none",
            lbas.len()
        )));
    }
    Ok(dump)
}
