//! The lab from outside: replays that compare modes, and experiments.

mod experiment;
mod replay;
