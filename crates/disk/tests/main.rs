//! Tests of the whole disk on modelled flash. One binary, one module per concern.

#![allow(missing_docs)]

mod crash;
mod ecc;
mod failures;
mod faults;
mod format_doc;
mod full;
mod golden;
mod harness;
mod hostile;
mod in_flight;
mod limits;
mod memory;
mod model;
mod parity;
mod policies;
mod refill;
mod remap;
mod ses;
mod soft;
mod tools;

#[global_allocator]
static ALLOCATOR: memory::Counted = memory::Counted;
