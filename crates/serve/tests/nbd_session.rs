//! What right requests do, in every way there is to ask.

use crate::client::{Answer, Client};
use crate::rig::{Rigged, Running, noise, pause_ms, start};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use vellum_base::{BlockDevice, Kind, Lba};
use vellum_serve::nbd::wire::handshake::ClientOption;
use vellum_serve::nbd::wire::transmission::Request;
use vellum_serve::nbd::{Server, ServerOptions};
use vellum_serve::{Endpoint, Stop};

const BYTES: u64 = 64 << 20;
const HOLE_AND_ZERO: u32 = 3;
const ZERO: u32 = 2;

#[test]
fn reads_and_writes_of_every_size_and_alignment() {
    let (_, server) = Running::of(BYTES);
    for structured in [false, true] {
        let mut client = Client::ready(&server, structured);
        let sizes =
            [1, 511, 4096, 4097, 65_536, 262_116, 262_117, 300_001, 524_288, 1 << 20, 7_000_003, 32 << 20];
        for (i, size) in sizes.into_iter().enumerate() {
            for offset in [0, 1, 4095, 8192, BYTES - size as u64] {
                let data = noise(i as u64 + offset, size);
                assert_eq!(client.ask(1, 0, offset, size as u32, &data), Answer::default());
                let read = client.ask(0, 0, offset, size as u32, &[]);
                let at = if structured { offset } else { 0 };
                assert!(read.bytes(at, size) == data, "{size} bytes at {offset}, structured: {structured}");
                if structured {
                    let whole = client.ask(0, 4, offset, size as u32, &[]);
                    assert_eq!(whole.data.len(), 1, "DF means one chunk");
                    assert!(whole.data[0].1 == data);
                }
            }
        }
    }
}

#[test]
fn requests_in_flight_are_answered_in_order_however_they_are_cut() {
    let (_, server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    let mut wire = Vec::new();
    for i in 0..200u64 {
        let length = 1 + (i as u32 * 997) % 20_000;
        wire.extend(Request { flags: 0, code: 1, cookie: i, offset: i * 20_000, length }.encode());
        wire.extend(noise(i, length as usize));
        wire.extend(Request { flags: 0, code: 0, cookie: i, offset: i * 20_000, length }.encode());
    }
    let mut sender = Client(client.0.try_clone().unwrap());
    let sending = start(move || {
        let mut rest = &wire[..];
        let mut cut = 1;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            sender.say(piece);
            (rest, cut) = (after, (cut * 7 + 13) % 9000 + 1);
        }
    });
    for i in 0..200u64 {
        let length = 1 + (i as usize * 997) % 20_000;
        assert_eq!(client.answer(i, 0).error, 0);
        assert!(client.answer(i, 0).bytes(i * 20_000, length) == noise(i, length));
    }
    sending.join().unwrap();
}

#[test]
fn holes_are_told_not_sent() {
    let (_, server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    assert_eq!(client.ask(1, 0, 1 << 20, 4096, &[5; 4096]).error, 0);
    let read = client.ask(0, 0, 0, 4 << 20, &[]);
    let sent: usize = read.data.iter().map(|d| d.1.len()).sum();
    assert_eq!((sent, read.holes.len()), (4096, 2));
    let bytes = read.bytes(0, 4 << 20);
    assert_eq!(bytes.iter().filter(|b| **b == 5).count(), 4096);
}

#[test]
fn block_status_tells_data_zeros_and_holes() {
    let (_, server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    assert_eq!(client.ask(1, 0, 4096, 8192, &[5; 8192]).error, 0);
    assert_eq!(client.ask(6, 2, 16384, 4096, &[]).error, 0);
    let status = client.ask(7, 0, 100, 40_000, &[]);
    let end = 100 + 40_000 - 20480;
    let expected =
        [(3996, HOLE_AND_ZERO), (8192, 0), (4096, HOLE_AND_ZERO), (4096, ZERO), (end, HOLE_AND_ZERO)];
    assert_eq!(status.extents, expected);
    assert_eq!(client.ask(7, 8, 5000, 40_000, &[]).extents, [(7288, 0)]);
    assert_eq!(client.ask(4, 0, 4096, 8192, &[]).error, 0);
    assert_eq!(client.ask(7, 8, 0, 16384, &[]).extents, [(16384, HOLE_AND_ZERO)]);
}

#[test]
fn a_checkered_disk_is_told_in_many_extents_but_not_too_many() {
    let (rigged, server) = Running::of(BYTES);
    for i in 0..8000 {
        rigged.disk.write(Lba(i * 2), &[1; 4096], false).unwrap();
    }
    let mut client = Client::ready(&server, true);
    let extents = client.ask(7, 0, 0, BYTES as u32, &[]).extents;
    assert_eq!(extents.len(), 4096);
    assert!(extents.iter().enumerate().all(|(i, e)| *e == (4096, (i as u32 % 2) * HOLE_AND_ZERO)));
}

#[test]
fn durability_goes_down_to_the_device() {
    let (rigged, server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    let counts = || (rigged.fua_writes.load(SeqCst), rigged.flushes.load(SeqCst));
    assert_eq!(client.ask(1, 0, 0, 4096, &[1; 4096]).error, 0);
    assert_eq!(counts(), (0, 0));
    assert_eq!(client.ask(1, 1, 0, 4096, &[1; 4096]).error, 0);
    assert_eq!(counts(), (1, 0));
    assert_eq!(client.ask(1, 1, 0, 4 << 20, &vec![1; 4 << 20]).error, 0);
    assert_eq!(counts(), (1, 1), "a long write is made durable once, at its end");
    assert_eq!(client.ask(4, 1, 0, 4096, &[]).error, 0);
    assert_eq!(client.ask(3, 0, 0, 0, &[]).error, 0);
    assert_eq!(counts(), (1, 3));
    assert_eq!(client.ask(0, 1, 0, 4096, &[]).error, 0, "FUA is allowed, and means nothing, on a read");
}

/// What CAN_MULTI_CONN promises: one connection's flush covers what another was told is written.
#[test]
fn a_flush_covers_all_connections() {
    let (rigged, server) = Running::of(BYTES);
    let mut writer = Client::ready(&server, true);
    let mut flusher = Client::ready(&server, false);
    assert_eq!(writer.ask(1, 0, 8192, 4096, &[7; 4096]).error, 0);
    assert_eq!(flusher.ask(0, 0, 8192, 4096, &[]).data[0].1, [7; 4096]);
    assert_eq!(flusher.ask(3, 0, 0, 0, &[]).error, 0);
    assert_eq!(rigged.flushes.load(SeqCst), 1);
    let mut sector = [0; 4096];
    rigged.disk.read(Lba(2), &mut sector).unwrap();
    assert_eq!(sector, [7; 4096]);
}

#[test]
fn stopping_finishes_what_has_arrived_flushes_and_removes_the_socket() {
    let (rigged, mut server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    let mut wire = Vec::new();
    for cookie in 0..50u64 {
        let length = 4096;
        wire.extend(Request { flags: 0, code: 1, cookie, offset: cookie * 4096, length }.encode());
        wire.extend([cookie as u8 + 1; 4096]);
    }
    client.say(&wire);
    server.finish().unwrap();
    for cookie in 0..50 {
        assert_eq!(client.answer(cookie, 0).error, 0);
    }
    assert!(client.is_hung_up());
    assert_eq!(rigged.flushes.load(SeqCst), 1);
    let mut sector = [0; 4096];
    rigged.disk.read(Lba(49), &mut sector).unwrap();
    assert_eq!(sector, [50; 4096]);
}

#[test]
fn disconnect_answers_what_came_before_it() {
    let (_, server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    client.send(3, 0, 0, 0, 1);
    client.send(2, 0, 0, 0, 2);
    assert_eq!(client.answer(1, 0).error, 0);
    assert!(client.is_hung_up());
    while server.stats().connections > 0 {
        pause_ms(5);
    }
    assert_eq!((server.stats().requests, server.stats().errors), (1, 0));
}

#[test]
fn tcp_on_loopback_only_when_asked() {
    let device = Arc::new(Rigged::new(BYTES));
    let any_port = Endpoint::Tcp("127.0.0.1:0".parse().unwrap());
    let server = Arc::new(Server::bind(&any_port, ServerOptions::default(), device.clone()).unwrap());
    let Endpoint::Tcp(addr) = *server.endpoint() else { panic!("TCP was asked for") };
    assert!(addr.ip().is_loopback() && addr.port() != 0);
    let stop = Stop::new().unwrap();
    let (running, told) = (server.clone(), stop.clone());
    let thread = start(move || running.run(&told));
    let mut greeting = [0; 18];
    std::io::Read::read_exact(&mut std::net::TcpStream::connect(addr).unwrap(), &mut greeting).unwrap();
    assert_eq!(&greeting[..8], b"NBDMAGIC");
    let second = Server::bind(server.endpoint(), ServerOptions::default(), device);
    assert_eq!(second.err().map(|e| e.kind()), Some(Kind::Busy));
    stop.stop();
    thread.join().unwrap().unwrap();
}

/// A TCP client may go on sending after the server has stopped listening to it; that must not keep it up.
#[test]
fn a_client_that_never_stops_asking_does_not_hold_up_a_stop() {
    let any_port = Endpoint::Tcp("127.0.0.1:0".parse().unwrap());
    let device = Arc::new(Rigged::new(BYTES));
    let server = Arc::new(Server::bind(&any_port, ServerOptions::default(), device).unwrap());
    let Endpoint::Tcp(addr) = *server.endpoint() else { panic!("TCP was asked for") };
    let stop = Stop::new().unwrap();
    let (running, told) = (server.clone(), stop.clone());
    let thread = start(move || running.run(&told));

    let mut asking = std::net::TcpStream::connect(addr).unwrap();
    let mut answers = asking.try_clone().unwrap();
    let drain = start(move || std::io::copy(&mut answers, &mut std::io::sink()));
    let go = ClientOption::Info { name: String::new(), wanted: vec![], go: true }.encode();
    asking.write_all(&[&3u32.to_be_bytes()[..], &go].concat()).unwrap();
    let flush = Request { flags: 0, code: 3, cookie: 1, offset: 0, length: 0 }.encode();
    let flood = start(move || while asking.write_all(&flush.repeat(1000)).is_ok() {});
    while server.stats().requests < 10_000 {
        pause_ms(5);
    }
    stop.stop();
    let mut waited_ms = 0;
    while !thread.is_finished() {
        assert!(waited_ms < 5_000, "the server does not stop");
        pause_ms(10);
        waited_ms += 10;
    }
    thread.join().unwrap().unwrap();
    flood.join().unwrap();
    let _ = drain.join().unwrap(); // the connection may end in a reset
}
