//! Those who write and read, and what they know: what each sector may hold, now and once the power has gone.

use crate::harness::content;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_array::Array;
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Lba, Result, SECTOR_BYTES};

/// What sectors may hold.
struct Sectors {
    /// As far as the host knows: more than one thing where writes failed.
    now: Vec<BTreeSet<u32>>,
    /// What else, once the power has gone.
    older: Vec<BTreeSet<u32>>,
    /// A content that nobody has.
    next: u32,
}

/// See the module.
pub(super) struct Host {
    sectors: Mutex<Sectors>,
    story: Mutex<Vec<String>>,
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.story.lock().join("\n"));
        }
    }
}

impl Host {
    /// Sector `l` has content `l + 1`.
    pub fn new(sectors: u64) -> Arc<Host> {
        let now = (1..=sectors as u32).map(|id| [id].into()).collect();
        let older = vec![BTreeSet::new(); sectors as usize];
        let sectors = Sectors { now, older, next: 100_000 };
        Arc::new(Host { sectors: Mutex::new(sectors), story: Mutex::default() })
    }

    /// What happened; it is shown if the test fails.
    pub fn tell(&self, what: impl Into<String>) {
        self.story.lock().push(what.into());
    }

    fn wrote(&self, what: &str, lba: u64, ids: &[u32], fua: bool, result: Result<()>) {
        self.tell(format!("{what} {lba}+{}: {result:?}", ids.len()));
        let mut guard = self.sectors.lock();
        let Sectors { now, older, .. } = &mut *guard;
        for (at, id) in (lba as usize..).zip(ids) {
            if result.is_ok() {
                older[at].append(&mut now[at]);
            }
            if result.is_ok() && fua {
                older[at].clear();
            }
            now[at].insert(*id);
        }
    }

    fn contents(&self, count: u64) -> (Vec<u32>, Vec<u8>) {
        let mut sectors = self.sectors.lock();
        let ids: Vec<u32> = (sectors.next..).take(count as usize).collect();
        sectors.next += count as u32;
        let bytes = ids.iter().flat_map(|id| content(*id)).collect();
        (ids, bytes)
    }

    pub fn write(&self, array: &Array, (lba, count): (u64, u64), fua: bool) {
        let (ids, bytes) = self.contents(count);
        self.wrote("write", lba, &ids, fua, array.write(Lba(lba), &bytes, fua));
    }

    pub fn zero(&self, array: &Array, (lba, count): (u64, u64)) {
        let result = array.write_zeroes(Lba(lba), count, false);
        self.wrote("zero", lba, &vec![0; count as usize], false, result);
    }

    pub fn put_off(&self, array: &Array, lba: u64) {
        let (ids, bytes) = self.contents(1);
        self.wrote("put off", lba, &ids, true, array.write_without_parity_update(Lba(lba), &bytes, true));
    }

    /// Nobody writes meanwhile.
    pub fn flush(&self, array: &Array) {
        let result = array.flush();
        self.tell(format!("flush: {result:?}"));
        if result.is_ok() {
            self.flushed();
        }
    }

    /// What was acknowledged is there for sure.
    pub fn flushed(&self) {
        self.sectors.lock().older.iter_mut().for_each(BTreeSet::clear);
    }

    /// The power has gone.
    pub fn cut(&self) {
        let mut guard = self.sectors.lock();
        let Sectors { now, older, .. } = &mut *guard;
        now.iter_mut().zip(older).for_each(|(now, older)| now.append(older));
    }

    pub fn read(&self, array: &Array, (lba, count): (u64, u64)) {
        let mut found = vec![0; count as usize * SECTOR_BYTES];
        let result = array.read(Lba(lba), &mut found);
        self.tell(format!("read {lba}+{count}: {result:?}"));
        if result.is_ok() {
            self.assert_possible(lba, &found);
        }
    }

    fn assert_possible(&self, lba: u64, found: &[u8]) {
        let sectors = self.sectors.lock();
        for (at, found) in (lba as usize..).zip(found.chunks(SECTOR_BYTES)) {
            let is_known = sectors.now[at].iter().any(|id| content(*id) == *found);
            assert!(is_known, "sector {at} holds none of {:?}", sectors.now[at]);
        }
    }

    /// These sectors have that for sure from now on.
    pub fn settle(&self, lba: u64, found: &[u8]) {
        self.assert_possible(lba, found);
        let mut sectors = self.sectors.lock();
        for (at, found) in (lba as usize..).zip(found.chunks(SECTOR_BYTES)) {
            sectors.now[at].retain(|id| content(*id) == *found);
        }
    }
}
