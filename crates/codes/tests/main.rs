//! Tests of `codes` that are longer than the code they test.

mod ecc;
mod scrambler;
