//! Repairs of the image's file, made before its contents are repaired: one of two headers, one of two counters slots,
//! its length.

use super::format::{CountersSlot, HEADER_COPY_OFFSET, ImageInfo, Layout, UNIT};
use super::host::HostFile;
use super::{read_up_to, take_room};
use std::fs::File;
use std::os::unix::fs::FileExt;
use vellum_base::{Error, Result};

/// Problems found in an image that was opened for repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// Descriptions; empty if there were no problems.
    pub problems: Vec<String>,
    /// The latest writes to the NVRAM are lost, or may be, though they were synced.
    pub nvram_doubtful: bool,
}

impl Mended {
    /// Adds the problems to an error that occurred later: after the repair they are not found again.
    pub fn with(&self, error: Error) -> Error {
        match self.problems.is_empty() {
            true => error,
            false => error.context(self.problems.join("; ")),
        }
    }
}

impl Mended {
    /// Adds what is lost of a journal that ends at `end` when read, according to these counters, and whether those are
    /// certainly the newest. A damaged slot may come from a power cut while it was written. The next opening restores
    /// it, and nothing is lost unless records were counted by it.
    pub(super) fn judge_journal(
        &mut self,
        file: &HostFile,
        layout: &Layout,
        (slot, is_newest): (&CountersSlot, bool),
        end: u64,
    ) -> std::io::Result<()> {
        self.nvram_doubtful &= !slot.clean;
        if self.nvram_doubtful {
            self.problems.push("what was written last to the image's NVRAM may be lost".to_string());
        }
        if !is_newest && !slot.clean && layout.journal.goes_on(file, end)? {
            self.nvram_doubtful = true;
            self.problems.push(
                "one of the image's two slots of counters is damaged: by the other, what was synced last to the NVRAM may be lost"
                    .to_string(),
            );
        }
        let lost = lost_from_journal(slot, end);
        self.nvram_doubtful |= lost.is_some();
        self.problems.extend(lost);
        Ok(())
    }
}

/// Describes what is lost of a journal that ends at `end` when read, if anything.
pub(super) fn lost_from_journal(slot: &CountersSlot, end: u64) -> Option<String> {
    let lost = slot.journal_safe.checked_sub(end).filter(|lost| *lost > 0)?;
    let what = format!("{lost} bytes that were safe, and all after them, are lost");
    Some(format!("the journal of the image's NVRAM is damaged: {what}"))
}

/// Finds problems of the file, and fixes them unless `read_only`. An error if no pages are left.
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
    let nvram_doubtful = layout.journal.bytes > 0 && bytes < should;
    if bytes != should {
        let what = match should.checked_sub(bytes) {
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

/// Offsets and descriptions of damaged headers, in an image that has an intact one.
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
