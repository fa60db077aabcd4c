//! What a flush promises while requests of one connection are done side by side, and what a stop leaves of them.

use crate::client::Client;
use crate::rig::{Rigged, Running, noise, pause_ms, start};
use std::collections::BTreeSet;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Lba, Result};
use vellum_serve::nbd::ServerOptions;

const BYTES: u64 = 4 << 20;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const ANSWER_BYTES: usize = 16;

/// A disk with a write cache: what was written is durable when a flush that began later has ended. All takes a while.
struct Cached {
    inner: Rigged,
    fresh: Mutex<BTreeSet<u64>>,
    durable: Mutex<BTreeSet<u64>>,
    under_way: AtomicU64,
}

impl Cached {
    fn new() -> Arc<Cached> {
        let (fresh, durable) = (Mutex::default(), Mutex::default());
        Arc::new(Cached { inner: Rigged::new(BYTES), fresh, durable, under_way: AtomicU64::new(0) })
    }
}

impl BlockDevice for Cached {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.under_way.fetch_add(1, SeqCst);
        pause_ms(lba.0 % 4);
        self.inner.write(lba, data, fua)?;
        self.fresh.lock().insert(lba.0);
        self.under_way.fetch_sub(1, SeqCst);
        Ok(())
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.inner.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.inner.write_zeroes(lba, sectors, fua)
    }
    fn flush(&self) -> Result<()> {
        let written = std::mem::take(&mut *self.fresh.lock());
        pause_ms(2);
        self.durable.lock().extend(written);
        self.inner.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.inner.allocation(lba, sectors)
    }
}

fn options() -> ServerOptions {
    ServerOptions { at_once: 8, ..ServerOptions::default() }
}

fn write(client: &mut Client, sector: u64) {
    client.send(WRITE, 0, sector * 4096, 4096, sector);
    client.say(&noise(sector, 4096));
}

/// The cookie of a simple answer without an error.
fn cookie(answer: &[u8]) -> u64 {
    assert_eq!(answer[4..8], [0; 4], "an error");
    u64::from_be_bytes(answer[8..16].try_into().unwrap())
}

/// The protocol's rule: writes that were answered before the flush was sent are durable when it is answered.
#[test]
fn a_flush_covers_what_was_answered_before_it_was_sent() {
    const ROUND: u64 = 12;
    let device = Cached::new();
    let server = Running::new(device.clone(), options());
    let mut client = Client::ready(&server, false);
    for round in 0..60 {
        (0..ROUND).for_each(|at| write(&mut client, round * ROUND + at));
        let answered: BTreeSet<u64> =
            (0..round % ROUND).map(|_| cookie(&client.take(ANSWER_BYTES))).collect();
        client.send(FLUSH, 0, 0, 0, u64::MAX);
        let mut left = ROUND + 1 - answered.len() as u64;
        while left > 0 {
            left -= 1;
            if cookie(&client.take(ANSWER_BYTES)) == u64::MAX {
                let durable = device.durable.lock();
                assert!(answered.is_subset(&durable), "round {round}: {answered:?} were answered before");
            }
        }
    }
    assert_eq!(device.inner.flushes.load(SeqCst), 60);
}

/// What was answered is written whole, nothing is answered twice, and no call is left when the server has ended.
#[test]
fn a_stop_leaves_no_request_half_done() {
    const SECTORS: u64 = 500;
    let mut cut_short = 0;
    for round in 0..30 {
        let device = Cached::new();
        let mut server = Running::new(device.clone(), options());
        let mut client = Client::ready(&server, false);
        let mut sender = Client(client.0.try_clone().unwrap());
        let sender = start(move || (0..SECTORS).for_each(|sector| write(&mut sender, sector)));
        pause_ms(round % 10);
        server.finish().unwrap();
        assert_eq!(device.under_way.load(SeqCst), 0, "a call outlived the server");
        let mut answers = Vec::new();
        let _ = client.0.read_to_end(&mut answers);
        let _ = sender.join(); // It may hear that nobody listens any more.
        assert!(answers.len().is_multiple_of(ANSWER_BYTES), "half an answer");
        let cookies: Vec<u64> = answers.chunks(ANSWER_BYTES).map(cookie).collect();
        let answered: BTreeSet<u64> = cookies.iter().copied().collect();
        assert_eq!(answered.len(), cookies.len(), "answered twice: {cookies:?}");
        cut_short += usize::from(answered.len() < SECTORS as usize);
        let mut found = vec![0; 4096];
        for sector in 0..SECTORS {
            device.read(Lba(sector), &mut found).unwrap();
            let is_written = found == noise(sector, 4096);
            assert!(is_written || found.iter().all(|byte| *byte == 0), "sector {sector} is half written");
            assert!(is_written || !answered.contains(&sector), "sector {sector} was answered");
        }
    }
    assert!(cut_short > 0, "every request was done before its server was stopped");
}
