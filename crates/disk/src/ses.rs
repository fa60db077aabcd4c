//! Host-side SES-Dedup: a scrambler in the host's software, in front of a device that scrambles (ses-dedup.txt, section
//! III.B).
//!
//! The host XORs every sector with the same keystream as the device, so plain data reach the flash. The parity that the
//! device's code computes anyway is then that of plain data, and equal for equal sectors.
//!
//! ```text
//! host ── its scrambler ── the bus: noise ── the device's scrambler ── disk: plain ── flash: plain, and parity of it
//! ```
//!
//! In a drive the scrambler is below the mapping. It depends only on the sector, so it may as well be modelled above
//! it: nothing in the mapping depends on scrambling, except the parts that examine data, for which plain data are
//! right. So zeros are elided, duplicates compared and journals read in this mode as in others.
//!
//! Invariants:
//! 1. [`host_side`] accepts only a scrambler equal to the device's for all its sectors: another would store noise,
//!    readable only with the same wrong scrambler.
//! 2. Metadata are scrambled by the device: the host does not see them.

use crate::Disk;
use crate::format::place::At;
use std::sync::Arc;
use vellum_base::{
    Allocation, BlockDevice, DeviceInfo, Error, Flash, Kind, Lba, Result, SECTOR_BYTES, Scrambling, SlotAddr,
};
use vellum_codes::scrambler::Scrambler;

/// A device with a scrambler in front, applied in both directions.
struct Scrambled<D, K> {
    device: D,
    keystream: K,
}

trait Keystream: Send + Sync {
    /// Scrambles a sector; the same call descrambles it.
    fn xor(&self, lba: Lba, sector: &mut [u8]);
}

/// The scrambler of the device itself.
struct OfFlash(Arc<dyn Flash>);

/// `disk`, opened with [`crate::Options::host_scrambles`], as seen by a host that knows the device's scrambler and
/// undoes it.
///
/// [`Kind::Unsupported`] if the device does not scramble by sector, [`Kind::Invalid`] if `scrambler` differs from the
/// device's or does not know all of its sectors.
pub fn host_side(disk: Arc<Disk>, scrambler: Scrambler) -> Result<Arc<dyn BlockDevice>> {
    let keystream = OfFlash::new(disk.flash.clone())?;
    keystream.check(&scrambler, disk.info().sectors)?;
    let device = Scrambled { device: disk, keystream };
    Ok(Arc::new(Scrambled { device, keystream: scrambler }))
}

impl Disk {
    /// The slot of flash that holds a sector's bytes, alone or shared. `None` for a sector that is a hole, zeros,
    /// packed with others, or not on flash yet.
    pub fn slot_of(&self, lba: Lba) -> Result<Option<SlotAddr>> {
        self.info().check_range(lba, 1)?;
        let ftl = self.ftl.lock();
        let At::Slot(slot) = ftl.map.place(lba.0 as u32).at() else { return Ok(None) };
        let (page, index) = ftl.geometry.page_of_slot(slot);
        Ok(ftl.page.slot(page, index).is_none().then_some(slot))
    }

    /// True if the sector shares its place: then its slot's keystream may be that of another address.
    pub fn is_shared(&self, lba: Lba) -> Result<bool> {
        self.info().check_range(lba, 1)?;
        Ok(self.ftl.lock().map.is_shared(lba.0 as u32))
    }
}

impl OfFlash {
    fn new(flash: Arc<dyn Flash>) -> Result<OfFlash> {
        let why = match flash.parity().map(|parity| parity.scrambling()) {
            Some(Scrambling::BySector) => return Ok(OfFlash(flash)),
            Some(Scrambling::ByPage { .. }) => {
                "the keystream comes from the physical page, which a host does not know"
            }
            Some(Scrambling::Off) | None => {
                "the device does not scramble: there is nothing for a host to undo"
            }
        };
        Err(Error::new(Kind::Unsupported, why))
    }

    /// Refuses keystreams of another scrambler. They are an affine function of the address, so a few samples are a
    /// proof.
    fn check(&self, scrambler: &Scrambler, sectors: u64) -> Result<()> {
        let powers = (0..64).map(|bit| 1 << bit).take_while(|power| *power < sectors);
        for address in [0].into_iter().chain(powers) {
            let mut sector = [0; SECTOR_BYTES];
            self.xor(Lba(address), &mut sector);
            scrambler.xor_into(address, &mut sector).map_err(|e| Error::invalid(e.to_string()))?;
            if !vellum_codes::is_zero(&sector) {
                return Err(Error::invalid(format!("the device has another keystream for sector {address}")));
            }
        }
        Ok(())
    }
}

impl Keystream for OfFlash {
    fn xor(&self, lba: Lba, sector: &mut [u8]) {
        if let Some(parity) = self.0.parity() {
            parity.scramble(lba.0, sector);
        }
    }
}

impl Keystream for Scrambler {
    fn xor(&self, lba: Lba, sector: &mut [u8]) {
        self.xor_into(lba.0, sector).expect("all sectors of the device were found to be known");
    }
}

impl<D, K: Keystream> Scrambled<D, K> {
    fn xor(&self, lba: Lba, data: &mut [u8]) {
        for (i, sector) in data.chunks_exact_mut(SECTOR_BYTES).enumerate() {
            self.keystream.xor(lba.offset(i as u64), sector);
        }
    }
}

impl<D: BlockDevice, K: Keystream> BlockDevice for Scrambled<D, K> {
    fn info(&self) -> DeviceInfo {
        self.device.info()
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.device.read(lba, buf)?;
        self.xor(lba, buf);
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.info().check_buffer(lba, data.len())?;
        let mut data = data.to_vec();
        self.xor(lba, &mut data);
        self.device.write(lba, &data, fua)
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.device.trim(lba, sectors)
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.device.write_zeroes(lba, sectors, fua)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush()
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.device.allocation(lba, sectors)
    }
}
