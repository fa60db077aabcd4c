//! blkparse's default text format: `maj,min cpu seq time_s pid ACTION RWBS sector + sectors [process]`.
//!
//! A request passes through many actions, of which one is used ([`Action`]); using all would count every request
//! several times. Lines of other actions, remaps (`A … <- (maj,min) sector`), messages and the summary at the end are
//! skipped. In RWBS an F before the operation is a flush before the request, an F after it is FUA.

use crate::formats::intake::Row;
use crate::formats::lines::{Names, Rows, decimal, sectors_512};
use crate::request::{Request, RequestKind};
use vellum_base::Nanos;

/// The action whose rows become requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Action {
    /// Q: as requested by the host, before merging.
    #[default]
    Queued,
    /// D: as issued to the device.
    Issued,
    /// C: when completed by the device.
    Completed,
}

impl Action {
    const fn letter(self) -> &'static str {
        match self {
            Action::Queued => "Q",
            Action::Issued => "D",
            Action::Completed => "C",
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct Blkparse {
    action: Action,
    names: Names,
}

impl Blkparse {
    /// Uses rows of this action.
    pub fn new(action: Action) -> Blkparse {
        Blkparse { action, names: Names::default() }
    }

    fn parse(&mut self, words: &[&str]) -> Option<Row> {
        let [device, _cpu, _seq, time, _pid, _action, flags, place @ ..] = words else { return None };
        let time = Nanos(decimal(time, 9)?);
        let flushed = flags.starts_with('F');
        let operation = flags.trim_start_matches('F');
        let device = self.names.number(device)?;
        let place = match place {
            [first, "+", count, ..] => sectors_512(first, count)?,
            _ => Default::default(),
        };
        let kind = match operation.as_bytes().first() {
            Some(b'R') => RequestKind::Read,
            Some(b'W') => RequestKind::Write,
            Some(b'D') => RequestKind::Trim,
            Some(b'N') | None if !flushed => return Some(Row::Other),
            Some(b'N') | None => return Some(Row::Request(Request { device, ..Request::flush(time) })),
            _ => return None,
        };
        let fua = operation[1..].contains('F');
        let request = Request { device, fua, ..Request::new(time, kind, place.0, place.1) };
        Some(match (flushed, place.1.0) {
            (true, 0) => Row::Request(Request { device, ..Request::flush(time) }),
            (true, _) => Row::Flushed(request),
            (false, _) => Row::Request(request),
        })
    }
}

impl Rows for Blkparse {
    fn row(&mut self, line: &str) -> Row {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let is_event = words.first().is_some_and(|w| is_device(w));
        if !is_event || words.get(5) != Some(&self.action.letter()) {
            return Row::Other;
        }
        let wrong = "not 'maj,min cpu seq time pid action rwbs sector + sectors'";
        self.parse(&words).unwrap_or(Row::Malformed(wrong))
    }

    fn device_names(&self) -> Vec<String> {
        self.names.all()
    }
}

/// True for a device number such as `8,16`.
pub fn is_device(word: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    word.split_once(',').is_some_and(|(major, minor)| number(major) && number(minor))
}
