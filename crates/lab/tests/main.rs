//! The lab from outside: replays that compare modes, and experiments.

mod dedup_scan;
mod experiment;
mod replay;
