//! A disk in memory, for tests, examples and benches: chunks of 64 sectors, made when first written.

use std::sync::Arc;
use vellum_base::sync::RwLock;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Lba, Result, SECTOR_BYTES};

const CHUNK_SECTORS: u64 = 64;

pub struct RamDisk {
    info: DeviceInfo,
    chunks: Vec<RwLock<Chunk>>,
}

/// Bit i of the masks is sector i of the chunk.
#[derive(Default)]
struct Chunk {
    bytes: Option<Box<[u8]>>,
    data: u64,
    zero: u64,
}

impl RamDisk {
    pub fn new(bytes: u64) -> Arc<RamDisk> {
        let info = DeviceInfo { sectors: bytes / SECTOR_BYTES as u64, read_only: false, trims: true };
        let chunks = (0..info.sectors.div_ceil(CHUNK_SECTORS)).map(|_| RwLock::default()).collect();
        Arc::new(RamDisk { info, chunks })
    }

    /// Calls `each` with every chunk the range touches: the chunk, its first sector in the range, how many, and
    /// where they begin within the range.
    fn each(&self, lba: Lba, sectors: u64, mut each: impl FnMut(&RwLock<Chunk>, usize, usize, usize)) {
        let mut done = 0;
        while done < sectors {
            let at = lba.0 + done;
            let within = at % CHUNK_SECTORS;
            let count = (CHUNK_SECTORS - within).min(sectors - done);
            each(&self.chunks[(at / CHUNK_SECTORS) as usize], within as usize, count as usize, done as usize);
            done += count;
        }
    }

    fn forget(&self, lba: Lba, sectors: u64, zero: bool) -> Result<()> {
        self.info.check_range(lba, sectors)?;
        self.each(lba, sectors, |chunk, within, count, _| {
            let mut chunk = chunk.write();
            let mask = mask(within, count);
            chunk.data &= !mask;
            chunk.zero = if zero { chunk.zero | mask } else { chunk.zero & !mask };
            if chunk.data == 0 {
                chunk.bytes = None;
            } else if let Some(bytes) = &mut chunk.bytes {
                bytes[within * SECTOR_BYTES..][..count * SECTOR_BYTES].fill(0);
            }
        });
        Ok(())
    }
}

fn mask(within: usize, count: usize) -> u64 {
    (u64::MAX >> (64 - count)) << within
}

impl BlockDevice for RamDisk {
    fn info(&self) -> DeviceInfo {
        self.info
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        let sectors = self.info.check_buffer(lba, buf.len())?;
        self.each(lba, sectors, |chunk, within, count, done| {
            let out = &mut buf[done * SECTOR_BYTES..][..count * SECTOR_BYTES];
            match &chunk.read().bytes {
                Some(bytes) => out.copy_from_slice(&bytes[within * SECTOR_BYTES..][..count * SECTOR_BYTES]),
                None => out.fill(0),
            }
        });
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], _fua: bool) -> Result<()> {
        let sectors = self.info.check_buffer(lba, data.len())?;
        self.each(lba, sectors, |chunk, within, count, done| {
            let mut chunk = chunk.write();
            chunk.data |= mask(within, count);
            chunk.zero &= !mask(within, count);
            let whole = || vec![0; CHUNK_SECTORS as usize * SECTOR_BYTES].into();
            chunk.bytes.get_or_insert_with(whole)[within * SECTOR_BYTES..][..count * SECTOR_BYTES]
                .copy_from_slice(&data[done * SECTOR_BYTES..][..count * SECTOR_BYTES]);
        });
        Ok(())
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.forget(lba, sectors, false)
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, _fua: bool) -> Result<()> {
        self.forget(lba, sectors, true)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.info.check_range(lba, sectors)?;
        let kind_of = |at: u64| {
            let chunk = self.chunks[(at / CHUNK_SECTORS) as usize].read();
            match 1u64 << (at % CHUNK_SECTORS) {
                bit if chunk.data & bit != 0 => Allocation::Data,
                bit if chunk.zero & bit != 0 => Allocation::Zero,
                _ => Allocation::Hole,
            }
        };
        let kind = kind_of(lba.0);
        let alike = (1..sectors).take_while(|i| kind_of(lba.0 + i) == kind).count() as u64;
        Ok((kind, alike + 1))
    }
}
