//! Byte-granular access to a device of 4 KiB sectors.
//!
//! Invariants:
//! 1. A write of part of a sector is a read-modify-write under an exclusive lock of the sector's stripe; every other
//!    change in the stripe holds a shared lock. So no concurrent change of other bytes of the sector is lost.
//! 2. Each stripe is locked once, in ascending order, so that calls cannot deadlock.
//! 3. Whole sectors are passed to the device without a copy.

use std::sync::Arc;
use vellum_base::sync::RwLock;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Error, Lba, Result, SECTOR_BYTES};

const SECTOR: u64 = SECTOR_BYTES as u64;
/// Adjacent sectors share a stripe, so that an ordinary request takes one lock.
const STRIPE_SECTORS: u64 = 256;
const STRIPES: usize = 64;

/// A [`BlockDevice`] with byte addressing: offsets and lengths need no alignment.
pub struct ByteDevice {
    device: Arc<dyn BlockDevice>,
    info: DeviceInfo,
    stripes: [RwLock<()>; STRIPES],
}

/// A byte range split at sector boundaries: a partial first sector, whole sectors, a partial last sector. A range
/// within a single sector is only a head.
struct Cut {
    head: Option<Part>,
    body: (Lba, u64),
    tail: Option<Part>,
}

/// Bytes `from..to` of one sector.
#[derive(Clone, Copy)]
struct Part {
    lba: Lba,
    from: usize,
    to: usize,
}

impl ByteDevice {
    /// Gives byte access to `device`, whose size must not change.
    pub fn new(device: Arc<dyn BlockDevice>) -> ByteDevice {
        let info = device.info();
        ByteDevice { device, info, stripes: std::array::from_fn(|_| RwLock::new(())) }
    }

    /// The device below.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.info.bytes()
    }

    /// True if the device cannot be written.
    pub fn read_only(&self) -> bool {
        self.info.read_only
    }

    /// True if it pays to trim or zero: the current [`DeviceInfo::trims`].
    pub fn trims(&self) -> bool {
        self.device.info().trims
    }

    /// Reads `buf.len()` bytes from `offset`.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let cut = self.cut(offset, buf.len() as u64)?;
        let mut rest = buf;
        if let Some(part) = cut.head {
            rest = self.read_part(part, rest)?;
        }
        if cut.body.1 > 0 {
            let (body, after) = rest.split_at_mut((cut.body.1 * SECTOR) as usize);
            self.device.read(cut.body.0, body)?;
            rest = after;
        }
        if let Some(part) = cut.tail {
            self.read_part(part, rest)?;
        }
        Ok(())
    }

    /// Writes `data` at `offset`. With `fua` it is durable when the call returns.
    pub fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<()> {
        let cut = self.cut(offset, data.len() as u64)?;
        self.locked(&cut, || {
            let mut rest = data;
            if let Some(part) = cut.head {
                let (bytes, after) = rest.split_at(part.to - part.from);
                self.patch(part, fua, |old| old.copy_from_slice(bytes))?;
                rest = after;
            }
            if cut.body.1 > 0 {
                let (body, after) = rest.split_at((cut.body.1 * SECTOR) as usize);
                self.device.write(cut.body.0, body, fua)?;
                rest = after;
            }
            match cut.tail {
                Some(part) => self.patch(part, fua, |old| old.copy_from_slice(rest)),
                None => Ok(()),
            }
        })
    }

    /// Trims `length` bytes from `offset`, which then read as zeros. Partially covered sectors are patched.
    pub fn trim(&self, offset: u64, length: u64) -> Result<()> {
        self.clear(offset, length, false, |lba, sectors| self.device.trim(lba, sectors))
    }

    /// Zeroes `length` bytes from `offset`; whole sectors without writing data.
    pub fn write_zeroes(&self, offset: u64, length: u64, fua: bool) -> Result<()> {
        self.clear(offset, length, fua, |lba, sectors| self.device.write_zeroes(lba, sectors, fua))
    }

    /// Makes everything acknowledged so far durable.
    pub fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    /// The allocation at `offset`, and how many bytes from there (1 to `length`) have the same.
    pub fn allocation(&self, offset: u64, length: u64) -> Result<(Allocation, u64)> {
        self.check(offset, length)?;
        if length == 0 {
            return Err(Error::invalid("allocation of an empty range"));
        }
        let first = offset / SECTOR;
        let sectors = (offset + length).div_ceil(SECTOR) - first;
        let (kind, alike) = self.device.allocation(Lba(first), sectors)?;
        let end = (first + alike.clamp(1, sectors)) * SECTOR;
        Ok((kind, end.min(offset + length) - offset))
    }

    fn check(&self, offset: u64, length: u64) -> Result<()> {
        match offset.checked_add(length) {
            Some(end) if end <= self.bytes() => Ok(()),
            _ => Err(Error::invalid(format!(
                "bytes {offset} + {length} are outside the device of {} bytes",
                self.bytes()
            ))),
        }
    }

    fn cut(&self, offset: u64, length: u64) -> Result<Cut> {
        self.check(offset, length)?;
        let (first, end) = (offset / SECTOR, offset + length);
        let (from, to) = ((offset % SECTOR) as usize, (end % SECTOR) as usize);
        if length == 0 {
            return Ok(Cut { head: None, body: (Lba(first), 0), tail: None });
        }
        if first == end / SECTOR {
            let whole_in_one = Part { lba: Lba(first), from, to };
            return Ok(Cut { head: Some(whole_in_one), body: (Lba(first), 0), tail: None });
        }
        let head = (from > 0).then_some(Part { lba: Lba(first), from, to: SECTOR_BYTES });
        let tail = (to > 0).then_some(Part { lba: Lba(end / SECTOR), from: 0, to });
        let start = offset.div_ceil(SECTOR);
        Ok(Cut { head, body: (Lba(start), end / SECTOR - start), tail })
    }

    fn read_part<'a>(&self, part: Part, buf: &'a mut [u8]) -> Result<&'a mut [u8]> {
        let mut sector = [0; SECTOR_BYTES];
        self.device.read(part.lba, &mut sector)?;
        let (bytes, after) = buf.split_at_mut(part.to - part.from);
        bytes.copy_from_slice(&sector[part.from..part.to]);
        Ok(after)
    }

    /// Reads a sector, changes it and writes it back. The caller holds its stripe exclusively.
    fn patch(&self, part: Part, fua: bool, change: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut sector = [0; SECTOR_BYTES];
        self.device.read(part.lba, &mut sector)?;
        change(&mut sector[part.from..part.to]);
        self.device.write(part.lba, &sector, fua)
    }

    fn clear(
        &self,
        offset: u64,
        length: u64,
        fua: bool,
        whole: impl Fn(Lba, u64) -> Result<()>,
    ) -> Result<()> {
        let cut = self.cut(offset, length)?;
        self.locked(&cut, || {
            for part in [cut.head, cut.tail].into_iter().flatten() {
                self.patch(part, fua, |old| old.fill(0))?;
            }
            if cut.body.1 > 0 { whole(cut.body.0, cut.body.1) } else { Ok(()) }
        })
    }

    /// Runs `change` with the stripes of `cut` held: exclusively where a sector is patched, shared elsewhere.
    fn locked<T>(&self, cut: &Cut, change: impl FnOnce() -> T) -> T {
        let first = cut.head.map_or(cut.body.0, |part| part.lba).0 / STRIPE_SECTORS;
        let after_body = cut.body.0.0 + cut.body.1.max(1) - 1;
        let last =
            cut.tail.map_or(after_body, |part| part.lba.0).max(first * STRIPE_SECTORS) / STRIPE_SECTORS;
        let stripe = |lba: u64| (lba / STRIPE_SECTORS) as usize % STRIPES;
        if first == last && cut.head.is_none() && cut.tail.is_none() {
            let _shared = self.stripes[stripe(cut.body.0.0)].read();
            return change();
        }
        let mut exclusive = 0u64;
        for part in [cut.head, cut.tail].into_iter().flatten() {
            exclusive |= 1 << stripe(part.lba.0);
        }
        let mut touched = exclusive;
        for region in (first..=last).take(STRIPES) {
            touched |= 1 << (region as usize % STRIPES);
        }
        let of = |mask: u64| (0..STRIPES).filter(move |i| mask >> i & 1 == 1);
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        for i in of(touched) {
            if exclusive >> i & 1 == 1 {
                writers.push(self.stripes[i].write());
            } else {
                readers.push(self.stripes[i].read());
            }
        }
        change()
    }
}
