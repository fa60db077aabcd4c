//! MSR Cambridge CSV: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! The timestamp is a Windows FILETIME (100 ns since 1601), the type is spelled out, offset and size are bytes.
//! A device is a host *and* a disk.

use crate::formats::intake::Row;
use crate::formats::lines::{Names, Rows, bytes};
use crate::request::{Request, RequestKind};
use vellum_base::Nanos;

/// See the module.
#[derive(Default)]
pub struct Msr {
    names: Names,
}

impl Rows for Msr {
    fn row(&mut self, line: &str) -> Row {
        if line.starts_with("Timestamp,") {
            return Row::Other;
        }
        let wrong = "not 'Timestamp,Hostname,DiskNumber,Read|Write,Offset,Size,ResponseTime'";
        self.parse(line).map_or(Row::Malformed(wrong), Row::Request)
    }

    fn device_names(&self) -> Vec<String> {
        self.names.all()
    }
}

impl Msr {
    fn parse(&mut self, line: &str) -> Option<Request> {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [time, host, disk, kind, offset, size, _response] = cells[..] else { return None };
        let kind = if kind.eq_ignore_ascii_case("read") {
            RequestKind::Read
        } else if kind.eq_ignore_ascii_case("write") {
            RequestKind::Write
        } else {
            return None;
        };
        let time = Nanos(time.parse::<u64>().ok()?.checked_mul(100)?);
        let (offset, length) = bytes(offset, size)?;
        let device = self.names.number(&format!("{host}.{}", disk.parse::<u32>().ok()?))?;
        Some(Request { device, ..Request::new(time, kind, offset, length) })
    }
}
