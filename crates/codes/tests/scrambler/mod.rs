//! The scrambler compared with a register that shifts bit by bit, and scramblers learned from what drives store.

mod keystream;
mod learn;
mod survey;
