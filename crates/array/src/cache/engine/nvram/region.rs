//! The two halves of an NVRAM on a device (docs/formats/array.md).

use super::record::{BATCH_HEAD, decode_batch, encode_batch};
use super::state::State;
use crate::assemble::Device;
use crate::superblock::{Id, id_at, is_sealed, seal, u32_at, u64_at};
use vellum_base::{BlockDevice, Error, Kind, Lba, Result, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"VLMCNVRM";
const VERSION: u32 = 5;
/// The oldest version that is read: its records have no checksums of pages.
const VERSION_MIN: u32 = 4;
/// Minimum size of a half, including its head.
pub const HALF_BYTES_MIN: u64 = 256 << 10;
/// Maximum size of a half; the rest of a larger device is not used.
pub const HALF_BYTES_MAX: u64 = 64 << 20;
/// Sectors read at a time when searching for a head.
const SECTORS_AT_ONCE: u64 = 256;
/// Size of a batch of records when a half is begun.
const BATCH_BYTES: usize = 1 << 20;

/// The cache that an NVRAM belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Whose {
    /// The cache's array.
    pub array: Id,
    /// Tag in the cache's superblock.
    pub tag: u64,
}

/// The head of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The cache that it belongs to.
    pub whose: Whose,
    /// The half with the greater generation is valid.
    pub generation: u64,
    /// Range of valid log pages when the half was begun.
    pub log: (u64, u64),
    /// Bytes of batches written before the head.
    pub bytes: u64,
    /// A random number that is in all batches of the half: neither old batches nor data of a guest can have it.
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

    /// Decodes the first sector of a half; `None` if it is blank.
    ///
    /// # Errors
    /// [`Kind::Corrupt`] if it is something else, [`Kind::Unsupported`] if it has another version.
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

/// Content of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Head of the valid half.
    pub head: Head,
    /// The state that its records replay to.
    pub state: State,
}

/// Reads a region; `None` if it is blank. A damaged head is ignored if the other is valid: nothing is appended to a new
/// half before the old head is erased.
///
/// # Errors
/// [`Kind::Corrupt`] if the content is not of an NVRAM, or if a record is missing before others.
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

/// The greatest generation of the two halves, of any cache.
pub(in crate::cache::engine) fn last_generation(device: &dyn BlockDevice) -> Result<u64> {
    let heads = read_heads(device)?.into_iter().filter_map(|(_, head)| head.ok().flatten());
    Ok(heads.map(|head| head.generation).max().unwrap_or(0))
}

/// The array whose cache uses the device as its NVRAM; the inner `None` means that this is unreadable, or of another
/// version.
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
    // If the device has grown, only its cache knows where the second half begins; the first head is zero then.
    matches!(heads[0], (_, Ok(None))).then(|| later_head(device)).flatten().map(|head| Some(head.whose.array))
}

/// Zeroes the head of a second half that began here when halves were shorter: nothing else would overwrite it, and a
/// search for the owner would find it. A cache that has just begun empty has written less than that far.
pub(in crate::cache::engine) fn blank_head(device: &dyn BlockDevice, had: u32) -> Result<()> {
    let first = u64::from(had);
    match (HALF_BYTES_MIN / SECTOR_BYTES as u64..half_sectors(device)).contains(&first) {
        true => device.write(Lba(first), &[0; SECTOR_BYTES], true),
        false => Ok(()),
    }
}

/// The first head at any position where a second half may begin.
fn later_head(device: &dyn BlockDevice) -> Option<Head> {
    let (least, most) = (HALF_BYTES_MIN / SECTOR_BYTES as u64, half_sectors(device));
    let mut stored = vec![0; SECTORS_AT_ONCE as usize * SECTOR_BYTES];
    (least..most).step_by(SECTORS_AT_ONCE as usize).find_map(|first| {
        let some = &mut stored[..SECTORS_AT_ONCE.min(most - first) as usize * SECTOR_BYTES];
        device.read(Lba(first), some).ok()?;
        some.chunks(SECTOR_BYTES).find_map(|sector| Head::decode(sector).ok()?)
    })
}

/// Reads the first sectors of both halves. An unreadable one counts as damaged.
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

/// Replays the batches of a half.
pub fn replay(head: &Head, stored: &[u8]) -> Result<State> {
    let mut state = State { log: head.log, ..State::default() };
    let mut at = 0;
    while let Some((records, bytes)) = decode_batch(&stored[at..], head.mark) {
        records.iter().for_each(|record| state.apply(record));
        at += bytes;
    }
    let is_cut = (at as u64) < head.bytes;
    // A batch is durable before the next is written: a valid batch after an invalid one means damage.
    if is_cut || (at + 1..stored.len()).any(|at| decode_batch(&stored[at..], head.mark).is_some()) {
        return Err(Error::corrupt("a record of the NVRAM is missing"));
    }
    Ok(state)
}

/// Sectors of a half, including its head.
pub(in crate::cache::engine) fn half_sectors(device: &dyn BlockDevice) -> u64 {
    (device.info().sectors / 2).min(HALF_BYTES_MAX / SECTOR_BYTES as u64)
}

/// Bytes of a half, without its head.
pub fn half_bytes(device: &dyn BlockDevice) -> usize {
    (half_sectors(device) as usize).saturating_sub(1) * SECTOR_BYTES
}

/// Fails for a device that is too small for the NVRAM of a cache.
///
/// # Errors
/// [`Kind::Invalid`], with its size and the required size.
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

/// The half to which records are appended.
#[derive(Clone)]
pub(super) struct Region {
    device: Device,
    whose: Whose,
    generation: u64,
    /// Mark of the half's batches.
    mark: u64,
    /// Position of the next batch, counted from after the head.
    at: usize,
    /// Content so far of the sector in which it begins.
    tail: Vec<u8>,
}

impl Region {
    /// A region that continues after `generation`.
    pub fn new(device: Device, whose: Whose, generation: u64) -> Region {
        Region { device, whose, generation, mark: 0, at: 0, tail: Vec::new() }
    }

    /// Bytes of a half, without its head.
    pub fn half_bytes(&self) -> usize {
        half_bytes(&*self.device)
    }

    pub fn has_room(&self, bytes: usize) -> bool {
        self.at + bytes <= self.half_bytes()
    }

    /// First sector of the half used by this generation.
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

    /// Erases both heads.
    pub fn blank(&self) -> Result<()> {
        for first in [0, half_sectors(&*self.device)] {
            self.device.write(Lba(first), &[0; SECTOR_BYTES], true)?;
        }
        Ok(())
    }

    /// Begins the other half with the current state; its head is written once that is durable. `mark` must be random.
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
        // If this head is damaged later, the previous half must not be valid: it lacks everything from here on.
        let other = half_sectors(&*self.device) - self.first();
        self.device.write(Lba(other), &[0; SECTOR_BYTES], true)
    }
}
