//! Real kernels and real clients on a real disk. What cannot run here (no root, no FUSE, no loop devices, a missing
//! tool) is skipped, and reported even when output is captured.

mod array;
mod bridge;
mod cleanup;
mod clients;
mod discovery;
mod files;
mod full_host;
pub mod host;
mod keep;
mod kill;
mod kinds;
mod kv;
mod kv_pulled;
mod lazy_tables;
mod mount;
mod synced;
