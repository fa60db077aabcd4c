//! Tests of whole arrays on disks in memory, in virtual time. One binary, one module a concern.

#![allow(missing_docs)]

mod assembly;
mod cache;
mod counts;
mod crash;
mod crash_failing;
mod dead_disk;
mod deferred;
mod disks;
mod ended;
mod engine;
mod failures;
mod full;
mod give_up;
mod golden;
mod harness;
mod layout;
mod log_device;
mod lost;
mod marks;
mod mishaps;
mod model;
mod protected;
mod rebuild;
mod replace;
mod scrub;
mod swap;
mod untold;
mod worn_out;
