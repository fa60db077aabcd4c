//! A Network Block Device server: [`Server`] over a Unix socket (or TCP), [`wire`] the format alone.
//!
//! Speaks fixed newstyle with structured replies, `base:allocation`, and every command clients use today. Does not
//! speak TLS: over a network, put it behind a tunnel.

mod answers;
mod buffers;
mod crew;
mod handshake;
mod server;
mod transmission;
pub mod wire;

pub use server::{Server, ServerOptions, ServerStats};
