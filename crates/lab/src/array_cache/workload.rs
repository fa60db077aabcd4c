//! A trace as sectors of an array: what each request touches, held in memory so that every mode replays the same.

use super::asked::Touched;
use super::written::{Gather, Written};
use crate::replay::Devices;
use std::sync::Arc;
use vellum_base::hash::FixedSet;
use vellum_base::{Error, Lba, Nanos, Result, SECTOR_BYTES};
use vellum_trace::devices::{Layout, Select, select};
use vellum_trace::{ByteLen, ByteOffset, Request, RequestKind, RequestSource, Summary};

/// What a request does to its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Reads them.
    Read,
    /// Writes them; the first and the last possibly in part.
    Write,
    /// Trims or zeroes them.
    Forget,
}

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct PageRequest {
    /// Time of arrival.
    pub time: Nanos,
    /// Its first sector.
    pub lba: Lba,
    /// Number of sectors.
    pub sectors: u32,
    /// What it does.
    pub kind: PageKind,
    /// Bytes touched of the first sector, and of the last.
    pub ends: (u16, u16),
}

impl PageRequest {
    /// Its sectors, and how many bytes of each it touches. `request` is its index in the workload.
    pub fn touched(&self, request: usize) -> impl Iterator<Item = Touched> + use<> {
        let Self { lba, sectors, ends, .. } = *self;
        (0..sectors).map(move |i| {
            let bytes = match i {
                0 => ends.0.into(),
                i if i + 1 == sectors => ends.1.into(),
                _ => SECTOR_BYTES,
            };
            Touched { lba: lba.offset(i.into()), bytes, request, nth: i as usize }
        })
    }

    fn of(request: &Request) -> Option<PageRequest> {
        let kind = match request.kind {
            RequestKind::Read => PageKind::Read,
            RequestKind::Write => PageKind::Write,
            RequestKind::Trim | RequestKind::WriteZeroes => PageKind::Forget,
            RequestKind::Flush => return None,
        };
        let (lba, sectors) = request.sectors();
        let size = SECTOR_BYTES as u64;
        let (start, end) = (request.offset.0, request.end().0);
        let first = size.min(request.length.0).min(size - start % size);
        let last = if sectors == 1 { first } else { (end - 1) % size + 1 };
        let sectors = u32::try_from(sectors).ok().filter(|sectors| *sectors > 0)?;
        Some(PageRequest { time: request.time, lba, sectors, kind, ends: (first as u16, last as u16) })
    }
}

/// A workload in memory.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// In order of arrival.
    pub requests: Vec<PageRequest>,
    /// The last sector plus one.
    pub sectors: u64,
    /// Distinct sectors touched, read, and written.
    pub unique: [u64; 3],
    /// Sectors read and written, counted every time.
    pub pages: [u64; 2],
    /// What was written, if requested.
    pub written: Option<Arc<Written>>,
}

impl Workload {
    /// Loads the whole trace; requests that `shift` would move to before the beginning start at the beginning.
    ///
    /// # Errors
    /// Those of the source; [`vellum_base::Kind::Invalid`] for a trace of several devices if a single one is expected,
    /// and for one without reads and writes.
    pub fn load(
        open: &dyn Fn() -> Result<Box<dyn RequestSource>>,
        devices: Devices,
        shift: ByteLen,
    ) -> Result<Workload> {
        Workload::gather(open, devices, shift, None)
    }

    /// Like [`Workload::load`], with what was written; needs memory for all distinct contents.
    ///
    /// # Errors
    /// As for [`Workload::load`]; also [`vellum_base::Kind::Invalid`] for a shift that is not a multiple of a sector,
    /// since sectors then do not have the contents in the trace.
    pub fn load_written(
        open: &dyn Fn() -> Result<Box<dyn RequestSource>>,
        devices: Devices,
        shift: ByteLen,
    ) -> Result<Workload> {
        if !shift.0.is_multiple_of(SECTOR_BYTES as u64) {
            let what =
                format!("recorded contents are of whole sectors: a shift of {} bytes cuts them", shift.0);
            return Err(Error::invalid(what));
        }
        let mut gather = Gather::new();
        let mut workload = Workload::gather(open, devices, shift, Some(&mut gather))?;
        workload.written = Some(Arc::new(gather.done()));
        Ok(workload)
    }

    fn gather(
        open: &dyn Fn() -> Result<Box<dyn RequestSource>>,
        devices: Devices,
        shift: ByteLen,
        mut written: Option<&mut Gather>,
    ) -> Result<Workload> {
        let choice = match devices {
            Devices::Single => Select::Single,
            Devices::Only(device) => Select::Only(device),
            Devices::SideBySide => Select::SideBySide(Layout::pack(&Summary::of(open()?)?)?),
        };
        let mut workload = Workload::default();
        let mut end = ByteOffset(0);
        for request in select(open()?, choice) {
            let mut request = request?;
            end = end.max(request.offset);
            request.offset = ByteOffset(request.offset.0.saturating_sub(shift.0));
            let Some(page_request) = PageRequest::of(&request) else { continue };
            workload.sectors = workload.sectors.max(page_request.lba.0 + u64::from(page_request.sectors));
            workload.requests.push(page_request);
            if let Some(written) = &mut written {
                written.add(&request);
            }
        }
        if shift.0 > end.0 && !workload.requests.is_empty() {
            let what =
                format!("a shift of {} bytes is beyond all requests: the last is at {}", shift.0, end.0);
            return Err(Error::invalid(what));
        }
        workload.survey();
        if workload.requests.is_empty() {
            let whose = match devices {
                Devices::Only(device) => format!(" of device {}", device.0),
                _ => String::new(),
            };
            return Err(Error::invalid(format!("the trace has no reads and writes{whose}")));
        }
        Ok(workload)
    }

    /// Counts touched sectors.
    fn survey(&mut self) {
        let mut seen: [FixedSet<u64>; 3] = Default::default();
        for request in &self.requests {
            let of = if request.kind == PageKind::Read { 1 } else { 2 };
            for lba in (request.lba.0..).take(request.sectors as usize) {
                seen[0].insert(lba);
                seen[of].insert(lba);
                self.pages[of - 1] += 1;
            }
        }
        self.unique = seen.map(|set| set.len() as u64);
    }
}
