//! Tests of the whole disk on modelled flash. One binary, one module a concern.

#![allow(missing_docs)]

mod crash;
mod harness;
mod model;
