//! What several tests need: a running server, a device that fails on demand, tools that may be missing.

use crate::double::RamDisk;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Error, Kind, Lba, Result};
use vellum_serve::nbd::{Server, ServerOptions, ServerStats};
use vellum_serve::{Endpoint, Stop};

/// A RAM disk that counts what durability costs and fails where it is told to.
pub struct Rigged {
    pub disk: Arc<RamDisk>,
    pub flushes: AtomicU64,
    pub fua_writes: AtomicU64,
    pub trimmed_sectors: AtomicU64,
    pub zeroed_sectors: AtomicU64,
    pub bad: Mutex<Option<(Lba, Kind)>>,
    pub read_only: bool,
    pub trims: AtomicBool,
    /// Lets other threads run between a read and what its caller does next.
    pub dawdles: bool,
}

impl Rigged {
    pub fn new(bytes: u64) -> Rigged {
        Rigged {
            disk: RamDisk::new(bytes),
            flushes: AtomicU64::new(0),
            fua_writes: AtomicU64::new(0),
            trimmed_sectors: AtomicU64::new(0),
            zeroed_sectors: AtomicU64::new(0),
            bad: Mutex::new(None),
            read_only: false,
            trims: AtomicBool::new(true),
            dawdles: false,
        }
    }

    /// As a hard disk: what is trimmed, or made zeros, is written.
    pub fn that_writes_zeros(bytes: u64) -> Rigged {
        Rigged { trims: AtomicBool::new(false), ..Rigged::new(bytes) }
    }

    fn check(&self, lba: Lba, sectors: u64) -> Result<()> {
        match *self.bad.lock() {
            Some((at, kind)) if (lba.0..lba.0 + sectors).contains(&at.0) => Err(Error::new(kind, "rigged")),
            _ => Ok(()),
        }
    }
}

impl BlockDevice for Rigged {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { read_only: self.read_only, trims: self.trims.load(SeqCst), ..self.disk.info() }
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.check(lba, buf.len() as u64 / 4096)?;
        self.disk.read(lba, buf)?;
        if self.dawdles {
            std::thread::yield_now();
        }
        Ok(())
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.check(lba, data.len() as u64 / 4096)?;
        self.fua_writes.fetch_add(u64::from(fua), SeqCst);
        self.disk.write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.check(lba, sectors)?;
        self.trimmed_sectors.fetch_add(sectors, SeqCst);
        self.disk.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.check(lba, sectors)?;
        self.zeroed_sectors.fetch_add(sectors, SeqCst);
        self.disk.write_zeroes(lba, sectors, fua)
    }
    fn flush(&self) -> Result<()> {
        self.flushes.fetch_add(1, SeqCst);
        self.disk.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.disk.allocation(lba, sectors)
    }
}

/// A server in its thread, on a private socket; stopped and joined when dropped.
pub struct Running {
    pub socket: PathBuf,
    pub stop: Stop,
    server: Arc<Server>,
    thread: Option<JoinHandle<Result<()>>>,
    _dir: tempfile::TempDir,
}

impl Running {
    pub fn new(device: Arc<dyn BlockDevice>, options: ServerOptions) -> Running {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("nbd");
        let server = Arc::new(Server::bind(&Endpoint::Unix(socket.clone()), options, device).unwrap());
        let stop = Stop::new().unwrap();
        let (running, told) = (server.clone(), stop.clone());
        let thread = Some(start(move || running.run(&told)));
        Running { socket, stop, server, thread, _dir: dir }
    }

    pub fn of(bytes: u64) -> (Arc<Rigged>, Running) {
        let device = Arc::new(Rigged::new(bytes));
        (device.clone(), Running::new(device, ServerOptions::default()))
    }

    pub fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.socket.display())
    }

    pub fn stats(&self) -> ServerStats {
        self.server.stats()
    }

    /// Stops, and says how the server ended.
    pub fn finish(&mut self) -> Result<()> {
        self.stop.stop();
        self.thread.take().expect("finished once").join().expect("the server does not panic")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.thread.is_some() && !std::thread::panicking() {
            self.finish().unwrap();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "tests the production world")]
pub fn start<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::spawn(run)
}

#[expect(clippy::disallowed_methods, reason = "tests the production world")]
pub fn pause_ms(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

/// True if all `tools` are installed; else says that the test is skipped.
pub fn have(tools: &[&str]) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = |tool: &&str| {
        std::env::split_paths(&paths)
            .chain(["/usr/sbin".into(), "/sbin".into()])
            .any(|p| p.join(tool).exists())
    };
    match tools.iter().find(|t| !found(t)) {
        Some(tool) => {
            eprintln!("skipped: {tool} is not installed");
            false
        }
        None => true,
    }
}

/// True if this is root with FUSE and loop devices; else says that the test is skipped.
pub fn can_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let devices = ["/dev/fuse", "/dev/loop-control"];
    let missing = devices.iter().find(|d| std::fs::File::open(d).is_err());
    if !root || missing.is_some() {
        eprintln!(
            "skipped: needs root, /dev/fuse and /dev/loop-control (root: {root}, missing: {missing:?})"
        );
    }
    root && missing.is_none()
}

/// Runs a tool, which must succeed; returns what it printed.
pub fn tool(name: &str, args: &[&str]) -> String {
    let out = Command::new(name).args(args).env("LC_ALL", "C").output().unwrap();
    let both = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
    assert!(out.status.success(), "{name} {args:?}: {both}");
    both
}

/// Bytes that look random and depend on `seed` only.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend(state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}
