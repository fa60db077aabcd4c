//! A device whose failures are reported where its server runs: a client behind a kernel only sees `EIO`, without a
//! reason.
//!
//! Invariants:
//! 1. Every call is passed through unchanged, and so is its result.
//! 2. A device that keeps failing does not flood the output: the first failures are reported, then one in a thousand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum::base::{Allocation, BlockDevice, DeviceInfo, Kind, Lba, Result};

/// Number of failures reported individually.
const TOLD_FIRST: u64 = 10;
/// After these, one in this many.
const TOLD_THEN: u64 = 1000;

/// See the module.
pub struct Reported<F> {
    device: Arc<dyn BlockDevice>,
    tell: F,
    failures: Tally,
}

/// Number of failures, which determines whether the next is reported.
pub struct Tally(AtomicU64);

impl<F: Fn(String) + Send + Sync> Reported<F> {
    /// Wraps `device`; `tell` receives a line for each reported failure.
    pub fn new(device: Arc<dyn BlockDevice>, tell: F) -> Reported<F> {
        Reported { device, tell, failures: Tally::new() }
    }

    /// Invalid requests are the client's problem; all other failures are reported.
    fn told<T>(&self, what: impl FnOnce() -> String, answer: Result<T>) -> Result<T> {
        answer.inspect_err(|e| {
            if matches!(e.kind(), Kind::Invalid | Kind::Unsupported) {
                return;
            }
            if let Some(so_far) = self.failures.one_more() {
                (self.tell)(format!("{} failed: {e}{so_far}", what()));
            }
        })
    }
}

impl Tally {
    /// A tally without failures.
    pub const fn new() -> Tally {
        Tally(AtomicU64::new(0))
    }

    /// Counts a failure. If it is to be reported, returns what to append: nothing, or the number so far.
    pub fn one_more(&self) -> Option<String> {
        match self.0.fetch_add(1, Relaxed) + 1 {
            ..=TOLD_FIRST => Some(String::new()),
            many if many.is_multiple_of(TOLD_THEN) => Some(format!(" ({many} failures so far)")),
            _ => None,
        }
    }
}

fn range(what: &str, lba: Lba, sectors: u64) -> String {
    match sectors {
        1 => format!("{what} of sector {}", lba.0),
        _ => format!("{what} of {sectors} sectors from {}", lba.0),
    }
}

impl<F: Fn(String) + Send + Sync> BlockDevice for Reported<F> {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        let sectors = (buf.len() / vellum::base::SECTOR_BYTES) as u64;
        self.told(|| range("a read", lba, sectors), self.device.read(lba, buf))
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        let sectors = (data.len() / vellum::base::SECTOR_BYTES) as u64;
        self.told(|| range("a write", lba, sectors), self.device.write(lba, data, fua))
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.told(|| range("a trim", lba, sectors), self.device.trim(lba, sectors))
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.told(|| range("zeroing", lba, sectors), self.device.write_zeroes(lba, sectors, fua))
    }
    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.device.discard(lba, sectors) // Only a hint: the sender reports what comes of it.
    }
    fn flush(&self) -> Result<()> {
        self.told(|| "a flush".to_string(), self.device.flush())
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.device.allocation(lba, sectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum::base::Error;
    use vellum::base::sync::Mutex;

    /// A device that fails to read beyond sector 9.
    struct Half;

    impl BlockDevice for Half {
        fn info(&self) -> DeviceInfo {
            DeviceInfo { sectors: 20, read_only: false, trims: true }
        }
        fn read(&self, lba: Lba, _buf: &mut [u8]) -> Result<()> {
            if lba.0 > 9 { Err(Error::corrupt("rotten")) } else { Ok(()) }
        }
        fn write(&self, _lba: Lba, _data: &[u8], _fua: bool) -> Result<()> {
            Err(Error::invalid("no such sector"))
        }
        fn trim(&self, _lba: Lba, _sectors: u64) -> Result<()> {
            Ok(())
        }
        fn write_zeroes(&self, _lba: Lba, _sectors: u64, _fua: bool) -> Result<()> {
            Ok(())
        }
        fn flush(&self) -> Result<()> {
            Err(Error::corrupt("lost"))
        }
        fn allocation(&self, _lba: Lba, _sectors: u64) -> Result<(Allocation, u64)> {
            Ok((Allocation::Data, 1))
        }
    }

    #[test]
    fn failures_are_told_and_not_too_often() {
        let said = Mutex::new(Vec::new());
        let device = Reported::new(Arc::new(Half), |line| said.lock().push(line));
        device.read(Lba(3), &mut [0; 4096]).unwrap();
        assert_eq!(device.read(Lba(12), &mut [0; 8192]).unwrap_err().kind(), Kind::Corrupt);
        device.write(Lba(99), &[0; 4096], false).unwrap_err();
        assert_eq!(device.read(Lba(12), &mut [0; 4096]).unwrap_err().kind(), Kind::Corrupt);
        device.flush().unwrap_err();
        assert_eq!(
            *said.lock(),
            [
                "a read of 2 sectors from 12 failed: rotten",
                "a read of sector 12 failed: rotten",
                "a flush failed: lost"
            ],
            "a wrong request is nobody's business here"
        );
        (0..1998).for_each(|_| drop(device.flush()));
        let said = said.lock();
        assert_eq!(said.len(), 10 + 2);
        assert_eq!(said[11], "a flush failed: lost (2000 failures so far)");
    }
}
