//! A Network Block Device server: [`Server`] over a Unix socket (or TCP), and its format in [`wire`].
//!
//! Supports fixed newstyle with structured replies, `base:allocation`, and all commands that clients use today. There
//! is no TLS: over a network, use a tunnel.

mod answers;
mod buffers;
mod crew;
mod handshake;
mod server;
mod transmission;
pub mod wire;

pub use server::{Server, ServerOptions, ServerStats};
