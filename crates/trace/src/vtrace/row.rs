//! A request in a chunk: a tag byte, differences from the previous row, contents.
//!
//! Both ends keep a [`State`] that every chunk initialises, so a chunk can be read without the previous ones. Dense
//! content ids become patterns by a fixed bijection, so distinct contents stay distinct.

use crate::content::{Content, Verbatim};
use crate::request::{ByteLen, ByteOffset, DeviceId, REQUEST_BYTES_MAX, Request, RequestKind};
use crate::vtrace::varint::{Cursor, put, put_step};
use vellum_base::{Nanos, SECTOR_BYTES};
use vellum_codes::lines::packed_len;
use vellum_codes::pattern::Pattern;

/// Most sectors for which a request has contents.
pub const CONTENTS_MAX: u64 = REQUEST_BYTES_MAX.0 / SECTOR_BYTES as u64;

const FUA: u8 = 1 << 3;
const OTHER_DEVICE: u8 = 1 << 4;
const ADJACENT: u8 = 1 << 5;
const SAME_LENGTH: u8 = 1 << 6;
const HAS_CONTENTS: u8 = 1 << 7;

const CLASS_ZERO: u8 = 0;
const CLASS_PATTERN: u8 = 1;
const CLASS_VERBATIM: u8 = 2;
const SEEN: u8 = 1 << 2;
const HEAD_OWN: u8 = 1 << 3;
const HEAD_SHARED: u8 = 2 << 3;
const HEAD_MASK: u8 = 3 << 3;
const EXPLICIT_LINES: u8 = 1 << 5;

/// Ids stay below this, so that their images under the mapping never wrap around.
const IDS_MAX: u64 = 1 << 48;

/// A content in its stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coded {
    /// Zeros.
    Zero,
    /// A pattern.
    Pattern {
        /// Dense id. A new content gets the state's `next_id`.
        id: u64,
        /// Id of the content that first had its head; `None` for a zero head.
        head: Option<u64>,
        /// As in [`Pattern`].
        lines: u64,
    },
    /// The real bytes.
    Verbatim(Verbatim),
}

/// The state that rows are encoded relative to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Time of the previous row.
    pub time: u64,
    /// The id of the next new content.
    pub next_id: u64,
    device: u32,
    end: u64,
    length: u64,
    seen: u64,
}

impl State {
    /// The state at the start of a chunk.
    pub fn at_chunk(time: u64, next_id: u64) -> State {
        State { time, next_id, seen: next_id, ..State::default() }
    }

    /// Appends the state in the form read by [`State::read_head`].
    pub fn write_head(&self, out: &mut Vec<u8>) {
        put(out, self.time);
        put(out, self.next_id);
    }

    /// Reads the state at the start of a chunk.
    pub fn read_head(rows: &mut Cursor<'_>) -> Option<State> {
        let (time, next_id) = (rows.number()?, rows.number()?);
        (next_id < IDS_MAX).then(|| State::at_chunk(time, next_id))
    }

    /// Appends a row. `contents` are those of the request, coded.
    pub fn write(&mut self, request: &Request, contents: &[Coded], out: &mut Vec<u8>) {
        let placed = request.kind != RequestKind::Flush;
        let other_device = request.device.0 != self.device;
        let adjacent = placed && request.offset.0 == self.end;
        let same_length = placed && request.length.0 == self.length;
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out.push(
            request.kind as u8
                | flag(request.fua, FUA)
                | flag(other_device, OTHER_DEVICE)
                | flag(adjacent, ADJACENT)
                | flag(same_length, SAME_LENGTH)
                | flag(!contents.is_empty(), HAS_CONTENTS),
        );
        put_step(out, self.time, request.time.0);
        if other_device {
            put(out, u64::from(request.device.0));
        }
        if placed && !adjacent {
            put_step(out, self.end, request.offset.0);
        }
        if placed && !same_length {
            put(out, request.length.0);
        }
        self.follow(request);
        for content in contents {
            self.write_content(content, out);
        }
    }

    /// Reads a row. `None` if the bytes are not valid.
    pub fn read(&mut self, rows: &mut Cursor<'_>) -> Option<Request> {
        let tag = rows.byte()?;
        let kind = *RequestKind::ALL.get(usize::from(tag & 7))?;
        let placed = kind != RequestKind::Flush;
        let time = Nanos(rows.step(self.time)?);
        let device = match tag & OTHER_DEVICE {
            0 => self.device,
            _ => u32::try_from(rows.number()?).ok()?,
        };
        let (mut offset, mut length) = (0, 0);
        if placed {
            offset = if tag & ADJACENT != 0 { self.end } else { rows.step(self.end)? };
            length = if tag & SAME_LENGTH != 0 { self.length } else { rows.number()? };
            offset.checked_add(length)?;
        }
        if placed == (length == 0) || !placed && tag & (ADJACENT | SAME_LENGTH | HAS_CONTENTS) != 0 {
            return None;
        }
        let mut request = Request {
            device: DeviceId(device),
            fua: tag & FUA != 0,
            ..Request::new(time, kind, ByteOffset(offset), ByteLen(length))
        };
        self.follow(&request);
        if tag & HAS_CONTENTS != 0 {
            let (_, sectors) = request.sectors();
            if kind != RequestKind::Write || sectors > CONTENTS_MAX {
                return None;
            }
            request.contents = (0..sectors).map(|_| self.read_content(rows)).collect::<Option<_>>()?;
        }
        Some(request)
    }

    fn follow(&mut self, request: &Request) {
        self.time = request.time.0;
        self.device = request.device.0;
        if request.kind != RequestKind::Flush {
            self.end = request.end().0;
            self.length = request.length.0;
        }
    }

    fn write_content(&mut self, content: &Coded, out: &mut Vec<u8>) {
        match content {
            Coded::Zero => out.push(CLASS_ZERO),
            Coded::Verbatim(bytes) => {
                out.push(CLASS_VERBATIM);
                out.extend(bytes.packed());
            }
            Coded::Pattern { id, head, lines } => self.write_pattern(*id, *head, *lines, out),
        }
    }

    fn write_pattern(&mut self, id: u64, head: Option<u64>, lines: u64, out: &mut Vec<u8>) {
        let seen = id != self.next_id;
        let head_class = match head {
            None => 0,
            Some(first) if first == id => HEAD_OWN,
            Some(_) => HEAD_SHARED,
        };
        let explicit = lines != usual_lines(head.is_some());
        let tag = CLASS_PATTERN | head_class;
        out.push(tag | if seen { SEEN } else { 0 } | if explicit { EXPLICIT_LINES } else { 0 });
        if seen {
            put_step(out, self.seen.wrapping_add(1), id);
            self.seen = id;
        } else {
            self.next_id += 1;
        }
        if let (Some(first), HEAD_SHARED) = (head, head_class) {
            put(out, id - first);
        }
        if explicit {
            out.extend(lines.to_le_bytes());
        }
    }

    fn read_content(&mut self, rows: &mut Cursor<'_>) -> Option<Content> {
        match rows.byte()? {
            CLASS_ZERO => Some(Content::Zero),
            CLASS_VERBATIM => {
                let lines = u64::from_le_bytes(*rows.0.first_chunk::<8>()?);
                Some(Content::Verbatim(Verbatim::from_packed(rows.take(packed_len(lines))?)?))
            }
            tag if tag & 3 == CLASS_PATTERN && tag >> 6 == 0 => self.read_pattern(tag, rows),
            _ => None,
        }
    }

    fn read_pattern(&mut self, tag: u8, rows: &mut Cursor<'_>) -> Option<Content> {
        let id = if tag & SEEN != 0 {
            self.seen = rows.step(self.seen.wrapping_add(1))?;
            self.seen
        } else {
            self.next_id += 1;
            self.next_id - 1
        };
        if id >= self.next_id || self.next_id > IDS_MAX {
            return None;
        }
        let head = match tag & HEAD_MASK {
            0 => None,
            HEAD_OWN => Some(id),
            HEAD_SHARED => Some(id.checked_sub(rows.number()?)?),
            _ => return None,
        };
        let lines = if tag & EXPLICIT_LINES != 0 { rows.u64()? } else { usual_lines(head.is_some()) };
        if lines == 0 || head.is_some() != (lines & 1 == 1) {
            return None;
        }
        Some(Content::Pattern(Pattern::new(spread(2 * id + 2), head.map_or(0, |h| spread(2 * h + 1)), lines)))
    }
}

const fn usual_lines(has_head: bool) -> u64 {
    if has_head { u64::MAX } else { u64::MAX - 1 }
}

/// A bijection of 64-bit numbers that maps only 0 to 0 (the finaliser of SplitMix64).
const fn spread(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    n ^ (n >> 31)
}
