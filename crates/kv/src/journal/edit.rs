//! Edits: changes to what makes up the store, as the manifest records them.

use super::table_meta::{LogPart, SUM_MANIFEST_BYTES, TableMeta};
use crate::bytes::{Fields, put_slice, put_varint};
use crate::key::{KEYSPACE_NAME_BYTES_MAX, KEYSPACES_MAX, SEQ_MAX};
use crate::lifetime::Lifetime;
use vellum_base::{Error, Kind, Result};

/// Most bytes, and so most entries, of a table: sums of such numbers do not overflow.
const BYTES_MAX: u64 = 1 << 48;
/// Highest sequence number that is accepted from a manifest or log. No store reaches it, and numbers above it remain
/// for what is written later.
pub(crate) const SEQ_STORED_MAX: u64 = SEQ_MAX / 2;

/// Name of the only order of keys.
pub(crate) const COMPARATOR: &str = "vellum.bytewise";
/// In its place in a log store, whose keys have no order.
pub(crate) const UNORDERED: &str = "vellum.unordered";
/// Number of levels of an ordered store.
pub const LEVELS: usize = 7;
/// Approximate bytes that a manifest needs for a segment of a log store.
pub(crate) const SEGMENT_MANIFEST_BYTES: usize = 35 + SUM_MANIFEST_BYTES;
/// Most bytes that a manifest needs for everything but tables, segments and keyspaces.
pub(crate) const STORE_MANIFEST_BYTES: usize = 1 << 10;

/// Description of a segment of a log store in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SegmentMeta {
    /// Number of its table.
    pub number: u64,
    /// Age: records in segments of higher order are newer. Unique.
    pub order: u64,
    /// Of the table.
    pub bytes: u64,
    /// Where its last record ends.
    pub data_bytes: u64,
    pub records: u64,
    pub bubble_bytes: u64,
    /// Sum of its records; `None` if written by an earlier version.
    pub sum: Option<u32>,
}

/// See the module. An empty edit changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edit {
    pub comparator: Option<String>,
    pub log_floor: Option<u64>,
    pub next_number: Option<u64>,
    pub last_seq: Option<u64>,
    pub added: Vec<(u8, TableMeta)>,
    pub removed: Vec<(u8, u64)>,
    /// The log that was open when the store was closed, and its length.
    pub closed: Option<(u64, u64)>,
    /// Keyspaces and their names.
    pub created: Vec<(u8, String)>,
    /// Keyspaces that were dropped, and the newest log that may hold entries of them.
    pub dropped: Vec<(u8, u64)>,
    /// Counters so far; empty if the edit has none.
    pub lifetime: Lifetime,
    /// For a log store: the seed that its keys are hashed with.
    pub seed: Option<u64>,
    /// For a log store: segments added, and segments removed.
    pub segments: Vec<SegmentMeta>,
    pub segments_gone: Vec<u64>,
}

/// An error if the edit says that the store belongs to another engine.
pub(crate) fn check_comparator(edit: &Edit, expected: &str) -> Result<()> {
    match edit.comparator.as_deref().filter(|name| *name != expected) {
        None => Ok(()),
        Some(UNORDERED) => {
            Err(Error::new(Kind::Unsupported, "it is a log store: its keys have no order (engine log)"))
        }
        Some(_) => {
            Err(Error::new(Kind::Unsupported, "it is a store of ordered keys (engine lsm), no log store"))
        }
    }
}

/// Tags: the first byte of a field of an edit (docs/formats/kv-log.md).
mod tag {
    pub const COMPARATOR: u8 = 1;
    pub const LOG_FLOOR: u8 = 2;
    pub const NEXT_NUMBER: u8 = 3;
    pub const LAST_SEQ: u8 = 4;
    pub const ADDED: u8 = 5;
    pub const REMOVED: u8 = 6;
    pub const CLOSED: u8 = 7;
    pub const CREATED: u8 = 8;
    pub const DROPPED: u8 = 9;
    pub const LIFETIME: u8 = 10;
    pub const SEED: u8 = 11;
    pub const SEGMENT: u8 = 12;
    pub const SEGMENT_GONE: u8 = 13;
    pub const POINTS: u8 = 14;
    /// Of the table or the segment before it.
    pub const TABLE_SUM: u8 = 15;
    pub const SEGMENT_SUM: u8 = 16;
    /// Of the table before it.
    pub const CUT: u8 = 17;
    /// Of the table before it.
    pub const OLDER: u8 = 18;
}

impl Edit {
    /// The same with each table's first and last key cut if they are long.
    pub(crate) fn brief(mut self) -> Edit {
        self.added = self.added.into_iter().map(|(level, table)| (level, table.brief())).collect();
        self
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        if let Some(name) = &self.comparator {
            out.push(tag::COMPARATOR);
            put_slice(&mut out, name.as_bytes());
        }
        let numbers = [
            (tag::LOG_FLOOR, self.log_floor),
            (tag::NEXT_NUMBER, self.next_number),
            (tag::LAST_SEQ, self.last_seq),
        ];
        for (tag, number) in numbers {
            number.into_iter().for_each(|number| put_field(&mut out, tag, [number]));
        }
        self.added.iter().for_each(|(level, table)| put_table(&mut out, *level, table));
        for (_, table) in self.added.iter().filter(|(_, table)| table.points()) {
            put_field(&mut out, tag::POINTS, [table.number, table.pointed_bytes, table.logs.len() as u64]);
            table.logs.iter().flat_map(|log| [log.number, log.bytes]).for_each(|n| put_varint(&mut out, n));
        }
        for (level, table) in &self.removed {
            out.extend_from_slice(&[tag::REMOVED, *level]);
            put_varint(&mut out, *table);
        }
        if let Some((log, length)) = self.closed {
            put_field(&mut out, tag::CLOSED, [log, length]);
        }
        for (keyspace, name) in &self.created {
            out.extend_from_slice(&[tag::CREATED, *keyspace]);
            put_slice(&mut out, name.as_bytes());
        }
        for (keyspace, log) in &self.dropped {
            out.extend_from_slice(&[tag::DROPPED, *keyspace]);
            put_varint(&mut out, *log);
        }
        if !self.lifetime.is_empty() {
            out.push(tag::LIFETIME);
            self.lifetime.write(&mut out);
        }
        if let Some(seed) = self.seed {
            out.push(tag::SEED);
            out.extend_from_slice(&seed.to_le_bytes());
        }
        self.segments.iter().for_each(|segment| put_segment(&mut out, segment));
        self.segments_gone.iter().for_each(|number| put_field(&mut out, tag::SEGMENT_GONE, [*number]));
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Edit> {
        let (mut fields, mut edit) = (Fields::new(bytes), Edit::default());
        while !fields.is_empty() {
            edit.field(&mut fields).ok_or_else(|| Error::corrupt("manifest: an edit does not decode"))?;
        }
        if edit.comparator.as_ref().is_some_and(|name| name != COMPARATOR && name != UNORDERED) {
            let name = edit.comparator.unwrap_or_default();
            return Err(Error::new(
                Kind::Unsupported,
                format!("the store's keys are ordered by {name:?}; this program knows {COMPARATOR:?}"),
            ));
        }
        Ok(edit)
    }

    fn field(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        match fields.u8()? {
            tag::COMPARATOR => self.comparator = Some(String::from_utf8_lossy(fields.slice()?).into_owned()),
            tag::LOG_FLOOR => self.log_floor = Some(fields.varint()?),
            tag::NEXT_NUMBER => self.next_number = Some(fields.varint()?),
            tag::LAST_SEQ => self.last_seq = Some(at_most(fields.varint()?, SEQ_STORED_MAX)?),
            tag::ADDED => self.added.push((level(fields)?, table(fields)?)),
            tag::REMOVED => self.removed.push((level(fields)?, fields.varint()?)),
            tag::CLOSED => self.closed = Some((fields.varint()?, fields.varint()?)),
            tag::CREATED => self.created.push((keyspace(fields)?, name(fields)?)),
            tag::DROPPED => self.dropped.push((keyspace(fields)?, fields.varint()?)),
            tag::LIFETIME => self.lifetime = Lifetime::read(fields)?,
            tag::SEED => self.seed = Some(fields.u64()?),
            tag::SEGMENT => self.segments.push(segment(fields)?),
            tag::SEGMENT_GONE => self.segments_gone.push(fields.varint()?),
            tag::POINTS => self.points_field(fields)?,
            tag::TABLE_SUM => self.added.last_mut()?.1.sum = Some(fields.u32()?),
            tag::CUT => self.added.last_mut()?.1.is_cut = true,
            tag::OLDER => {
                let table = &mut self.added.last_mut()?.1;
                table.older = at_most(fields.varint()?, table.entries)?;
            }
            tag::SEGMENT_SUM => self.segments.last_mut()?.sum = Some(fields.u32()?),
            _ => return None,
        }
        Some(())
    }

    /// What a table that was added in level 0 has in logs.
    fn points_field(&mut self, fields: &mut Fields<'_>) -> Option<()> {
        let (number, pointed_bytes, count) = (fields.varint()?, fields.varint()?, fields.varint()?);
        let (_, table) =
            self.added.iter_mut().find(|(level, table)| *level == 0 && table.number == number)?;
        for _ in 0..count {
            let (number, bytes) = (fields.varint()?, at_most(fields.varint()?, BYTES_MAX)?);
            table.logs.push(LogPart { number, bytes });
        }
        table.pointed_bytes =
            at_most(pointed_bytes, table.logs.iter().fold(0, |sum, log| log.bytes.saturating_add(sum)))?;
        (count > 0 && table.logs.len() as u64 == count).then_some(())
    }
}

fn put_field<const N: usize>(out: &mut Vec<u8>, tag: u8, numbers: [u64; N]) {
    out.push(tag);
    numbers.into_iter().for_each(|number| put_varint(out, number));
}

fn put_table(out: &mut Vec<u8>, level: u8, t: &TableMeta) {
    out.extend_from_slice(&[tag::ADDED, level]);
    for number in [t.number, t.bytes, t.entries, t.deletes, t.seq_min, t.seq_max] {
        put_varint(out, number);
    }
    put_slice(out, &t.smallest);
    put_slice(out, &t.largest);
    put_sum(out, tag::TABLE_SUM, t.sum);
    out.extend(t.is_cut.then_some(tag::CUT));
    if t.older > 0 {
        put_field(out, tag::OLDER, [t.older]);
    }
}

fn put_segment(out: &mut Vec<u8>, s: &SegmentMeta) {
    let numbers = [s.number, s.order, s.bytes, s.data_bytes, s.records, s.bubble_bytes];
    put_field(out, tag::SEGMENT, numbers);
    put_sum(out, tag::SEGMENT_SUM, s.sum);
}

fn put_sum(out: &mut Vec<u8>, tag: u8, sum: Option<u32>) {
    if let Some(sum) = sum {
        out.push(tag);
        out.extend_from_slice(&sum.to_le_bytes());
    }
}

fn at_most(number: u64, most: u64) -> Option<u64> {
    (number <= most).then_some(number)
}

fn level(fields: &mut Fields<'_>) -> Option<u8> {
    fields.u8().filter(|level| (*level as usize) < LEVELS)
}

fn keyspace(fields: &mut Fields<'_>) -> Option<u8> {
    fields.u8().filter(|number| (1..=KEYSPACES_MAX).contains(&(*number as usize)))
}

fn name(fields: &mut Fields<'_>) -> Option<String> {
    let name = fields.slice()?;
    let fits = (1..=KEYSPACE_NAME_BYTES_MAX).contains(&name.len());
    String::from_utf8(name.to_vec()).ok().filter(|_| fits)
}

fn segment(fields: &mut Fields<'_>) -> Option<SegmentMeta> {
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = fields.varint()?;
    }
    let [number, order, bytes, data_bytes, records, bubble_bytes] = numbers;
    let possible = data_bytes < bytes && bubble_bytes <= data_bytes && bytes <= BYTES_MAX;
    possible.then_some(SegmentMeta { number, order, bytes, data_bytes, records, bubble_bytes, sum: None })
}

fn table(fields: &mut Fields<'_>) -> Option<TableMeta> {
    let mut numbers = [0; 6];
    for number in &mut numbers {
        *number = fields.varint()?;
    }
    let [number, bytes, entries, deletes, seq_min, seq_max] = numbers;
    let smallest = fields.slice()?.to_vec();
    let largest = fields.slice()?.to_vec();
    let possible = smallest <= largest && entries > 0 && seq_min <= seq_max && bytes > 0;
    let possible = possible && seq_max <= SEQ_STORED_MAX && bytes.max(entries).max(deletes) <= BYTES_MAX;
    let meta = TableMeta {
        number,
        bytes,
        entries,
        deletes,
        seq_min,
        seq_max,
        smallest,
        largest,
        ..TableMeta::default()
    };
    possible.then_some(meta)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edits() -> impl Strategy<Value = Edit> {
        let meta =
            (any::<[u64; 5]>(), prop::collection::vec(any::<u8>(), 0..5)).prop_map(|(n, key)| TableMeta {
                pointed_bytes: 0,
                logs: Vec::new(),
                sum: (n[3] % 3 > 0).then_some(n[2] as u32),
                number: n[0],
                bytes: (n[1] % BYTES_MAX).max(1),
                entries: (n[2] % BYTES_MAX).max(1),
                deletes: n[3] % BYTES_MAX,
                older: n[4] % ((n[2] % BYTES_MAX).max(1) + 1),
                seq_min: n[4] % SEQ_STORED_MAX / 2,
                seq_max: n[4] % SEQ_STORED_MAX,
                largest: [&key[..], &[1]].concat(),
                smallest: key,
                is_cut: n[3] % 5 == 0,
            });
        let logs = prop::collection::vec(
            any::<[u64; 2]>().prop_map(|[number, bytes]| LogPart { number, bytes: bytes % BYTES_MAX }),
            1..4,
        );
        let pointing = prop::option::of((any::<u64>(), logs));
        let table = (0..LEVELS as u8, meta, pointing).prop_map(|(level, meta, pointing)| match pointing {
            Some((pointed_bytes, logs)) => {
                let most = logs.iter().map(|log| log.bytes).sum::<u64>();
                (0, TableMeta { pointed_bytes: pointed_bytes % (most + 1), logs, ..meta })
            }
            None => (level, meta),
        });
        let added = prop::collection::vec(table, 0..4);
        let removed = prop::collection::vec((0..LEVELS as u8, any::<u64>()), 0..4);
        let created = prop::collection::vec((1..255u8, "[a-zé]{1,9}"), 0..3);
        let dropped = prop::collection::vec((1..255u8, any::<u64>()), 0..3);
        let lifetime =
            prop::collection::btree_map(any::<u8>(), any::<u64>(), 0..4).prop_map(Lifetime::for_test);
        let segment = any::<[u32; 5]>().prop_map(|n| SegmentMeta {
            number: n[0] as u64,
            order: n[1] as u64,
            bytes: n[2] as u64 + 1,
            data_bytes: n[2] as u64,
            records: n[3] as u64,
            sum: (n[3] % 3 > 0).then_some(n[2]),
            bubble_bytes: n[4].min(n[2]) as u64,
        });
        let log = (any::<Option<u64>>(), prop::collection::vec(segment, 0..3));
        let log = (log, prop::collection::vec(any::<u64>(), 0..3));
        let told = (any::<[Option<u64>; 3]>(), any::<Option<(u64, u64)>>());
        (added, removed, told, created, dropped, lifetime, log).prop_map(
            |(
                added,
                removed,
                ([log_floor, next_number, last_seq], closed),
                created,
                dropped,
                lifetime,
                log,
            )| {
                let ((seed, segments), segments_gone) = log;
                Edit {
                    seed,
                    segments,
                    segments_gone,
                    comparator: log_floor.map(|_| COMPARATOR.to_string()),
                    log_floor,
                    next_number,
                    last_seq: last_seq.map(|seq| seq % SEQ_STORED_MAX),
                    added,
                    removed,
                    closed,
                    created,
                    dropped,
                    lifetime,
                }
            },
        )
    }

    proptest! {
        #[test]
        fn edits_round_trip(edit in edits()) {
            let bytes = edit.encode();
            prop_assert_eq!(Edit::decode(&bytes).unwrap(), edit);
            for cut in 1..bytes.len() {
                let _ = Edit::decode(&bytes[..cut]);
            }
        }

        #[test]
        fn hostile_edits_are_errors(bytes in prop::collection::vec(any::<u8>(), 1..80)) {
            let _ = Edit::decode(&bytes);
        }
    }

    #[test]
    fn what_no_store_comes_to_is_refused() {
        let logs = vec![LogPart { number: 1, bytes: 100 }];
        let table = TableMeta { number: 2, bytes: 1, entries: 1, logs, ..TableMeta::default() };
        let adding = |table| Edit { added: vec![(0, table)], ..Edit::default() };
        for (edit, is_possible) in [
            (adding(TableMeta { pointed_bytes: 100, ..table.clone() }), true),
            (adding(TableMeta { pointed_bytes: 101, ..table.clone() }), false),
            (adding(TableMeta { seq_max: SEQ_STORED_MAX + 1, ..table.clone() }), false),
            (adding(TableMeta { bytes: BYTES_MAX + 1, ..table }), false),
            (Edit { last_seq: Some(SEQ_STORED_MAX), ..Edit::default() }, true),
            (Edit { last_seq: Some(SEQ_STORED_MAX + 1), ..Edit::default() }, false),
        ] {
            assert_eq!(Edit::decode(&edit.encode()).is_ok(), is_possible, "{edit:?}");
        }
    }

    #[test]
    fn long_bounds_are_cut() {
        for (bytes, are_whole) in [(1, true), (64, true), (65, false), (60_000, false)] {
            let (smallest, largest) = (vec![1; bytes], vec![2; bytes]);
            let (entries, seq) = (1 << 27, 1 << 55);
            let table = TableMeta {
                number: 1 << 34,
                bytes: 1 << 34,
                entries,
                deletes: entries,
                older: entries,
                seq_min: seq,
                seq_max: seq,
                smallest,
                largest,
                sum: Some(1),
                ..TableMeta::default()
            };
            let edit = Edit { added: vec![(1, table.clone())], ..Edit::default() };
            let brief = Edit::decode(&edit.clone().brief().encode()).unwrap();
            assert_eq!(brief == edit, are_whole);
            assert!(brief.encode().len() <= table.manifest_bytes());
            let told = &brief.added[0].1;
            assert!(
                [vec![1; bytes], vec![1; bytes + 1], vec![2; bytes]].iter().all(|key| told.may_have(key))
            );
            assert!([vec![0; bytes], vec![3; bytes]].iter().all(|key| !told.may_have(key)));
        }
    }

    #[test]
    fn another_order_of_keys_is_refused_by_name() {
        let edit = Edit { comparator: Some("reverse".into()), ..Edit::default() };
        let error = Edit::decode(&edit.encode()).unwrap_err();
        assert!(error.kind() == Kind::Unsupported && error.to_string().contains("reverse"));
    }
}
