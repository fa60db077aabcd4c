//! A flash image that has its name only when it is whole, with a store on it if one was wanted.

use super::{AnyStore, Options, flash_media, named, params_of};
use crate::whole_file::{ORDINARY, WholeFile};
use std::io;
use std::path::{Path, PathBuf};
use vellum_base::{Error, Result};
use vellum_kv::{Batch, Engine, FlashMedia};
use vellum_media::Image;
use vellum_media::nand::Wear;

/// See the module. If it is dropped before it is finished, nothing is left of it.
pub struct NewImage {
    file: WholeFile,
    path: PathBuf,
}

impl NewImage {
    /// Begins an image with room for this many bytes of tables, to be at `path`, where nothing may exist yet.
    pub fn begin(path: impl AsRef<Path>, bytes: u64) -> Result<NewImage> {
        let path = path.as_ref();
        let begun = || {
            let params = params_of(bytes)?;
            let file = WholeFile::begin(path, false, ORDINARY)?;
            let flash = Image::create_in(file.again()?, &params)?;
            FlashMedia::format(&flash)?;
            Ok(NewImage { file, path: path.to_path_buf() })
        };
        begun().map_err(|e| named(e, path))
    }

    /// Creates a store on it, as [`AnyStore::open`] does; to be closed before [`NewImage::finish`].
    pub fn create(&self, wanted: Option<Engine>, options: Options) -> Result<AnyStore> {
        let created = || {
            let flash = Image::open_file(self.file.again()?, false, Wear::default())?;
            AnyStore::on(flash_media(&self.path, flash)?, wanted, options, &Batch::new())
        };
        created().map_err(|e| named(e, &self.path))
    }

    /// Gives it its name, durably.
    pub fn finish(self) -> Result<()> {
        let path = self.path.display();
        self.file.finish().map_err(|e| match e.kind() {
            io::ErrorKind::AlreadyExists => Error::invalid(format!("{path} is there already")),
            _ => Error::io(format!("create {path}"), e),
        })
    }
}
