//! What is asked for, and what the medium makes of it.

use crate::media::{Media, Sharing};
use crate::options::Reuse;
use vellum_base::Result;

/// What the options of an engine say.
pub(crate) struct Asked {
    pub reuse: Reuse,
    pub island_bytes_min: Option<u64>,
}

impl Asked {
    /// What is done where the medium can share bytes in its way, which is looked up only if that is wanted.
    pub(crate) fn settle(self, media: &dyn Media, read_only: bool) -> Result<(Asked, Sharing)> {
        let asks = matches!(self.reuse, Reuse::Relink | Reuse::Auto) && !read_only;
        let sharing = if asks { media.sharing()? } else { Sharing::None };
        let reuse = match (self.reuse, sharing) {
            (Reuse::Auto, Sharing::None) => Reuse::Off,
            (Reuse::Auto, _) => Reuse::Relink,
            (said, _) => said,
        };
        let island_bytes_min = self.island_bytes_min.unwrap_or(sharing.island_bytes_min());
        Ok((Asked { reuse, island_bytes_min: Some(island_bytes_min) }, sharing))
    }
}
