//! Surveys the workload: its size, the size of device it needs, and where its journals are.

use super::comparison::RequestCounts;
use super::options::{Devices, ReplayOptions};
use super::{Opener, ranges};
use std::ops::Range;
use vellum_base::hash::FixedMap;
use vellum_base::{Error, Lba, Result, SECTOR_BYTES};
use vellum_disk::discover::{self, Sectors};
use vellum_trace::devices::{Layout, Select, select};
use vellum_trace::models::with_contents;
use vellum_trace::{ByteLen, Content, Request, RequestKind, RequestSource, Summary};

/// The disk below has 32-bit sector addresses.
const DEVICE_BYTES_MAX: u64 = 4 << 40;

/// Result of a survey.
pub(super) struct Survey {
    pub select: Select,
    pub device_bytes: u64,
    pub requests: RequestCounts,
    pub modelled_content_sectors: u64,
    pub rows_rejected: u64,
    /// Sorted and disjoint.
    pub journals: Vec<Range<u64>>,
    pub journals_from: &'static str,
}

impl Survey {
    pub(super) fn of(open: &Opener<'_>, options: &ReplayOptions) -> Result<Survey> {
        let select = match options.devices {
            Devices::Single => Select::Single,
            Devices::Only(device) => Select::Only(device),
            Devices::SideBySide => Select::SideBySide(Layout::pack(&Summary::of(open()?)?)?),
        };
        let declared = match options.devices {
            Devices::SideBySide => None,
            _ => open()?.device_bytes(),
        };
        let mut source = vellum_trace::devices::select(open()?, select.clone());
        let mut seen = Seen::default();
        for request in &mut source {
            seen.add(&request?);
        }
        let device_bytes = size(options.device_bytes, declared, seen.end)?;
        let (journals, journals_from) = match &options.journals {
            Some(named) => (named.clone(), "named"),
            None => (seen.sparse.journals(device_bytes / SECTOR_BYTES as u64), "discovered"),
        };
        let journals = ranges::sorted(journals);
        Ok(Survey {
            select,
            device_bytes,
            requests: seen.requests,
            modelled_content_sectors: seen.modelled_content_sectors,
            rows_rejected: source.rows().rejected(),
            journals_from: if journals.is_empty() { "none" } else { journals_from },
            journals,
        })
    }

    /// Opens the workload as it will be replayed, from its start.
    pub(super) fn open(&self, open: &Opener<'_>, options: &ReplayOptions) -> Result<Box<dyn RequestSource>> {
        let selected = select(open()?, self.select.clone());
        Ok(Box::new(with_contents(selected, options.contents, options.seed)?))
    }

    pub(super) fn sectors(&self) -> u64 {
        self.device_bytes / SECTOR_BYTES as u64
    }

    pub(super) fn requests_total(&self) -> u64 {
        let r = &self.requests;
        r.read + r.write + r.trim + r.write_zeroes + r.flush
    }
}

fn size(asked: Option<ByteLen>, declared: Option<ByteLen>, end: u64) -> Result<u64> {
    let bytes = match asked {
        Some(asked) if asked.0 < end => {
            return Err(Error::invalid(format!(
                "the trace touches byte {end}, behind the end of a device of {}: choose a larger one",
                vellum_base::size::format_size(asked.0)
            )));
        }
        Some(asked) => asked.0,
        None => declared.map_or(0, |d| d.0).max(end),
    };
    if bytes == 0 {
        return Err(Error::invalid("the trace has no request with a place: there is nothing to replay"));
    }
    if bytes > DEVICE_BYTES_MAX {
        return Err(Error::invalid(format!(
            "the trace needs a device of {}; a disk has at most 4 TiB",
            vellum_base::size::format_size(bytes)
        )));
    }
    Ok(bytes.next_multiple_of(SECTOR_BYTES as u64))
}

#[derive(Default)]
struct Seen {
    requests: RequestCounts,
    modelled_content_sectors: u64,
    end: u64,
    sparse: Sparse,
}

impl Seen {
    fn add(&mut self, request: &Request) {
        let counts = &mut self.requests;
        match request.kind {
            RequestKind::Read => counts.read += 1,
            RequestKind::Write => counts.write += 1,
            RequestKind::Trim => counts.trim += 1,
            RequestKind::WriteZeroes => counts.write_zeroes += 1,
            RequestKind::Flush => counts.flush += 1,
        }
        if request.kind == RequestKind::Flush {
            return;
        }
        counts.fua += u64::from(request.fua && request.kind == RequestKind::Write);
        counts.unaligned += u64::from(!request.is_aligned());
        self.end = self.end.max(request.end().0);
        if request.kind == RequestKind::Write {
            if request.contents.is_empty() {
                self.modelled_content_sectors += request.sectors().1;
            }
            self.sparse.write(request);
        }
    }
}

/// Sectors whose real bytes are in the trace; these include the metadata that identifies file systems.
#[derive(Default)]
struct Sparse {
    sectors: FixedMap<u64, Content>,
}

impl Sparse {
    fn write(&mut self, request: &Request) {
        let first = request.sectors().0.0;
        for (i, content) in request.contents.iter().enumerate() {
            match content {
                Content::Verbatim(_) => {
                    self.sectors.insert(first + i as u64, content.clone());
                }
                _ => {
                    self.sectors.remove(&(first + i as u64));
                }
            }
        }
    }

    fn journals(&self, sectors: u64) -> Vec<Range<Lba>> {
        let found = discover::discover(&mut Reading { sparse: self, sectors });
        found.journals().flat_map(|(_, journal)| journal.extents.clone()).collect()
    }
}

struct Reading<'a> {
    sparse: &'a Sparse,
    sectors: u64,
}

impl Sectors for Reading<'_> {
    fn read(&mut self, lba: Lba, out: &mut [u8; SECTOR_BYTES]) -> Result<()> {
        self.sparse.sectors.get(&lba.0).unwrap_or(&Content::Zero).fill(out);
        Ok(())
    }
    fn sectors(&self) -> u64 {
        self.sectors
    }
}
