//! Read-ahead of scans: from the third consecutive leaf on, following leaves are read together, twice as many each
//! time. They do not go to the cache, as scans rarely read a leaf again, but cached leaves are used. Once reads have
//! their largest size, further ranges are announced to the medium. If the table is mapped and the range is in the page
//! cache, or the leaf was verified lately, it is used in place; otherwise each page would be waited for separately.

use super::buffer::Buffer;
use super::cached::OwnLeaf;
use super::objects::LeafPlace;
use super::{Object, Table};
use std::sync::Arc;
use vellum_base::{Result, Task};

/// Consecutive leaves that are read one by one.
const ALONE: u32 = 2;
/// Initial and largest size of a read in bytes.
const BYTES_MIN: usize = 16 << 10;
const BYTES_MAX: usize = 128 << 10;
/// Bytes that are announced to the medium at a time in long scans.
const ANNOUNCED_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Default)]
pub(super) struct Ahead {
    /// Consecutive leaves so far.
    row: u32,
    /// Bytes of the next read.
    bytes: usize,
    /// The last read, and the unit at which it begins.
    read: Option<Buffer>,
    unit: usize,
    /// If the table is mapped: units below this one are in the page cache. `None` if its leaves cannot be used in
    /// place.
    resident: Option<usize>,
    /// Units below this one have been announced to the medium, or are being announced by a task.
    announced: usize,
    announcing: Option<Task>,
}

impl Ahead {
    /// Reads the leaf at `place` of a run whose leaves end before unit `run_end`. `follows`: it comes right after the
    /// last one.
    pub(super) fn data(
        &mut self,
        table: &Arc<Table>,
        place: LeafPlace,
        run_end: usize,
        follows: bool,
    ) -> Result<Arc<Object>> {
        if follows {
            table.prefetch(place); // who sought it did so
        }
        self.row = if follows { self.row + 1 } else { 1 };
        if self.row <= ALONE {
            (self.bytes, self.announced, self.resident) = (BYTES_MIN, 0, Some(0));
            return table.mapped(place)?.map_or_else(|| table.data(place), Ok);
        }
        if !self.holds(table, place)
            && let Some(object) = self.mapped(table, place, run_end)?
        {
            return Ok(object);
        }
        if let Some(object) = table.library.cache.get(table.cache_key(place.unit)) {
            return Ok(object);
        }
        if !self.holds(table, place) {
            let units = self.units(table, place, run_end);
            let is_long = self.bytes == BYTES_MAX;
            self.bytes = (self.bytes * 2).min(BYTES_MAX);
            self.read = None; // a read of the same size has its memory
            let mut read = Buffer::new(units * table.unit_bytes);
            table.read(place.unit, &mut read)?;
            (self.unit, self.read) = (place.unit, Some(read));
            if is_long {
                self.announce(table, place.unit + units);
            }
        }
        let start = (place.unit - self.unit) * table.unit_bytes;
        let read = self.read.as_ref().expect("it holds the leaf");
        let leaf = OwnLeaf::of(&read[start..start + place.units * table.unit_bytes])?;
        Ok(Arc::new(Object::data(leaf)))
    }

    /// Units to read together.
    fn units(&self, table: &Table, place: LeafPlace, run_end: usize) -> usize {
        let units = self.bytes / table.unit_bytes;
        units.min(run_end.saturating_sub(place.unit)).max(place.units)
    }

    /// The leaf where the table is mapped, if the kernel has it, and all that would be read with it, in memory.
    fn mapped(&mut self, table: &Table, place: LeafPlace, run_end: usize) -> Result<Option<Arc<Object>>> {
        let Some(resident) = self.resident else { return Ok(None) };
        if place.unit + place.units <= resident || table.was_verified(place) {
            return Self::at_hand(table, place);
        }
        let units = self.units(table, place, run_end);
        if !table.is_resident(place.unit, units) {
            return Ok(None);
        }
        let object = Self::at_hand(table, place)?;
        self.resident = object.is_some().then_some(place.unit + units);
        self.bytes = (self.bytes * 2).min(BYTES_MAX);
        Ok(object)
    }

    fn at_hand(table: &Table, place: LeafPlace) -> Result<Option<Arc<Object>>> {
        table.mapped(place)?.map_or_else(|| table.unpacked(place), |object| Ok(Some(object)))
    }

    /// Tells the medium what follows `unit`: in a task, as where a table is in many pieces that takes as long as to
    /// work on what was read.
    fn announce(&mut self, table: &Arc<Table>, unit: usize) {
        let units = ANNOUNCED_BYTES / table.unit_bytes;
        let (from, to) = (self.announced.max(unit), table.root_unit.min(unit + 2 * units));
        if !table.reader.listens() || self.announced > unit + units || from >= to {
            return;
        }
        self.announced = to;
        self.announcing.take().into_iter().for_each(Task::join);
        let (table, env) = (table.clone(), table.library.env.clone());
        let announce = move || {
            let unit_bytes = table.unit_bytes as u64;
            table.reader.announce(from as u64 * unit_bytes, (to - from) as u64 * unit_bytes);
        };
        self.announcing = env.try_spawn("kv-announce", Box::new(announce)); // Without it reads wait, no more.
    }

    fn holds(&self, table: &Table, place: LeafPlace) -> bool {
        let end = self.unit + self.read.as_ref().map_or(0, |read| read.len() / table.unit_bytes);
        place.unit >= self.unit && place.unit + place.units <= end
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.announcing.take().into_iter().for_each(Task::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Stamp;
    use crate::lsm::merge::{Cursor, Stream};
    use crate::lsm::table::cursor::TableCursor;
    use crate::lsm::table::{Grain, Library, TableBuilder};
    use crate::media::TableReader;
    use vellum_base::sync::Mutex;
    use vellum_base::{Env, IoClass, Nanos};
    use vellum_sim::Sim;

    /// A table in memory, and what was announced of it.
    struct Listener {
        bytes: Vec<u8>,
        announced: Mutex<Vec<(u64, u64)>>,
        waits: bool,
    }

    impl TableReader for Listener {
        fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
            out.copy_from_slice(&self.bytes[offset as usize..][..out.len()]);
            Ok(Nanos::ZERO)
        }
        fn bytes(&self) -> Result<u64> {
            Ok(self.bytes.len() as u64)
        }
        fn listens(&self) -> bool {
            true
        }
        fn waits(&self) -> bool {
            self.waits
        }
        fn announce(&self, offset: u64, bytes: u64) {
            self.announced.lock().push((offset, offset + bytes));
        }
    }

    const RECORDS: u32 = 8000;

    /// The system has no thread.
    struct Poor(Arc<dyn Env>);

    impl Env for Poor {
        fn now(&self) -> Nanos {
            self.0.now()
        }
        fn sleep_until(&self, time: Nanos) {
            self.0.sleep_until(time);
        }
        fn charge(&self, cpu: Nanos) {
            self.0.charge(cpu);
        }
        fn spawn(self: Arc<Self>, name: &str, _run: Box<dyn FnOnce() + Send>) -> Task {
            panic!("there is no thread for {name}");
        }
        fn try_spawn(self: Arc<Self>, _name: &str, _run: Box<dyn FnOnce() + Send>) -> Option<Task> {
            None
        }
        fn random(&self) -> u64 {
            self.0.random()
        }
    }

    /// What a test announces of a table of 8 MB.
    fn announced(test: impl FnOnce(&mut TableCursor)) -> (Vec<(u64, u64)>, u64) {
        announced_in(|env| env, false, test)
    }

    fn announced_in(
        env: impl FnOnce(Arc<dyn Env>) -> Arc<dyn Env>,
        waits: bool,
        test: impl FnOnce(&mut TableCursor),
    ) -> (Vec<(u64, u64)>, u64) {
        let sim = Sim::new(1);
        let env = env(sim.env());
        let (mut announced, mut root_at) = (Vec::new(), 0);
        sim.run(|| {
            let mut builder = TableBuilder::new(1, 10, Grain::default());
            (0..RECORDS).for_each(|n| builder.add(&n.to_be_bytes(), Stamp(n.into()), &[7; 1000]));
            let finished = builder.finish();
            let reader = Arc::new(Listener { bytes: finished.tail, announced: Mutex::default(), waits });
            let table = Table::open(&Library::without_cache(env), reader.clone(), finished.meta).unwrap();
            root_at = (table.root_unit * table.unit_bytes) as u64;
            let mut cursor = TableCursor::new(Arc::new(table));
            test(&mut cursor);
            drop(cursor); // and whoever is announcing has ended
            announced = std::mem::take(&mut *reader.announced.lock());
        });
        (announced, root_at)
    }

    fn scan(cursor: &mut TableCursor, records: u32) {
        for n in 0..records {
            assert!(cursor.is_valid(), "record {n}");
            cursor.next().unwrap();
        }
    }

    #[test]
    fn a_long_scan_announces_what_comes_once_and_no_more_than_there_is() {
        let (announced, root_at) = announced(|cursor| {
            cursor.first().unwrap();
            scan(cursor, RECORDS);
            assert!(!cursor.is_valid());
        });
        assert!(announced[0].0 <= 512 << 10, "{announced:?}");
        assert!(announced.windows(2).all(|pair| pair[0].1 == pair[1].0), "{announced:?}");
        assert_eq!(announced.last().unwrap().1, root_at);
    }

    #[test]
    fn a_short_scan_announces_nothing_and_one_that_ends_early_little() {
        let short = announced(|cursor| {
            cursor.first().unwrap();
            scan(cursor, 100);
        });
        assert_eq!(short.0, []);
        let (longer, _) = announced(|cursor| {
            cursor.first().unwrap();
            scan(cursor, 1000);
        });
        assert!(longer.last().unwrap().1 <= 4 << 20, "{longer:?}");
    }

    #[test]
    fn where_there_is_no_thread_a_scan_announces_nothing() {
        let (announced, _) = announced_in(
            |env| Arc::new(Poor(env)),
            false,
            |cursor| {
                cursor.first().unwrap();
                scan(cursor, RECORDS);
            },
        );
        assert_eq!(announced, []);
    }

    #[test]
    fn a_scan_that_begins_anew_announces_anew() {
        let (announced, root_at) = announced(|cursor| {
            for from in [0u32, 2000] {
                cursor.seek(&from.to_be_bytes(), Stamp(u64::MAX)).unwrap();
                scan(cursor, RECORDS - from);
            }
        });
        let ends = announced.iter().filter(|(_, end)| *end == root_at).count();
        assert_eq!(ends, 2, "{announced:?}");
    }

    #[test]
    fn where_reads_wait_a_seek_announces_its_leaf_and_the_next() {
        let seek = |cursor: &mut TableCursor| cursor.aim(&4000u32.to_be_bytes()).unwrap();
        assert_eq!(announced(seek).0, []);
        let (announced, root_at) = announced_in(|env| env, true, seek);
        let [(begin, end)] = announced[..] else { panic!("{announced:?}") };
        assert!(begin.abs_diff(root_at / 2) < root_at / 16, "{begin} of {root_at}");
        assert_eq!(end - begin, 8192);
        let (announced, root_at) = announced_in(
            |env| env,
            true,
            |cursor| {
                cursor.aim(&(RECORDS - 1).to_be_bytes()).unwrap();
            },
        );
        assert!(announced[0].1 <= root_at, "{announced:?}");
    }
}
