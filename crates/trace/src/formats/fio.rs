//! fio iolog, versions 2 and 3 (fio's HOWTO, "Trace file format"; units from its iolog.c).
//!
//! Version 2 has no times: `filename action offset length`, and `wait` lines whose offset is the time in µs since the
//! previous wait (fio does not wait for less than 100). In version 3 each line begins with **microseconds** since the
//! start, and there is no `wait`. Offsets and lengths are in bytes. `sync` and `datasync` are flushes.

use crate::formats::intake::Row;
use crate::formats::lines::{Names, Rows, bytes};
use crate::request::{DeviceId, Request, RequestKind};
use vellum_base::Nanos;

const WAIT_MIN_US: u64 = 100;

/// See the module.
#[derive(Default)]
pub struct FioLog {
    version: Option<u32>,
    time: Nanos,
    names: Names,
}

impl Rows for FioLog {
    fn row(&mut self, line: &str) -> Row {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let row = match (self.version, &words[..]) {
            (None, ["fio", "version", version @ ("2" | "3"), "iolog"]) => {
                self.version = version.parse().ok();
                Some(Row::Other)
            }
            (None, _) => {
                return Row::Malformed("no 'fio version 2 iolog' or 'fio version 3 iolog' before it");
            }
            (Some(3), [time, file, action, place @ ..]) => {
                let time = time.parse::<u64>().ok().and_then(|us| us.checked_mul(1000));
                time.and_then(|time| self.action(Nanos(time), file, action, place))
            }
            (Some(2), [_, "wait", us, _]) => self.wait(us),
            (Some(2), [file, action, place @ ..]) => self.action(self.time, file, action, place),
            _ => None,
        };
        row.unwrap_or(Row::Malformed("not 'filename action [offset length]'"))
    }

    fn device_names(&self) -> Vec<String> {
        self.names.all()
    }
}

impl FioLog {
    fn wait(&mut self, us: &str) -> Option<Row> {
        let us: u64 = us.parse().ok()?;
        if us >= WAIT_MIN_US {
            self.time = Nanos(self.time.0.checked_add(us.checked_mul(1000)?)?);
        }
        Some(Row::Other)
    }

    fn action(&mut self, time: Nanos, file: &str, action: &str, place: &[&str]) -> Option<Row> {
        let device = self.names.number(file)?;
        match (action, place) {
            ("add" | "open" | "close", []) => Some(Row::Other),
            ("sync" | "datasync" | "sync_file_range", [] | [_, _]) => {
                Some(Row::Request(Request { device, ..Request::flush(time) }))
            }
            ("read", [offset, length]) => placed(time, device, RequestKind::Read, offset, length),
            ("write", [offset, length]) => placed(time, device, RequestKind::Write, offset, length),
            ("trim", [offset, length]) => placed(time, device, RequestKind::Trim, offset, length),
            _ => None,
        }
    }
}

fn placed(time: Nanos, device: DeviceId, kind: RequestKind, offset: &str, length: &str) -> Option<Row> {
    let (offset, length) = bytes(offset, length)?;
    Some(Row::Request(Request { device, ..Request::new(time, kind, offset, length) }))
}
