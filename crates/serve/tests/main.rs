//! Tests of the protocols against our own raw clients and against real ones.

mod bytes;
mod client;
mod double;
mod fuse;
mod metrics;
mod mount;
mod nbd_at_once;
mod nbd_errors;
mod nbd_hostile;
mod nbd_options;
mod nbd_order;
mod nbd_session;
mod nbd_tools;
mod rig;
mod wire;
