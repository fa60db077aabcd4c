//! Text traces: lines of bounded length, and parsing of numbers.

use crate::formats::intake::{Intake, Row};
use crate::request::{ByteLen, ByteOffset, DeviceId, Request};
use crate::source::{Place, Pull, ReadOptions, RequestSource, RowCounts};
use std::collections::BTreeMap;
use std::io::{BufRead, Read};
use vellum_base::{Error, Result};

const LINE_BYTES_MAX: u64 = 4096;
const NAMES_MAX: usize = 1 << 16;
const SECTOR_512: u64 = 512;

/// A text format, parsed line by line.
pub trait Rows: Send {
    /// Parses a line.
    fn row(&mut self, line: &str) -> Row;

    /// Names of the devices, by number, if the format has names.
    fn device_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// A reader for a text format.
pub struct Lines<R, P> {
    input: R,
    rows: P,
    intake: Intake,
    buffer: Vec<u8>,
    line: u64,
    ended: bool,
}

impl<R: BufRead, P: Rows> Lines<R, P> {
    /// Reads `input` in the format `rows`.
    pub fn new(input: R, rows: P, options: ReadOptions) -> Lines<R, P> {
        let intake = Intake::new(options);
        Lines { input, rows, intake, buffer: Vec::new(), line: 0, ended: false }
    }

    /// Reads the next line, or the first 4 KiB of one that is longer (the rest is skipped).
    fn read_line(&mut self) -> Result<bool> {
        let io = |e| Error::io("read the trace", e);
        self.buffer.clear();
        self.line += 1;
        let taken = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.buffer).map_err(io)?;
        if taken as u64 == LINE_BYTES_MAX && self.buffer.last() != Some(&b'\n') {
            self.input.skip_until(b'\n').map_err(io)?;
        } else {
            self.buffer.truncate(self.buffer.trim_ascii_end().len());
        }
        Ok(taken > 0)
    }
}

impl<R: BufRead, P: Rows> Pull for Lines<R, P> {
    fn pull(&mut self) -> Result<Option<Request>> {
        if let Some(request) = self.intake.pending() {
            return Ok(Some(request));
        }
        while self.read_line()? {
            let row = match std::str::from_utf8(&self.buffer) {
                _ if self.buffer.len() as u64 == LINE_BYTES_MAX => Row::Malformed("the line is too long"),
                Err(_) => Row::Malformed("the line is not text"),
                Ok(line) if line.trim().is_empty() => Row::Other,
                Ok(line) => self.rows.row(line.trim()),
            };
            if let Some(request) = self.intake.take(row, Place::Line(self.line))? {
                return Ok(Some(request));
            }
        }
        self.intake.check_end()?;
        Ok(None)
    }

    fn ended(&mut self) -> &mut bool {
        &mut self.ended
    }
}

impl<R: BufRead, P: Rows> Iterator for Lines<R, P> {
    type Item = Result<Request>;

    fn next(&mut self) -> Option<Result<Request>> {
        self.pull_to_end()
    }
}

impl<R: BufRead + Send, P: Rows> RequestSource for Lines<R, P> {
    fn rows(&self) -> RowCounts {
        self.intake.counts()
    }
    fn device_names(&self) -> Vec<String> {
        self.rows.device_names()
    }
}

/// Numbers devices that a trace identifies by name, in the order of their first appearance.
#[derive(Default)]
pub struct Names(BTreeMap<String, u32>);

impl Names {
    /// The number of `name`; `None` if there are too many names.
    pub fn number(&mut self, name: &str) -> Option<DeviceId> {
        if let Some(number) = self.0.get(name) {
            return Some(DeviceId(*number));
        }
        let number = u32::try_from(self.0.len()).ok().filter(|_| self.0.len() < NAMES_MAX)?;
        self.0.insert(name.to_string(), number);
        Some(DeviceId(number))
    }

    /// All names, by number.
    pub fn all(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.iter().collect();
        names.sort_by_key(|(_, number)| **number);
        names.into_iter().map(|(name, _)| name.clone()).collect()
    }
}

/// A decimal number times 10^`digits`, exactly; further digits are dropped. `"1.5"` with 3 is 1500.
pub fn decimal(text: &str, digits: usize) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let mut value: u64 = whole.parse().ok()?;
    for i in 0..digits {
        let digit = fraction.as_bytes().get(i).map_or(0, |b| b - b'0');
        value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(value)
}

/// Offset and length, given in sectors of 512 bytes.
pub fn sectors_512(first: &str, count: &str) -> Option<(ByteOffset, ByteLen)> {
    let bytes = |text: &str| text.parse::<u64>().ok()?.checked_mul(SECTOR_512);
    Some((ByteOffset(bytes(first)?), ByteLen(bytes(count)?)))
}

/// Offset and length, given in bytes.
pub fn bytes(first: &str, count: &str) -> Option<(ByteOffset, ByteLen)> {
    Some((ByteOffset(first.parse().ok()?), ByteLen(count.parse().ok()?)))
}

/// Exactly `N` fields separated by white space.
pub fn fields<const N: usize>(line: &str) -> Option<[&str; N]> {
    let mut words = line.split_ascii_whitespace();
    let mut out = [""; N];
    for field in &mut out {
        *field = words.next()?;
    }
    words.next().is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact() {
        assert_eq!(decimal("7961.833", 6), Some(7_961_833_000));
        assert_eq!(decimal("28.4426239487", 9), Some(28_442_623_948));
        assert_eq!(decimal("5", 9), Some(5_000_000_000));
        for bad in ["", ".5", "-1", "1e5", "1.2.3", "99999999999999999999", "nan"] {
            assert_eq!(decimal(bad, 3), None, "{bad}");
        }
        assert_eq!(decimal("18446744073", 9), Some(18_446_744_073_000_000_000));
        assert_eq!(decimal("18446744074", 9), None);
    }

    #[test]
    fn names_are_numbered_as_they_come() {
        let mut names = Names::default();
        assert_eq!(names.number("b"), Some(DeviceId(0)));
        assert_eq!(names.number("a"), Some(DeviceId(1)));
        assert_eq!(names.number("b"), Some(DeviceId(0)));
        assert_eq!(names.all(), ["b", "a"]);
    }
}
