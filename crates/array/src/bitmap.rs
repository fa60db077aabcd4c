//! Bitmaps on the members, or on the log device if there is one (docs/formats/array.md): which rows are stale, and
//! which regions may have inconsistent parity.
//!
//! 1. When [`Bitmap::set`] returns, the bit is set on all counting members (or the log device). Bits of a sector that
//!    are set while it is being written share the next write.
//! 2. A cleared bit may be found set after a crash; a set bit is never found cleared.
//! 3. A lingering bit is cleared in memory, but stays set on the members until a flush that began after the clearing
//!    has completed. A bit that is set and cleared again during a flush waits for the next one.

use crate::access::{Access, What, call, readable};
use crate::assemble::Device;
use crate::core::Core;
use crate::log::HEADS;
use crate::superblock::{BITS_PER_SECTOR, Id, LogPlace, id_at, is_sealed, seal, u32_at};
use std::collections::{BTreeMap, BTreeSet};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Result, SECTOR_BYTES};

const MAGIC: &[u8; 8] = b"VLMBITMP";
/// Bytes in a sector before its bits.
pub(crate) const HEAD: usize = 32;

/// See the module.
pub(crate) struct Bitmap {
    /// First sector on every member.
    start: u64,
    /// Number of bits in use.
    room: u64,
    bits: Mutex<Bits>,
    /// Held during a write: one at a time.
    writing: Mutex<()>,
}

struct Bits {
    /// The wanted state, 32512 bits to a sector.
    wanted: Vec<Vec<u8>>,
    /// Bits known to be set on the members.
    durable: Vec<Vec<u8>>,
    /// What was last written to the members.
    stored: Vec<Vec<u8>>,
    /// Bits that are not wanted any more but stay on the members until a flush, with the moment of their clearing.
    lingering: BTreeMap<u64, u64>,
    /// Number of bits that have begun to linger so far: a logical clock.
    moment: u64,
    /// Sectors of which members may have bits that are not wanted.
    behind: BTreeSet<usize>,
    count: u64,
}

impl Bits {
    /// What to store of a sector: wanted and lingering bits.
    fn to_write(&self, sector: usize) -> Vec<u8> {
        let mut out = self.wanted[sector].clone();
        let first = sector as u64 * BITS_PER_SECTOR;
        for (bit, _) in self.lingering.range(first..first + BITS_PER_SECTOR) {
            let (_, byte, mask) = place(*bit);
            out[byte] |= mask;
        }
        out
    }
}

/// Sectors that this many bits take.
pub(crate) fn sectors_of(bits: u64) -> usize {
    bits.div_ceil(BITS_PER_SECTOR) as usize
}

/// A bit's sector, byte and mask.
fn place(bit: u64) -> (usize, usize, u8) {
    let within = bit % BITS_PER_SECTOR;
    ((bit / BITS_PER_SECTOR) as usize, (within / 8) as usize, 1 << (within % 8))
}

impl Bitmap {
    /// A bitmap of `room` bits, none set.
    pub fn new(start: u64, room: u64) -> Bitmap {
        let empty = vec![vec![0; SECTOR_BYTES - HEAD]; sectors_of(room)];
        let bits = Bits {
            wanted: empty.clone(),
            durable: empty.clone(),
            stored: empty,
            lingering: BTreeMap::new(),
            moment: 0,
            behind: BTreeSet::new(),
            count: 0,
        };
        Bitmap { start, room, bits: Mutex::new(bits), writing: Mutex::new(()) }
    }

    /// How many sectors the bitmap takes.
    pub fn sectors(&self) -> usize {
        self.bits.lock().wanted.len()
    }

    /// Sets all bits that are set in `stored`. Invalid sectors are skipped; returns the index of the first of them.
    pub fn merge(&self, array: &Id, stored: &[u8]) -> Option<usize> {
        let taken =
            stored.chunks(SECTOR_BYTES).enumerate().map(|(index, sector)| self.take(array, index, sector));
        let taken: Vec<bool> = taken.collect();
        taken.into_iter().position(|is_taken| !is_taken)
    }

    /// Sets all bits that are set in the sector; false if it is not valid.
    fn take(&self, array: &Id, index: usize, sector: &[u8]) -> bool {
        let bits = &mut *self.bits.lock();
        let is_valid = &sector[..8] == MAGIC && is_sealed(sector) && id_at(sector, 16) == *array;
        if !is_valid || u32_at(sector, 12) as usize != index || index >= bits.wanted.len() {
            return false;
        }
        for (wanted, stored) in bits.wanted[index].iter_mut().zip(&sector[HEAD..]) {
            bits.count += u64::from((stored & !*wanted).count_ones());
            *wanted |= stored;
        }
        true
    }

    /// Sets all bits that are set on any member. One valid copy of a sector is enough. Where there is none, all bits
    /// are set, as their state is unknown, unless the sector is blank on all members: then it was never written.
    pub fn read(&self, array: &Id, members: &[Device]) -> Result<()> {
        let count = self.sectors();
        let (mut is_known, mut is_blank) = (vec![false; count], vec![true; count]);
        for member in members {
            for (index, sector) in read_sectors(&**member, self.start, count)?.into_iter().enumerate() {
                is_known[index] |= sector.as_ref().is_some_and(|sector| self.take(array, index, sector));
                is_blank[index] &= sector.is_some_and(|sector| sector.iter().all(|byte| *byte == 0));
            }
        }
        let unknown = (0..count).filter(|index| !is_known[*index] && !is_blank[*index]);
        let bits = unknown.flat_map(|index| {
            let first = index as u64 * BITS_PER_SECTOR;
            first..(first + BITS_PER_SECTOR).min(self.room)
        });
        bits.for_each(|bit| self.doubt(bit));
        Ok(())
    }

    /// Sets all bits in memory only, as their state is unknown.
    pub fn fill(&self) {
        for bit in 0..self.room {
            self.want(bit, true);
        }
    }

    /// Sets a bit in memory only: the array has ended, or [`Bitmap::write_all`] follows.
    pub fn doubt(&self, bit: u64) {
        self.want(bit, true);
    }

    /// Whether the bit is set.
    pub fn has(&self, bit: u64) -> bool {
        let (sector, byte, mask) = place(bit);
        self.bits.lock().wanted[sector][byte] & mask != 0
    }

    /// How many bits are set.
    pub fn count(&self) -> u64 {
        self.bits.lock().count
    }

    /// At most `limit` set bits from `first` on, in ascending order.
    pub fn ones(&self, first: u64, limit: usize) -> Vec<u64> {
        let bits = self.bits.lock();
        let total = bits.wanted.len() as u64 * BITS_PER_SECTOR;
        let is_set = |bit: &u64| {
            let (sector, byte, mask) = place(*bit);
            bits.wanted[sector][byte] & mask != 0
        };
        (first..total).filter(is_set).take(limit).collect()
    }

    /// Sets a bit, durably.
    pub fn set(&self, core: &Core, bit: u64) -> Result<()> {
        if self.want(bit, true) {
            return Ok(());
        }
        let _one_at_a_time = self.writing.lock();
        let (sector, byte, mask) = place(bit);
        if self.bits.lock().durable[sector][byte] & mask != 0 {
            return Ok(());
        }
        self.write(core, sector)
    }

    /// Clears a bit; the members get it with the next write of its sector.
    pub fn clear(&self, bit: u64) {
        self.want(bit, false);
    }

    /// Clears a bit that stays set on the members until they are flushed: what was written under it may be lost until
    /// then.
    pub fn clear_when_flushed(&self, bit: u64) {
        let (sector, byte, mask) = place(bit);
        let mut bits = self.bits.lock();
        if bits.wanted[sector][byte] & mask != 0 {
            bits.wanted[sector][byte] &= !mask;
            bits.count -= 1;
            bits.moment += 1;
            let now = bits.moment;
            bits.lingering.insert(bit, now);
            bits.behind.insert(sector);
        }
    }

    /// The current logical time. A flush that begins later covers all bits that linger now.
    pub fn moment(&self) -> u64 {
        self.bits.lock().moment
    }

    /// Ends the lingering of bits cleared at or before `moment`: the members were flushed since.
    pub fn flushed(&self, moment: u64) {
        let bits = &mut *self.bits.lock();
        bits.lingering.retain(|bit, since| {
            let lingers = *since > moment;
            if !lingers {
                let (sector, byte, mask) = place(*bit);
                bits.durable[sector][byte] &= !mask;
            }
            lingers
        });
    }

    /// True if the members may have bits that are not wanted.
    pub fn is_behind(&self) -> bool {
        !self.bits.lock().behind.is_empty()
    }

    /// How many bits are set on the members that are not wanted.
    pub fn lag(&self) -> u64 {
        let bits = self.bits.lock();
        let unwanted =
            bits.behind.iter().flat_map(|sector| bits.stored[*sector].iter().zip(&bits.wanted[*sector]));
        unwanted.map(|(stored, wanted)| u64::from((stored & !wanted).count_ones())).sum()
    }

    /// Clears unwanted bits on the members, except those that linger.
    pub fn catch_up(&self, core: &Core) -> Result<()> {
        let _one_at_a_time = self.writing.lock();
        let behind: Vec<usize> = self.bits.lock().behind.iter().copied().collect();
        behind.into_iter().try_for_each(|sector| self.write(core, sector))
    }

    /// Changes the wanted state; returns whether the bit is known to be set on the members.
    fn want(&self, bit: u64, set: bool) -> bool {
        let (sector, byte, mask) = place(bit);
        let mut bits = self.bits.lock();
        let was = bits.wanted[sector][byte] & mask != 0;
        match (was, set) {
            (false, true) => bits.count += 1,
            (true, false) => bits.count -= 1,
            _ => {}
        }
        bits.lingering.remove(&bit);
        if set {
            bits.wanted[sector][byte] |= mask;
        } else if was {
            bits.behind.insert(sector);
            bits.wanted[sector][byte] &= !mask;
            bits.durable[sector][byte] &= !mask;
        }
        bits.durable[sector][byte] & mask != 0
    }

    /// Writes all sectors: after an assembly, for a new member, and to drop cleared bits.
    pub fn write_all(&self, core: &Core) -> Result<()> {
        let _one_at_a_time = self.writing.lock();
        (0..self.sectors()).try_for_each(|sector| self.write(core, sector))
    }

    fn write(&self, core: &Core, sector: usize) -> Result<()> {
        let bits = self.bits.lock().to_write(sector);
        let stored = encode(&core.array, sector, &bits);
        // Checked after the bits were taken: if the array has not ended by now, no bit among them was doubted because
        // of its end.
        core.check_writable()?;
        match core.log_place {
            LogPlace::Device => {
                core.log.write_device(core, HEADS + sector as u64, What::Write(stored, true))?
            }
            LogPlace::Members | LogPlace::None => self.write_members(core, sector, &stored)?,
        }
        let mut state = self.bits.lock();
        let wanted = state.to_write(sector);
        for ((durable, written), wanted) in state.durable[sector].iter_mut().zip(&bits).zip(&wanted) {
            *durable = written & wanted;
        }
        let has_more = bits.iter().zip(&state.wanted[sector]).any(|(written, wanted)| written & !wanted != 0);
        match has_more {
            true => state.behind.insert(sector),
            false => state.behind.remove(&sector),
        };
        state.stored[sector] = bits;
        Ok(())
    }

    fn write_members(&self, core: &Core, sector: usize, stored: &[u8]) -> Result<()> {
        let roster = core.roster();
        let at = self.start + sector as u64;
        let writes = roster.present().map(|role| Access {
            role,
            sector: at,
            what: What::Write(stored.to_vec(), true),
        });
        core.change_all(&roster, writes.collect())
    }
}

/// Reads sectors of a member, in one call if possible; those that cannot be read are `None`.
fn read_sectors(member: &dyn BlockDevice, start: u64, count: usize) -> Result<Vec<Option<Vec<u8>>>> {
    if let Some(stored) = readable(call(member, start, What::Read(count * SECTOR_BYTES)))? {
        return Ok(stored.chunks(SECTOR_BYTES).map(|sector| Some(sector.to_vec())).collect());
    }
    let read = |sector| readable(call(member, sector, What::Read(SECTOR_BYTES)));
    (start..start + count as u64).map(read).collect()
}

/// Encodes a sector of a bitmap.
pub(crate) fn encode(array: &Id, index: usize, bits: &[u8]) -> Vec<u8> {
    let mut out = vec![0; SECTOR_BYTES];
    out[..8].copy_from_slice(MAGIC);
    out[12..16].copy_from_slice(&(index as u32).to_le_bytes());
    out[16..32].copy_from_slice(array);
    out[HEAD..].copy_from_slice(bits);
    seal(&mut out);
    out
}
