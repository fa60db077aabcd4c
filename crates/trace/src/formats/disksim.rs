//! DiskSim ascii: `time_ms device block blocks flags`, blocks of 512 bytes, flags in hexadecimal, **bit 0 = read**.
//!
//! The rows look like MQSim's, but the unit of time is a million times larger, and the flag has the same polarity only
//! by coincidence (it is bit 0, not the whole value).

use crate::formats::intake::Row;
use crate::formats::lines::{Rows, decimal, fields, sectors_512};
use crate::request::{DeviceId, Request, RequestKind};
use vellum_base::Nanos;

/// See the module.
pub struct Disksim;

impl Rows for Disksim {
    fn row(&mut self, line: &str) -> Row {
        parse(line).map_or(Row::Malformed("not 'time_ms device block blocks flags'"), Row::Request)
    }
}

fn parse(line: &str) -> Option<Request> {
    let [time, device, block, blocks, flags] = fields(line)?;
    let flags = u32::from_str_radix(flags.strip_prefix("0x").unwrap_or(flags), 16).ok()?;
    let kind = if flags & 1 == 1 { RequestKind::Read } else { RequestKind::Write };
    let (offset, length) = sectors_512(block, blocks)?;
    let device = DeviceId(device.parse().ok()?);
    Some(Request { device, ..Request::new(Nanos(decimal(time, 6)?), kind, offset, length) })
}
