//! The two halves of an NVRAM on a device (docs/formats/array.md).

use super::record::{BATCH_HEAD, decode_batch, encode_batch};
use super::state::State;
use crate::assemble::Device;
use crate::superblock::{Id, id_at, is_sealed, seal, u32_at, u64_at};
use vellum_base::{BlockDevice, Error, Kind, Lba, Result, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"VLMCNVRM";
const VERSION: u32 = 5;
/// The oldest that is read: its records have no checksums of pages.
const VERSION_MIN: u32 = 4;
/// Least bytes of a half, its head included.
pub const HALF_BYTES_MIN: u64 = 256 << 10;
/// More of a region is not used.
pub const HALF_BYTES_MAX: u64 = 64 << 20;
/// Sectors in which a head is looked for at once.
const SECTORS_AT_ONCE: u64 = 256;
/// Bytes of records that are one batch when a half begins.
const BATCH_BYTES: usize = 1 << 20;

/// Which cache an NVRAM is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// The cache's array.
    pub array: Id,
    /// Of the cache's superblock.
    pub tag: u64,
}

/// The head of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Which cache's.
    pub whose: Whose,
    /// The greater counts.
    pub generation: u64,
    /// Pages of the log that count when the half begins.
    pub log: (u64, u64),
    /// Bytes of batches that were there before the head.
    pub bytes: u64,
    /// A random number that all batches of the half have: no leftover, and nothing that a guest wrote, is one.
    pub mark: u64,
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; SECTOR_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[12..16].copy_from_slice(&VERSION.to_le_bytes());
        let fields = [self.whose.tag, self.generation, self.log.0, self.log.1, self.bytes, self.mark];
        for (at, field) in fields.iter().enumerate() {
            out[16 + at * 8..][..8].copy_from_slice(&field.to_le_bytes());
        }
        out[64..80].copy_from_slice(&self.whose.array);
        seal(&mut out);
        out
    }

    /// From the first sector of a half; None if there is nothing.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if there is something else, [`Kind::Unsupported`] if that is of another version.
    pub fn decode(sector: &[u8]) -> Result<Option<Head>> {
        if sector.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let damaged = || Error::corrupt("its head is damaged, or it is no NVRAM");
        if sector.len() != SECTOR_BYTES || &sector[..8] != MAGIC || !is_sealed(sector) {
            return Err(damaged());
        }
        if !(VERSION_MIN..=VERSION).contains(&u32_at(sector, 12)) {
            let why = format!(
                "it has version {}, this program knows {VERSION}: detach the cache with the program that wrote it, then \
                 attach it anew",
                u32_at(sector, 12)
            );
            return Err(Error::new(Kind::Unsupported, why));
        }
        let [tag, generation, first, next, bytes, mark] = std::array::from_fn(|i| u64_at(sector, 16 + i * 8));
        let whose = Whose { array: id_at(sector, 64), tag };
        let head = Head { whose, generation, log: (first, next), bytes, mark };
        (first <= next && generation < u64::MAX / 2).then_some(Some(head)).ok_or_else(damaged)
    }
}

/// What a region holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Of the half that counts.
    pub head: Head,
    /// All that its records come to.
    pub state: State,
}

/// Reads a region whole; None: it is blank. A head that is damaged does not matter while the other is there: what comes
/// behind a new head is written when the one before is not there any more.
///
/// # Errors
/// [`Kind::Corrupt`] if it holds what is not an NVRAM, or a record is missing in front of others.
pub fn read_region(device: &dyn BlockDevice) -> Result<Option<Found>> {
    let half = half_sectors(device);
    let (mut found, mut first_error) = (Vec::new(), None);
    for (first, head) in read_heads(device)? {
        match head {
            Ok(head) => found.extend(head.map(|head| (first, head))),
            Err(error) => drop(first_error.get_or_insert(error)),
        }
    }
    let Some((first, head)) = found.into_iter().max_by_key(|(_, head)| head.generation) else {
        return first_error.map_or(Ok(None), Err);
    };
    let mut stored = vec![0; (half as usize).saturating_sub(1) * SECTOR_BYTES];
    device.read(Lba(first + 1), &mut stored)?;
    replay(&head, &stored).map(|state| Some(Found { head, state }))
}

/// The greatest generation of a region's halves, whosever they are.
pub(in crate::cache::engine) fn last_generation(device: &dyn BlockDevice) -> Result<u64> {
    let heads = read_heads(device)?.into_iter().filter_map(|(_, head)| head.ok().flatten());
    Ok(heads.map(|head| head.generation).max().unwrap_or(0))
}

/// The array that has a device as NVRAM; None inside: that cannot be read, or it is of another version.
pub(crate) fn region_owner(device: &dyn BlockDevice) -> Option<Option<Id>> {
    let heads = read_heads(device).ok()?;
    let newest = heads.iter().filter_map(|(_, head)| *head.as_ref().ok()?).max_by_key(|head| head.generation);
    if let Some(head) = newest {
        return Some(Some(head.whose.array));
    }
    let is_head = |first: u64| {
        let mut sector = vec![0; SECTOR_BYTES];
        device.read(Lba(first), &mut sector).is_ok() && &sector[..8] == MAGIC
    };
    if heads.iter().any(|(first, _)| is_head(*first)) {
        return Some(None);
    }
    // Where the second half begins its cache knows, if the device has grown; the head of the first is zeroed then.
    matches!(heads[0], (_, Ok(None))).then(|| later_head(device)).flatten().map(|head| Some(head.whose.array))
}

/// Zeroes the head of a second half that began here when halves were shorter: nobody else would, and who looks for an
/// owner would find it. A cache that has just begun empty has written less than that.
pub(in crate::cache::engine) fn blank_head(device: &dyn BlockDevice, had: u32) -> Result<()> {
    let first = u64::from(had);
    match (HALF_BYTES_MIN / SECTOR_BYTES as u64..half_sectors(device)).contains(&first) {
        true => device.write(Lba(first), &[0; SECTOR_BYTES], true),
        false => Ok(()),
    }
}

/// The first head at which a second half may begin.
fn later_head(device: &dyn BlockDevice) -> Option<Head> {
    let (least, most) = (HALF_BYTES_MIN / SECTOR_BYTES as u64, half_sectors(device));
    let mut stored = vec![0; SECTORS_AT_ONCE as usize * SECTOR_BYTES];
    (least..most).step_by(SECTORS_AT_ONCE as usize).find_map(|first| {
        let some = &mut stored[..SECTORS_AT_ONCE.min(most - first) as usize * SECTOR_BYTES];
        device.read(Lba(first), some).ok()?;
        some.chunks(SECTOR_BYTES).find_map(|sector| Head::decode(sector).ok()?)
    })
}

/// What the first sectors of the halves say. One that cannot be read is like one that is damaged.
fn read_heads(device: &dyn BlockDevice) -> Result<Vec<(u64, Result<Option<Head>>)>> {
    let mut heads = Vec::new();
    for first in [0, half_sectors(device)] {
        let mut sector = vec![0; SECTOR_BYTES];
        let head = match device.read(Lba(first), &mut sector) {
            Err(error) if error.kind() == Kind::PowerLost => return Err(error),
            read => read.and_then(|()| Head::decode(&sector)),
        };
        heads.push((first, head));
    }
    Ok(heads)
}

/// What the batches of a half come to.
pub fn replay(head: &Head, stored: &[u8]) -> Result<State> {
    let mut state = State { log: head.log, ..State::default() };
    let mut at = 0;
    while let Some((records, bytes)) = decode_batch(&stored[at..], head.mark) {
        records.iter().for_each(|record| state.apply(record));
        at += bytes;
    }
    let is_cut = (at as u64) < head.bytes;
    // A batch is durable before the next is written: one that is whole behind one that is not means damage.
    if is_cut || (at + 1..stored.len()).any(|at| decode_batch(&stored[at..], head.mark).is_some()) {
        return Err(Error::corrupt("a record of the NVRAM is missing"));
    }
    Ok(state)
}

/// Sectors of a half, its head included.
pub(in crate::cache::engine) fn half_sectors(device: &dyn BlockDevice) -> u64 {
    (device.info().sectors / 2).min(HALF_BYTES_MAX / SECTOR_BYTES as u64)
}

/// Bytes of a half behind its head.
pub fn half_bytes(device: &dyn BlockDevice) -> usize {
    (half_sectors(device) as usize).saturating_sub(1) * SECTOR_BYTES
}

/// Refuses a device that is too small for the NVRAM of a cache.
///
/// # Errors
/// [`Kind::Invalid`] says how much it has, and how much it takes.
pub fn check_size(device: &dyn BlockDevice) -> Result<()> {
    match half_sectors(device) * SECTOR_BYTES as u64 >= HALF_BYTES_MIN {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "an NVRAM needs {} KiB or more, this has {}: take a larger one",
            HALF_BYTES_MIN >> 9,
            device.info().bytes() >> 10
        ))),
    }
}

/// Where records are appended.
#[derive(Clone)]
pub(super) struct Region {
    device: Device,
    whose: Whose,
    generation: u64,
    /// Of the half's batches.
    mark: u64,
    /// The next batch begins here, behind the head of the half.
    at: usize,
    /// What the sector has in which it begins.
    tail: Vec<u8>,
}

impl Region {
    /// One that goes on behind `generation`.
    pub fn new(device: Device, whose: Whose, generation: u64) -> Region {
        Region { device, whose, generation, mark: 0, at: 0, tail: Vec::new() }
    }

    /// Bytes of a half behind its head.
    pub fn half_bytes(&self) -> usize {
        half_bytes(&*self.device)
    }

    pub fn has_room(&self, bytes: usize) -> bool {
        self.at + bytes <= self.half_bytes()
    }

    /// First sector of the half of this generation.
    fn first(&self) -> u64 {
        self.generation % 2 * half_sectors(&*self.device)
    }

    /// Appends a batch, durably.
    pub fn append(&mut self, records: &[u8]) -> Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut stored = std::mem::take(&mut self.tail);
        let start = self.at - stored.len();
        encode_batch(self.mark, records, &mut stored);
        self.at = start + stored.len();
        self.tail = stored[stored.len() / SECTOR_BYTES * SECTOR_BYTES..].to_vec();
        stored.resize(stored.len().next_multiple_of(SECTOR_BYTES), 0);
        let sector = self.first() + 1 + (start / SECTOR_BYTES) as u64;
        self.device.write(Lba(sector), &stored, true)
    }

    /// Nothing of it counts any more.
    pub fn blank(&self) -> Result<()> {
        for first in [0, half_sectors(&*self.device)] {
            self.device.write(Lba(first), &[0; SECTOR_BYTES], true)?;
        }
        Ok(())
    }

    /// Begins the other half with what counts: its head is written when that is durable.
    /// `mark` is random.
    pub fn switch(&mut self, state: &State, mark: u64) -> Result<()> {
        self.generation += 1;
        self.mark = mark;
        let (mut stored, mut batch) = (Vec::new(), Vec::new());
        for record in state.records() {
            record.encode(&mut batch);
            if batch.len() > BATCH_BYTES {
                encode_batch(self.mark, &std::mem::take(&mut batch), &mut stored);
            }
        }
        if !batch.is_empty() {
            encode_batch(self.mark, &batch, &mut stored);
        }
        if stored.len() + BATCH_HEAD > self.half_bytes() {
            return Err(Error::new(Kind::NoSpace, "the NVRAM is too small for what is under way"));
        }
        self.at = stored.len();
        self.tail = stored[stored.len() / SECTOR_BYTES * SECTOR_BYTES..].to_vec();
        let bytes = stored.len() as u64;
        stored.resize(stored.len().next_multiple_of(SECTOR_BYTES), 0);
        self.device.write(Lba(self.first() + 1), &stored, true)?;
        let Region { whose, generation, mark, .. } = *self;
        let head = Head { whose, generation, log: state.log, bytes, mark };
        self.device.write(Lba(self.first()), &head.encode(), true)?;
        // If this head is damaged later, the half before must not count: it does not know what comes from here on.
        let other = half_sectors(&*self.device) - self.first();
        self.device.write(Lba(other), &[0; SECTOR_BYTES], true)
    }
}
