//! Tests of the crate from outside, in one binary.

mod ext;
mod formats;
mod kv;
mod real_traces;
mod recorder;
mod vtrace_format;
mod vtrace_roundtrip;
