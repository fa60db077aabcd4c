//! Our own trace format: requests with what they wrote, small enough to ship
//! (`docs/formats/vtrace.md` has every field).
//!
//! `header` is the file's head, `frame` its checksummed chunks, `row` one request in a chunk; `dictionary` knows
//! which contents were seen before, in bounded memory; `writer` and `reader` are the two ends.

mod dictionary;
mod frame;
mod header;
mod reader;
mod row;
mod varint;
mod writer;

pub use frame::is_cut;
pub use header::{FORMAT_VERSION, Header, JournalRange, MAGIC};
pub use reader::Reader;
pub use writer::Writer;
