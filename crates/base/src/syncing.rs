//! Syncs of a file, a directory or a device, with errors made permanent.
//!
//! The operating system reports data that it failed to write back only once: the next sync succeeds although the data
//! is not durable. If two syncs run at a time, only one of them gets the error.

use crate::error::{Error, Kind, Result};
use crate::sync::Mutex;

/// Serialises syncs and remembers a failure; see the module.
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
    /// Runs a sync, one at a time. After one has failed, all later ones fail without being run. [`Kind::NoSpace`]
    /// becomes [`Kind::Io`]: as with any other error, it is unknown what is durable.
    pub fn run(&self, sync: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut has_failed = self.has_failed.lock();
        if *has_failed {
            return Err(Error::new(Kind::Io, "a sync failed before, and none can be believed any more"));
        }
        sync().map_err(|error| {
            *has_failed = true;
            match error.kind() {
                Kind::NoSpace => Error::new(Kind::Io, error.to_string()).because(error.reason()),
                _ => error,
            }
        })
    }
}
