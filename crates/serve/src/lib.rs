//! Protocols for any [`vellum_base::BlockDevice`]: [`nbd`] over sockets, [`fuse`] as a file, [`mount`] as a
//! mounted file system; and for whoever runs a server [`metrics`] over HTTP, and [`orders`].
//!
//! Nothing here knows what the device is made of. Everything that listens or mounts ends with a [`Stop`].
//!
//! This crate is production only: it uses OS threads, real sockets and real time, and is never part of a
//! simulated world.

pub mod bytes;
pub mod endpoint;
pub mod fuse;
pub mod metrics;
pub mod mount;
pub mod nbd;
pub mod orders;
pub mod stop;

pub use bytes::ByteDevice;
pub use endpoint::Endpoint;
pub use stop::{Stop, outlive_file_size_limit};
