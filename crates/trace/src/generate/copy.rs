//! Copies of real files, as in woj.txt, section 3.5: the data written are those of a directory of the user.

use crate::content::Content;
use crate::generate::ext::{DirectoryId, FileId, FileOperation as Op};
use crate::generate::files::bursts;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use vellum_base::{Error, Result, SECTOR_BYTES};

/// Copies the regular files below `directory`, one after the other, ordered by name. Symbolic links are not followed.
/// Only the list of names is held in memory.
///
/// A file that cannot be read completely when its turn comes is copied as far as possible.
pub fn tree(directory: &Path) -> Result<impl Iterator<Item = Op> + Send + use<>> {
    let mut directories = Vec::new();
    let mut files = Vec::new();
    walk(directory, DirectoryId(0), &mut directories, &mut files)?;
    let made = directories.into_iter().map(Op::MakeDirectory);
    let copied = files.into_iter().enumerate().flat_map(|(number, (path, parent))| {
        let id = FileId(number as u64);
        std::iter::once(Op::Create(id, parent)).chain(blocks(path, id))
    });
    Ok(made.chain(copied))
}

type Found = (PathBuf, DirectoryId);

fn walk(
    path: &Path,
    id: DirectoryId,
    directories: &mut Vec<DirectoryId>,
    files: &mut Vec<Found>,
) -> Result<()> {
    let io = |e| Error::io(format_args!("read the directory {}", path.display()), e);
    let mut entries = fs::read_dir(path).map_err(io)?.collect::<std::io::Result<Vec<_>>>().map_err(io)?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let kind = entry.file_type().map_err(io)?;
        if kind.is_dir() {
            let child = DirectoryId(directories.len() as u64 + 1);
            directories.push(child);
            walk(&entry.path(), child, directories, files)?;
        } else if kind.is_file() {
            files.push((entry.path(), id));
        }
    }
    Ok(())
}

/// The blocks of a file; the last one is padded with zeros, as by a file system.
fn blocks(path: PathBuf, id: FileId) -> impl Iterator<Item = Op> + Send {
    let mut file = None;
    let mut block = 0;
    bursts(move |queue| {
        if block == 0 {
            file = File::open(&path).ok().map(|f| BufReader::with_capacity(1 << 18, f));
        }
        let mut bytes = Vec::with_capacity(SECTOR_BYTES);
        if let Some(file) = &mut file {
            // A failed read ends the file here, as documented.
            let _ = file.take(SECTOR_BYTES as u64).read_to_end(&mut bytes);
        }
        if !bytes.is_empty() {
            bytes.resize(SECTOR_BYTES, 0);
            queue.push_back(Op::Write(id, block, Content::of_bytes(&bytes)));
            block += 1;
        }
    })
}
