//! MQSim and SSDSim ascii: `time_ns device lba sectors op`, sectors of 512 bytes, op **0 = write**, 1 = read.

use crate::formats::intake::Row;
use crate::formats::lines::{Rows, fields, sectors_512};
use crate::request::{DeviceId, Request, RequestKind};
use vellum_base::Nanos;

/// See the module.
pub struct Mqsim;

impl Rows for Mqsim {
    fn row(&mut self, line: &str) -> Row {
        parse(line).map_or(Row::Malformed("not 'time_ns device lba sectors 0|1'"), Row::Request)
    }
}

fn parse(line: &str) -> Option<Request> {
    let [time, device, lba, sectors, op] = fields(line)?;
    let kind = match op {
        "0" => RequestKind::Write,
        "1" => RequestKind::Read,
        _ => return None,
    };
    let (offset, length) = sectors_512(lba, sectors)?;
    let device = DeviceId(device.parse().ok()?);
    Some(Request { device, ..Request::new(Nanos(time.parse().ok()?), kind, offset, length) })
}
