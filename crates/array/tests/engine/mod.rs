//! The engine of the cache, byte for byte against a plain model.

mod budget;
mod crash;
mod degraded;
mod failures;
mod foreseen;
mod given_up;
mod in_doubt;
mod logger;
mod mended;
mod model;
mod nvram;
mod nvram_copies;
mod opening;
mod redo;
mod replace;
mod rest;
mod rot;
mod segments;
mod sums;
mod under_load;
mod unread_data;
mod unread_log;
pub(crate) mod world;
