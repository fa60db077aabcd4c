//! The small memory that keeps its contents when power is lost.

use super::Shared;
use super::dice::roll;
use super::faults::{Call, Fault};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{FlashError, Nvram};

/// Persistent storage of NVRAM writes.
pub(crate) trait NvramBacking: Send + Sync {
    /// Writes through; `apart` as in [`Nvram::write_apart`].
    fn write(&self, offset: usize, data: &[u8], apart: bool) -> Result<(), FlashError>;
}

/// NVRAM in memory, written through to its backing if it has one.
pub(crate) struct NvramDevice {
    bytes: Mutex<Vec<u8>>,
    backing: Option<Box<dyn NvramBacking>>,
    shared: Arc<Shared>,
}

impl NvramDevice {
    /// An NVRAM that holds `bytes`.
    pub fn new(bytes: Vec<u8>, backing: Option<Box<dyn NvramBacking>>, shared: Arc<Shared>) -> NvramDevice {
        NvramDevice { bytes: Mutex::new(bytes), backing, shared }
    }

    fn write_as(&self, offset: usize, data: &[u8], apart: bool) -> Result<(), FlashError> {
        self.shared.health.check_write()?;
        let mut bytes = self.bytes.lock();
        check(offset, data.len(), bytes.len())?;
        let cut = matches!(self.shared.count(Call::NvramWrite)?, Some(Fault::PowerCutInNvram));
        let data = match cut {
            true => &data[..roll(offset as u64, [0x2B, data.len() as u64, 0, 0]) as usize % (data.len() + 1)],
            false => data,
        };
        if let Some(backing) = &self.backing {
            backing.write(offset, data, apart).inspect_err(|_| self.shared.health.poison())?;
        }
        bytes[offset..offset + data.len()].copy_from_slice(data);
        self.shared.health.touch();
        if cut {
            self.shared.health.power_off();
            return Err(FlashError::PowerLost);
        }
        Ok(())
    }

    /// A copy of its contents.
    pub fn content(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }
}

fn check(offset: usize, len: usize, bytes: usize) -> Result<(), FlashError> {
    match offset.checked_add(len) {
        Some(end) if end <= bytes => Ok(()),
        _ => Err(FlashError::Rule(format!("{len} bytes at {offset} are outside the NVRAM of {bytes} bytes"))),
    }
}

impl Nvram for NvramDevice {
    fn bytes(&self) -> usize {
        self.bytes.lock().len()
    }

    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), FlashError> {
        self.shared.health.check_read()?;
        let bytes = self.bytes.lock();
        check(offset, out.len(), bytes.len())?;
        out.copy_from_slice(&bytes[offset..offset + out.len()]);
        Ok(())
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), FlashError> {
        self.write_as(offset, data, false)
    }

    fn write_apart(&self, offset: usize, data: &[u8]) -> Result<(), FlashError> {
        self.write_as(offset, data, true)
    }
}
