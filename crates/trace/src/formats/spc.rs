//! SPC (Storage Performance Council): `ASU,LBA,Size,Opcode,Timestamp[,optional…]`.
//!
//! LBA counts blocks of **512 bytes** within the ASU, size is in bytes, the opcode is r/w in either case, the
//! timestamp is in seconds. White space may follow commas; optional fields may vary from row to row.

use crate::formats::intake::Row;
use crate::formats::lines::{Rows, decimal, sectors_512};
use crate::request::{ByteLen, DeviceId, Request, RequestKind};
use vellum_base::Nanos;

/// See the module.
pub struct Spc;

impl Rows for Spc {
    fn row(&mut self, line: &str) -> Row {
        parse(line).map_or(Row::Malformed("not 'ASU,LBA,Size,r|w,Timestamp'"), Row::Request)
    }
}

fn parse(line: &str) -> Option<Request> {
    let mut cells = line.split(',').map(str::trim);
    let mut cell = || cells.next();
    let device = DeviceId(cell()?.parse().ok()?);
    let (offset, _) = sectors_512(cell()?, "0")?;
    let length = ByteLen(cell()?.parse().ok()?);
    let kind = match cell()? {
        "r" | "R" => RequestKind::Read,
        "w" | "W" => RequestKind::Write,
        _ => return None,
    };
    let time = Nanos(decimal(cell()?, 9)?);
    Some(Request { device, ..Request::new(time, kind, offset, length) })
}
