//! Areas and CURRENT in the device's NVRAM.
//!
//! The first 4096 bytes: a head at 0, two copies of CURRENT at 1024 and 2048. Then slots for areas, each with a head
//! of 64 bytes: two for manifests, the others for logs.
//!
//! 1. A slot is free if neither of its two heads is valid. They are copies: with a single one, its damage would lose
//!    the slot.
//! 2. Of the valid copies of CURRENT, the one with the higher turn counts; the other one is overwritten next.

use crate::bytes::{Fields, u32_at};
use crate::journal::{Area, AreaKind, BOUNDS_MANIFEST_BYTES, STORE_MANIFEST_BYTES, TABLE_MANIFEST_BYTES};
use crate::reason;
use std::ops::Range;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Nvram, Result};

const MAGIC: &[u8; 4] = b"VKNV";
const NVRAM_HEAD_BYTES: usize = 4096;
const SLOT_HEAD_BYTES: usize = 64;
const CURRENT_AT: [usize; 2] = [1024, 2048];
const MANIFESTS: usize = 2;
/// A memtable being written, one frozen, and one just in a table; each may have a log from before the store was opened.
const LOGS_MIN: usize = 6;
/// Versions of stores whose tables are a superblock each, and of those whose tables may share them.
const VERSIONS: [u32; 2] = [1, 3];
/// Tables shared units of 4096 bytes, for a few days before there was a release.
const VERSION_LARGE_UNITS: u32 = 2;
/// Bytes that are looked at, and cleared, at a time.
const CLEAR_BYTES: usize = 4096;
/// Most bytes of CURRENT.
const CURRENT_BYTES_MAX: usize = 64;
/// Most bytes of a manifest that a table takes.
const TABLE_BYTES: usize = TABLE_MANIFEST_BYTES + BOUNDS_MANIFEST_BYTES;
/// Fewest bytes of NVRAM that a store can live with.
const NVRAM_BYTES_MIN: usize = 64 << 10;

/// Division of the NVRAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NvramPlan {
    version: u32,
    pub manifest_bytes: usize,
    pub log_bytes: usize,
    pub logs: usize,
}

impl NvramPlan {
    /// Divides NVRAM for `logs` logs and `tables` tables: an eighth of it, at most 4 MiB, is for manifests, or what all
    /// tables need, if that is no more than a quarter.
    pub(crate) fn new(nvram_bytes: usize, logs: usize, tables: usize) -> Result<NvramPlan> {
        if nvram_bytes < NVRAM_BYTES_MIN || logs < LOGS_MIN {
            return Err(Error::new(
                Kind::Unsupported,
                format!(
                    "{nvram_bytes} bytes of NVRAM; log and manifest of a store need {NVRAM_BYTES_MIN} or more"
                ),
            ));
        }
        let needed = tables.saturating_mul(TABLE_BYTES).saturating_add(STORE_MANIFEST_BYTES);
        let needed = needed.next_multiple_of(4096).min(nvram_bytes / 8);
        let manifest_bytes = (nvram_bytes / 16).min(2 << 20).max(needed) / 4096 * 4096;
        let log_bytes = (nvram_bytes - NVRAM_HEAD_BYTES - MANIFESTS * manifest_bytes) / logs / 4096 * 4096;
        Ok(NvramPlan { version: VERSIONS[1], manifest_bytes, log_bytes, logs })
    }

    fn slot(&self, index: usize) -> (usize, usize) {
        match index < MANIFESTS {
            true => (NVRAM_HEAD_BYTES + index * self.manifest_bytes, self.manifest_bytes),
            false => {
                let logs = NVRAM_HEAD_BYTES + MANIFESTS * self.manifest_bytes;
                (logs + (index - MANIFESTS) * self.log_bytes, self.log_bytes)
            }
        }
    }

    fn slots_for(&self, kind: AreaKind) -> std::ops::Range<usize> {
        match kind {
            AreaKind::Manifest => 0..MANIFESTS,
            AreaKind::Log => MANIFESTS..MANIFESTS + self.logs,
        }
    }

    /// Capacity of an area of this kind.
    pub(crate) fn capacity(&self, kind: AreaKind) -> usize {
        self.slot(self.slots_for(kind).start).1 - SLOT_HEAD_BYTES
    }

    fn encode(&self) -> [u8; 32] {
        let mut out = [0; 32];
        out[..4].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&self.version.to_le_bytes());
        for (at, number) in [(12, self.manifest_bytes), (16, self.log_bytes), (20, self.logs)] {
            out[at..at + 4].copy_from_slice(&(number as u32).to_le_bytes());
        }
        let crc = vellum_codes::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8; 32], nvram_bytes: usize) -> Result<NvramPlan> {
        if &bytes[..4] != MAGIC {
            let what = "no key-value store is on this flash; format it first";
            return Err(Error::invalid(what).because(reason::NO_STORE_ON_FLASH));
        }
        if u32_at(bytes, 4) != vellum_codes::crc32c(&bytes[8..]) {
            return Err(Error::corrupt("the head of the NVRAM does not check out"));
        }
        let version = u32_at(bytes, 8);
        if !VERSIONS.contains(&version) {
            let advice = match version {
                VERSION_LARGE_UNITS => {
                    "dump the store with the program that made it, and load that into a new one"
                }
                _ => "open the store with the program that made it, or a newer one",
            };
            return Err(Error::new(
                Kind::Unsupported,
                format!(
                    "the NVRAM has format version {version}; this program knows versions {VERSIONS:?}: {advice}"
                ),
            ));
        }
        let [manifest_bytes, log_bytes, logs] = [12, 16, 20].map(|at| u32_at(bytes, at) as usize);
        let plan = NvramPlan { version, manifest_bytes, log_bytes, logs };
        let total =
            logs.checked_mul(log_bytes).and_then(|l| l.checked_add(NVRAM_HEAD_BYTES + 2 * manifest_bytes));
        match total {
            Some(total)
                if total <= nvram_bytes
                    && log_bytes.min(manifest_bytes) > SLOT_HEAD_BYTES
                    && logs >= LOGS_MIN =>
            {
                Ok(plan)
            }
            _ => Err(Error::corrupt("the NVRAM is smaller than its head says")),
        }
    }
}

/// See the module.
pub(crate) struct NvramAreas {
    plan: NvramPlan,
    slots: Mutex<Vec<Option<Area>>>,
    /// Turn of the newest CURRENT, and its place.
    turn: Mutex<(u64, usize)>,
}

impl NvramAreas {
    /// Clears all of the NVRAM for a new store: area numbers begin anew, so old records might be valid in a new log of
    /// the same number.
    pub(crate) fn format(nvram: &dyn Nvram, logs: usize, tables: usize) -> Result<()> {
        let plan = NvramPlan::new(nvram.bytes(), logs, tables)?;
        clear(nvram, 0..nvram.bytes())?;
        Ok(nvram.write_apart(0, &plan.encode())?)
    }

    pub(crate) fn open(nvram: &dyn Nvram) -> Result<NvramAreas> {
        let mut head = [0; 32];
        nvram.read(0, &mut head)?;
        let plan = NvramPlan::decode(&head, nvram.bytes())?;
        let slots = (0..MANIFESTS + plan.logs)
            .map(|index| {
                let mut head = [0; SLOT_HEAD_BYTES];
                nvram.read(plan.slot(index).0, &mut head)?;
                Ok(slot_area(&head))
            })
            .collect::<Result<_>>()?;
        let areas = NvramAreas { plan, slots: Mutex::new(slots), turn: Mutex::new((0, 1)) };
        let newest =
            areas.copies(nvram)?.into_iter().enumerate().filter_map(|(at, copy)| Some((copy?.0, at))).max();
        if let Some(newest) = newest {
            *areas.turn.lock() = newest;
        }
        Ok(areas)
    }

    pub(crate) fn plan(&self) -> &NvramPlan {
        &self.plan
    }

    /// True if tables may share superblocks. Earlier versions, which cannot do so, refuse such a store.
    pub(crate) fn relinks(&self) -> bool {
        self.plan.version >= VERSIONS[1]
    }

    pub(crate) fn create(&self, nvram: &dyn Nvram, area: Area) -> Result<usize> {
        let mut slots = self.slots.lock();
        let free = self.plan.slots_for(area.kind).find(|index| slots[*index].is_none());
        let Some(index) = free else {
            return Err(Error::new(Kind::NoSpace, format!("the NVRAM has no room for {area}")));
        };
        nvram.write_apart(self.plan.slot(index).0, &slot_head(area))?;
        slots[index] = Some(area);
        Ok(self.plan.slot(index).0 + SLOT_HEAD_BYTES)
    }

    pub(crate) fn read(&self, nvram: &dyn Nvram, area: Area) -> Result<Vec<u8>> {
        let room = self.room_of(area).ok_or_else(|| Error::corrupt(format!("{area} is missing")))?;
        let mut bytes = vec![0; room.len()];
        nvram.read(room.start, &mut bytes)?;
        Ok(bytes)
    }

    /// Zeroes an area beyond `bytes`.
    pub(crate) fn trim(&self, nvram: &dyn Nvram, area: Area, bytes: u64) -> Result<()> {
        let Some(room) = self.room_of(area) else { return Ok(()) };
        let behind = usize::try_from(bytes).map_or(room.len(), |bytes| bytes.min(room.len()));
        clear(nvram, room.start + behind..room.end)
    }

    /// The range of an area's bytes in the NVRAM.
    fn room_of(&self, area: Area) -> Option<Range<usize>> {
        let index = self.slots.lock().iter().position(|slot| *slot == Some(area))?;
        let (at, bytes) = self.plan.slot(index);
        Some(at + SLOT_HEAD_BYTES..at + bytes)
    }

    pub(crate) fn remove(&self, nvram: &dyn Nvram, area: Area) -> Result<()> {
        let mut slots = self.slots.lock();
        if let Some(index) = slots.iter().position(|slot| *slot == Some(area)) {
            nvram.write_apart(self.plan.slot(index).0, &[0; SLOT_HEAD_BYTES])?;
            slots[index] = None;
        }
        Ok(())
    }

    pub(crate) fn areas(&self) -> Vec<Area> {
        self.slots.lock().iter().flatten().copied().collect()
    }

    pub(crate) fn current(&self, nvram: &dyn Nvram) -> Result<Option<Vec<u8>>> {
        let [a, b] = self.copies(nvram)?;
        Ok(a.max(b).map(|(_, bytes)| bytes))
    }

    pub(crate) fn set_current(&self, nvram: &dyn Nvram, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= CURRENT_BYTES_MAX);
        let mut turn = self.turn.lock();
        let next = (turn.0 + 1, 1 - turn.1);
        let mut out = [0; 8 + 9 + CURRENT_BYTES_MAX];
        out[8..16].copy_from_slice(&next.0.to_le_bytes());
        out[16] = bytes.len() as u8;
        out[17..17 + bytes.len()].copy_from_slice(bytes);
        out[..4].copy_from_slice(b"VKCC");
        let crc = vellum_codes::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        nvram.write_apart(CURRENT_AT[next.1], &out)?;
        *turn = next;
        Ok(())
    }

    /// Turn and content of each valid copy.
    #[expect(clippy::type_complexity, reason = "two copies, each a turn and bytes")]
    fn copies(&self, nvram: &dyn Nvram) -> Result<[Option<(u64, Vec<u8>)>; 2]> {
        let mut copies = [None, None];
        for (copy, at) in copies.iter_mut().zip(CURRENT_AT) {
            let mut bytes = [0; 8 + 9 + CURRENT_BYTES_MAX];
            nvram.read(at, &mut bytes)?;
            if &bytes[..4] == b"VKCC" && u32_at(&bytes, 4) == vellum_codes::crc32c(&bytes[8..]) {
                *copy = turn_and_content(&bytes[8..]);
            }
        }
        Ok(copies)
    }
}

/// True if a store was made in an NVRAM with these contents.
pub(crate) fn is_formatted(contents: &[u8]) -> bool {
    contents.len() >= NVRAM_HEAD_BYTES && contents.starts_with(MAGIC)
}

/// Writes zeros where there are none.
fn clear(nvram: &dyn Nvram, range: Range<usize>) -> Result<()> {
    let (zeros, mut there) = ([0; CLEAR_BYTES], [0; CLEAR_BYTES]);
    for at in range.clone().step_by(CLEAR_BYTES) {
        let length = CLEAR_BYTES.min(range.end - at);
        nvram.read(at, &mut there[..length])?;
        if there[..length] != zeros[..length] {
            nvram.write_apart(at, &zeros[..length])?;
        }
    }
    Ok(())
}

fn turn_and_content(bytes: &[u8]) -> Option<(u64, Vec<u8>)> {
    let mut fields = Fields::new(bytes);
    // There is one behind it.
    let turn = fields.u64().filter(|turn| *turn < u64::MAX)?;
    let len = fields.u8()? as usize;
    Some((turn, fields.take(len)?.to_vec()))
}

fn slot_head(area: Area) -> [u8; SLOT_HEAD_BYTES] {
    let mut head = [0; SLOT_HEAD_BYTES / 2];
    head[..4].copy_from_slice(b"VKAR");
    head[8] = matches!(area.kind, AreaKind::Manifest) as u8;
    head[16..24].copy_from_slice(&area.number.to_le_bytes());
    let crc = vellum_codes::crc32c(&head[8..24]);
    head[4..8].copy_from_slice(&crc.to_le_bytes());
    std::array::from_fn(|at| head[at % head.len()])
}

/// What either of its copies says; programs of before wrote the first.
fn slot_area(head: &[u8; SLOT_HEAD_BYTES]) -> Option<Area> {
    head.chunks(SLOT_HEAD_BYTES / 2).find_map(|copy| {
        if &copy[..4] != b"VKAR" || u32_at(copy, 4) != vellum_codes::crc32c(&copy[8..24]) {
            return None;
        }
        let number = u64::from_le_bytes(copy[16..24].try_into().expect("eight bytes"));
        Some(if copy[8] == 1 { Area::manifest(number) } else { Area::log(number) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::{Flash, Geometry};
    use vellum_media::nand::{Nand, NandParams};

    #[test]
    fn manifests_have_room_for_all_tables_where_that_leaves_most_of_the_nvram_to_logs() {
        let manifest_bytes = |nvram, tables| NvramPlan::new(nvram, LOGS_MIN, tables).unwrap().manifest_bytes;
        assert_eq!(manifest_bytes(1 << 20, 100), 64 << 10);
        let all = 512 * TABLE_BYTES;
        assert!((all..all + 8192).contains(&manifest_bytes(1 << 20, 512)));
        assert_eq!(manifest_bytes(1 << 20, 100_000), 128 << 10);
        assert_eq!(manifest_bytes(1 << 30, 100), 2 << 20);
        assert!(manifest_bytes(1 << 30, 100_000) > 100_000 * TABLE_BYTES);
    }

    #[test]
    fn a_copy_of_a_turn_that_none_can_follow_does_not_count() {
        let geometry = Geometry {
            channels: 1,
            dies_per_channel: 1,
            blocks_per_die: 4,
            pages_per_block: 4,
            page_bytes: 4096,
            oob_bytes: 0,
        };
        let nand = Nand::ram(geometry, NandParams { nvram_bytes: 1 << 20, ..NandParams::default() }).unwrap();
        let nvram = nand.nvram().unwrap();
        NvramAreas::format(nvram, LOGS_MIN, 4).unwrap();
        let mut copy = [0; 8 + 9 + CURRENT_BYTES_MAX];
        copy[..4].copy_from_slice(b"VKCC");
        copy[8..16].fill(0xFF);
        let crc = vellum_codes::crc32c(&copy[8..]);
        copy[4..8].copy_from_slice(&crc.to_le_bytes());
        nvram.write_apart(CURRENT_AT[0], &copy).unwrap();
        let areas = NvramAreas::open(nvram).unwrap();
        assert_eq!(areas.current(nvram).unwrap(), None);
        areas.set_current(nvram, b"7").unwrap();
        assert_eq!(NvramAreas::open(nvram).unwrap().current(nvram).unwrap().as_deref(), Some(&b"7"[..]));
    }
}
