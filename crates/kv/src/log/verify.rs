//! Verification of a whole log store.

use super::core::Core;
use super::hint::{HASH_BITS, Note};
use super::hint_reader::HintReader;
use super::index::Pointer;
use super::replay::{read_logs, take_batch};
use super::segment::{ReadContext, Segment};
use super::state::state_of;
use crate::journal::{Area, AreaKind, Ending, Payload, Records};
use crate::manifest::{self, Current};
use crate::map::Verified;
use std::collections::BTreeSet;
use std::sync::Arc;
use vellum_base::{Error, IoClass, Kind, Result};

impl Core {
    /// Reads every segment, and checks the checksum of every record, that hints say what records say, that the index
    /// points to what is there; the logs; and that the manifest says what is in force.
    pub(crate) fn verify(&self) -> Result<Verified> {
        let mut seen = Verified::default();
        seen.note(self.verify_manifest())?;
        for area in self.media.areas()?.into_iter().filter(|area| area.kind == AreaKind::Log) {
            let result = self.verify_log(area);
            // Those below the floor count no more, and are removed meanwhile.
            if area.number >= self.state.lock().floors.log_floor {
                seen.logs += 1;
                seen.note(result)?;
            }
        }
        if self.options.read_only {
            seen.note_strict(self.verify_logs_strictly())?;
        }
        seen.problems.extend(self.media.problems());
        self.verify_index(&mut seen)?;
        for segment in self.view.load_full().in_order() {
            let Some(meta) = segment.meta() else { continue };
            seen.tables += 1;
            seen.bytes += meta.bytes;
            match segment.verify(self.reading(IoClass::Background), self.seed) {
                Ok(records) => seen.entries += records,
                Err(error) if error.kind() == Kind::Corrupt => say_once(&mut seen, error),
                Err(error) => return Err(error),
            }
        }
        Ok(seen)
    }
}

impl Core {
    /// The manifest on the medium says what this store thinks.
    fn verify_manifest(&self) -> Result<()> {
        let manifest = self.manifest.lock();
        let current = Current::of_store(&*self.media)?;
        let state = state_of(manifest::read(&*self.media, current)?)?;
        match state.segments == manifest.segments && state.seed == self.seed {
            true => Ok(()),
            false => Err(Error::corrupt("the manifest does not say what is in force")),
        }
    }

    /// An error if a log ends though something follows.
    fn verify_logs_strictly(&self) -> Result<()> {
        let Some(current) = Current::of(&*self.media)? else { return Ok(()) };
        let state = state_of(manifest::read(&*self.media, current)?)?;
        let how = (Some(current.store), Ending::Strict);
        read_logs(&*self.media, &self.media.areas()?, &state, how).map(drop)
    }

    /// Checks a log that may be being written, all but its end.
    fn verify_log(&self, area: Area) -> Result<()> {
        let bytes = self.media.read_area(area)?;
        let store = Some(self.manifest.lock().manifest.store());
        let Some(mut records) = Records::open(area, store, &bytes)? else { return Ok(()) };
        while let Some((seq, payload)) = records.next()? {
            take_batch(&mut Default::default(), Payload { bytes: payload, seq, at: 0 })?;
        }
        Ok(())
    }

    /// Where the index points there are records with the hashes that it has.
    fn verify_index(&self, seen: &mut Verified) -> Result<()> {
        let (mut hash, mut pointers) = (0, Vec::new());
        while hash < 1 << HASH_BITS {
            let from = hash;
            let view = loop {
                let view = self.view.load_full();
                pointers.clear();
                hash = self.index.bucket_from(from, &mut pointers);
                if Arc::ptr_eq(&view, &*self.view.load()) {
                    break view;
                }
            };
            for pointer in &pointers {
                let segment = view.segment(self.format.slot(*pointer))?;
                if let Err(error) = self.verify_pointer(segment, *pointer, from..hash) {
                    match error.kind() {
                        Kind::Corrupt => seen.problems.push(error.to_string()),
                        _ => return Err(error),
                    }
                }
            }
        }
        Ok(())
    }

    fn verify_pointer(
        &self,
        segment: &Segment,
        pointer: Pointer,
        hashes: std::ops::Range<u64>,
    ) -> Result<()> {
        let offset = self.format.offset(pointer);
        let reading = self.reading(IoClass::Background);
        let hash = segment.record(reading, offset, |record, _| self.hash(record.key))?;
        match hashes.contains(&hash) {
            true => Ok(()),
            false => {
                Err(Error::corrupt(format!("the index names byte {offset} of a segment for another key")))
            }
        }
    }
}

impl Segment {
    /// Checks a segment that is a table: its records, and that its hint says what they do. Returns how many there are.
    pub(crate) fn verify(&self, reading: ReadContext<'_>, seed: u64) -> Result<u64> {
        let meta = *self.meta().expect("it is a table");
        let named = |what: &str| Error::corrupt(format!("segment {}: {what}", meta.number));
        let data = self.data(reading)?;
        let (mut bubbles, mut records) = (0, 0);
        self.each(&data, |_, record, bytes| match record {
            Some(_) => records += 1,
            None => bubbles += bytes as u64,
        })?;
        if (bubbles, records) != (meta.bubble_bytes, meta.records) {
            return Err(named("it holds not as many records or bubbles as the manifest says"));
        }
        let there: BTreeSet<Note> = self.notes(&data, seed)?.0.into_iter().collect();
        let mut hint = HintReader::open(self, seed, reading).map_err(|e| named(&e.to_string()))?;
        let mut hashes = BTreeSet::new();
        while let Some(note) = hint.next(reading).map_err(|e| named(&e.to_string()))? {
            hashes.insert(note.hash);
            if !there.contains(&note) {
                return Err(named("its hint names a record that is not there"));
            }
        }
        match there.iter().all(|note| hashes.contains(&note.hash)) {
            true => Ok(records),
            false => Err(named("its hint lacks a record")),
        }
    }
}

/// A problem that the index has reported is not repeated.
fn say_once(seen: &mut Verified, error: Error) {
    let problem = error.to_string();
    if !seen.problems.contains(&problem) {
        seen.problems.push(problem);
    }
}
