//! What can be put right about the file of an image before what is in it is repaired: one header of two, one slot of
//! counters of two, its length.

use super::format::{COUNTERS_OFFSETS, CountersSlot, HEADER_COPY_OFFSET, ImageInfo, Layout, UNIT};
use super::host::HostFile;
use super::{read_up_to, take_room};
use std::fs::File;
use std::os::unix::fs::FileExt;
use vellum_base::{Error, Result};

/// What was wrong with an image that was opened to be repaired.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// In words; nothing if all was well.
    pub problems: Vec<String>,
    /// What was written last to its NVRAM is lost, or may be, though it was synced.
    pub nvram_doubtful: bool,
}

impl Mended {
    /// An error that came after, with what was wrong before: who mends an image sees that once.
    pub fn with(&self, error: Error) -> Error {
        match self.problems.is_empty() {
            true => error,
            false => error.context(self.problems.join("; ")),
        }
    }
}

/// What is wrong with the file; put right unless `read_only`. An error if none of its pages is left.
pub(super) fn mend(file: &File, info: &ImageInfo, layout: &Layout, read_only: bool) -> Result<Mended> {
    let bytes = file.metadata().map_err(|e| Error::io("look at the image", e))?.len();
    let should = layout.file_bytes;
    if bytes <= layout.stripes_offset {
        return Err(Error::corrupt(format!(
            "the image is {bytes} bytes long and should be {should}: none of its pages is left"
        )));
    }
    let mut found = Vec::new();
    for (offset, problem) in damaged_headers(file)? {
        found.push(problem);
        if !read_only {
            let written = file.write_all_at(&info.encode(layout), offset);
            written.map_err(|e| Error::io(format!("write the header at {offset}"), e))?;
        }
    }
    // Counters are written in turn: at the opening and at the close, so that nothing is to be done about them.
    found.extend(damaged_counters(file, layout)?);
    let nvram_doubtful = layout.journal.bytes > 0 && bytes < should;
    if bytes != should {
        let what = match should.checked_sub(bytes) {
            Some(gone) if layout.journal.bytes > 0 => format!(
                "what was written last to the NVRAM may be lost, and the last {gone} bytes are gone, with whatever was in them"
            ),
            Some(gone) => format!("the last {gone} bytes are gone, with whatever was in them"),
            None => "what lies behind its end is not its own".to_string(),
        };
        found.push(format!("the image is {bytes} bytes long and should be {should}: {what}"));
        if !read_only {
            file.set_len(should).map_err(|e| Error::io("give the image its length", e))?;
            let room = take_room(file, layout.journal.offset, layout.journal.bytes);
            room.map_err(|e| Error::io("take room for the journal", e))?;
        }
    }
    if !read_only && !found.is_empty() {
        file.sync_all().map_err(|e| Error::io("save what was put right about the image", e))?;
    }
    Ok(Mended { problems: found, nvram_doubtful })
}

/// True if the journal has a record behind those that count by this slot.
fn goes_on_behind(file: &File, layout: &Layout, slot: &CountersSlot) -> std::io::Result<bool> {
    let file = HostFile::new(file.try_clone()?).with_zeros_behind_end();
    let end = layout.journal.replay(&file, (slot.journal_start, u64::MAX), slot.synced, |_, _| Ok(()))?;
    layout.journal.goes_on(&file, end)
}

/// Where a header is damaged, and how, in an image of which one is whole.
fn damaged_headers(file: &File) -> Result<Vec<(u64, String)>> {
    let mut found = Vec::new();
    for (name, offset) in [("first", 0), ("second", HEADER_COPY_OFFSET)] {
        if let Err(e) = ImageInfo::decode(&read_up_to(file, offset, UNIT)?) {
            let what = format!("the {name} of the image's two headers is damaged ({e}); the other is whole");
            found.push((offset, what));
        }
    }
    Ok(found)
}

/// The same of its slots of counters. A power cut while one is written does that, too: then it is the newer, and
/// nothing counts on it.
fn damaged_counters(file: &File, layout: &Layout) -> Result<Vec<String>> {
    let mut slots = Vec::new();
    for offset in COUNTERS_OFFSETS {
        let bytes = read_up_to(file, offset, UNIT)?;
        slots.push(Some(bytes).filter(|bytes| bytes.len() == UNIT).and_then(|b| CountersSlot::decode(&b)));
    }
    let mut found = Vec::new();
    for (name, slot, other) in [("first", slots[0], slots[1]), ("second", slots[1], slots[0])] {
        let Some(other) = other.filter(|_| slot.is_none()) else { continue };
        let goes_on = goes_on_behind(file, layout, &other).map_err(|e| Error::io("read the journal", e))?;
        // One that is clean is the newest.
        let meant = match (other.clean, goes_on) {
            (true, _) => "the other is whole",
            (false, true) => "by the other, what was synced last to the NVRAM may be lost",
            (false, false) => continue,
        };
        found.push(format!("the {name} of the image's two slots of counters is damaged; {meant}"));
    }
    Ok(found)
}
