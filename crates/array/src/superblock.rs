//! Superblocks of members: a member's role, and the state of the array (docs/formats/array.md).

use crate::layout::{Level, MEMBERS_MAX, Shape};
use vellum_base::{Error, Result, SECTOR_BYTES};
use vellum_codes::crc32c;

const MAGIC: &[u8; 8] = b"VLMARRAY";
const VERSION: u32 = 1;
const TABLE: usize = 128;
const ENTRY: usize = 32;
/// Bits in one sector of a bitmap.
pub(crate) const BITS_PER_SECTOR: u64 = 32_512;
/// Largest member, 1 EiB, so that sums over members do not overflow.
pub(crate) const SECTORS_MAX: u64 = 1 << 48;
/// Largest event number accepted, so that there is always a next one. Events begin at 1.
const EVENT_MAX: u64 = u64::MAX / 4;
/// Data begin at a multiple of this many sectors: 1 MiB.
const ALIGNMENT: u64 = 256;

/// Random id of an array or a member.
pub type Id = [u8; 16];

/// Where the log that closes the write hole is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPlace {
    /// No log: the write hole is open, and a bitmap says what to resynchronise after a crash.
    None,
    /// On the members with the parity of each row.
    Members,
    /// On a separate device: NVRAM, persistent memory, an SSD.
    Device,
}

/// State of a member, as recorded in the array's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has all its data.
    Active,
    /// It is absent, or was taken out.
    Missing,
    /// It has the first `rows` rows.
    Rebuilding {
        /// Number of rows.
        rows: u64,
    },
}

impl State {
    /// True if it has valid data for this row.
    pub(crate) fn has_row(self, row: u64) -> bool {
        match self {
            State::Active => true,
            State::Missing => false,
            State::Rebuilding { rows } => row < rows,
        }
    }
}

/// A member's entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Random, chosen when the member was added.
    pub id: Id,
    /// Which of its data are valid.
    pub state: State,
}

/// Layout of a member, in sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plot {
    /// Used size of a member.
    pub member_sectors: u64,
    /// Sectors of the log's ring; 0 if it is not on the members.
    pub log_sectors: u32,
    /// Start of the first row.
    pub data_start: u64,
}

impl Plot {
    /// Sector of the write-intent bitmap.
    pub(crate) const INTENT: u64 = 1;
    /// First sector of the bitmap of stale rows.
    pub(crate) const STALE: u64 = 2;

    /// Divides members of `member_sectors`: the layout, and the number of rows that fit.
    pub(crate) fn divide(member_sectors: u64, chunk_sectors: u32, log_sectors: u32) -> (Plot, u64) {
        let rows_max = member_sectors / u64::from(chunk_sectors);
        let head = Plot::STALE + rows_max.div_ceil(BITS_PER_SECTOR) + 2 + u64::from(log_sectors);
        let data_start = head.next_multiple_of(ALIGNMENT);
        let rows = member_sectors.saturating_sub(data_start + 1) / u64::from(chunk_sectors);
        (Plot { member_sectors, log_sectors, data_start }, rows)
    }

    /// First of the two heads of the log. The ring follows them.
    pub(crate) fn log_heads(&self, shape: &Shape) -> u64 {
        let rows_max = self.member_sectors / u64::from(shape.chunk_sectors);
        Plot::STALE + rows_max.div_ceil(BITS_PER_SECTOR)
    }
}

/// A member's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The array's id.
    pub array: Id,
    /// Grows with every update of superblocks.
    pub event: u64,
    /// Level and size.
    pub shape: Shape,
    /// Where the log is.
    pub log: LogPlace,
    /// The array was closed properly.
    pub clean: bool,
    /// This member's index in the table.
    pub role: usize,
    /// Layout of the members.
    pub plot: Plot,
    /// Epoch of the log device, if there is one.
    pub log_epoch: u64,
    /// Identifies the cache that is in step with the array, as it stores the same number; 0: none is.
    pub bond: u64,
    /// The table of all members, by role.
    pub table: Vec<Entry>,
}

impl Superblock {
    /// Encodes the superblock into a sector.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; SECTOR_BYTES];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, MAGIC);
        put(12, &VERSION.to_le_bytes());
        put(16, &self.array);
        put(32, &self.event.to_le_bytes());
        put(40, &[self.shape.level.number(), self.log as u8, u8::from(self.clean)]);
        put(44, &(self.shape.members as u16).to_le_bytes());
        put(46, &(self.role as u16).to_le_bytes());
        put(48, &self.shape.chunk_sectors.to_le_bytes());
        put(52, &self.plot.log_sectors.to_le_bytes());
        put(56, &self.plot.member_sectors.to_le_bytes());
        put(64, &self.plot.data_start.to_le_bytes());
        put(72, &self.shape.rows.to_le_bytes());
        put(80, &self.log_epoch.to_le_bytes());
        put(88, &self.bond.to_le_bytes());
        for (role, entry) in self.table.iter().enumerate() {
            let (state, rows) = match entry.state {
                State::Active => (0, 0),
                State::Missing => (1, 0),
                State::Rebuilding { rows } => (2, rows),
            };
            put(TABLE + role * ENTRY, &entry.id);
            put(TABLE + role * ENTRY + 16, &[state]);
            put(TABLE + role * ENTRY + 24, &rows.to_le_bytes());
        }
        seal(&mut out);
        out
    }

    /// Decodes a sector; the error says what is wrong with it.
    pub fn decode(sector: &[u8]) -> Result<Superblock> {
        if sector.len() != SECTOR_BYTES || &sector[..8] != MAGIC {
            return Err(Error::corrupt("it has no superblock of a vellum array"));
        }
        if u32_at(sector, 12) != VERSION {
            return Err(Error::new(
                vellum_base::Kind::Unsupported,
                format!("its superblock has version {}, this program knows {VERSION}", u32_at(sector, 12)),
            ));
        }
        if !is_sealed(sector) {
            return Err(Error::corrupt("the checksum of its superblock is wrong"));
        }
        match u64_at(sector, 32) {
            // With a greater one the numbers might run out.
            0..=EVENT_MAX => Superblock::fields(sector)
                .ok_or_else(|| Error::corrupt("its superblock makes no sense: leave it out")),
            event => Err(Error::corrupt(format!(
                "its superblock has event {event}, which no array comes to: leave it out"
            ))),
        }
    }

    fn fields(sector: &[u8]) -> Option<Superblock> {
        let members = usize::from(u16_at(sector, 44));
        let shape = Shape {
            level: Level::from_number(sector[40])?,
            members,
            chunk_sectors: u32_at(sector, 48),
            rows: u64_at(sector, 72),
        };
        let plot = Plot {
            member_sectors: u64_at(sector, 56),
            log_sectors: u32_at(sector, 52),
            data_start: u64_at(sector, 64),
        };
        let log = *[LogPlace::None, LogPlace::Members, LogPlace::Device].get(usize::from(sector[41]))?;
        let role = usize::from(u16_at(sector, 46));
        shape.check().ok()?;
        if plot.member_sectors > SECTORS_MAX {
            return None;
        }
        let (divided, rows) = Plot::divide(plot.member_sectors, shape.chunk_sectors, plot.log_sectors);
        let fits = members <= MEMBERS_MAX && role < members && divided == plot && rows == shape.rows;
        let table = (0..members).map(|role| entry(sector, role, shape.rows)).collect::<Option<Vec<_>>>()?;
        fits.then(|| Superblock {
            array: id_at(sector, 16),
            event: u64_at(sector, 32),
            shape,
            log,
            clean: sector[42] == 1,
            role,
            plot,
            log_epoch: u64_at(sector, 80),
            bond: u64_at(sector, 88),
            table,
        })
    }
}

fn entry(sector: &[u8], role: usize, rows_max: u64) -> Option<Entry> {
    let at = TABLE + role * ENTRY;
    let rows = u64_at(sector, at + 24);
    let state = match sector[at + 16] {
        0 => State::Active,
        1 => State::Missing,
        2 if rows <= rows_max => State::Rebuilding { rows },
        _ => return None,
    };
    Some(Entry { id: id_at(sector, at), state })
}

/// Stores the checksum in bytes 8 to 12.
pub(crate) fn seal(structure: &mut [u8]) {
    structure[8..12].fill(0);
    let crc = crc32c(structure);
    structure[8..12].copy_from_slice(&crc.to_le_bytes());
}

/// True if bytes 8 to 12 hold the checksum of the rest.
pub(crate) fn is_sealed(structure: &[u8]) -> bool {
    let mut copy = structure.to_vec();
    seal(&mut copy);
    copy[8..12] == structure[8..12]
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

pub(crate) fn id_at(bytes: &[u8], at: usize) -> Id {
    std::array::from_fn(|i| bytes[at + i])
}
