//! A directory whose power goes at any call: what was not synced is lost, kept or torn, each write by itself, and so
//! are names that were made, removed or renamed. What is put into memory may be lost as what is written.

use rand::Rng;
use rand::rngs::SmallRng;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Kind, Result};
use vellum_kv::media::{Files, Handle, Memory};
use vellum_kv::{Directory, DirectoryOptions};

const SECTOR: usize = 512;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) names: BTreeMap<String, usize>,
    /// Names as they were at the last sync, and what happened since.
    safe_names: BTreeMap<String, usize>,
    changes: Vec<Change>,
    files: Vec<FileState>,
    /// Calls that change something until the power goes; none for never.
    pub(crate) left: Option<u64>,
    pub(crate) off: bool,
    pub(crate) fault: Fault,
    pub(crate) clones: u32,
    /// No file is memory.
    pub(crate) no_memory: bool,
    /// How often something was put into one that is.
    pub(crate) puts: u32,
    /// Every clone is refused for good, though trying one out went well.
    pub(crate) never_clones: bool,
    /// After so many more syncs of files, one fails, and what it should have made safe is forgotten, as Linux does it:
    /// it is read until somebody forgets what was read, and no later sync makes it safe, or says that it is not.
    pub(crate) syncs_before_failure: Option<u32>,
    /// Bytes that all files can have; not enforced.
    pub(crate) room: Option<u64>,
    /// Files mapped so far, and how often room was taken ahead.
    pub(crate) mappings: u64,
    pub(crate) rooms_taken: u64,
    /// The device cannot read the first bytes of this file.
    pub(crate) unreadable: Option<String>,
    /// Is told the name of each file before it is made (true) or removed.
    pub(crate) watch: Option<Watch>,
}

pub(crate) type Watch = Arc<dyn Fn(&str, bool) + Send + Sync>;

/// What happens when `left` runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The power goes.
    #[default]
    Cut,
    /// The device is pulled: the process goes on, and every call fails.
    Pulled,
    /// That call fails, and those that follow do not.
    Once,
    /// There is no room from then on: nothing is made, and of what is written a part; the rest goes on.
    Full,
    /// There is no room at that call, and then there is again: somebody else's file went.
    FullOnce,
}

pub(crate) enum Change {
    Make(String, usize),
    Remove(String),
    Rename(String, String, usize),
}

#[derive(Default)]
struct FileState {
    bytes: Vec<u8>,
    /// Bytes as they were at the last sync, and writes since.
    safe: Vec<u8>,
    writes: Vec<(usize, Vec<u8>)>,
    /// Where bytes are that a failed sync forgot.
    forgotten: Vec<std::ops::Range<usize>>,
    /// There is room for so many bytes, whoever takes the rest.
    roomy_until: usize,
}

impl FileState {
    /// What the device has, or will be told.
    fn without_forgotten(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for at in self.forgotten.iter().cloned().flatten().filter(|at| *at < self.bytes.len()) {
            bytes[at] = self.safe.get(at).copied().unwrap_or(0);
        }
        bytes
    }

    /// Writes bytes, which are to be synced.
    fn write(&mut self, offset: usize, what: &[u8]) {
        put(&mut self.bytes, offset, what);
        self.writes.push((offset, what.to_vec()));
        let (from, to) = (offset, offset + what.len());
        let beside =
            |old: &std::ops::Range<usize>| [old.start..old.end.min(from), old.start.max(to)..old.end];
        self.forgotten = self.forgotten.iter().flat_map(beside).filter(|rest| !rest.is_empty()).collect();
    }
}

fn put(bytes: &mut Vec<u8>, offset: usize, what: &[u8]) {
    if bytes.len() < offset + what.len() {
        bytes.resize(offset + what.len(), 0);
    }
    bytes[offset..offset + what.len()].copy_from_slice(what);
}

fn rename(names: &mut BTreeMap<String, usize>, change: &Change) {
    match change {
        Change::Make(name, file) => drop(names.insert(name.clone(), *file)),
        Change::Remove(name) => drop(names.remove(name)),
        Change::Rename(from, to, file) => {
            names.remove(from);
            names.insert(to.clone(), *file);
        }
    }
}

impl State {
    /// Counts a call that changes something; an error when the power is off. `true` if it goes at this call.
    fn call(&mut self) -> Result<bool> {
        if self.off {
            return Err(self.lost());
        }
        if matches!(self.fault, Fault::Full | Fault::FullOnce) {
            return Ok(false);
        }
        let goes = self.left.is_some_and(|left| left <= 1);
        self.left = self.left.map(|left| left - 1).filter(|_| !goes);
        self.off = goes && self.fault != Fault::Once;
        Ok(goes)
    }

    /// Counts a call that takes room; true if there is none.
    fn is_full(&mut self) -> bool {
        if !matches!(self.fault, Fault::Full | Fault::FullOnce) {
            return false;
        }
        self.left = self.left.map(|left| left.saturating_sub(1));
        let is_full = self.left == Some(0);
        self.left = self.left.filter(|_| !is_full || self.fault == Fault::Full);
        is_full
    }

    fn change(&mut self, change: Change) -> Result<()> {
        let goes = self.call()?;
        rename(&mut self.names, &change);
        self.changes.push(change);
        if goes { Err(self.lost()) } else { Ok(()) }
    }

    pub(crate) fn names_ending_in(&self, end: &str) -> Vec<String> {
        self.names.keys().filter(|name| name.ends_with(end)).cloned().collect()
    }

    pub(crate) fn bytes_ending_in(&self, end: &str) -> usize {
        let files = self.names.iter().filter(|(name, _)| name.ends_with(end));
        files.map(|(_, file)| self.files[*file].bytes.len()).sum()
    }

    /// Bytes that there is room for, if that can be told.
    pub(crate) fn room_left(&self) -> u64 {
        if self.fault == Fault::Full && self.left == Some(0) && self.room.is_some() {
            return 0;
        }
        let taken: usize = self.names.values().map(|file| self.files[*file].bytes.len()).sum();
        self.room.unwrap_or(u64::MAX).saturating_sub(taken as u64)
    }

    fn lost(&self) -> Error {
        match self.fault {
            Fault::Cut => Error::new(Kind::PowerLost, "the power is off"),
            Fault::Pulled | Fault::Once => Error::new(Kind::Io, "input/output error"),
            Fault::Full | Fault::FullOnce => Error::new(Kind::NoSpace, "no space left on device"),
        }
    }

    /// The power comes back. Of the names changed since the last sync those stay changed that `changed` says, and of
    /// each write since then as many bytes stay as `written` says; it is asked with the file's name.
    pub(crate) fn crash(
        &mut self,
        mut changed: impl FnMut(&Change) -> bool,
        mut written: impl FnMut(&str, usize) -> usize,
    ) {
        let mut names = self.safe_names.clone();
        self.changes.iter().filter(|change| changed(change)).for_each(|change| rename(&mut names, change));
        self.changes.clear();
        (self.names, self.safe_names) = (names.clone(), names);
        for (name, file) in &self.names {
            let file = &mut self.files[*file];
            for (offset, bytes) in std::mem::take(&mut file.writes) {
                let kept = written(name, bytes.len());
                put(&mut file.safe, offset, &bytes[..kept]);
            }
            file.bytes = file.safe.clone();
        }
        (self.off, self.left) = (false, None);
    }

    /// The power comes back, and chance decides: directories do not promise a prefix, and writes are torn at sectors.
    pub(crate) fn crash_by_chance(&mut self, rng: &mut SmallRng) {
        let draws: Vec<bool> = (0..self.changes.len()).map(|_| rng.random()).collect();
        let mut draws = draws.into_iter();
        self.crash(
            |_| draws.next().unwrap_or(true),
            |_, len| match rng.random_range(0..3) {
                0 => 0,
                1 => len,
                _ => rng.random_range(0..=len) / SECTOR * SECTOR,
            },
        );
    }
}

#[derive(Clone, Default)]
pub(crate) struct Doubtful(pub(crate) Arc<Mutex<State>>);

impl Doubtful {
    fn tell(&self, name: &str, is_made: bool) {
        let watch = self.0.lock().watch.clone();
        watch.into_iter().for_each(|watch| watch(name, is_made));
    }

    pub(crate) fn directory(&self) -> Arc<Directory> {
        Directory::on(Arc::new(self.clone()), DirectoryOptions { table_bytes: 256 << 10 })
    }
}

struct Open {
    state: Arc<Mutex<State>>,
    file: usize,
}

impl Files for Doubtful {
    fn names(&self) -> Result<Vec<String>> {
        let state = self.0.lock();
        if state.off { Err(state.lost()) } else { Ok(state.names.keys().cloned().collect()) }
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Handle>> {
        self.tell(name, true);
        let mut state = self.0.lock();
        assert!(!state.names.contains_key(name), "{name} is there");
        if state.is_full() {
            return Err(state.lost());
        }
        let file = state.files.len();
        state.files.push(FileState::default());
        state.change(Change::Make(name.into(), file))?;
        Ok(Arc::new(Open { state: self.0.clone(), file }))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        let state = self.0.lock();
        match state.names.get(name) {
            _ if state.off => Err(state.lost()),
            Some(file) => Ok(Arc::new(Open { state: self.0.clone(), file: *file })),
            None => Err(Error::corrupt(format!("{name} is missing"))),
        }
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.tell(name, false);
        let mut state = self.0.lock();
        if state.names.contains_key(name) { state.change(Change::Remove(name.into())) } else { Ok(()) }
    }
    fn cut(&self, name: &str, bytes: u64) -> Result<()> {
        let file = self.open(name)?;
        if file.len()? > bytes { file.cut(bytes) } else { Ok(()) }
    }
    fn room_bytes(&self) -> Option<u64> {
        let state = self.0.lock();
        state.room.map(|_| state.room_left())
    }
    fn clones(&self, _source: Option<&str>, _unit_bytes: u64) -> Result<bool> {
        Ok(true)
    }
    fn write(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.open(name)?.write(offset, bytes)
    }
    fn memory(&self, name: &str, bytes: usize) -> Option<Box<dyn Memory>> {
        let mut state = self.0.lock();
        if state.no_memory || state.is_full() || state.call().unwrap_or(true) {
            return None;
        }
        let file = match state.names.get(name) {
            Some(file) => *file,
            None => {
                let file = state.files.len();
                state.files.push(FileState::default());
                let made = Change::Make(name.into(), file);
                rename(&mut state.names, &made);
                state.changes.push(made);
                file
            }
        };
        let there = state.files[file].bytes.len();
        if there < bytes {
            state.files[file].write(there, &vec![0; bytes - there]);
        }
        state.mappings += 1;
        Some(Box::new(Shared { state: self.0.clone(), file }))
    }
    fn held_bytes_min(&self) -> u64 {
        1 << 10
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut state = self.0.lock();
        let file = *state.names.get(from).ok_or_else(|| Error::corrupt(format!("{from} is missing")))?;
        state.change(Change::Rename(from.into(), to.into(), file))
    }
    fn sync_names(&self) -> Result<()> {
        let mut state = self.0.lock();
        if state.call()? {
            return Err(state.lost());
        }
        state.safe_names = state.names.clone();
        state.changes.clear();
        Ok(())
    }
}

impl Handle for Open {
    fn len(&self) -> Result<u64> {
        Ok(self.state.lock().files[self.file].bytes.len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let state = self.state.lock();
        if state.off {
            return Err(state.lost());
        }
        if offset < SECTOR as u64
            && state.unreadable.as_ref().is_some_and(|name| state.names.get(name) == Some(&self.file))
        {
            return Err(Error::new(Kind::Io, "input/output error"));
        }
        let bytes = state.files[self.file].bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(bytes.ok_or_else(|| Error::corrupt("a file is shorter than it should be"))?);
        Ok(())
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let is_roomy = offset as usize + bytes.len() <= state.files[self.file].roomy_until;
        let full = !is_roomy && state.is_full();
        let goes = state.call()?;
        // Of what goes while the power does, chance decides later.
        let is_whole = !full && (!goes || state.fault == Fault::Cut);
        let bytes = if is_whole { bytes } else { &bytes[..bytes.len() / 2] };
        state.files[self.file].write(offset as usize, bytes);
        if goes || full { Err(state.lost()) } else { Ok(()) }
    }
    /// Refuses every seventh time. A clone that was not synced is kept, lost or torn as a write is.
    fn clone_range(&self, offset: u64, from: &dyn Handle, from_offset: u64, bytes: u64) -> Result<bool> {
        let mut content = vec![0; bytes as usize];
        from.read(from_offset, &mut content)?;
        let mut state = self.state.lock();
        state.clones += 1;
        if state.never_clones {
            return Err(Error::new(Kind::Unsupported, "blocks are larger here"));
        }
        if state.clones.is_multiple_of(7) {
            return Ok(false);
        }
        drop(state);
        self.write(offset, &content).map(|()| true)
    }
    fn take_room(&self, offset: u64, bytes: u64) -> bool {
        let mut state = self.state.lock();
        let is_taken = !state.is_full() && !state.call().unwrap_or(true);
        state.rooms_taken += u64::from(is_taken);
        let file = &mut state.files[self.file];
        // What was taken before, behind the bytes that are there, is given back with what could not be had.
        file.roomy_until = if is_taken { (offset + bytes) as usize } else { file.bytes.len() };
        is_taken
    }
    fn writes_in_place(&self) -> bool {
        true
    }
    /// It is safe when the file is synced; until then it may not have happened.
    fn cut(&self, bytes: u64) -> Result<()> {
        let mut state = self.state.lock();
        let goes = state.call()?;
        let file = &mut state.files[self.file];
        file.bytes.truncate(bytes as usize);
        file.roomy_until = 0;
        if goes { Err(state.lost()) } else { Ok(()) }
    }
    fn sync(&self) -> Result<()> {
        let mut state = self.state.lock();
        if state.call()? {
            return Err(state.lost());
        }
        let fails = state.syncs_before_failure == Some(0);
        state.syncs_before_failure = state.syncs_before_failure.and_then(|left| left.checked_sub(1));
        let file = &mut state.files[self.file];
        let writes = std::mem::take(&mut file.writes);
        if fails {
            file.forgotten.extend(writes.iter().map(|(offset, bytes)| *offset..offset + bytes.len()));
            return Err(Error::new(Kind::Io, "input/output error"));
        }
        let bytes = file.without_forgotten();
        file.safe = bytes;
        Ok(())
    }
    fn forget_read(&self) {
        let mut state = self.state.lock();
        let file = &mut state.files[self.file];
        file.bytes = file.without_forgotten();
        file.forgotten.clear();
    }
}

/// A file that is memory.
struct Shared {
    state: Arc<Mutex<State>>,
    file: usize,
}

impl Memory for Shared {
    fn put(&mut self, at: usize, bytes: &[u8]) -> bool {
        let mut state = self.state.lock();
        if state.call().unwrap_or(true) {
            return false;
        }
        state.puts += 1;
        let file = &mut state.files[self.file];
        assert!(at + bytes.len() <= file.bytes.len(), "no memory of that file");
        file.write(at, bytes);
        true
    }
    fn set(&mut self, at: usize, word: u64) -> bool {
        self.put(at, &word.to_le_bytes())
    }
}
