//! What can be put right about the file of an image before what is in it is repaired: one header of two, one slot of
//! counters of two, its length.

use super::format::{COUNTERS_OFFSETS, CountersSlot, HEADER_COPY_OFFSET, ImageInfo, Layout, UNIT};
use super::{read_up_to, take_room};
use std::fs::File;
use std::os::unix::fs::FileExt;
use vellum_base::{Error, Result};

/// What is wrong with the file, in words; put right unless `read_only`. An error if none of its pages is left.
pub(super) fn mend(file: &File, info: &ImageInfo, layout: &Layout, read_only: bool) -> Result<Vec<String>> {
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
    found.extend(damaged_counters(file)?);
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
    Ok(found)
}

/// What is wrong with an image that can be used all the same, in words.
pub(super) fn problems(file: &File) -> Result<Vec<String>> {
    let headers = damaged_headers(file)?.into_iter().map(|(_, problem)| problem);
    Ok(headers.chain(damaged_counters(file)?).collect())
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

/// The same of its slots of counters. A power cut while one is written does that too.
fn damaged_counters(file: &File) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, offset) in ["first", "second"].into_iter().zip(COUNTERS_OFFSETS) {
        let bytes = read_up_to(file, offset, UNIT)?;
        if bytes.len() < UNIT || CountersSlot::decode(&bytes).is_none() {
            found.push(format!(
                "the {name} of the image's two slots of counters is damaged; the other is whole"
            ));
        }
    }
    Ok(found)
}
