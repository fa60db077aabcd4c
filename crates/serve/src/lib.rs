//! Protocols for any [`vellum_base::BlockDevice`]: [`nbd`] over sockets, [`fuse`] as a file, [`mount`] as a mounted
//! file system. For the administration of a server there are [`metrics`] over HTTP, and [`orders`].
//!
//! This crate knows nothing of how the device is implemented. Everything that listens or mounts ends on a [`Stop`].
//!
//! This crate is for production only: it uses OS threads, real sockets and real time, and is never part of a
//! simulation.

pub mod bytes;
pub mod endpoint;
pub mod fuse;
pub mod metrics;
pub mod mount;
pub mod nbd;
pub mod orders;
pub mod reason;
pub mod stop;

pub use bytes::ByteDevice;
pub use endpoint::Endpoint;
pub use stop::{Stop, outlive_file_size_limit};
