//! Workloads generated from a seed. Every generator is a streaming iterator in bounded memory, and the same seed gives
//! the same requests in every version and on every machine.
//!
//! - [`fio`]: random, sequential and Zipf requests to a device;
//! - [`files`]: workloads as operations on files, named as in WOJ's evaluation (woj.txt, section 3);
//! - [`kv`]: requests to a key-value store, as by YCSB and `db_bench`;
//! - [`leveldb`]: operations on files by LevelDB's `db_bench`;
//! - [`copy`]: copies of real files;
//! - [`ext`]: an ext3/ext4 model with a jbd2 journal that turns operations on files into requests.

pub mod copy;
pub mod ext;
pub mod files;
pub mod fio;
pub mod kv;
pub mod leveldb;
mod recent;
mod seeded;

pub use recent::Recent;
pub use seeded::{Seeded, Zipf};
