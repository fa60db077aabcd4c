//! The NBD server: listens, gives each client a thread, and shuts down cleanly.
//!
//! States: bound, running, stopping. Invariants:
//! 1. At most `connections_max` clients at a time; further ones are disconnected.
//! 2. Once stopped, no client is accepted, requests that have arrived are completed, and the device is flushed before
//!    [`Server::run`] returns.

use super::answers::Session;
use super::buffers::{Input, Wire};
use super::handshake;
use super::transmission::Transmission;
use super::wire::handshake::STRING_BYTES_MAX;
use crate::bytes::ByteDevice;
use crate::endpoint::{Endpoint, Listener, Stream};
use crate::stop::Stop;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vellum_base::sync::Mutex;
use vellum_base::{BlockDevice, Error, Result};

/// Options of a server.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Name of the export. The empty name is accepted as well.
    pub name: String,
    /// Description of the export, a line of text.
    pub description: String,
    /// Refuse writes even if the device would take them.
    pub read_only: bool,
    /// Most clients served at a time.
    pub connections_max: usize,
    /// Requests of one client that are carried out concurrently, each on a thread. One is the fastest for a device that
    /// answers from memory; more are faster for one that waits for disks. Each thread that was ever needed takes about
    /// half a MiB while the client is connected.
    pub at_once: usize,
    /// Time limit for the whole handshake.
    pub handshake_limit: Duration,
    /// How long a client may stall in the middle of a request, or without taking its replies.
    pub stall_limit: Duration,
    /// How long clients may take to receive their last replies once the server stops.
    pub stop_limit: Duration,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            name: String::new(),
            description: String::new(),
            read_only: false,
            connections_max: 32,
            at_once: 1,
            handshake_limit: Duration::from_secs(10),
            stall_limit: Duration::from_secs(120),
            stop_limit: Duration::from_secs(10),
        }
    }
}

/// Statistics of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerStats {
    /// Clients connected now.
    pub connections: u64,
    /// Clients connected since the start.
    pub connections_total: u64,
    /// Requests answered.
    pub requests: u64,
    /// Of these, the ones with an error.
    pub errors: u64,
    /// Bytes read by clients.
    pub read_bytes: u64,
    /// Bytes of payload written by clients.
    pub written_bytes: u64,
}

/// A bound NBD server with one export.
pub struct Server {
    listener: Listener,
    export: Export,
    options: ServerOptions,
    counters: Counters,
    clients: Mutex<BTreeMap<u64, Stream>>,
}

/// The export.
pub(super) struct Export {
    pub(super) device: ByteDevice,
    pub(super) name: String,
    pub(super) description: String,
    read_only: bool,
}

#[derive(Default)]
pub(super) struct Counters {
    connections: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) read_bytes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
}

impl Export {
    pub(super) fn is_called(&self, name: &str) -> bool {
        name.is_empty() || name == self.name
    }
    pub(super) fn read_only(&self) -> bool {
        self.read_only || self.device.read_only()
    }
}

impl Server {
    /// Listens at `endpoint`, to serve `device`. Clients may connect at once; they are answered by [`Server::run`].
    pub fn bind(endpoint: &Endpoint, options: ServerOptions, device: Arc<dyn BlockDevice>) -> Result<Server> {
        let bad = |s: &str| s.len() > STRING_BYTES_MAX || s.contains('\0');
        if bad(&options.name) || bad(&options.description) {
            return Err(Error::invalid("an export's name or description is too long, or has a NUL in it"));
        }
        let zero = Duration::ZERO;
        if options.handshake_limit == zero || options.stall_limit == zero || options.connections_max == 0 {
            return Err(Error::invalid("an NBD server needs time and connections: a limit is zero"));
        }
        let listener = Listener::bind(endpoint)?;
        listener.set_nonblocking(true).map_err(|e| Error::io("listen without blocking", e))?;
        let export = Export {
            device: ByteDevice::new(device),
            name: options.name.clone(),
            description: options.description.clone(),
            read_only: options.read_only,
        };
        let (counters, clients) = (Counters::default(), Mutex::new(BTreeMap::new()));
        Ok(Server { listener, export, options, counters, clients })
    }

    /// Where the server listens.
    pub fn endpoint(&self) -> &Endpoint {
        self.listener.endpoint()
    }

    /// Statistics since the start.
    pub fn stats(&self) -> ServerStats {
        let c = &self.counters;
        ServerStats {
            connections: self.clients.lock().len() as u64,
            connections_total: c.connections.load(Relaxed),
            requests: c.requests.load(Relaxed),
            errors: c.errors.load(Relaxed),
            read_bytes: c.read_bytes.load(Relaxed),
            written_bytes: c.written_bytes.load(Relaxed),
        }
    }

    /// Serves until `stop`. Then flushes the device, and returns the error if that fails.
    pub fn run(&self, stop: &Stop) -> Result<()> {
        std::thread::scope(|threads| {
            let accepted = self.accept(stop, threads);
            self.hang_up(stop);
            accepted
        })?;
        if self.export.read_only() { Ok(()) } else { self.export.device.flush() }
    }

    fn accept<'s, 'e>(&'s self, stop: &'s Stop, threads: &'s std::thread::Scope<'s, 'e>) -> Result<()> {
        while !stop.is_stopped() {
            let mut fds = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
            match poll(&mut fds, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Error::io("wait for clients", e.into())),
            }
            match self.listener.accept() {
                Ok(stream) => self.start(stream, stop, threads),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                // Out of descriptors, or the client disconnected early: others may still come.
                Err(_) => drop(stop.wait(Some(Duration::from_millis(50)))),
            }
        }
        Ok(())
    }

    /// Gives a client its thread; disconnects it if there are too many.
    fn start<'s, 'e>(&'s self, stream: Stream, stop: &'s Stop, threads: &'s std::thread::Scope<'s, 'e>) {
        let id = self.counters.connections.fetch_add(1, Relaxed);
        {
            let mut clients = self.clients.lock();
            let Ok(handle) = stream.try_clone() else { return };
            if clients.len() >= self.options.connections_max {
                return;
            }
            clients.insert(id, handle);
        }
        let leave = Leave { clients: &self.clients, id };
        let serve = move || {
            let _leave = leave;
            // A broken connection only concerns the client and the counters.
            let _ = self.serve(&stream, stop);
        };
        // If no thread can be started, the closure is dropped, and with it the connection.
        let _ = std::thread::Builder::new().name(format!("nbd-{id}")).spawn_scoped(threads, serve);
    }

    fn serve(&self, stream: &Stream, stop: &Stop) -> io::Result<()> {
        let options = &self.options;
        stream.set_limits(options.handshake_limit, options.stall_limit)?;
        let mut input = Input::new();
        let agreed = handshake::run(&self.export, stream, &mut input, options.handshake_limit)?;
        let Some(agreed) = agreed else { return Ok(()) };
        stream.set_limits(options.stall_limit, options.stall_limit)?;
        let wire = Wire::new(stream);
        let session = Session { device: &self.export.device, wire: &wire, counters: &self.counters, agreed };
        Transmission::new(session, (stream, stop), input).run(options.at_once)
    }

    /// Lets every client receive replies for requests that have arrived; after a time limit, disconnects those that do
    /// not take them.
    fn hang_up(&self, stop: &Stop) {
        stop.stop(); // also when accepting failed: the connections must end
        let all = |how| {
            for stream in self.clients.lock().values() {
                let _ = stream.shutdown(how); // it may have gone by itself
            }
        };
        all(Shutdown::Read);
        let step = Duration::from_millis(10);
        let mut waited = Duration::ZERO;
        while !self.clients.lock().is_empty() && waited < self.options.stop_limit {
            pause(step);
            waited += step;
        }
        all(Shutdown::Both);
    }
}

/// Removes a client from the list when its thread ends, however it ends.
struct Leave<'a> {
    clients: &'a Mutex<BTreeMap<u64, Stream>>,
    id: u64,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.clients.lock().remove(&self.id);
    }
}

#[expect(clippy::disallowed_methods, reason = "a socket server lives in real time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
