//! The project's own trace format: requests with their contents, small enough to ship (`docs/formats/vtrace.md` has
//! every field).
//!
//! `header` is the header of a file, `frame` its checksummed chunks, `row` a request in a chunk; `dictionary` has the
//! contents seen before, in bounded memory; `writer` and `reader` are the two ends.

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
