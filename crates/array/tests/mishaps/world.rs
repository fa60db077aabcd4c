//! An array on disks that fail, what happens to them, and how what it holds is checked.

use super::disk::{Disk, Faults};
use super::host::Host;
use crate::harness::{Kind, Rig, Slow};
use std::sync::Arc;
use vellum_array::{Array, Device, Options, Repair, State, assemble, examine};
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Env, Lba, Result, SECTOR_BYTES};
use vellum_media::RamDisk;

/// See the module.
pub(super) struct World {
    pub rig: Rig,
    pub host: Arc<Host>,
    /// By role.
    faults: Vec<Arc<Mutex<Faults>>>,
    /// Whether calls of members take long.
    is_slow: bool,
    /// A disk that was to take the member's place, and may have.
    beside: Option<(usize, Disk)>,
}

impl World {
    /// With an array whose sectors all are written, not assembled.
    pub fn new(kind: Kind, env: Arc<dyn Env>, seed: u64, is_slow: bool) -> World {
        let rig = Rig::new(kind, env, seed);
        let (array, _) = rig.filled();
        let host = Host::new(array.info().sectors);
        host.tell(format!("{kind:?}"));
        array.close().unwrap();
        let faults = (0..kind.members).map(|_| Arc::default()).collect();
        World { rig, host, faults, is_slow, beside: None }
    }

    /// What goes wrong with a member.
    pub fn faults(&self, role: usize) -> &Arc<Mutex<Faults>> {
        &self.faults[role]
    }

    /// A new disk.
    fn disk(&self, faults: Faults) -> Disk {
        let inner = RamDisk::new(self.rig.disks[0].info().sectors, &self.rig.power);
        Disk { inner, faults: Arc::new(Mutex::new(faults)) }
    }

    /// As the array gets it.
    fn device(&self, disk: &Disk) -> Device {
        match self.is_slow {
            true => Slow::over(Arc::new(disk.clone()), &self.rig.env),
            false => Arc::new(disk.clone()),
        }
    }

    /// Assembles the array of all disks but this role's.
    pub fn open(&mut self, without: Option<usize>) -> Result<Array> {
        let members = self.rig.disks.iter().zip(&self.faults);
        let members = members.map(|(inner, faults)| Disk { inner: inner.clone(), faults: faults.clone() });
        let beside = self.beside.iter().map(|(role, disk)| (*role, disk.clone()));
        let all = members.enumerate().chain(beside).filter(|(role, _)| Some(*role) != without);
        let devices = all.map(|(_, disk)| self.device(&disk));
        // One that says nothing is nobody's.
        let devices: Vec<Device> = devices.filter(|device| examine(device).is_ok()).collect();
        let (log, options) = (self.rig.log_device(), Options { lanes: 2, force: false });
        let result = assemble(&devices, log.as_ref(), self.rig.env.clone(), options);
        self.host.tell(format!("open without {without:?}: {:?}", result.as_ref().err()));
        result.inspect(|array| self.elect(array))
    }

    /// Of two disks of a role the array says which is its member's.
    fn elect(&mut self, array: &Array) {
        let Some((_, disk)) = self.beside.take() else { return };
        let Ok(found) = examine(&self.device(&disk)) else { return };
        if found.table[found.role].id == array.status().members[found.role].id {
            self.took_in(found.role, disk, true);
        }
    }

    /// Whether a disk is the member's from now on. If that failed the next opening says.
    fn took_in(&mut self, role: usize, disk: Disk, done: bool) -> bool {
        match done {
            true => (self.rig.disks[role], self.faults[role]) = (disk.inner, disk.faults),
            false => self.beside = Some((role, disk)),
        }
        done
    }

    /// A new disk for a member that is out, if one is. False if that failed.
    pub fn take_in(&mut self, array: &Array) -> bool {
        let mut members = array.status().members.into_iter();
        let role = members.position(|member| member.state == State::Missing);
        let Some(role) = role.filter(|_| array.status().ended.is_none()) else { return true };
        let disk = self.disk(Faults::default());
        let result = array.remove(role).and_then(|()| array.add(self.device(&disk), false));
        self.host.tell(format!("add {role}: {result:?}"));
        // Another may have gone meanwhile, whose place it was given.
        self.took_in(*result.as_ref().unwrap_or(&role), disk, result.is_ok())
    }

    /// A new disk for one that counts. It may fail its n-th change; `at_row` hears of rows. False if that failed.
    pub fn replace(&mut self, array: &Array, role: usize, nth: u64, mut at_row: impl FnMut(u64)) -> bool {
        if array.status().ended.is_some() {
            return true;
        }
        let disk = self.disk(Faults { nth, ..Faults::default() });
        let result = array.replace(role, self.device(&disk), false, |at| {
            at_row(at.rows);
            true
        });
        self.host.tell(format!("replace {role}, change {nth} fails: {result:?}"));
        self.took_in(role, disk, result.is_ok())
    }

    /// All disks are well.
    pub fn calm(&self) {
        let beside = self.beside.iter().map(|(_, disk)| &disk.faults);
        self.faults.iter().chain(beside).for_each(|faults| *faults.lock() = Faults::default());
    }

    /// The power goes, if it has not, and comes back.
    pub fn cut(&mut self, seed: u64) {
        self.host.tell("cut");
        self.host.cut();
        self.rig = self.rig.after_cut(seed);
        if let Some((_, disk)) = &mut self.beside {
            disk.inner = disk.inner.after_cut(&self.rig.power);
        }
    }

    /// Everything is well again: the array can be opened, and every sector holds what it is to hold, also without any
    /// one member once those that were lost are rebuilt.
    pub fn check(&mut self) {
        self.calm();
        self.rig.power.cut_at(u64::MAX / 2);
        let array = self.open(None).unwrap();
        let (rows, stale) = (array.status().shape.rows, array.stale_rows(0, usize::MAX));
        self.check_sectors(&array, &stale);
        let scrubbed = array.scrub(0..rows, Repair::None, |_| true).unwrap();
        assert_eq!(scrubbed.mismatches, 0, "{scrubbed:?}");
        self.make_whole(&array, &stale);
        let mut all = vec![0; array.info().bytes() as usize];
        array.close().unwrap();
        self.host.flushed();
        for role in 0..self.faults.len() {
            self.rig.fork(1).assemble(&[role]).read(Lba(0), &mut all).unwrap();
            self.host.settle(0, &all);
        }
        self.host.tell("checked");
    }

    /// Lost are at most data of a stale row whose member is lost.
    fn check_sectors(&self, array: &Array, stale: &[u64]) {
        let mut found = vec![0; SECTOR_BYTES];
        for lba in 0..array.info().sectors {
            match array.read(Lba(lba), &mut found) {
                Ok(()) => self.host.settle(lba, &found),
                Err(error) => {
                    let may_be = array.lost_members() > 0 && stale.contains(&array.row_of(Lba(lba)));
                    assert!(may_be, "sector {lba}: {error}");
                }
            }
        }
    }

    /// Nobody is lost, and no row is stale.
    fn make_whole(&mut self, array: &Array, stale: &[u64]) {
        let per_row = array.status().shape.row_sectors();
        for row in stale {
            if array.resync(*row).is_err() {
                assert!(array.lost_members() > 0);
                self.host.zero(array, (row * per_row, per_row));
            }
        }
        assert_eq!(array.stale_rows(0, 1), []);
        while array.status().members.iter().any(|member| member.state == State::Missing) {
            assert!(self.take_in(array));
        }
        if array.lost_members() > 0 {
            assert!(array.rebuild(false, |_| true).unwrap().complete);
        }
    }
}
