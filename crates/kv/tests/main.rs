//! Tests of whole stores. One binary, one module a concern.

#![allow(missing_docs)]

mod accounts;
mod bad_input;
mod beside;
mod copies;
mod crash;
mod doubtful;
mod extents;
mod faults;
mod files;
mod filled_up;
mod foreign;
mod full;
mod golden;
mod harness;
mod history;
mod hostile;
mod image;
mod in_flight;
mod interleaved;
mod keyspaces;
mod kill;
mod leveldb;
mod lives;
mod log;
mod memory;
mod model;
mod mounted;
mod no_room;
mod numbers;
mod open_files;
mod pointing;
mod pointing_reads;
mod ranges;
mod relink;
mod repair;
mod reuse;
mod room;
mod rot;
mod strict;
mod threads;
mod toll;
mod units;
mod worn;
mod zones;
