//! Segments of a log store that is repaired.

use super::Repair;
use super::salvage::{Remains, foot_of};
use crate::journal::{Edit, SegmentMeta, lacks_a_log};
use crate::leftovers::TABLE_NUMBER_MAX;
use crate::log::background::write_out;
use crate::log::collect::ORDERS;
use crate::log::core::NewTable;
use crate::log::foot::{Foot, Origin};
use crate::log::open_segment::table_bytes;
use crate::log::record::Record;
use crate::log::segment::{Home, ReadContext, Segment, start};
use crate::log::state::ManifestState;
use crate::media::{BoundedReader, Intent, NAMELESS, Parallelism, TableReader, check_whole};
use crate::repair::{Named, known, replaced_for_good};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use vellum_base::sync::RwLock;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, Error, IoClass, Kind, Result};

const INTENT: Intent =
    Intent { cause: Cause::Refresh, class: IoClass::Background, parallelism: Parallelism::Full };

/// A table that may be a segment: its foot, and where that ends, if it can be read.
type Footed = BTreeMap<u64, Option<(Foot, u64)>>;

impl Repair<'_> {
    fn reading(&self) -> ReadContext<'_> {
        ReadContext { env: &**self.env, class: IoClass::Background }
    }

    /// An error only if it may be read at another time, or is of a later version.
    fn foot_of(&self, number: u64) -> Result<Option<(Foot, u64)>> {
        match known(self.media.open_table(number))? {
            Ok(table) => foot_of(&*table, self.reading()),
            Err(_) => Ok(None),
        }
    }

    /// A segment, as far as it is told of.
    fn reader_of(&self, number: u64, listed: Option<SegmentMeta>) -> Result<Arc<dyn TableReader>> {
        let table = self.media.open_table(number)?;
        match listed {
            Some(listed) => BoundedReader::on(table, listed.bytes),
            None => Ok(table),
        }
    }

    /// False if the manifest lost its last edits: there are segments made of what is gone, or of the log.
    pub(super) fn is_current(&mut self, state: &ManifestState) -> Result<bool> {
        let tables = state.segments.iter().map(|meta| meta.number).collect();
        let lacks_log = lacks_a_log(&**self.media, &self.areas, self.store, state.floors.log_floor);
        let named = Named { tables, spoiled: BTreeSet::new(), lacks_log, next_number: state.next_number };
        let is_current = named.is_current(&self.tables, |number, gone| {
            let own = self.foot_of(number)?.filter(|(foot, _)| foot.seed == state.seed);
            let origin = own.and_then(|(foot, _)| foot.origin);
            Ok(origin.is_some_and(|origin| {
                gone.has_any(origin.replaced(), number)
                    || lacks_log && origin.log_floor > state.floors.log_floor
            }))
        })?;
        if !is_current {
            self.problem("the manifest lost its end");
        }
        Ok(is_current)
    }

    /// Keeps segments that are in order, and writes those anew that are damaged.
    pub(super) fn keep_listed_segments(&mut self, state: &ManifestState) -> Result<()> {
        // What is written next is newer than all.
        let orders = state.segments.iter().map(|meta| meta.order / ORDERS);
        self.numbers.fetch_max(orders.max().map_or(0, |last| last + 1), Relaxed);
        state.segments.iter().try_for_each(|meta| self.keep_or_rewrite(*meta))
    }

    fn keep_or_rewrite(&mut self, meta: SegmentMeta) -> Result<()> {
        let table = known(self.media.open_table(meta.number))?;
        match table.and_then(|table| self.check(table, meta)) {
            Ok(()) => {
                self.report.tables_kept += 1;
                self.segments.push(meta);
                Ok(())
            }
            Err(error) if error.kind() == Kind::Unsupported => Err(error),
            Err(error) => {
                self.problem(error);
                self.rewrite(meta.number, meta.order, Some(meta))
            }
        }
    }

    fn check(&self, table: Arc<dyn TableReader>, meta: SegmentMeta) -> Result<()> {
        check_whole(&*table).map_err(|error| error.context(format!("segment {}", meta.number)))?;
        if meta.bytes > table.bytes_given(meta.bytes)? {
            return Err(Error::corrupt(format!("segment {} is shorter than it was", meta.number)));
        }
        let home = Home::Table(table, meta);
        let segment = Segment::new(meta.order, 0, home, Arc::default(), &self.obsolete);
        segment.verify(self.reading(), self.seed).map(drop)
    }

    /// Writes what can be read of a segment into another, in its place in the order.
    fn rewrite(&mut self, number: u64, order: u64, listed: Option<SegmentMeta>) -> Result<()> {
        let (foot, mut remains) = match known(self.reader_of(number, listed))? {
            Ok(table) => (foot_of(&*table, self.reading())?, Remains::of(&*table, self.reading(), listed)?),
            Err(_) => (None, Remains::default()),
        };
        let foot = foot.map(|(foot, _)| foot);
        let expected_sum = listed.and_then(|listed| listed.sum);
        // Whatever its foot says, its records are all that they were.
        let is_whole = expected_sum.is_some_and(|expected| remains.each(|_| {}) == expected);
        if let Some(foot) = foot.as_ref().filter(|_| !is_whole) {
            self.check_own(number, foot)?;
            if listed.is_some_and(|listed| foot.is_another(&listed)) {
                self.problem(format!(
                    "segment {number}: what is in its place is another: nothing is taken of it"
                ));
                remains = Remains::default();
            }
        }
        // Without a foot, its twins may be of another seed.
        let twins = foot.is_none() && !self.is_seed_known;
        let (mut data, mut records) = (start().to_vec(), 0);
        let sum = remains.each(|record| {
            Record { twin: record.twin || twins, ..record }.write(&mut data);
            records += 1;
        });
        if records == 0 && listed.is_none() && !remains.is_begun() {
            return Ok(()); // It was to be written when the store was last used.
        }
        match records {
            0 => self.report.tables_lost += 1,
            _ => {
                self.report.tables_rewritten += 1;
                let is_all = listed.is_some_and(|listed| listed.records == records);
                let is_doubtful = is_all && expected_sum.is_some_and(|expected| expected != sum);
                self.report.tables_doubtful += usize::from(is_doubtful);
                let log_floor = foot.and_then(|foot| foot.origin).map_or(0, |origin| origin.log_floor);
                let (sources, gone) = (vec![number], Vec::new());
                self.write(data, records, Origin { order, log_floor, sources, consumed: 1, gone })?;
            }
        }
        self.report_lost(number, records, listed.map(|meta| meta.records));
        Ok(())
    }

    /// An error for a segment of another store: this may be its only copy.
    fn check_own(&self, number: u64, foot: &Foot) -> Result<()> {
        match foot.seed == self.seed {
            true => Ok(()),
            false => Err(Error::new(
                Kind::Unsupported,
                format!(
                    "segment {number} is of another store: move it away, or put there what belongs to it"
                ),
            )),
        }
    }

    fn report_lost(&mut self, number: u64, found: u64, expected: Option<u64>) {
        match expected {
            Some(expected) if found < expected => {
                let lost = expected - found;
                self.report.entries_lost += lost;
                self.problem(format!(
                    "segment {number}: {lost} of {expected} records are lost: keys may have older values, or be back that were deleted"
                ));
            }
            Some(_) => {}
            None => {
                self.problem(format!(
                    "segment {number}: {found} records were found; of how many is not known"
                ));
            }
        }
    }

    /// Writes a segment: all its bytes, without bubbles.
    pub(super) fn write(&mut self, data: Vec<u8>, records: u64, origin: Origin) -> Result<()> {
        let bytes = table_bytes(data.len() as u64, records);
        let begun = NewTable::on(&**self.media, || self.number(), INTENT, bytes)?;
        let home = Home::Memory(Arc::new(RwLock::new(data)));
        let segment = Segment::new(origin.order, 0, home, Arc::default(), &self.obsolete);
        self.written.push(begun.number);
        let meta = write_out(&segment, self.reading(), begun, origin, self.seed)?;
        self.segments.push(meta);
        Ok(())
    }

    /// Segments that no manifest vouches for. Returns the first log that is not in them.
    pub(super) fn rebuild_without_manifest(&mut self, edits: &[Edit]) -> Result<u64> {
        self.problem(
            "no manifest says which segments count: if one was left behind that is not known to have been collected, keys may have older values, or be back that were deleted",
        );
        let mut footed = Footed::new();
        for number in self.tables.iter().filter(|number| **number != NAMELESS) {
            footed.insert(*number, self.foot_of(*number)?);
        }
        let recorded = edits.iter().rev().find_map(|edit| edit.seed);
        let seed = recorded.or_else(|| footed.values().flatten().next().map(|(foot, _)| foot.seed));
        (self.seed, self.is_seed_known) = (seed.unwrap_or_else(|| self.env.random()), recorded.is_some());
        self.pass_numbers(&footed, edits);
        let left_out = self.left_out(&footed, edits);
        for number in &left_out {
            self.problem(format!("segment {number} is left out: what it holds is in others"));
        }
        for (order, number) in self.places(&footed, &left_out, edits) {
            match &footed[&number] {
                Some(foot) => self.keep_or_rewrite(meta_of(number, order, foot))?,
                None => self.rewrite(number, order, recorded_meta(number, edits).copied())?,
            }
        }
        let counts = footed.iter().filter(|(number, _)| !left_out.contains(number));
        let origins = counts.filter_map(|(_, foot)| foot.as_ref()?.0.origin.as_ref());
        self.taken_logs = origins.flat_map(|origin| &origin.sources).copied().collect();
        // A segment that was being written may have its foot, and not all of the rest; then its logs are there.
        let kept = self.segments.iter().filter(|meta| !self.written.contains(&meta.number));
        let floors =
            kept.filter_map(|meta| Some(footed[&meta.number].as_ref()?.0.origin.as_ref()?.log_floor));
        let floors = floors.chain(edits.iter().filter_map(|edit| edit.log_floor));
        self.last_seq = edits.iter().filter_map(|edit| edit.last_seq).max().unwrap_or(0);
        Ok(floors.max().unwrap_or(0))
    }

    /// Passes over all numbers that were ever used.
    fn pass_numbers(&self, footed: &Footed, edits: &[Edit]) {
        let origins = footed.values().flatten().filter_map(|(foot, _)| foot.origin.as_ref());
        let in_feet = origins
            .flat_map(|origin| origin.sources.iter().chain(&origin.gone))
            .map(|number| number.saturating_add(1));
        let in_edits = edits.iter().filter_map(|edit| edit.next_number);
        let next = in_feet.chain(in_edits).filter(|next| *next < TABLE_NUMBER_MAX).max();
        self.numbers.fetch_max(next.unwrap_or(0), Relaxed);
    }

    /// Segments that do not count: they were replaced for good, as far as other segments or the manifest say, or all
    /// that they were made of is there.
    fn left_out(&self, footed: &Footed, edits: &[Edit]) -> BTreeSet<u64> {
        let areas: BTreeSet<u64> = self.logs(0).into_iter().map(|area| area.number).collect();
        let is_there = |number: &u64| footed.contains_key(number) || areas.contains(number);
        let origins =
            footed.iter().filter_map(|(number, foot)| Some((*number, foot.as_ref()?.0.origin.as_ref()?)));
        let origins: Vec<(u64, &Origin)> = origins.collect();
        let in_edits = edits.iter().flat_map(|edit| &edit.segments_gone);
        let gone = in_edits.chain(origins.iter().flat_map(|(_, origin)| &origin.gone)).copied().collect();
        let replaced: Vec<&[u64]> = origins.iter().map(|(_, origin)| origin.replaced()).collect();
        let mut left_out = replaced_for_good(gone, &replaced, is_there);
        let is_whole = |number: &u64| match footed.get(number) {
            Some(Some(foot)) => {
                let table = self.media.open_table(*number);
                table.and_then(|table| self.check(table, meta_of(*number, 0, foot))).is_ok()
            }
            Some(None) => false,
            None => areas.contains(number),
        };
        let is_spare =
            |origin: &Origin| origin.is_spare(|number| is_whole(number) && !left_out.contains(number));
        let spare: Vec<u64> =
            origins.iter().filter(|(_, origin)| is_spare(origin)).map(|(number, _)| *number).collect();
        left_out.extend(spare);
        left_out.retain(|number| footed.contains_key(number));
        left_out
    }

    /// Orders and numbers of segments that count; those that do not state their order come first.
    fn places(&mut self, footed: &Footed, left_out: &BTreeSet<u64>, edits: &[Edit]) -> Vec<(u64, u64)> {
        let mut places = Vec::new();
        for (number, foot) in footed.iter().filter(|(number, _)| !left_out.contains(number)) {
            let own = foot.as_ref().and_then(|(foot, _)| foot.origin.as_ref()).map(|origin| origin.order);
            let order = own.or_else(|| recorded_meta(*number, edits).map(|meta| meta.order));
            // What is written next is newer than all.
            let order = order.filter(|order| *order / ORDERS <= *number);
            if order.is_none() && foot.is_some() {
                self.problem(format!(
                    "segment {number}: nothing says where it belongs: it counts as older than those of which something does"
                ));
            }
            places.push((order.unwrap_or(0), *number));
        }
        places.sort_unstable();
        let mut behind = 1;
        for (order, _) in &mut places {
            *order = (*order).max(behind);
            behind = *order + 1;
        }
        places
    }
}

/// What a manifest would say of a segment with this foot, which ends there.
fn meta_of(number: u64, order: u64, (foot, end): &(Foot, u64)) -> SegmentMeta {
    let Foot { data_bytes, records, bubble_bytes, sums, .. } = *foot;
    let sum = sums.map(|sums| sums.records);
    SegmentMeta { number, order, bytes: *end, data_bytes, records, bubble_bytes, sum }
}

/// What edits say of a segment.
fn recorded_meta(number: u64, edits: &[Edit]) -> Option<&SegmentMeta> {
    edits.iter().flat_map(|edit| &edit.segments).find(|meta| meta.number == number)
}
