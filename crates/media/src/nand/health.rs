//! Whether the device has power, and whether it may be written.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use vellum_base::FlashError;

const OFF: u8 = 1;
const POISONED: u8 = 2;
const READ_ONLY: u8 = 4;

/// Flags checked by every call, in one byte.
#[derive(Default)]
pub(crate) struct Health {
    flags: AtomicU8,
    cuts: AtomicU64,
    unsynced: AtomicBool,
}

impl Health {
    /// A device that has had `cuts` power cuts.
    pub fn new(cuts: u64, read_only: bool) -> Health {
        let flags = AtomicU8::new(if read_only { READ_ONLY } else { 0 });
        Health { flags, cuts: AtomicU64::new(cuts), unsynced: AtomicBool::new(false) }
    }

    /// Fails if the power is off.
    #[inline]
    pub fn check_read(&self) -> Result<(), FlashError> {
        match self.flags.load(Relaxed) & OFF {
            0 => Ok(()),
            _ => Err(FlashError::PowerLost),
        }
    }

    /// Fails if the power is off, or writing is not allowed.
    #[inline]
    pub fn check_write(&self) -> Result<(), FlashError> {
        match self.flags.load(Relaxed) {
            0 => Ok(()),
            flags => Err(refusal(flags)),
        }
    }

    /// Forbids all writes from now on.
    pub fn poison(&self) {
        self.flags.fetch_or(POISONED, Relaxed);
    }

    /// True if writing is forbidden because an earlier write failed.
    pub fn is_poisoned(&self) -> bool {
        self.flags.load(Relaxed) & POISONED != 0
    }

    /// True if it was opened read-only.
    pub fn is_read_only(&self) -> bool {
        self.flags.load(Relaxed) & READ_ONLY != 0
    }

    /// Turns the power off, unless it is off already.
    pub fn power_off(&self) {
        if self.flags.fetch_or(OFF, Relaxed) & OFF == 0 {
            self.cuts.fetch_add(1, Relaxed);
        }
    }

    /// True while the power is off.
    pub fn is_off(&self) -> bool {
        self.flags.load(Relaxed) & OFF != 0
    }

    /// Turns the power on. `forgive` also forgets failed writes.
    pub fn revive(&self, forgive: bool) {
        self.flags.fetch_and(if forgive { READ_ONLY } else { READ_ONLY | POISONED }, Relaxed);
    }

    /// Number of power cuts so far.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Relaxed)
    }

    /// Records a change that a sync has to make durable. Called after the change: otherwise a sync in between would
    /// take the flag and miss the change.
    #[inline]
    pub fn touch(&self) {
        if !self.unsynced.load(Relaxed) {
            self.unsynced.store(true, Relaxed);
        }
    }

    /// True if something changed since the last call.
    pub fn take_unsynced(&self) -> bool {
        self.unsynced.swap(false, Relaxed)
    }
}

#[cold]
fn refusal(flags: u8) -> FlashError {
    if flags & OFF != 0 {
        return FlashError::PowerLost;
    }
    FlashError::Io(std::io::Error::other(match flags & POISONED {
        0 => "the image was opened read-only; open it for writing",
        _ => "an earlier write or sync failed, so nothing more is written; open it again",
    }))
}
