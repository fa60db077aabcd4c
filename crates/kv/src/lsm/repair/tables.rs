//! Tables of a store that is repaired.

use super::Repair;
use crate::journal::{LEVELS, TableMeta};
use crate::key::Stamp;
use crate::lsm::compaction::{Sweep, TableSink};
use crate::lsm::merge::{Merge, Stream};
use crate::lsm::recover::ManifestState;
use crate::lsm::table::{Foot, Library, Lineage, Salvaged, Table, TableStream, foot_of, salvage};
use crate::media::{BoundedReader, Intent, NAMELESS, Parallelism, TableReader};
use crate::repair::{known, replaced_for_good};
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Cause, Error, IoClass, Kind, Result};

pub(super) const INTENT: Intent =
    Intent { cause: Cause::Refresh, class: IoClass::Background, parallelism: Parallelism::Full };

impl Repair<'_> {
    /// Keeps tables where the manifest says, and writes those anew that are damaged.
    pub(super) fn keep_listed_tables(&mut self, state: &ManifestState) -> Result<()> {
        for (level, metas) in state.levels.iter().enumerate() {
            for meta in metas {
                let verified = |table: Arc<Table>| table.verify(|_| true).map(|()| table.meta.clone());
                match self.open(meta).and_then(verified) {
                    Ok(meta) => {
                        self.report.tables_kept += 1;
                        self.added.push((level as u8, meta));
                    }
                    Err(error) if error.kind() == Kind::Unsupported => return Err(error),
                    Err(error) => {
                        self.problem(error);
                        let logs: BTreeSet<u64> = meta.logs.iter().map(|log| log.number).collect();
                        let tables = match logs.is_empty() {
                            true => self.rewrite(meta.number, level, Some(meta))?,
                            false => self.rewrite_flushed(meta.number, level, &logs, Some(meta))?,
                        };
                        self.added.extend(tables.into_iter().map(|meta| (level as u8, meta)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Tables that no manifest vouches for: merged where they overlap, else as they are, into the deepest level.
    pub(super) fn rebuild_without_manifest(&mut self) -> Result<()> {
        self.problem(
            "no manifest says which tables count: if one was left behind that is not known to have been merged away, keys that were deleted are back",
        );
        let numbers = self.tables.clone();
        let merged_away = self.merged_away(&numbers)?;
        for number in &merged_away {
            self.problem(format!("table {number} was merged into others, and is left out"));
        }
        let mut metas = Vec::new();
        let is_table = |number: &&u64| **number != NAMELESS && !merged_away.contains(number);
        for number in &numbers {
            let logs = self.logs_of(*number)?;
            self.pointed_logs.extend(&logs);
            if !is_table(&number) {
                continue;
            }
            if !logs.is_empty() {
                self.problem(format!("table {number} is written anew with the values that it has in logs"));
                metas.extend(self.rewrite_flushed(*number, LEVELS - 1, &logs, None)?);
                continue;
            }
            match self.meta_of(*number) {
                Ok(meta) => metas.push(meta),
                Err(error) if error.kind() == Kind::Unsupported => return Err(error),
                Err(error) => {
                    self.problem(error);
                    metas.extend(self.rewrite(*number, LEVELS - 1, None)?);
                }
            }
        }
        self.last_seq = metas.iter().map(|meta| meta.seq_max).max().unwrap_or(0).max(self.last_seq);
        metas.sort_by(|a, b| a.smallest.cmp(&b.smallest));
        for group in groups(metas) {
            let tables = match &group[..] {
                [_] => group,
                _ => self.merged(&group)?,
            };
            self.added.extend(tables.into_iter().map(|meta| ((LEVELS - 1) as u8, meta)));
        }
        Ok(())
    }

    /// Tables that were replaced for good, as far as other tables say.
    fn merged_away(&self, numbers: &[u64]) -> Result<BTreeSet<u64>> {
        let mut lineages: Vec<Lineage> = Vec::new();
        for number in numbers {
            lineages.extend(self.foot_of_table(*number)?.map(|foot| foot.lineage));
        }
        let gone = lineages.iter().flat_map(|lineage| lineage.gone.clone()).collect();
        let merged: Vec<&[u64]> = lineages.iter().map(|lineage| &lineage.merged[..]).collect();
        let present: BTreeSet<u64> = numbers.iter().copied().collect();
        let replaced = replaced_for_good(gone, &merged, |number| present.contains(number));
        Ok(replaced.intersection(&present).copied().collect())
    }

    /// What a table says of itself, unless that is damaged.
    pub(super) fn foot_of_table(&self, number: u64) -> Result<Option<Foot>> {
        let foot = self.media.open_table(number).and_then(|reader| self.foot_of(&*reader));
        Ok(known(foot)?.ok().flatten().map(|(foot, _)| foot))
    }

    fn foot_of(&self, reader: &dyn TableReader) -> Result<Option<(Foot, u64)>> {
        foot_of(reader, &**self.env, self.media.shape().unit_bytes as usize)
    }

    /// Bytes of a unit of a table, as far as it says.
    pub(super) fn unit_bytes_of(&self, reader: &dyn TableReader) -> usize {
        let foot = self.foot_of(reader).ok().flatten();
        foot.map_or(self.media.shape().unit_bytes as usize, |(foot, _)| foot.unit_bytes)
    }

    pub(super) fn open(&self, meta: &TableMeta) -> Result<Arc<Table>> {
        let library = Library::without_cache(self.env.clone());
        Table::on(&library, &**self.media, meta.clone())
    }

    pub(super) fn sink(&self, level: usize) -> TableSink<'_> {
        TableSink::on(&**self.media, &self.numbers, self.options, INTENT).for_level(level)
    }

    /// What a manifest would say of a table that is in order.
    fn meta_of(&mut self, number: u64) -> Result<TableMeta> {
        let reader = self.media.open_table(number)?;
        let Some((foot, bytes)) = self.foot_of(&*reader)? else {
            return Err(Error::corrupt(format!("table {number} has no foot")));
        };
        let (mut smallest, mut largest, mut older) = (Vec::new(), Vec::new(), 0);
        let mut spaces = BTreeSet::new();
        salvage(&*reader, &**self.env, foot.unit_bytes, |key, _, _| {
            spaces.insert(key[0]);
            if largest.is_empty() {
                smallest = key.to_vec();
            }
            older += u64::from(largest == key);
            largest = key.to_vec();
            Ok(())
        })?;
        let (entries, deletes, sum) = (foot.entries, foot.deletes, foot.sum);
        let (seq_min, seq_max) = match foot.seq_max {
            0 => {
                self.problem(format!(
                    "table {number} was ingested, and counts from when that was begun: keys that were also written meanwhile have the values of these writes; if it was not finished, it hides what was there before"
                ));
                (foot.seq_floor, foot.seq_floor)
            }
            seq_max => (foot.seq_min, seq_max),
        };
        let meta = TableMeta {
            number,
            bytes,
            entries,
            deletes,
            older,
            seq_min,
            seq_max,
            smallest,
            largest,
            sum,
            ..TableMeta::default()
        };
        self.open(&meta)?.verify(|_| true)?;
        self.spaces.extend(spaces);
        self.report.tables_kept += 1;
        Ok(meta)
    }

    /// The table; an error if its foot and its leaves show that it is not the one that the manifest names.
    pub(super) fn reader_of(&self, number: u64, listed: Option<&TableMeta>) -> Result<Arc<dyn TableReader>> {
        let reader = self.media.open_table(number)?;
        let Some(listed) = listed else { return Ok(reader) };
        let reader = BoundedReader::on(reader, listed.bytes)?;
        if let Ok(Some((foot, end))) = self.foot_of(&*reader)
            && (end == listed.bytes || reader.bytes().is_ok_and(|bytes| bytes == end))
            && foot.is_another(listed)
            && self.sum_of(&*reader, foot.unit_bytes)? != listed.sum
        {
            return Err(Error::corrupt(format!(
                "table {number}: what is in its place is another table, by its last bytes: nothing is taken of it"
            )));
        }
        Ok(reader)
    }

    /// The sum of the leaves that are there.
    fn sum_of(&self, reader: &dyn TableReader, unit_bytes: usize) -> Result<Option<u32>> {
        salvage(reader, &**self.env, unit_bytes, |_, _, _| Ok(())).map(|seen| Some(seen.sum))
    }

    /// Writes what can be read of a table into others; if the manifest names it, only what it can have held: a value
    /// may look like leaves.
    fn rewrite(&mut self, number: u64, level: usize, listed: Option<&TableMeta>) -> Result<Vec<TableMeta>> {
        let reader = self.reader_of(number, listed);
        let foot = reader.as_ref().ok().and_then(|reader| self.foot_of(&**reader).ok().flatten());
        let sum = listed.map_or_else(|| foot.as_ref().and_then(|(foot, _)| foot.sum), |listed| listed.sum);
        // Sequence number of an ingested table's entries.
        let own_seq = listed.map_or(0, |meta| meta.seq_max);
        let (unit_bytes, own_seq) = match foot {
            Some((foot, _)) if own_seq == 0 => (foot.unit_bytes, foot.seq_floor),
            Some((foot, _)) => (foot.unit_bytes, own_seq),
            None => (self.media.shape().unit_bytes as usize, own_seq),
        };
        let is_own = |key: &[u8], stamp: Stamp| {
            listed.is_none_or(|meta| meta.may_have(key) && stamp.seq() <= meta.seq_max)
        };
        let mut sink = self.sink(level);
        let (mut saved, mut foreign, mut spaces) = (0, 0, BTreeSet::new());
        let salvaged = reader.and_then(|reader| {
            salvage(&*reader, &**self.env, unit_bytes, |key, stamp, value| {
                // No log is known that would hold the value.
                if stamp.is_in_log() {
                    return Ok(());
                }
                if !is_own(key, stamp) {
                    foreign += 1;
                    return Ok(());
                }
                saved += 1;
                spaces.insert(key[0]);
                let stamp = if stamp.seq() == 0 { stamp.of(own_seq) } else { stamp };
                sink.add(key, stamp, value)
            })
        });
        let tables = sink.finish()?;
        self.spaces.extend(spaces);
        if foreign > 0 {
            self.problem(format!("table {number}: {foreign} entries are left out that it cannot have held"));
        }
        // Where nothing is taken, nothing is doubtful.
        self.note_salvaged(number, salvaged, sum.filter(|_| saved > 0))?;
        self.report.entries_lost += listed.map_or(0, |meta| meta.entries.saturating_sub(saved));
        match saved {
            0 => self.report.tables_lost += 1,
            _ => self.report.tables_rewritten += 1,
        }
        Ok(tables)
    }

    /// Reports what of a table could not be read, or is not what was written, by the sum that its leaves had.
    pub(super) fn note_salvaged(
        &mut self,
        number: u64,
        salvaged: Result<Salvaged>,
        sum: Option<u32>,
    ) -> Result<()> {
        match salvaged {
            Ok(seen) => {
                let Salvaged { lost_bytes, stray_entries, .. } = seen;
                self.report.tables_doubtful += usize::from(seen.is_another(sum));
                if lost_bytes > 0 {
                    self.problem(format!("table {number}: {lost_bytes} bytes of it cannot be read"));
                }
                if stray_entries > 0 {
                    self.problem(format!(
                        "table {number}: {stray_entries} entries are left out that were found in values, or out of order"
                    ));
                }
            }
            // The medium does not take the copy: nothing may be given up.
            Err(error) if error.kind() != Kind::Corrupt => return Err(error),
            Err(error) => self.problem(error),
        }
        Ok(())
    }

    /// Merges tables that overlap into one sorted run, with the newest entry of each key.
    fn merged(&mut self, group: &[TableMeta]) -> Result<Vec<TableMeta>> {
        let mut sources: Vec<Box<dyn Stream>> = Vec::new();
        for meta in group {
            sources.push(Box::new(TableStream::new(self.open(meta)?, IoClass::Background)));
        }
        let mut merge = Merge::new(sources);
        let mut sweep = Sweep::new(Vec::new(), self.keyspaces.dead().collect());
        let mut sink = self.sink(LEVELS - 1);
        merge.first()?;
        while let Some(entry) = merge.current() {
            if sweep.keeps(entry.key(), entry.stamp(), || true) {
                merge.load()?;
                merge.current().map_or(Ok(()), |e| sink.add(e.key(), e.stamp(), e.value()))?;
            }
            merge.next()?;
        }
        let tables = sink.finish()?;
        let numbers: Vec<u64> = group.iter().map(|meta| meta.number).collect();
        self.problem(format!("tables {numbers:?} overlap, and were merged"));
        self.report.tables_rewritten += group.len();
        self.report.tables_kept = self.report.tables_kept.saturating_sub(group.len());
        Ok(tables)
    }

    /// Puts entries that come in order into tables of level 0.
    pub(super) fn add_to_level0(
        &mut self,
        entries: impl FnOnce(&mut dyn FnMut(&[u8], Stamp, &[u8]) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let (mut sink, mut spaces) = (self.sink(0), BTreeSet::new());
        entries(&mut |key, stamp, value| {
            spaces.insert(key[0]);
            sink.add(key, stamp, value)
        })?;
        let tables = sink.finish()?;
        self.spaces.extend(spaces);
        self.added.extend(tables.into_iter().map(|meta| (0, meta)));
        Ok(())
    }
}

/// Groups tables that overlap, in the order of their smallest keys.
fn groups(metas: Vec<TableMeta>) -> Vec<Vec<TableMeta>> {
    let mut groups: Vec<(Vec<TableMeta>, Vec<u8>)> = Vec::new();
    for meta in metas {
        match groups.last_mut() {
            Some((group, largest)) if meta.smallest <= *largest => {
                *largest = meta.largest.clone().max(std::mem::take(largest));
                group.push(meta);
            }
            _ => groups.push((vec![meta.clone()], meta.largest)),
        }
    }
    groups.into_iter().map(|(group, _)| group).collect()
}
