//! The cache's policies.

mod calibration;
mod interpreter;
mod properties;
