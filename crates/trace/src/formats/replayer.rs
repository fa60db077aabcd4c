//! The replayer format (huaicheng/replayer, Heimdall's MSR cuts): `time_ms device offset size op`, offset and size
//! in **bytes**, op **1 = read**, 0 = write.

use crate::formats::intake::Row;
use crate::formats::lines::{Rows, bytes, decimal, fields};
use crate::request::{DeviceId, Request, RequestKind};
use vellum_base::Nanos;

/// See the module.
pub struct Replayer;

impl Rows for Replayer {
    fn row(&mut self, line: &str) -> Row {
        parse(line).map_or(Row::Malformed("not 'time_ms device offset size 0|1'"), Row::Request)
    }
}

fn parse(line: &str) -> Option<Request> {
    let [time, device, offset, size, op] = fields(line)?;
    let kind = match op {
        "0" => RequestKind::Write,
        "1" => RequestKind::Read,
        _ => return None,
    };
    let (offset, length) = bytes(offset, size)?;
    let device = DeviceId(device.parse().ok()?);
    Some(Request { device, ..Request::new(Nanos(decimal(time, 6)?), kind, offset, length) })
}
