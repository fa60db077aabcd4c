//! Several requests of one connection at once: answered in any order, each once, and never more than may be.

use crate::client::Client;
use crate::rig::{Rigged, Running, noise, start};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Lba, Result};
use vellum_serve::nbd::ServerOptions;

const BYTES: u64 = 16 << 20;
const AT_ONCE: usize = 4;
const WRITE: u16 = 1;
const READ: u16 = 0;

/// Reads come back only when so many are there.
struct Meeting {
    inner: Rigged,
    barrier: Barrier,
    there: AtomicU64,
    most: AtomicU64,
    /// Bytes.
    longest_write: AtomicU64,
}

impl Meeting {
    fn of(count: usize) -> Arc<Meeting> {
        let [there, most, longest_write] = [const { AtomicU64::new(0) }; 3];
        let (inner, barrier) = (Rigged::new(BYTES), Barrier::new(count));
        Arc::new(Meeting { inner, barrier, there, most, longest_write })
    }
}

impl BlockDevice for Meeting {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        let there = self.there.fetch_add(1, SeqCst) + 1;
        self.most.fetch_max(there, SeqCst);
        self.barrier.wait();
        self.there.fetch_sub(1, SeqCst);
        self.inner.read(lba, buf)
    }
    fn write(&self, lba: Lba, data: &[u8], fua: bool) -> Result<()> {
        self.longest_write.fetch_max(data.len() as u64, SeqCst);
        self.inner.write(lba, data, fua)
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.inner.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.inner.write_zeroes(lba, sectors, fua)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.inner.allocation(lba, sectors)
    }
}

fn at_once(count: usize) -> ServerOptions {
    ServerOptions { at_once: count, ..ServerOptions::default() }
}

/// The next answer, whosever it is: its cookie, and `read[cookie]` bytes if that was a read.
fn any_answer(client: &mut Client, structured: bool, read: impl Fn(u64) -> usize) -> (u64, Vec<u8>) {
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().unwrap());
    let head = client.take(16);
    let cookie = word(&head[8..]);
    match structured {
        true if head[..4] == 0x668e_33ef_u32.to_be_bytes() => {
            assert_eq!(head[4..8], [0, 1, 0, 1], "one chunk of data, the last");
            let length = u32::from_be_bytes(client.take(4).try_into().unwrap());
            (cookie, client.take(length as usize)[8..].to_vec())
        }
        _ => {
            assert_eq!(head[4..8], [0; 4], "an error");
            (cookie, client.take(read(cookie)))
        }
    }
}

#[test]
fn requests_of_one_connection_are_done_side_by_side_and_no_more_than_may_be() {
    for structured in [false, true] {
        let device = Meeting::of(AT_ONCE);
        for sector in 0..20 {
            device.write(Lba(sector), &noise(sector, 4096), false).unwrap();
        }
        let server = Running::new(device.clone(), at_once(AT_ONCE));
        let mut client = Client::ready(&server, structured);
        (0..20).for_each(|cookie| client.send(READ, 0, cookie * 4096, 4096, cookie));
        let mut left: Vec<u64> = (0..20).collect();
        while !left.is_empty() {
            let (cookie, data) = any_answer(&mut client, structured, |_| 4096);
            assert!(data == noise(cookie, 4096), "answer {cookie}");
            left.remove(left.iter().position(|left| *left == cookie).expect("it was answered twice"));
        }
        assert_eq!(device.most.load(SeqCst), AT_ONCE as u64);
    }
}

/// A RAID below would rather have a whole row of it than many parts.
#[test]
fn a_long_write_comes_to_the_device_whole_up_to_a_limit() {
    for (bytes, is_whole) in [(260 << 10, true), (2 << 20, true), (3 << 20, false)] {
        let device = Meeting::of(1);
        let server = Running::new(device.clone(), at_once(AT_ONCE));
        let mut client = Client::ready(&server, false);
        let data = noise(7, bytes);
        assert_eq!(client.ask(WRITE, 1, 3 * 4096, bytes as u32, &data).error, 0);
        assert_eq!(device.longest_write.load(SeqCst) == bytes as u64, is_whole, "{bytes}");
        let mut found = vec![0; bytes];
        device.inner.read(Lba(3), &mut found).unwrap();
        assert!(found == data, "{bytes}");
        assert_eq!(server.stats().written_bytes, bytes as u64);
    }
}

/// Regions that share sectors, each with one request under way; in between requests that the loop itself does.
#[test]
fn what_is_written_side_by_side_is_read_back() {
    const REGIONS: u64 = 24;
    for structured in [false, true] {
        let device = Arc::new(Rigged { dawdles: true, ..Rigged::new(BYTES) });
        let server = Running::new(device, at_once(16));
        let mut client = Client::ready(&server, structured);
        let length = |region: u64| 1000 + region as usize * 1777;
        let offset = move |region: u64| (0..region).map(|before| length(before) as u64).sum::<u64>() + 77;
        let mut sender = Client(client.0.try_clone().unwrap());
        let say = move |client: &mut Client, region: u64, turn: u64| {
            let (at, bytes) = (offset(region), length(region));
            match turn % 2 {
                0 => {
                    client.send(WRITE, (turn / 2 % 2) as u16, at, bytes as u32, region);
                    client.say(&noise(region << 32 | turn, bytes));
                }
                _ => client.send(READ, 0, at, bytes as u32, region),
            }
        };
        // On a thread of its own: the server may want an answer taken before it takes more.
        let (queue, queued) = std::sync::mpsc::channel::<(u64, u64)>();
        let long = noise(9, 3 << 20);
        let sending = start(move || {
            (0..REGIONS).for_each(|region| say(&mut sender, region, 0));
            sender.send(WRITE, 0, 8 << 20, long.len() as u32, 1000);
            sender.say(&long);
            queued.into_iter().for_each(|(region, turn)| say(&mut sender, region, turn));
        });
        let mut turns: BTreeMap<u64, u64> = (0..REGIONS).map(|region| (region, 0)).collect();
        let mut answers = 0;
        while !turns.is_empty() {
            let is_read = |region: u64| turns.get(&region).is_some_and(|turn| turn % 2 == 1);
            let read = |region| if is_read(region) { length(region) } else { 0 };
            let (region, data) = any_answer(&mut client, structured, read);
            answers += 1;
            if region == 1000 {
                continue;
            }
            let turn = turns[&region];
            assert!(
                turn.is_multiple_of(2) || data == noise(region << 32 | (turn - 1), length(region)),
                "region {region}"
            );
            match turn {
                19 => {
                    turns.remove(&region);
                }
                _ => {
                    turns.insert(region, turn + 1);
                    queue.send((region, turn + 1)).unwrap();
                }
            }
        }
        drop(queue);
        sending.join().unwrap();
        assert_eq!(answers, REGIONS * 20 + 1);
        let stats = server.stats();
        assert_eq!((stats.requests, stats.errors), (REGIONS * 20 + 1, 0));
    }
}

#[test]
fn who_leaves_with_requests_under_way_costs_nobody_else_anything() {
    let server = Running::new(Arc::new(Rigged { dawdles: true, ..Rigged::new(BYTES) }), at_once(16));
    let leaving: Vec<_> = (0..8u64)
        .map(|which| {
            let mut client = Client::ready(&server, which % 2 == 0);
            start(move || (0..200).for_each(|at| client.send(READ, 0, at * 70_000, 70_000, at)))
        })
        .collect();
    for left in leaving {
        let _ = left.join(); // It may hear that nobody listens any more.
    }
    let mut client = Client::ready(&server, false);
    assert_eq!(client.ask(WRITE, 1, 5, 3, b"abc").error, 0);
    assert!(client.ask(READ, 0, 5, 3, &[]).bytes(0, 3) == b"abc");
}

/// A device with a bug of ours.
struct Panics(Rigged);

impl BlockDevice for Panics {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.0.read(lba, buf)
    }
    fn write(&self, _lba: Lba, _data: &[u8], _fua: bool) -> Result<()> {
        panic!("a test's")
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.0.trim(lba, sectors)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, fua: bool) -> Result<()> {
        self.0.write_zeroes(lba, sectors, fua)
    }
    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
    fn allocation(&self, lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        self.0.allocation(lba, sectors)
    }
}

/// Done by the loop, or by a worker: its client is hung up on, the others go on, and the server can be stopped.
#[test]
fn a_panic_costs_one_client_its_connection() {
    for bytes in [4096, 3 << 20] {
        let mut server = Running::new(Arc::new(Panics(Rigged::new(BYTES))), at_once(16));
        let mut client = Client::ready(&server, false);
        let mut other = Client::ready(&server, false);
        assert_eq!(client.ask(READ, 0, 0, 4096, &[]).error, 0);
        client.send(WRITE, 0, 0, bytes, 1);
        let _ = client.0.write_all(&noise(1, bytes as usize));
        assert!(client.is_hung_up());
        assert_eq!(other.ask(READ, 0, 0, 4096, &[]).error, 0);
        // It says so in the end, and ends.
        let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| server.finish()));
        assert!(stopped.is_err());
    }
}
