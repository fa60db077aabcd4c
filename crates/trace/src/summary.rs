//! Summary of a workload: counts, bytes, time span, alignment, oddities.

use crate::content::Content;
use crate::request::{ByteLen, ByteOffset, DeviceId, Request, RequestKind};
use crate::source::{RequestSource, RowCounts};
use std::collections::BTreeMap;
use vellum_base::{Error, Nanos, Result};

/// A trace with more devices than this is not valid.
const DEVICES_MAX: usize = 1 << 16;

/// Summary of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    requests: [u64; RequestKind::ALL.len()],
    bytes: [u64; RequestKind::ALL.len()],
    /// Requests, other than flushes, that cover every sector they touch completely.
    pub aligned: u64,
    /// Time of the first request and the latest time seen.
    pub span: Option<(Nanos, Nanos)>,
    /// Requests with a time before that of an earlier one.
    pub out_of_order: u64,
    /// Rows that the source did not use.
    pub rows: RowCounts,
    /// All devices, by number.
    pub devices: BTreeMap<DeviceId, DeviceSummary>,
    /// Sectors whose content is in the trace: zero, pattern, verbatim.
    pub contents: ContentCounts,
}

/// Summary of the requests for one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceSummary {
    /// Number of requests.
    pub requests: u64,
    /// The lowest byte touched.
    pub first: ByteOffset,
    /// The byte after the highest touched: the minimum size of the device.
    pub end: ByteOffset,
}

/// Sectors by class of content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContentCounts {
    /// Zeros.
    pub zero: u64,
    /// Synthetic contents.
    pub pattern: u64,
    /// Real bytes.
    pub verbatim: u64,
}

impl Summary {
    /// Reads `source` to its end.
    pub fn of(mut source: impl RequestSource) -> Result<Summary> {
        let mut summary = Summary::default();
        for request in &mut source {
            summary.add(&request?)?;
        }
        summary.rows = source.rows();
        Ok(summary)
    }

    /// Adds a request.
    pub fn add(&mut self, request: &Request) -> Result<()> {
        self.requests[request.kind as usize] += 1;
        self.bytes[request.kind as usize] += request.length.0;
        let (first, latest) = self.span.unwrap_or((request.time, request.time));
        self.out_of_order += u64::from(request.time < latest);
        self.span = Some((first, latest.max(request.time)));
        for content in &request.contents {
            match content {
                Content::Zero => self.contents.zero += 1,
                Content::Pattern(_) => self.contents.pattern += 1,
                Content::Verbatim(_) => self.contents.verbatim += 1,
            }
        }
        if request.kind != RequestKind::Flush {
            self.aligned += u64::from(request.is_aligned());
            self.add_to_device(request)?;
        }
        Ok(())
    }

    fn add_to_device(&mut self, request: &Request) -> Result<()> {
        if self.devices.len() >= DEVICES_MAX && !self.devices.contains_key(&request.device) {
            return Err(Error::corrupt(format!("the trace names more than {DEVICES_MAX} devices")));
        }
        let device = self
            .devices
            .entry(request.device)
            .or_insert(DeviceSummary { first: request.offset, ..DeviceSummary::default() });
        device.requests += 1;
        device.first = device.first.min(request.offset);
        device.end = device.end.max(request.end());
        Ok(())
    }

    /// Number of requests of a kind.
    pub fn requests(&self, kind: RequestKind) -> u64 {
        self.requests[kind as usize]
    }

    /// Total length of the requests of a kind.
    pub fn bytes(&self, kind: RequestKind) -> ByteLen {
        ByteLen(self.bytes[kind as usize])
    }

    /// Number of all requests.
    pub fn requests_total(&self) -> u64 {
        self.requests.iter().sum()
    }

    /// Share of writes among reads and writes; 0 if there are none.
    pub fn write_share(&self) -> f64 {
        let (reads, writes) = (self.requests(RequestKind::Read), self.requests(RequestKind::Write));
        if reads + writes == 0 { 0.0 } else { writes as f64 / (reads + writes) as f64 }
    }
}
