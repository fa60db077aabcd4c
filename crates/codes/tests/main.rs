//! Tests of `codes` that are longer than the code they test.

mod delta;
mod ecc;
mod parity;
mod scrambler;
