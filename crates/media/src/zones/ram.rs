//! Zones in memory, for tests: every rule is enforced, a power cut loses data that was not synced, and calls fail.
//!
//! 1. With write pointers, a zone keeps a prefix of its changes since the last sync, with the last write truncated at
//!    any unit.
//! 2. Without them (as [`super::RawDevice`]), each write survives in any of its 512-byte sectors, and each reset
//!    independently.
//! 3. The outcome depends on the seed and on the number of cuts so far.

use super::pointers::Pointers;
use crate::nand::dice::{fraction, roll};
use std::collections::BTreeSet;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Result, ZoneReport, Zones, ZonesShape};

const SECTOR_BYTES: usize = 512;

/// Parameters of [`RamZones`].
#[derive(Clone, Copy, Debug)]
pub struct RamZonesParams {
    /// The shape of its zones.
    pub shape: ZonesShape,
    /// True for a zoned device, false for a partition or a file.
    pub keeps_pointers: bool,
    /// Seed of what power cuts leave.
    pub seed: u64,
}

/// Zones in memory; see the module.
pub struct RamZones {
    params: RamZonesParams,
    state: Mutex<State>,
}

struct State {
    zones: Vec<Content>,
    pointers: Pointers,
    /// Zones whose resets fail.
    stuck: BTreeSet<u32>,
    /// Number of changes until one goes wrong, and what happens then.
    left: Option<u64>,
    fault: Fault,
    is_off: bool,
    cuts: u64,
    written_bytes: u64,
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    PowerCut,
    /// Of a write, the first half is written.
    Error,
}

#[derive(Clone, Default)]
struct Content {
    bytes: Vec<u8>,
    written: u64,
    /// Offsets of units that cannot be read until they are rewritten.
    unreadable: BTreeSet<usize>,
    /// The content at the last sync.
    safe: Option<Box<Content>>,
    changes: Vec<Change>,
}

#[derive(Clone)]
enum Change {
    Reset,
    Finish,
    Write(u64, Vec<u8>),
}

impl RamZones {
    /// Blank zones.
    pub fn new(params: RamZonesParams) -> RamZones {
        let blank = ZoneReport { written: 0, is_writable: true };
        let zones = vec![Content::default(); params.shape.zones as usize];
        let pointers = Pointers::new(params.shape, vec![blank; params.shape.zones as usize]);
        let (stuck, left, fault) = (BTreeSet::new(), None, Fault::PowerCut);
        let state = State { zones, pointers, stuck, left, fault, is_off: false, cuts: 0, written_bytes: 0 };
        RamZones { params, state: Mutex::new(state) }
    }

    /// Cuts the power at the `nth` write, reset, finish or sync from now (1 is the next).
    pub fn power_cut_at(&self, nth: u64) {
        self.arm(nth, Fault::PowerCut);
    }

    /// Makes the `nth` write, reset, finish or sync from now (1 is the next) return an error; a write is half done.
    /// Later ones work.
    pub fn fail_at(&self, nth: u64) {
        self.arm(nth, Fault::Error);
    }

    fn arm(&self, nth: u64, fault: Fault) {
        let mut state = self.state.lock();
        (state.left, state.fault) = (Some(nth.max(1)), fault);
    }

    /// Cancels an armed power cut or error.
    pub fn disarm(&self) {
        self.state.lock().left = None;
    }

    /// True while an armed power cut or error has not happened yet.
    pub fn is_armed(&self) -> bool {
        self.state.lock().left.is_some()
    }

    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.state.lock().is_off = true;
    }

    /// True while the power is off.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Turns the power on; if it was off, part of what was not synced is lost.
    pub fn power_on(&self) {
        let state = &mut *self.state.lock();
        state.left = None;
        if !std::mem::take(&mut state.is_off) {
            return;
        }
        state.cuts += 1;
        for (zone, content) in (0..).zip(&mut state.zones) {
            content.lose(&self.params, [u64::from(zone), state.cuts]);
            state.pointers.set_written(zone, content.written);
        }
    }

    /// Makes a zone read-only.
    pub fn set_read_only(&self, zone: u32) {
        self.state.lock().pointers.set_read_only(zone);
    }

    /// Makes resets of a zone fail, or work again.
    pub fn set_stuck(&self, zone: u32, is_stuck: bool) {
        let stuck = &mut self.state.lock().stuck;
        let _ = if is_stuck { stuck.insert(zone) } else { stuck.remove(&zone) };
    }

    /// Flips a bit of written data; `bit` counts from the start of the zone.
    pub fn flip_bit(&self, zone: u32, bit: u64) {
        if let Some(byte) = self.state.lock().zones[zone as usize].bytes.get_mut((bit / 8) as usize) {
            *byte ^= 1 << (bit % 8);
        }
    }

    /// Makes the unit at `offset` of a zone unreadable until it is rewritten. On a device without write pointers, if it
    /// is the first unit, the zone counts as written from now on.
    pub fn spoil(&self, zone: u32, offset: u64) {
        let state = &mut *self.state.lock();
        let content = &mut state.zones[zone as usize];
        let both = [Some(&mut content.unreadable), content.safe.as_mut().map(|safe| &mut safe.unreadable)];
        both.into_iter().flatten().for_each(|unreadable| unreadable.extend([offset as usize]));
        if offset == 0 {
            content.forget_pointer(&self.params);
            state.pointers.set_written(zone, content.written);
        }
    }

    /// Bytes written since the device was created.
    pub fn written_bytes(&self) -> u64 {
        self.state.lock().written_bytes
    }

    /// Checks a change, and applies it unless the power is off. If something goes wrong at this call, it returns an
    /// error, though the change may survive.
    fn change(&self, zone: u32, change: Change, check: impl FnOnce(&Pointers) -> Result<()>) -> Result<()> {
        let state = &mut *self.state.lock();
        let fault = state.call()?;
        check(&state.pointers)?;
        let change = match fault {
            Some(Fault::Error) => change.half(&self.params).ok_or_else(failed)?,
            _ => change,
        };
        if matches!(change, Change::Reset) && state.stuck.contains(&zone) {
            return Err(Error::new(Kind::Io, format!("zone {zone} cannot be reset")));
        }
        if let Change::Write(_, bytes) = &change {
            state.written_bytes += bytes.len() as u64;
        }
        let content = &mut state.zones[zone as usize];
        if content.changes.is_empty() {
            content.safe = Some(Box::new(Content { safe: None, ..content.clone() }));
        }
        content.apply(&change, &self.params);
        content.changes.push(change);
        state.pointers.set_written(zone, content.written);
        fault.map_or(Ok(()), |fault| Err(fault.error()))
    }
}

impl State {
    /// Counts a call; returns what goes wrong at it.
    fn call(&mut self) -> Result<Option<Fault>> {
        if self.is_off {
            return Err(lost());
        }
        let is_hit = self.left == Some(1);
        self.left = self.left.map(|left| left - 1).filter(|_| !is_hit);
        self.is_off = is_hit && self.fault == Fault::PowerCut;
        Ok(is_hit.then_some(self.fault))
    }
}

impl Fault {
    fn error(self) -> Error {
        match self {
            Fault::PowerCut => lost(),
            Fault::Error => failed(),
        }
    }
}

impl Change {
    /// What is done of a change that fails.
    fn half(self, params: &RamZonesParams) -> Option<Change> {
        let Change::Write(offset, mut bytes) = self else { return None };
        let unit = params.shape.unit_bytes as usize;
        bytes.truncate(bytes.len() / 2 / unit * unit);
        (!bytes.is_empty()).then_some(Change::Write(offset, bytes))
    }
}

impl Content {
    fn apply(&mut self, change: &Change, params: &RamZonesParams) {
        match change {
            Change::Reset => {
                self.written = 0;
                if params.keeps_pointers {
                    self.bytes.clear();
                    self.unreadable.clear();
                } else {
                    self.blank_first_unit(params);
                }
            }
            Change::Finish if params.keeps_pointers => {
                self.bytes.resize(params.shape.zone_bytes as usize, 0);
                self.written = params.shape.zone_bytes;
            }
            Change::Finish => {}
            Change::Write(offset, bytes) => {
                self.put(*offset as usize, bytes);
                self.written = offset + bytes.len() as u64;
            }
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        if self.bytes.len() < at + bytes.len() {
            self.bytes.resize(at + bytes.len(), 0);
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.unreadable.retain(|unit| !(at..at + bytes.len()).contains(unit));
    }

    fn is_readable(&self, at: usize, bytes: usize, params: &RamZonesParams) -> bool {
        let unit = params.shape.unit_bytes as usize;
        self.unreadable.range((at + 1).saturating_sub(unit)..at + bytes).next().is_none()
    }

    fn blank_first_unit(&mut self, params: &RamZonesParams) {
        let unit = (params.shape.unit_bytes as usize).min(self.bytes.len());
        self.bytes[..unit].fill(0);
        self.unreadable.remove(&0);
    }

    /// Reduces the zone to what a power cut leaves of it.
    fn lose(&mut self, params: &RamZonesParams, about: [u64; 2]) {
        let Some(safe) = self.safe.take() else { return self.forget_pointer(params) };
        let changes = std::mem::take(&mut self.changes);
        *self = *safe;
        let chance = |a: u64, b: u64| roll(params.seed, [about[0], about[1], a, b]);
        if params.keeps_pointers {
            let kept = (chance(0, 0) % (changes.len() as u64 + 1)) as usize;
            changes[..kept].iter().for_each(|change| self.apply(change, params));
            if let Some(Change::Write(offset, bytes)) = changes.get(kept) {
                let unit = params.shape.unit_bytes as usize;
                let units = (fraction(chance(0, 1)) * (bytes.len() / unit) as f64) as usize;
                if units > 0 {
                    self.apply(&Change::Write(*offset, bytes[..units * unit].to_vec()), params);
                }
            }
            return;
        }
        for (n, change) in (1..).zip(&changes) {
            match change {
                Change::Write(offset, bytes) => {
                    let style = chance(n, 0) % 3;
                    for (i, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
                        if style == 0 || style == 1 && chance(n, 1 + i as u64) % 2 == 0 {
                            self.put(*offset as usize + i * SECTOR_BYTES, sector);
                        }
                    }
                }
                other if chance(n, 0) % 2 == 0 => self.apply(other, params),
                _ => {}
            }
        }
        self.forget_pointer(params);
    }

    /// A device without write pointers checks the first unit; an unreadable one is not blank.
    fn forget_pointer(&mut self, params: &RamZonesParams) {
        if !params.keeps_pointers {
            let unit = (params.shape.unit_bytes as usize).min(self.bytes.len());
            let is_blank = self.bytes[..unit].iter().all(|byte| *byte == 0);
            self.bytes.resize(params.shape.zone_bytes as usize, 0);
            let is_blank = is_blank && !self.unreadable.contains(&0);
            self.written = if is_blank { 0 } else { params.shape.zone_bytes };
        }
    }
}

impl Zones for RamZones {
    fn shape(&self) -> ZonesShape {
        self.params.shape
    }

    fn report(&self, zone: u32) -> ZoneReport {
        self.state.lock().pointers.report(zone)
    }

    /// Remaps as a device without write pointers might.
    fn remap(&self, zone: u32, offset: u64, from: (u32, u64), bytes: u64) -> Result<u64> {
        if self.params.keeps_pointers {
            return Err(Error::new(Kind::Unsupported, "zones are written, not remapped"));
        }
        let mut content = vec![0; bytes as usize];
        self.read(from.0, from.1, &mut content)?;
        self.write(zone, offset, &content)?;
        self.state.lock().written_bytes -= bytes;
        Ok(bytes)
    }

    fn write(&self, zone: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        let change = Change::Write(offset, bytes.to_vec());
        self.change(zone, change, |pointers| pointers.check_write(zone, offset, bytes.len()))
    }

    fn read(&self, zone: u32, offset: u64, out: &mut [u8]) -> Result<()> {
        let state = self.state.lock();
        if state.is_off {
            return Err(lost());
        }
        state.pointers.check_read(zone, offset, out.len())?;
        let content = &state.zones[zone as usize];
        if !content.is_readable(offset as usize, out.len(), &self.params) {
            return Err(Error::new(Kind::Io, format!("zone {zone}: a unit cannot be read")));
        }
        let bytes = &content.bytes;
        out.copy_from_slice(&bytes[offset as usize..offset as usize + out.len()]);
        Ok(())
    }

    fn finish(&self, zone: u32) -> Result<()> {
        self.change(zone, Change::Finish, |pointers| pointers.check_zone(zone).map(drop))
    }

    fn reset(&self, zone: u32) -> Result<()> {
        self.change(zone, Change::Reset, |pointers| pointers.check_zone(zone).map(drop))
    }

    fn sync(&self) -> Result<()> {
        let state = &mut *self.state.lock();
        if let Some(fault) = state.call()? {
            return Err(fault.error());
        }
        for content in &mut state.zones {
            content.changes.clear();
            content.safe = None;
        }
        Ok(())
    }
}

fn lost() -> Error {
    Error::new(Kind::PowerLost, "the power is off")
}

fn failed() -> Error {
    Error::new(Kind::Io, "input/output error")
}
