//! Listening sockets: a Unix socket that only its owner may open, or TCP on request.
//!
//! Invariants:
//! 1. A Unix socket has mode 0600 from the moment it exists.
//! 2. The socket of a live server is never taken over; that of a dead one is replaced; any other file is left alone.
//! 3. The socket file is removed with the listener, unless it has been replaced by another.

use rustix::fs::{FlockOperation, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use vellum_base::{Error, Kind, Result};

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket at this path, mode 0600.
    Unix(PathBuf),
    /// TCP, without encryption: meant for loopback addresses and trusted networks.
    Tcp(SocketAddr),
}

impl Endpoint {
    /// Checks that a server could listen there now; the error says why not.
    pub fn check(&self) -> Result<()> {
        Listener::bind(self).map(drop)
    }
}

/// A listening socket that removes its file when dropped.
#[derive(Debug)]
pub struct Listener {
    kind: ListenerKind,
    endpoint: Endpoint,
}

#[derive(Debug)]
enum ListenerKind {
    Unix { listener: UnixListener, inode: (u64, u64) },
    Tcp(TcpListener),
}

/// A connected client.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Listener {
    /// Listens at `endpoint`. [`Kind::Busy`] if a live server is already there.
    pub fn bind(endpoint: &Endpoint) -> Result<Listener> {
        match endpoint {
            Endpoint::Unix(path) => {
                let (listener, inode) = bind_unix(path)?;
                Ok(Listener { kind: ListenerKind::Unix { listener, inode }, endpoint: endpoint.clone() })
            }
            Endpoint::Tcp(addr) => {
                let listener = TcpListener::bind(addr).map_err(|e| match e.kind() {
                    io::ErrorKind::AddrInUse => busy(&addr.to_string()),
                    _ => Error::io(format!("listen on {addr}"), e),
                })?;
                let actual = listener.local_addr().map_err(|e| Error::io("read the listening address", e))?;
                Ok(Listener { kind: ListenerKind::Tcp(listener), endpoint: Endpoint::Tcp(actual) })
            }
        }
    }

    /// Where it listens; with the port chosen by the system if that was 0.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A second handle to the same socket, for a library that needs to own it.
    pub(crate) fn share(&self) -> io::Result<tiny_http::Listener> {
        Ok(match &self.kind {
            ListenerKind::Unix { listener, .. } => listener.try_clone()?.into(),
            ListenerKind::Tcp(listener) => listener.try_clone()?.into(),
        })
    }

    pub(crate) fn accept(&self) -> io::Result<Stream> {
        match &self.kind {
            ListenerKind::Unix { listener, .. } => listener.accept().map(|(s, _)| Stream::Unix(s)),
            ListenerKind::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
        }
    }

    pub(crate) fn set_nonblocking(&self, on: bool) -> io::Result<()> {
        match &self.kind {
            ListenerKind::Unix { listener, .. } => listener.set_nonblocking(on),
            ListenerKind::Tcp(listener) => listener.set_nonblocking(on),
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.kind {
            ListenerKind::Unix { listener, .. } => listener.as_fd(),
            ListenerKind::Tcp(listener) => listener.as_fd(),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let (Endpoint::Unix(path), ListenerKind::Unix { inode, .. }) = (&self.endpoint, &self.kind) else {
            return;
        };
        if std::fs::symlink_metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == *inode) {
            // Best effort: the next server recognises a leftover as dead and replaces it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Stream {
    pub(crate) fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(s) => Stream::Unix(s.try_clone()?),
            Stream::Tcp(s) => Stream::Tcp(s.try_clone()?),
        })
    }

    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.shutdown(how),
            Stream::Tcp(s) => s.shutdown(how),
        }
    }

    /// Sets how long reads and writes may wait for the peer.
    pub(crate) fn set_limits(&self, read: Duration, write: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(s) => s.set_read_timeout(Some(read)).and(s.set_write_timeout(Some(write))),
            Stream::Tcp(s) => s.set_read_timeout(Some(read)).and(s.set_write_timeout(Some(write))),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Stream::Unix(s) => s.as_fd(),
            Stream::Tcp(s) => s.as_fd(),
        }
    }
}

impl Read for &Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match *self {
            Stream::Unix(s) => (&*s).read(buf),
            Stream::Tcp(s) => (&*s).read(buf),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match *self {
            Stream::Unix(s) => (&*s).write(buf),
            Stream::Tcp(s) => (&*s).write(buf),
        }
    }
    fn write_vectored(&mut self, bufs: &[io::IoSlice<'_>]) -> io::Result<usize> {
        match *self {
            Stream::Unix(s) => (&*s).write_vectored(bufs),
            Stream::Tcp(s) => (&*s).write_vectored(bufs),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn bind_unix(path: &Path) -> Result<(UnixListener, (u64, u64))> {
    let here = || format!("listen on {}", path.display());
    let fail = |e: io::Error| Error::io(here(), e);
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Servers that start at the same moment in the same directory take turns.
    let directory = File::open(parent).map_err(fail)?;
    rustix::fs::flock(&directory, FlockOperation::LockExclusive).map_err(|e| fail(e.into()))?;
    remove_dead_socket(path)?;

    let listener = open_socket(path).map_err(|e| fail(e.into()))?;
    let meta = std::fs::symlink_metadata(path).map_err(fail)?;
    Ok((listener, (meta.dev(), meta.ino())))
}

fn open_socket(path: &Path) -> rustix::io::Result<UnixListener> {
    let addr = SocketAddrUnix::new(path)?;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux gives the socket file the mode of the socket, so there is no moment when others may connect.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &addr)?;
    rustix::net::listen(&socket, 64)?;
    Ok(UnixListener::from(socket))
}

fn remove_dead_socket(path: &Path) -> Result<()> {
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(format!("look at {}", path.display()), e)),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(Error::invalid(format!(
                "{} exists and is not a socket; choose another path",
                path.display()
            )));
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path)
            .map_err(|e| Error::io(format!("remove the dead socket {}", path.display()), e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => Err(busy(&path.display().to_string())),
    }
}

fn busy(place: &str) -> Error {
    Error::new(Kind::Busy, format!("another server is listening on {place}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_socket_is_private_exclusive_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let at = Endpoint::Unix(path.clone());
        let first = Listener::bind(&at).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Listener::bind(&at).unwrap_err().kind(), Kind::Busy);
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn a_dead_socket_is_replaced_and_a_file_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap()); // std leaves the file behind, as a killed server does
        assert!(path.exists());
        let ours = Listener::bind(&Endpoint::Unix(path.clone())).unwrap();
        drop(ours);

        std::fs::write(&path, "precious").unwrap();
        let refused = Listener::bind(&Endpoint::Unix(path.clone())).unwrap_err();
        assert_eq!(refused.kind(), Kind::Invalid);
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_socket_put_in_our_place_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let ours = Listener::bind(&Endpoint::Unix(path.clone())).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another's").unwrap();
        drop(ours);
        assert!(path.exists());
    }
}
