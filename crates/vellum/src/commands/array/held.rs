//! An assembled array in this process: which file each member is, and a rebuild concurrent with requests.
//!
//! Invariants
//! 1. One rebuild at a time. A request to rebuild takes over the one in the background, and waits for any other.
//! 2. Changes of the array's file exclude each other (`ArrayFile::edit`).

use super::service::Service;
use super::take::Take;
use super::target::{Assembled, Copied, Shown, Target};
use crate::failure::Failure;
use crate::text;
use crate::ui::{Ui, say};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum::array::cache::engine::CachedArray;
use vellum::array::{Device, Id, MemberStatus, Progress, Rebuilt, State, hex, survey};
use vellum::array_file::{ArrayFile, Draft};
use vellum::base::sync::{Mutex, MutexGuard};
use vellum::base::{Env, Error, Nanos, RealEnv, SECTOR_BYTES, Task};
use vellum::media::FileDisk;

/// Polling interval while waiting for another rebuild.
const LOOK_EVERY: Nanos = Nanos::from_ms(50);

/// See the module.
pub struct Held {
    file: PathBuf,
    array: Arc<CachedArray>,
    /// Devices as the file names them, by the member's id.
    names: Mutex<BTreeMap<Id, PathBuf>>,
    /// Why it was opened without the cache that its file names, if so.
    why_unused: Option<String>,
    rebuild: Mutex<Option<Background>>,
    /// Held while members are being rebuilt.
    rebuilding: Arc<Mutex<()>>,
    /// Held while a member's device is being replaced: one at a time.
    copying: Mutex<()>,
    /// Members that were taken out by orders.
    taken_out: Mutex<BTreeSet<Id>>,
    /// Held while an order detaches the cache.
    detaching: Mutex<()>,
    /// Rows copied to a replacement in progress.
    rows_copied: Mutex<Option<u64>>,
    /// The array is closing: what is ended now continues when it is next served.
    is_closing: AtomicBool,
    /// How it is served, if it is: then added members are rebuilt at once.
    service: Option<Service>,
}

struct Background {
    ends: Arc<AtomicBool>,
    /// Set when nothing is left to rebuild, or the rebuild cannot continue; decided under its lock.
    is_done: Arc<Mutex<bool>>,
    task: Task,
}

/// Receives how much is done, and the total; returns false to stop.
type GoOn<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

/// Adapts it to callers that report how much is left.
fn of_most(go_on: GoOn<'_>) -> impl FnMut(u64) -> bool {
    let mut most = 0;
    move |left| {
        most = most.max(left);
        go_on(most - left, most)
    }
}

impl Held {
    /// Assembles the array, for a service or for an order.
    pub fn assemble(target: &Target, ui: &Ui, service: Option<Service>) -> Result<Held, Failure> {
        let Assembled { cached, names, why_unused } = target.assemble(service, ui)?;
        let held = Held {
            file: target.file.clone(),
            array: Arc::new(cached),
            names: Mutex::new(names),
            why_unused,
            rebuild: Mutex::default(),
            rebuilding: Arc::default(),
            copying: Mutex::default(),
            taken_out: Mutex::default(),
            detaching: Mutex::default(),
            rows_copied: Mutex::default(),
            is_closing: AtomicBool::new(false),
            service,
        };
        if let Some(degraded) = held.service.and_then(|_| held.shown().degraded(&held.file)) {
            ui.remark(degraded);
        }
        held.rebuild_beside();
        Ok(held)
    }

    /// The array with its cache.
    pub fn array(&self) -> &Arc<CachedArray> {
        &self.array
    }

    /// The file that names the array's devices.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// To be locked while a member's device is being replaced.
    pub fn copying(&self) -> &Mutex<()> {
        &self.copying
    }

    /// Sets how many rows have been copied to a replacement; None if there is none.
    pub fn tell_copied(&self, rows: Option<u64>) {
        *self.rows_copied.lock() = rows;
    }

    /// From now on orders end because the array is closing, not because they were cancelled.
    pub fn begin_to_close(&self) {
        self.is_closing.store(true, Relaxed);
    }

    /// Whether the array is closing.
    pub fn is_closing(&self) -> bool {
        self.is_closing.load(Relaxed)
    }

    /// Path of a member's device, as in the file.
    pub fn name_of(&self, id: &Id) -> Option<PathBuf> {
        self.names.lock().get(id).cloned()
    }

    /// Sets the path of a member's device.
    pub fn name(&self, id: Id, device: &Path) {
        self.names.lock().insert(id, device.to_path_buf());
    }

    /// Updates the parity of all rows. `go_on` receives how many are done, and the total; it returns false to stop.
    pub fn flush(&self, go_on: GoOn<'_>) -> Result<(), Failure> {
        Ok(self.array.clean_all(of_most(go_on))?)
    }

    /// Detaches the cache, and removes it from the file. By force, this ignores the loss of what only the cache has,
    /// which is then shown. Returns false if it was stopped, in which case the cache stays.
    pub fn detach_cache(&self, force: bool, go_on: GoOn<'_>) -> Result<bool, Failure> {
        let Some(_alone) = lock_while(&self.detaching, || go_on(0, 0)) else { return Ok(false) };
        let had_one = self.array.status().scheme.is_some();
        let detached = match force {
            true => self.array.detach_by_force(of_most(go_on)),
            false => self.array.detach(of_most(go_on)),
        };
        let is_let_go = had_one && self.array.status().scheme.is_none();
        if matches!(detached, Ok(true)) || (force || is_let_go) && detached.is_err() {
            self.edit(|named| (named.cache, named.nvram) = (None, None))?;
        }
        match detached {
            Err(_) if force && !self.array.lost_sectors().is_empty() => Ok(true),
            result => result.map_err(|error| self.not_detached(is_let_go, error)),
        }
    }

    /// Why the cache has failed, unless an order has detached it, or is doing so.
    pub fn dead_cache(&self) -> Option<String> {
        let _no_order = self.detaching.try_lock()?;
        let status = self.array.status();
        status.detached.filter(|_| status.scheme.is_some())
    }

    /// The state of the array.
    pub fn shown(&self) -> Shown {
        let mut named = ArrayFile::load(&self.file).unwrap_or_default();
        let rows_copied = *self.rows_copied.lock();
        let replacing = named.replacing.take().map(|r| Copied { old: r.old, new: r.new, rows_copied });
        let names = self.names.lock();
        let why_unused = self.why_unused.as_deref();
        Shown::of(&self.array, |id| names.get(id).cloned(), named, why_unused).with_replacing(replacing)
    }

    /// Takes a member out: `now`, or once no stale parity needs it. False if it was stopped.
    pub fn fail(&self, member: &str, now: bool, go_on: GoOn<'_>) -> Result<bool, Failure> {
        let role = self.role(member)?;
        let id = self.array.array().status().members[role].id;
        self.taken_out.lock().insert(id);
        let failed = match now {
            true => self.array.array().fail(role).map(|()| true),
            false => self.array.fail(role, of_most(go_on)),
        };
        if !matches!(failed, Ok(true)) {
            self.taken_out.lock().remove(&id);
        }
        failed.map_err(|error| self.not_failed(error))
    }

    /// Whether a member was taken out by an order.
    pub fn is_taken_out(&self, id: &Id) -> bool {
        self.taken_out.lock().contains(id)
    }

    /// Releases the device of a member that is out, and removes it from the file.
    pub fn remove(&self, member: &str) -> Result<(), Failure> {
        let role = self.role(member)?;
        self.array.array().remove(role).map_err(|error| self.not_removed(role, error))?;
        self.names.lock().remove(&self.array.array().status().members[role].id);
        self.save()
    }

    /// Adds a device for a lost member. The devices of lost members are removed from the file.
    pub fn add(&self, device: &Path, take: Take) -> Result<(), Failure> {
        let status = self.array.array().status();
        if !status.members.iter().any(|member| member.state == State::Missing) {
            return Err(self.none_lost());
        }
        let opened = self.open(device, take)?;
        let named = self.prepare(Some(device)).inspect_err(|_| opened.unmake())?;
        let role = self.array.array().add(opened.device.clone(), take.erase);
        let role = role.inspect_err(|_| opened.unmake())?;
        self.names.lock().insert(self.array.array().status().members[role].id, device.to_path_buf());
        let changed = self.as_it_is(named.named().clone(), None);
        named.commit_as(changed)?;
        self.rebuild_beside();
        Ok(())
    }

    /// Rebuilds members that were added.
    pub fn rebuild(
        &self,
        give_up: bool,
        mut go_on: impl FnMut(Progress) -> bool,
    ) -> Result<Rebuilt, Failure> {
        let was_needed = needs_rebuild(&self.array);
        self.end_rebuild();
        let Some(alone) = lock_while(&self.rebuilding, || go_on(progress_of(&self.array))) else {
            return Ok(Rebuilt::default());
        };
        if was_needed && !needs_rebuild(&self.array) {
            return Ok(Rebuilt { complete: true, ..Rebuilt::default() }); // By the rebuild that was waited for.
        }
        let rebuilt = self.array.rebuild(give_up, go_on);
        drop(alone);
        // If it was stopped, its requester has gone, but the server continues.
        self.rebuild_beside();
        if let Ok(Rebuilt { lost, .. }) = &rebuilt
            && self.service.is_some()
            && !lost.is_empty()
        {
            let lost: Vec<_> = lost.iter().map(|lost| (lost.start, lost.end - lost.start)).collect();
            say(format!(
                "{}: sectors were given up, and are zeros: {}",
                self.file.display(),
                text::all_ranges(&lost)
            ));
        }
        rebuilt.map_err(|error| self.not_rebuilt(error))
    }

    /// Ends the rebuild and closes the array.
    pub fn close(self) -> Result<(), Failure> {
        self.end_rebuild();
        let array = Arc::into_inner(self.array).ok_or_else(|| Error::invalid("the array is still in use"))?;
        Ok(array.close()?)
    }

    /// Finds a member by its role, or by the name of its device.
    pub fn role(&self, member: &str) -> Result<usize, Failure> {
        let members = self.array.array().status().members;
        if let Ok(role) = member.parse::<usize>() {
            return Some(role).filter(|role| *role < members.len()).ok_or_else(|| self.no_role(role));
        }
        let names = self.names.lock();
        let is_named = |id: &Id| names.get(id).is_some_and(|name| name == Path::new(member));
        members.iter().position(|member| is_named(&member.id)).ok_or_else(|| self.no_member(member))
    }

    /// Writes the file, with the devices of members that are not lost.
    pub fn save(&self) -> Result<(), Failure> {
        Ok(self.prepare(None)?.commit()?)
    }

    /// Prepares a new version of the file, with the added device for the first lost member.
    fn prepare(&self, added: Option<&Path>) -> Result<Draft, Failure> {
        Ok(ArrayFile::prepare(&self.file, |named| *named = self.as_it_is(std::mem::take(named), added))?)
    }

    /// New contents of the file.
    fn as_it_is(&self, mut named: ArrayFile, mut added: Option<&Path>) -> ArrayFile {
        let (names, status) = (self.names.lock(), self.array.array().status());
        named.array = Some(hex(&status.array));
        let member = |member: &MemberStatus| match member.state {
            State::Missing => added.take().map(Path::to_path_buf),
            _ => names.get(&member.id).cloned(),
        };
        named.members = status.members.iter().filter_map(member).collect();
        // A device that is a member is no longer a replacement.
        let replacing = named.replacing.take();
        named.replacing = replacing.filter(|replacing| !named.members.contains(&replacing.new));
        named
    }

    /// Changes the file.
    pub fn edit(&self, change: impl FnOnce(&mut ArrayFile)) -> Result<(), Failure> {
        Ok(ArrayFile::edit(&self.file, change)?)
    }

    /// Opens a device that is to be a member, creating it if it does not exist.
    pub fn open(&self, device: &Path, take: Take) -> Result<Opened, Failure> {
        let (path, sectors) = (self.path_of(device), self.array.array().status().member_sectors);
        self.in_use()?.check_other(&self.file, device)?;
        if path.symlink_metadata().is_err() {
            let disk = FileDisk::create(&path, sectors * SECTOR_BYTES as u64)?;
            return Ok(Opened { device: self.member(disk)?, made: Some(path) });
        }
        take.check_there(&path)?;
        let there = self.open_there(device).map_err(|failure| self.not_opened(device, failure))?;
        take.check(&path, &there, Some(&self.array.array().status().array))?;
        self.check_size(device, &*there)?;
        Ok(Opened { device: there, made: None })
    }

    /// The file with only the devices in use: a member that is out may come back.
    fn in_use(&self) -> Result<ArrayFile, Failure> {
        let (names, status) = (self.names.lock(), self.array.array().status());
        let members = status.members.iter().filter(|member| member.state != State::Missing);
        let members = members.filter_map(|member| names.get(&member.id).cloned()).collect();
        Ok(ArrayFile { members, ..ArrayFile::load(&self.file)? })
    }

    /// Opens an existing device.
    pub fn open_there(&self, device: &Path) -> Result<Device, Failure> {
        let disk = FileDisk::open(&self.path_of(device))?;
        self.member(disk)
    }

    fn path_of(&self, device: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(device)
    }

    fn member(&self, disk: FileDisk) -> Result<Device, Failure> {
        Ok(self.service.unwrap_or_default().member(Arc::new(disk))?)
    }

    /// Starts a rebuild in the background if this is a server, none is running, and one is needed.
    fn rebuild_beside(&self) {
        let mut rebuild = self.rebuild.lock();
        let is_under_way = rebuild.as_ref().is_some_and(|background| !*background.is_done.lock());
        if self.service.is_none() || is_under_way || !needs_rebuild(&self.array) {
            return;
        }
        rebuild.take().into_iter().for_each(|done| done.task.join());
        let (ends, is_done) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(false)));
        let (array, told, done) = (self.array.clone(), ends.clone(), is_done.clone());
        let rebuilding = self.rebuilding.clone();
        let run = move || {
            loop {
                let alone = lock_while(&rebuilding, || !told.load(Relaxed));
                let goes_on = alone.is_some() && rebuild_once(&array, &told);
                drop(alone);
                let mut done = done.lock();
                *done = !goes_on || !needs_rebuild(&array);
                if *done {
                    return;
                }
            }
        };
        let task = RealEnv::new().spawn("array-rebuild", Box::new(run));
        *rebuild = Some(Background { ends, is_done, task });
    }

    fn end_rebuild(&self) {
        let background = self.rebuild.lock().take();
        if let Some(Background { ends, task, .. }) = background {
            ends.store(true, Relaxed);
            task.join();
        }
    }
}

/// A device opened to become a member, and its file if that was created for it.
pub struct Opened {
    pub device: Device,
    made: Option<PathBuf>,
}

impl Opened {
    /// Removes the file if it was created, since the device will not be a member.
    pub fn unmake(&self) {
        let _ = self.made.as_ref().map(std::fs::remove_file);
    }
}

/// Waits for the lock while `go_on` returns true.
fn lock_while(lock: &Mutex<()>, mut go_on: impl FnMut() -> bool) -> Option<MutexGuard<'_, ()>> {
    let env = RealEnv::new();
    loop {
        match lock.try_lock() {
            Some(locked) => return Some(locked),
            None if !go_on() => return None,
            None => env.sleep_until(env.now() + LOOK_EVERY),
        }
    }
}

/// Progress of the first member that is being rebuilt.
fn progress_of(array: &CachedArray) -> Progress {
    let status = array.array().status();
    let rows = status.members.iter().find_map(|member| match member.state {
        State::Rebuilding { rows } => Some(rows),
        _ => None,
    });
    Progress { rows: rows.unwrap_or(status.shape.rows), of: status.shape.rows }
}

/// Whether there is an added member that is not yet filled.
fn needs_rebuild(array: &CachedArray) -> bool {
    let members = array.array().status().members;
    members.iter().any(|member| matches!(member.state, State::Rebuilding { .. }))
}

/// Rebuilds the members added so far; false if that did not complete. More may be added meanwhile.
fn rebuild_once(array: &CachedArray, ends: &AtomicBool) -> bool {
    match array.rebuild(false, |_| !ends.load(Relaxed)) {
        Ok(rebuilt) if rebuilt.complete => say("the rebuild is complete"),
        Ok(_) => return false,
        Err(error) => {
            say(format!("the rebuild has stopped: {error}"));
            return false;
        }
    }
    true
}

/// Paths of devices by the id of the member that they identify themselves as.
pub fn names_of(devices: &[(PathBuf, Device)]) -> BTreeMap<Id, PathBuf> {
    let surveyed: Vec<Device> = devices.iter().map(|(_, device)| device.clone()).collect();
    let verdicts = survey(&surveyed).map_or_else(|verdicts| verdicts, |survey| survey.verdicts);
    let ids = verdicts.into_iter().map(|verdict| verdict.superblock.map(|found| found.table[found.role].id));
    devices.iter().zip(ids).filter_map(|((path, _), id)| Some((id?, path.clone()))).collect()
}
