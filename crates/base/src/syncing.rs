//! Syncs of a file, a directory or a device, believed as far as the system can be.
//!
//! What the system could not make safe it tells of once, and forgets: the next sync says that all is well. Of two at a
//! time only one is told.

use crate::error::{Error, Kind, Result};
use crate::sync::Mutex;

/// See the module.
///
/// ```
/// # use vellum_base::{Error, Kind, Syncing};
/// let syncing = Syncing::default();
/// syncing.run(|| Ok(())).unwrap();
/// let full = syncing.run(|| Err(Error::new(Kind::NoSpace, "no space left on device")));
/// assert_eq!(full.unwrap_err().kind(), Kind::Io);
/// assert!(syncing.run(|| Ok(())).is_err());
/// ```
#[derive(Debug, Default)]
pub struct Syncing {
    has_failed: Mutex<bool>,
}

impl Syncing {
    /// Runs a sync, one at a time, and none any more once one failed. A lack of room is no better than another error:
    /// what is safe is unclear.
    pub fn run(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut has_failed = self.has_failed.lock();
        if *has_failed {
            return Err(Error::new(Kind::Io, "a sync failed before, and none can be believed any more"));
        }
        sync().map_err(|error| {
            *has_failed = true;
            match error.kind() {
                Kind::NoSpace => Error::new(Kind::Io, error.to_string()),
                _ => error,
            }
        })
    }
}
