//! The scrambler against a register that shifts bit by bit, and drives whose scrambler is learned from what they store.

mod keystream;
mod learn;
mod survey;
