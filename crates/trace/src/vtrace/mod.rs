//! Our own trace format: requests with what they wrote, small enough to ship
//! (`docs/formats/vtrace.md` has every field).
//!
//! - [`header`]: the file's head and its checks;
//! - [`frame`]: chunks, their checksums and the end record;
//! - [`row`]: one request inside a chunk;
//! - [`dictionary`]: which contents were seen before, in bounded memory;
//! - [`writer`], [`reader`]: the two ends.

mod dictionary;
mod frame;
mod header;
mod reader;
mod row;
mod varint;
mod writer;

pub use header::{FORMAT_VERSION, Header, JournalRange, MAGIC};
pub use reader::Reader;
pub use writer::Writer;
