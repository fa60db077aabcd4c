//! A private socket through which a running server takes orders: each order is a line; the reply is any number of
//! lines, of which the last is the answer.
//!
//! Invariants
//! 1. Every order has its own thread, so a long one does not delay others.
//! 2. A client cancels its order by closing its side of the connection: [`Tell`] then returns false to the task that
//!    works on it. The same happens when the server stops.

use crate::endpoint::{Endpoint, Listener, Stream};
use crate::stop::Stop;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use vellum_base::{Error, Result};

/// Longest order, in bytes.
const ORDER_BYTES_MAX: u64 = 64 << 10;
/// Longest line accepted as an answer.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
/// A client that sends nothing, or does not receive, is disconnected after this time.
const CLIENT_LIMIT: Duration = Duration::from_secs(10);

/// Sends a line to the client; returns false if the order is cancelled.
pub type Tell<'a> = &'a mut dyn FnMut(&str) -> bool;

/// A bound socket.
#[derive(Debug)]
pub struct Orders {
    listener: Listener,
}

impl Orders {
    /// Listens at `path`, which only its owner may open. [`vellum_base::Kind::Busy`] if a live server is already there.
    pub fn bind(path: &Path) -> Result<Orders> {
        Ok(Orders { listener: Listener::bind(&Endpoint::Unix(path.to_path_buf()))? })
    }

    /// Takes orders until `stop`, and waits for those in progress.
    pub fn run(&self, stop: &Stop, take: impl Fn(&str, Tell) + Sync) -> Result<()> {
        self.listener.set_nonblocking(true).map_err(|e| Error::io("listen for orders", e))?;
        std::thread::scope(|threads| {
            while !stop.is_stopped() {
                let mut fds = [PollFd::new(&self.listener, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
                match poll(&mut fds, None) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(Error::io("wait for orders", e.into())),
                }
                let Ok(stream) = self.listener.accept() else {
                    // No client, or no descriptors left.
                    stop.wait(Some(Duration::from_millis(50)));
                    continue;
                };
                let take = &take;
                // A broken connection only concerns the client; if no thread can be started, it is disconnected.
                let serve = move || drop(serve(&stream, stop, take));
                let _ = std::thread::Builder::new().name("order".into()).spawn_scoped(threads, serve);
            }
            Ok(())
        })
    }
}

fn serve(stream: &Stream, stop: &Stop, take: &(impl Fn(&str, Tell) + Sync)) -> io::Result<()> {
    stream.set_limits(CLIENT_LIMIT, CLIENT_LIMIT)?;
    let mut order = String::new();
    BufReader::new(stream).take(ORDER_BYTES_MAX).read_line(&mut order)?;
    let mut is_heard = true;
    take(order.trim_end(), &mut |line| {
        let mut out = stream;
        is_heard = is_heard && out.write_all(format!("{line}\n").as_bytes()).is_ok();
        is_heard && !stop.is_stopped() && !is_taken_back(stream)
    });
    Ok(())
}

/// True if the client has closed its side.
fn is_taken_back(stream: &Stream) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::new(stream, PollFlags::RDHUP)];
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Sends an order to the server at `path`. `hear` gets every line of the reply; by returning false it cancels the
/// order, and still gets the rest. Returns false if there is no server.
pub fn give(path: &Path, order: &str, mut hear: impl FnMut(&str) -> bool) -> Result<bool> {
    let fail = |e| Error::io(format!("ask {}", path.display()), e);
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        // No server can listen at a path that is too long for a socket.
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::InvalidInput
            ) =>
        {
            return Ok(false);
        }
        Err(e) => return Err(fail(e)),
    };
    writeln!(stream, "{order}").map_err(fail)?;
    let mut lines = BufReader::new(stream.try_clone().map_err(fail)?);
    loop {
        let mut line = String::new();
        match lines.by_ref().take(ANSWER_BYTES_MAX).read_line(&mut line) {
            Ok(0) => return Ok(true),
            // The server was killed before it had read everything.
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(true),
            read => read.map_err(fail)?,
        };
        if !hear(line.trim_end()) {
            // The server may have closed the connection itself.
            let _ = stream.shutdown(Shutdown::Write);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn orders_are_answered_side_by_side_and_can_be_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        assert!(!give(&path, "hello", |_| true).unwrap(), "nobody is there");
        assert!(!give(&dir.path().join("x".repeat(120)), "hello", |_| true).unwrap(), "nobody can be");
        let orders = Orders::bind(&path).unwrap();
        let (stop, taken_back) = (Stop::new().unwrap(), AtomicU32::new(0));
        let take = |order: &str, tell: Tell| match order {
            "count" => {
                while tell("more") {
                    stop.wait(Some(Duration::from_millis(1)));
                }
                taken_back.fetch_add(1, Relaxed);
                tell("stopped");
            }
            other => drop(tell(&format!("you said {other}"))),
        };
        std::thread::scope(|threads| {
            let server = threads.spawn(|| orders.run(&stop, take));
            let counts = threads.spawn(|| {
                let mut heard = Vec::new();
                let asked = give(&path, "count", |line| {
                    heard.push(line.to_string());
                    heard.len() < 20
                });
                assert!(asked.unwrap());
                heard
            });
            let mut heard = Vec::new();
            let mut hear = |line: &str| {
                heard.push(line.to_string());
                true
            };
            assert!(give(&path, "hello", &mut hear).unwrap());
            assert_eq!(heard, ["you said hello"]);
            let heard = counts.join().unwrap();
            assert!(heard.len() >= 20 && heard.last().unwrap() == "stopped", "{heard:?}");
            assert_eq!(taken_back.load(Relaxed), 1);
            stop.stop();
            server.join().unwrap().unwrap();
        });
        drop(orders);
        assert!(!give(&path, "hello", |_| true).unwrap(), "nobody is there any more");
    }
}
