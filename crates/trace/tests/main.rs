//! Tests of the crate from outside, in one binary.

mod recorder;
mod vtrace_format;
mod vtrace_roundtrip;
