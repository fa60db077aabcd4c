//! The contents of an image's NVRAM: the bytes in its place, overlaid by the records of its journal. Read when an image
//! is opened, or at any moment beside a writer.
//!
//! What a reader beside a writer relies on ([`Image::nvram`]):
//! 1. A record is in the journal before it is in the NVRAM's place. So who reads the place first, and the journal then,
//!    has a record for each byte there that is newer than the counters slot read before: all bytes are of one moment,
//!    that at which the journal ended.
//! 2. The room of records is used again only once a slot with a `journal_start` after them was written. So where the
//!    journal seems to end, it did if no slot that is read later begins after that.
//! 3. Both slots are read whole, or another may be newer than the one that seems to be. One that stays torn was so
//!    before the writer came, which writes the other one.

use super::format::{CountersSlot, Layout, NVRAM_OFFSET};
use super::host::HostFile;
use super::mend::lost_from_journal;
use super::{Image, check_length, open_path, read_counters, read_header};
use std::io;
use std::path::Path;
use vellum_base::reason::CHANGED_MEANWHILE;
use vellum_base::{Error, Kind, Result};

/// Attempts at reading the NVRAM while others write it. One fails if a counters slot is being written, or if records
/// are placed meanwhile that came after the journal was read.
const TRIES: usize = 16;

impl Image {
    /// The contents of an image's NVRAM at this moment; empty if it has none. The image may be in use by a writer:
    /// nothing is locked, and nothing is written.
    ///
    /// Errors: [`Kind::Busy`] if a writer is too fast for that.
    pub fn nvram(path: &Path) -> Result<Vec<u8>> {
        let file = open_path(path, true)?;
        let read = || {
            let (info, layout) = read_header(&file)?;
            check_length(&file, &info, &layout)?;
            let file = file.try_clone().map_err(|e| Error::io("look at the image", e))?;
            beside_writer(&HostFile::new(file), &layout)
        };
        read().map_err(|e| e.context(path.display()))
    }
}

fn beside_writer(file: &HostFile, layout: &Layout) -> Result<Vec<u8>> {
    let failure = |e| Error::io("read the NVRAM", e);
    for attempt in 1..=TRIES {
        let counters = || match read_counters(file) {
            Ok((_, false)) | Err(_) if attempt < TRIES => Ok(None),
            read => read.map(|(slot, _)| Some(slot)),
        };
        let Some(before) = counters()? else { continue };
        let mut nvram = read_place(file, layout).map_err(failure)?;
        let Some(between) = counters()? else { continue };
        let slot = CountersSlot { journal_start: before.journal_start, ..between };
        let end = overlay(file, layout, &slot, &mut nvram).map_err(failure)?;
        match counters()? {
            Some(after) if after.journal_start <= end => {
                return lost_from_journal(&between, end).map_or(Ok(nvram), |lost| Err(Error::corrupt(lost)));
            }
            _ => {}
        }
    }
    let what = "the NVRAM of the image is written faster than it can be read";
    Err(Error::new(Kind::Busy, what).because(CHANGED_MEANWHILE))
}

/// The contents of the NVRAM, and where the journal ends, of an image that nobody writes to.
pub(super) fn read_nvram(
    file: &HostFile,
    layout: &Layout,
    slot: &CountersSlot,
) -> io::Result<(Vec<u8>, u64)> {
    let mut nvram = read_place(file, layout)?;
    let end = overlay(file, layout, slot, &mut nvram)?;
    Ok((nvram, end))
}

fn read_place(file: &HostFile, layout: &Layout) -> io::Result<Vec<u8>> {
    let mut nvram = vec![0; layout.journal.nvram_bytes as usize];
    file.read_exact_at(&mut nvram, NVRAM_OFFSET)?;
    Ok(nvram)
}

/// Returns where the journal ends. A record further from its start than it is long would be where the start was: so
/// nobody follows a writer on and on.
fn overlay(file: &HostFile, layout: &Layout, slot: &CountersSlot, nvram: &mut [u8]) -> io::Result<u64> {
    let from = (slot.journal_start, slot.journal_start.saturating_add(layout.journal.bytes));
    layout.journal.replay(file, from, slot.synced, |offset, data| {
        nvram[offset as usize..][..data.len()].copy_from_slice(data);
        Ok(())
    })
}

/// Copies the contents of the journal to their place in the NVRAM.
pub(super) fn place_nvram(file: &HostFile, layout: &Layout, slot: &CountersSlot) -> io::Result<()> {
    file.sync_data()?; // a process that was killed may not have synced it
    let from = (slot.journal_start, u64::MAX);
    let place = |offset: u64, data: &[u8]| file.write_all_at(data, NVRAM_OFFSET + offset);
    layout.journal.replay(file, from, slot.synced, place)?;
    file.sync_data()
}
