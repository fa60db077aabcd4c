//! Opening a table: its foot and its root are read and checked.

use super::foot::{FOOT_BYTES, Foot};
use super::leaf::Leaf;
use super::mapped::Mapped;
use super::object::{OBJECT_BYTES_MAX, ObjectKind};
use super::pins::Pins;
use super::{Library, Table};
use crate::journal::{LogPart, TableMeta};
use crate::lsm::kept_log::KeptLogs;
use crate::lsm::units::Blocks;
use crate::media::{Media, TableReader, check_whole};
use std::sync::Arc;
use vellum_base::sync::atomic::AtomicBool;
use vellum_base::{Error, IoClass, Kind, Result};

/// What is read when opening a table.
struct Parts {
    unit_bytes: usize,
    root: Leaf,
    root_bytes: Box<[u8]>,
    root_unit: usize,
    own_seq: u64,
    data_bytes: u64,
}

impl Table {
    /// Opens a table: reads and checks its foot and its root.
    pub(crate) fn open(
        library: &Arc<Library>,
        reader: Arc<dyn TableReader>,
        meta: TableMeta,
    ) -> Result<Table> {
        let result = check_whole(&*reader).and_then(|()| Table::open_parts(library, &*reader, &meta));
        let Parts { unit_bytes, root, root_bytes, root_unit, own_seq, data_bytes } =
            result.map_err(|e| e.context(format!("table {}", meta.number)))?;
        let obsolete = AtomicBool::new(false);
        let cached = Blocks::of(root_unit, unit_bytes);
        library.warmed.take(meta.number).into_iter().for_each(|unit| cached.mark(unit as usize));
        Ok(Table {
            meta,
            unit_bytes,
            library: library.clone(),
            mapped: library.map_files.then(|| reader.map()).flatten().map(|map| Mapped::new(map, unit_bytes)),
            reader,
            pins: Pins::new(&root, &root_bytes),
            root,
            root_bytes,
            root_unit,
            own_seq,
            data_bytes,
            obsolete,
            cached,
            logs: Vec::new(),
        })
    }

    /// Opens a table of `media`, and the logs that it points into. Its first and last key are read if the manifest has
    /// only their beginnings. If they are damaged, a wider range takes their place, and `is_cut` stays
    /// ([`Version::check_guesses`](crate::lsm::version::Version::check_guesses)).
    pub(crate) fn on(library: &Arc<Library>, media: &dyn Media, meta: TableMeta) -> Result<Arc<Table>> {
        let open = |part: &LogPart| KeptLogs::open(library, media, *part);
        let logs: Result<Vec<_>> = meta.logs.iter().map(open).collect();
        let logs = logs.map_err(|e| e.context(format!("table {}", meta.number)))?;
        let mut table = Table::open(library, media.open_table(meta.number)?, meta)?;
        table.logs = logs;
        let mut table = Arc::new(table);
        if table.meta.is_cut {
            let read = table.bounds();
            let meta = &mut Arc::get_mut(&mut table).expect("no other holder yet").meta;
            match read {
                Ok(bounds) => ((meta.smallest, meta.largest), meta.is_cut) = (bounds, false),
                Err(error) if error.kind() == Kind::Corrupt => meta.largest = above(&meta.largest),
                Err(error) => return Err(error),
            }
        }
        Ok(table)
    }

    fn open_parts(library: &Library, reader: &dyn TableReader, meta: &TableMeta) -> Result<Parts> {
        let read = |offset: u64, bytes: usize| {
            let mut bytes = vec![0; bytes];
            let at = reader.read(offset, &mut bytes, IoClass::Foreground)?;
            library.env.sleep_until(at);
            Ok::<_, Error>(bytes)
        };
        let Some(foot_at) = meta.bytes.checked_sub(FOOT_BYTES as u64) else {
            return Err(Error::corrupt("of impossible length"));
        };
        let foot = Foot::read(&read(foot_at, FOOT_BYTES)?)?;
        let (unit_bytes, root_unit) = (foot.unit_bytes, foot.root_unit as usize);
        if foot.entries != meta.entries || foot.root_units == 0 || foot.unit() * unit_bytes as u64 != foot_at
        {
            return Err(Error::corrupt("its foot does not fit the manifest"));
        }
        if foot.is_another(meta) {
            return Err(Error::corrupt("it is not the table that the manifest tells of"));
        }
        let root_units = foot.root_units as usize;
        if root_units * unit_bytes > OBJECT_BYTES_MAX {
            return Err(Error::corrupt("its root is of impossible length"));
        }
        let root_bytes = read((root_unit * unit_bytes) as u64, root_units * unit_bytes)?;
        let root = Leaf::check(&root_bytes, ObjectKind::Root)?;
        let own_seq = if foot.seq_max == 0 { meta.seq_max } else { 0 };
        let data_bytes = foot.data_bytes;
        Ok(Parts { unit_bytes, root, root_bytes: root_bytes.into(), root_unit, own_seq, data_bytes })
    }
}

/// The shortest key above all that begin like this one. No keyspace has number 255.
fn above(begin: &[u8]) -> Vec<u8> {
    let upto = begin.iter().rposition(|byte| *byte < u8::MAX).map_or(0, |at| at + 1);
    let mut above = begin[..upto].to_vec();
    above.last_mut().into_iter().for_each(|last| *last += 1);
    above
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::put_varint;
    use crate::key::LookupKey;
    use crate::key::Stamp;
    use crate::lsm::table::Lineage;
    use crate::lsm::table::leaf_build::LeafBuilder;
    use crate::lsm::table::object::TABLE_UNIT_BYTES;
    use vellum_base::{Nanos, RealEnv};

    const UNITS_MAX: u32 = (OBJECT_BYTES_MAX / TABLE_UNIT_BYTES) as u32;

    /// A long table that is zero up to its end.
    struct Hollow {
        bytes: u64,
        end: Vec<u8>,
    }

    impl TableReader for Hollow {
        fn read(&self, offset: u64, out: &mut [u8], _class: IoClass) -> Result<Nanos> {
            assert!(out.len() <= 2 * OBJECT_BYTES_MAX, "{} bytes are read in one go", out.len());
            let end_at = (self.bytes - self.end.len() as u64).saturating_sub(offset) as usize;
            if let Some(out) = out.get_mut(end_at..) {
                let from = (offset + end_at as u64 + self.end.len() as u64 - self.bytes) as usize;
                out.copy_from_slice(&self.end[from..][..out.len()]);
            }
            Ok(Nanos::ZERO)
        }
        fn bytes(&self) -> Result<u64> {
            Ok(self.bytes)
        }
    }

    /// A table with a root behind so many units of nothing, which its foot says has so many, and of which the one entry
    /// names a filter and an index of so many.
    fn open(before: u32, root_units: u32, branch: [u32; 2]) -> Result<Table> {
        let (mut end, mut root, mut place) = (Vec::new(), LeafBuilder::default(), Vec::new());
        [0, branch[0], branch[1]].into_iter().for_each(|number| put_varint(&mut place, number.into()));
        root.add(b"key", Stamp(0), &place, 0);
        root.finish(&mut end, ObjectKind::Root, TABLE_UNIT_BYTES);
        let (root_unit, lineage) = (before + 1 - root_units, Lineage::default());
        let (unit_bytes, seq_floor, data_bytes) = (TABLE_UNIT_BYTES, 0, 0);
        let (entries, deletes, seq_min, seq_max) = (1, 0, 1, 1);
        Foot {
            unit_bytes,
            entries,
            deletes,
            seq_min,
            seq_max,
            root_unit,
            root_units,
            data_bytes,
            seq_floor,
            sum: None,
            lineage,
        }
        .write(&mut end);
        let bytes = u64::from(before) * TABLE_UNIT_BYTES as u64 + end.len() as u64;
        let library = Library::without_cache(RealEnv::new());
        let meta = TableMeta { number: 1, bytes, entries, seq_max, ..TableMeta::default() };
        Table::open(&library, Arc::new(Hollow { bytes, end }), meta)
    }

    #[test]
    fn what_is_too_long_for_an_object_is_not_read() {
        let long = 3 * UNITS_MAX;
        let error = open(long, long, [1, 1]).map(drop).unwrap_err();
        assert!(error.to_string().contains("its root is of impossible length"), "{error}");
        for branch in [[long - 1, 1], [1, long - 1], [UNITS_MAX, UNITS_MAX + 1]] {
            let table = open(long, 1, branch).unwrap();
            let wanted = LookupKey { key: b"key", stamp: Stamp(u64::MAX), hash: 0 };
            let error = table.get(wanted, &mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("an object of impossible length"), "{error}");
        }
    }
}
