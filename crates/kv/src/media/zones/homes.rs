//! Which zone each table is in.

use super::label::{LABEL_ZONE, Label, TableHead, ZONE_UNIT_BYTES};
use crate::media::Directory;
use crate::media::patient::twice;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Cause, Error, Kind, Ledger, Result, Zones};

/// A device that is cut into zones, and the directory beside it.
pub(super) struct Inner {
    pub(super) directory: Arc<Directory>,
    pub(super) zones: Arc<dyn Zones>,
    pub(super) id: [u8; 16],
    pub(super) homes: Mutex<Homes>,
}

#[derive(Default)]
pub(super) struct Homes {
    pub(super) tables: BTreeMap<u64, u32>,
    /// Zones that hold something unidentified, or that could not be reset. If a table that the manifest names is in
    /// one, opening it by number fails before these zones are reset.
    pub(super) nameless: Vec<u32>,
    /// Those that have been free longest come first, to even out wear.
    pub(super) free: VecDeque<u32>,
    /// Number of tables being written, each in an open zone.
    pub(super) written: u32,
    /// Partly written zones that nobody writes to any more.
    pub(super) left_open: Vec<u32>,
}

impl Homes {
    /// Notes that nobody writes to the zone any more; if it is partly written, the device still counts it as open.
    pub(super) fn note_open(&mut self, zone: u32, zones: &dyn Zones) {
        if (1..zones.shape().zone_bytes).contains(&zones.report(zone).written) {
            self.left_open.push(zone);
        }
    }
}

/// What the heads of zones say.
pub(super) fn find_tables(zones: &dyn Zones, label: Label) -> Result<Homes> {
    let (mut homes, mut unit) = (Homes::default(), [0; ZONE_UNIT_BYTES]);
    for zone in LABEL_ZONE + 1..label.zones {
        let report = zones.report(zone);
        if report.is_writable && (1..zones.shape().zone_bytes).contains(&report.written) {
            homes.left_open.push(zone);
        }
        let head = match report.written >= ZONE_UNIT_BYTES as u64 {
            true => twice(|| zones.read(zone, 0, &mut unit)).map(|()| TableHead::decode(&unit)),
            false => Ok(None),
        };
        let head = match head {
            Err(e) if e.kind() == Kind::PowerLost => return Err(e),
            Err(_) => {
                homes.nameless.push(zone);
                continue;
            }
            Ok(head) => head.filter(|head| head.id == label.id),
        };
        match head {
            Some(head) => {
                if let Some(twin) = homes.tables.insert(head.table, zone) {
                    let what =
                        format!("zones {twin} and {zone} both say that they hold table {}", head.table);
                    return Err(Error::corrupt(what));
                }
            }
            None if report.is_writable => homes.free.push_back(zone),
            None => {}
        }
    }
    Ok(homes)
}

impl Inner {
    pub(super) fn ledger(&self) -> &Ledger {
        self.directory.ledger_shared()
    }

    /// A free zone, blank, with the head of `table`. One that cannot be reset, or takes no head, is set aside while
    /// there are others; unless it may have the head: with another zone for the table there would be two.
    pub(super) fn begin(&self, table: u64) -> Result<u32> {
        loop {
            let zone = self.take(table)?;
            let Err(error) = self.begin_in(zone, table) else { return Ok(zone) };
            if error.kind() != Kind::Io {
                self.give_up(table);
                return Err(error);
            }
            self.set_aside(table);
            let homes = &mut *self.homes.lock();
            homes.written -= 1;
            homes.note_open(zone, &*self.zones);
            if homes.free.is_empty() {
                return Err(error);
            }
        }
    }

    /// Makes a zone blank, and writes the head. [`Kind::Io`] if it surely has none.
    fn begin_in(&self, zone: u32, table: u64) -> Result<()> {
        if self.zones.report(zone).written > 0 {
            self.zones.reset(zone)?;
        }
        let is_blank = || self.zones.reset(zone).and_then(|()| self.zones.sync()).is_ok();
        self.write_head(zone, table).map_err(|error| match error.kind() {
            Kind::Io if !is_blank() => Error::new(Kind::Poisoned, error.to_string()).because(error.reason()),
            _ => error,
        })
    }

    /// A free zone, if one more may be open.
    fn take(&self, table: u64) -> Result<u32> {
        let homes = &mut *self.homes.lock();
        let no_space = |what: String| Err(Error::new(Kind::NoSpace, what));
        let Some(zone) = homes.free.front().copied() else {
            return no_space(
                "no zone is free. Delete something and compact, or move to a larger device".into(),
            );
        };
        let open_max = self.open_max();
        homes.left_open.retain(|open| *open != zone);
        if homes.written as usize >= open_max {
            let written = homes.written;
            return no_space(format!(
                "{written} tables are being written, as many as the device has zones open"
            ));
        }
        let mut stuck = Vec::new();
        while homes.written as usize + homes.left_open.len() + stuck.len() >= open_max {
            let Some(open) = homes.left_open.pop() else { break };
            match self.zones.finish(open) {
                Err(e) if e.kind() == Kind::Io => stuck.push(open),
                finished => finished?,
            }
        }
        homes.left_open.extend(stuck);
        homes.free.pop_front();
        homes.tables.insert(table, zone);
        homes.written += 1;
        Ok(zone)
    }

    /// Gives up a table that was not finished. A zone that cannot be reset now is reset when it is taken; if it is not,
    /// the next opening erases the table.
    pub(super) fn give_up(&self, table: u64) {
        if self.erase(table).is_err() {
            self.free_as_it_is(table);
        }
        self.homes.lock().written -= 1;
    }

    pub(super) fn set_aside(&self, table: u64) {
        let homes = &mut *self.homes.lock();
        homes.nameless.extend(homes.tables.remove(&table));
    }

    fn free_as_it_is(&self, table: u64) {
        let homes = &mut *self.homes.lock();
        let Some(zone) = homes.tables.remove(&table) else { return };
        homes.free.push_back(zone);
        homes.note_open(zone, &*self.zones);
    }

    fn write_head(&self, zone: u32, table: u64) -> Result<()> {
        self.zones.write(zone, 0, &TableHead { id: self.id, table, marks_end: true }.encode())?;
        self.ledger().programmed(Cause::StoreMetadata, ZONE_UNIT_BYTES as u64);
        Ok(())
    }

    /// What cannot be reset now either stays as it is, until the next opening: nobody needs it.
    pub(super) fn erase_nameless(&self) -> Result<()> {
        let nameless = self.homes.lock().nameless.clone();
        for zone in nameless {
            let is_writable = self.zones.report(zone).is_writable;
            match is_writable.then(|| self.zones.reset(zone)) {
                Some(Err(e)) if e.kind() == Kind::Io => continue,
                reset => reset.unwrap_or(Ok(()))?,
            }
            let homes = &mut *self.homes.lock();
            homes.nameless.retain(|other| *other != zone);
            homes.left_open.retain(|open| *open != zone);
            homes.free.extend(is_writable.then_some(zone));
        }
        Ok(())
    }

    /// Tables whose head cannot be read are found by their end: the first readable end in a zone is of the table that
    /// was finished there last, or else of an older one. An older one is left over: no manifest counts on it.
    pub(super) fn name_by_ends(&self) -> Result<()> {
        let nameless = std::mem::take(&mut self.homes.lock().nameless);
        for zone in nameless {
            let end = self.first_end(zone)?;
            let homes = &mut *self.homes.lock();
            match end.filter(|end| !homes.tables.contains_key(&end.table)) {
                Some(end) => drop(homes.tables.insert(end.table, zone)),
                None => homes.nameless.push(zone),
            }
        }
        Ok(())
    }

    pub(super) fn erase(&self, table: u64) -> Result<()> {
        let Some(zone) = self.homes.lock().tables.get(&table).copied() else { return Ok(()) };
        let is_writable = self.zones.report(zone).is_writable;
        if is_writable {
            self.zones.reset(zone)?;
        }
        let homes = &mut *self.homes.lock();
        homes.left_open.retain(|open| *open != zone);
        homes.tables.remove(&table);
        homes.free.extend(is_writable.then_some(zone));
        Ok(())
    }

    /// Most tables that are being written.
    pub(super) fn open_max(&self) -> usize {
        self.zones.shape().open_max.map_or(usize::MAX, |max| max as usize)
    }

    /// Most bytes of a table.
    pub(super) fn capacity(&self) -> u64 {
        self.zones.shape().zone_bytes - ZONE_UNIT_BYTES as u64
    }
}
