//! A disk in memory that loses whatever a real disk may lose: the test double below arrays.
//!
//! 1. A write is volatile until a flush or, with FUA, until it returns. After a power cut every sector written since
//!    holds, independently of others, its last durable version or any later one; so writes of several sectors can tear.
//! 2. Disks that share a [`Power`] lose it together, at a call chosen in advance. That call may take partial effect.
//! 3. Faults are ordinary inputs: sectors that are unreadable until they are written, a disk that is gone, one failing
//!    call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Error, Kind, Lba, Result, SECTOR_BYTES};

type Sector = Arc<[u8; SECTOR_BYTES]>;

/// The power supply of some disks, with a count of the calls that change them.
pub struct Power {
    state: Mutex<PowerState>,
}

struct PowerState {
    calls: u64,
    cut_at: Option<u64>,
    is_off: bool,
    dice: u64,
}

impl Power {
    /// Power that is on. `seed` determines what a cut leaves.
    pub fn new(seed: u64) -> Arc<Power> {
        let state = PowerState { calls: 0, cut_at: None, is_off: false, dice: seed };
        Arc::new(Power { state: Mutex::new(state) })
    }

    /// Cuts the power at the `nth` call from now (1 is the next) that writes, zeroes or flushes.
    pub fn cut_at(&self, nth: u64) {
        let mut state = self.state.lock();
        state.cut_at = Some(state.calls + nth);
    }

    /// Number of calls so far that wrote, zeroed or flushed.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// Whether the power is off.
    pub fn is_off(&self) -> bool {
        self.state.lock().is_off
    }

    /// Counts a call; true if the power is cut during it.
    fn goes_now(&self) -> Result<bool> {
        let mut state = self.state.lock();
        if state.is_off {
            return Err(Error::new(Kind::PowerLost, "the power is off"));
        }
        state.calls += 1;
        state.is_off = state.cut_at.is_some_and(|at| state.calls >= at);
        Ok(state.is_off)
    }

    fn check(&self) -> Result<()> {
        match self.is_off() {
            true => Err(Error::new(Kind::PowerLost, "the power is off")),
            false => Ok(()),
        }
    }

    fn throw(&self, sides: usize) -> usize {
        let mut state = self.state.lock();
        state.dice =
            state.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state.dice >> 33) % sides as u64) as usize
    }
}

/// Content of a discarded sector: not zeros, so that tests notice code that relies on it.
const DISCARDED: u8 = 0xDB;

/// A simulated disk; see the module.
pub struct RamDisk {
    sectors: u64,
    power: Arc<Power>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Current contents; sectors of zeros are omitted.
    now: BTreeMap<u64, Sector>,
    /// For sectors written since the last flush: the versions that a cut may leave, the durable one first.
    volatile: BTreeMap<u64, Vec<Option<Sector>>>,
    unreadable: BTreeSet<u64>,
    /// Sectors that cannot be written either.
    worn_out: BTreeSet<u64>,
    is_gone: bool,
    /// Number of calls until one fails.
    fails_in: Option<u64>,
    /// All calls after that one fail, too.
    fails_on: bool,
    /// How many more sectors may become other than zeros; None for any number.
    room: Option<u64>,
}

impl RamDisk {
    /// A disk of zeros.
    pub fn new(sectors: u64, power: &Arc<Power>) -> Arc<RamDisk> {
        Arc::new(RamDisk { sectors, power: power.clone(), state: Mutex::default() })
    }

    /// The disk after the power cut: supplied by `power`, with all durable sectors, and a random version of each of the
    /// others.
    pub fn after_cut(&self, power: &Arc<Power>) -> Arc<RamDisk> {
        let state = self.state.lock();
        let mut now = state.now.clone();
        for (lba, versions) in &state.volatile {
            let left = versions[self.power.throw(versions.len())].clone();
            match left {
                Some(sector) => drop(now.insert(*lba, sector)),
                None => drop(now.remove(lba)),
            }
        }
        self.with(power, now, &state)
    }

    /// The same disk with everything that was written, on another power supply.
    pub fn fork(&self, power: &Arc<Power>) -> Arc<RamDisk> {
        let state = self.state.lock();
        self.with(power, state.now.clone(), &state)
    }

    fn with(&self, power: &Arc<Power>, now: BTreeMap<u64, Sector>, before: &State) -> Arc<RamDisk> {
        let (unreadable, worn_out) = (before.unreadable.clone(), before.worn_out.clone());
        let state = State { now, unreadable, worn_out, ..State::default() };
        Arc::new(RamDisk { sectors: self.sectors, power: power.clone(), state: Mutex::new(state) })
    }

    /// Makes the sector unreadable until it is written.
    pub fn make_unreadable(&self, lba: Lba) {
        self.state.lock().unreadable.insert(lba.0);
    }

    /// Makes the sector unreadable for good, and writes to it fail.
    pub fn wear_out(&self, lba: Lba) {
        let mut state = self.state.lock();
        state.unreadable.insert(lba.0);
        state.worn_out.insert(lba.0);
    }

    /// Makes the sector readable again, with its old content.
    pub fn make_readable(&self, lba: Lba) {
        self.state.lock().unreadable.remove(&lba.0);
    }

    /// Makes every call fail from now on.
    pub fn lose(&self) {
        self.state.lock().is_gone = true;
    }

    /// Makes the `nth` call of any kind from now (1 is the next) fail.
    pub fn fail_at(&self, nth: u64) {
        self.state.lock().fails_in = Some(nth);
    }

    /// Makes every call fail from the `nth` from now (1 is the next) on, with the error of a single call, not of a disk
    /// that is gone.
    pub fn fail_from(&self, nth: u64) {
        let mut state = self.state.lock();
        (state.fails_in, state.fails_on) = (Some(nth), true);
    }

    /// Makes the disk a sparse file whose file system has room for this many more sectors: a write that needs more
    /// fails with [`Kind::NoSpace`] at the first sector without room.
    pub fn limit_room(&self, sectors: u64) {
        self.state.lock().room = Some(sectors);
    }

    /// Changes the stored byte as bit rot would, undetected.
    pub fn rot(&self, lba: Lba, byte: usize, by: u8) {
        let mut state = self.state.lock();
        let sector = state.now.entry(lba.0).or_insert_with(|| Arc::new([0; SECTOR_BYTES]));
        Arc::make_mut(sector)[byte] ^= by;
    }

    fn faults(&self, state: &mut State) -> Result<()> {
        if state.is_gone {
            return Err(Error::new(Kind::Gone, "the disk is gone"));
        }
        if let Some(left) = &mut state.fails_in {
            *left -= 1;
            if *left == 0 {
                state.fails_in = state.fails_on.then_some(1);
                return Err(Error::new(Kind::Io, "this call was chosen to fail"));
            }
        }
        Ok(())
    }

    /// Applies the changes of sectors returned by `changes`, as part of a call on a range; `None` is zeros.
    fn change(
        &self,
        lba: Lba,
        sectors: u64,
        fua: bool,
        changes: impl FnOnce(&State) -> Vec<(u64, Option<Sector>)>,
    ) -> Result<()> {
        self.info().check_range(lba, sectors)?;
        let goes = self.power.goes_now()?;
        let mut state = self.state.lock();
        self.faults(&mut state)?;
        for (at, new) in changes(&state) {
            if state.worn_out.contains(&at) {
                return Err(Error::new(Kind::Io, "this sector cannot be written"));
            }
            if new.is_some() && !state.take_room(at) {
                return Err(Error::new(Kind::NoSpace, "no space is left on the disk"));
            }
            state.put(at, new, fua && !goes);
        }
        if goes { self.power.check() } else { Ok(()) }
    }

    /// Changes only sectors that are not zeros, or may not be after a cut, so that a large disk is zeroed quickly.
    fn zero(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.change(lba, sectors, fua, |state| {
            let range = lba.0..lba.0 + sectors;
            let mut known: BTreeSet<u64> = state.now.range(range.clone()).map(|(at, _)| *at).collect();
            known.extend(state.volatile.range(range.clone()).map(|(at, _)| *at));
            known.extend(state.unreadable.range(range));
            known.into_iter().map(|at| (at, None)).collect()
        })
    }
}

impl State {
    /// Takes room for a sector; false if there is none.
    fn take_room(&mut self, at: u64) -> bool {
        match &mut self.room {
            Some(0) => self.now.contains_key(&at),
            Some(room) => {
                *room -= u64::from(!self.now.contains_key(&at));
                true
            }
            None => true,
        }
    }

    fn put(&mut self, at: u64, new: Option<Sector>, is_durable: bool) {
        let before = match &new {
            Some(sector) => self.now.insert(at, sector.clone()),
            None => self.now.remove(&at),
        };
        match is_durable {
            true => drop(self.volatile.remove(&at)),
            false => self.volatile.entry(at).or_insert_with(|| vec![before]).push(new),
        }
        self.unreadable.remove(&at);
    }
}

impl BlockDevice for RamDisk {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { sectors: self.sectors, read_only: false, trims: true }
    }

    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        let sectors = self.info().check_buffer(lba, buf.len())?;
        self.power.check()?;
        let mut state = self.state.lock();
        self.faults(&mut state)?;
        if let Some(bad) = state.unreadable.range(lba.0..lba.0 + sectors).next() {
            return Err(Error::new(Kind::Io, format!("sector {bad} cannot be read")));
        }
        for (at, out) in (lba.0..).zip(buf.chunks_mut(SECTOR_BYTES)) {
            match state.now.get(&at) {
                Some(sector) => out.copy_from_slice(&sector[..]),
                None => out.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        let sectors = self.info().check_buffer(lba, data.len())?;
        let (chunks, _) = data.as_chunks::<SECTOR_BYTES>();
        let content = |bytes: &[u8; SECTOR_BYTES]| (*bytes != [0; SECTOR_BYTES]).then(|| Arc::new(*bytes));
        self.change(lba, sectors, fua, |_| (lba.0..).zip(chunks.iter().map(content)).collect())
    }

    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.zero(lba, sectors, false)
    }

    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.zero(lba, sectors, fua)
    }

    fn discard(&self, lba: Lba, sectors: u64) -> Result<()> {
        let garbage = Arc::new([DISCARDED; SECTOR_BYTES]);
        self.change(lba, sectors, false, |_| {
            (lba.0..lba.0 + sectors).map(|at| (at, Some(garbage.clone()))).collect()
        })
    }

    fn flush(&self) -> Result<()> {
        let goes = self.power.goes_now()?;
        let mut state = self.state.lock();
        self.faults(&mut state)?;
        if goes {
            return self.power.check();
        }
        state.volatile.clear();
        Ok(())
    }

    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.info().check_range(lba, sectors)?;
        Ok((Allocation::Data, sectors))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(disk: &RamDisk, lba: u64) -> Result<u8> {
        let mut out = [0; SECTOR_BYTES];
        disk.read(Lba(lba), &mut out)?;
        assert!(out.iter().all(|byte| *byte == out[0]), "a mixed sector");
        Ok(out[0])
    }

    #[test]
    fn a_cut_keeps_what_was_flushed_and_any_version_of_the_rest() {
        let (mut old, mut new, mut torn) = (0, 0, 0);
        for seed in 0..200 {
            let power = Power::new(seed);
            let disk = RamDisk::new(8, &power);
            disk.write(Lba(0), &[1; 2 * SECTOR_BYTES], false).unwrap();
            disk.flush().unwrap();
            disk.write(Lba(7), &[9; SECTOR_BYTES], true).unwrap();
            power.cut_at(1);
            let error = disk.write(Lba(0), &[2; 2 * SECTOR_BYTES], true).unwrap_err();
            assert_eq!(error.kind(), Kind::PowerLost);
            assert!(read(&disk, 0).is_err() && disk.flush().is_err());
            let disk = disk.after_cut(&Power::new(0));
            assert_eq!(read(&disk, 7).unwrap(), 9, "FUA returned");
            match (read(&disk, 0).unwrap(), read(&disk, 1).unwrap()) {
                (1, 1) => old += 1,
                (2, 2) => new += 1,
                (1, 2) | (2, 1) => torn += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(old > 20 && new > 20 && torn > 50, "{old} {new} {torn}");
    }

    #[test]
    fn faults_come_when_told() {
        let disk = RamDisk::new(8, &Power::new(1));
        disk.make_unreadable(Lba(3));
        assert!(read(&disk, 3).is_err() && read(&disk, 2).is_ok());
        disk.write(Lba(3), &[1; SECTOR_BYTES], false).unwrap();
        assert_eq!(read(&disk, 3).unwrap(), 1);
        disk.fail_at(2);
        assert!(read(&disk, 0).is_ok() && disk.flush().is_err() && disk.flush().is_ok());
        disk.limit_room(2);
        let error = disk.write(Lba(2), &[2; 4 * SECTOR_BYTES], false).unwrap_err();
        let found = [2, 3, 4, 5].map(|lba| read(&disk, lba).unwrap());
        assert_eq!((error.kind(), found), (Kind::NoSpace, [2, 2, 2, 0]));
        disk.write(Lba(2), &[3; 3 * SECTOR_BYTES], false).unwrap();
        disk.lose();
        assert!(read(&disk, 0).is_err() && disk.flush().is_err());
    }
}
