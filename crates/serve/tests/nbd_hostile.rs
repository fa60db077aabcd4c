//! Clients that break the protocol, flood, stall or vanish: they are hung up on, and nobody else notices.

use crate::client::Client;
use crate::rig::{Rigged, Running, pause_ms};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use vellum_serve::nbd::ServerOptions;
use vellum_serve::nbd::wire::handshake::{ClientOption, OptionHeader, option};
use vellum_serve::nbd::wire::transmission::Request;

const BYTES: u64 = 1 << 20;

fn impatient() -> Running {
    let limit = Duration::from_millis(300);
    let options = ServerOptions { handshake_limit: limit, stall_limit: limit, ..Default::default() };
    Running::new(Arc::new(Rigged::new(BYTES)), options)
}

/// A well-behaved client is served.
fn others_are_served(server: &Running) {
    assert_eq!(Client::ready(server, true).ask(1, 0, 0, 4, b"fine").error, 0);
}

#[test]
fn no_magic_no_answer() {
    let (_, server) = Running::of(BYTES);
    let mut client = Client::greeted(&server, 3);
    client.say(b"GET / HTTP/1.1\r\n\r\n");
    assert!(client.is_hung_up());
    let mut client = Client::ready(&server, true);
    // In one piece: the server may hang up as soon as it has the magic.
    client.say(&[&[0x25, 0x60, 0x95, 0x14][..], &[0; 24]].concat());
    assert!(client.is_hung_up());
    others_are_served(&server);
}

#[test]
fn bad_magic_after_good_requests_loses_no_replies() {
    let (_, server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    let mut wire = Vec::new();
    for cookie in 0..3 {
        wire.extend(Request { flags: 0, code: 3, cookie, offset: 0, length: 0 }.encode());
    }
    wire.extend([0; 28]);
    client.say(&wire);
    for cookie in 0..3 {
        assert_eq!(client.answer(cookie, 0).error, 0);
    }
    assert!(client.is_hung_up());
}

#[test]
fn unknown_client_flags() {
    let (_, server) = Running::of(BYTES);
    assert!(Client::greeted(&server, 1 << 16 | 3).is_hung_up());
}

#[test]
fn absurd_lengths() {
    let (_, server) = Running::of(BYTES);
    for code in [option::GO, option::EXPORT_NAME, 1234] {
        let mut client = Client::greeted(&server, 3);
        client.say(&OptionHeader { code, length: u32::MAX }.encode());
        assert!(client.is_hung_up());
    }
    let mut client = Client::greeted(&server, 3);
    client.say(&ClientOption::ExportName("x".repeat(5000)).encode());
    assert!(client.is_hung_up());
    others_are_served(&server);
}

#[test]
fn an_option_flood_ends() {
    let (_, server) = Running::of(BYTES);
    let mut stream = Client::greeted(&server, 3).0;
    let mut reader = stream.try_clone().unwrap();
    let list = ClientOption::List.encode();
    let sent = (0..100_000).take_while(|_| stream.write_all(&list).is_ok()).count();
    assert!(sent < 100_000, "the server listens for ever");
    let _ = std::io::copy(&mut reader, &mut std::io::sink());
    others_are_served(&server);
}

#[test]
fn a_slow_handshake_runs_out_of_time_even_byte_by_byte() {
    let server = impatient();
    let mut client = Client::greeted(&server, 3);
    let mut dripped = 0;
    for byte in ClientOption::ExportName("x".repeat(1000)).encode() {
        if client.0.write_all(&[byte]).is_err() {
            break;
        }
        dripped += 1;
        pause_ms(20);
    }
    assert!(dripped < 100, "{dripped} bytes were waited for");
    let silent = UnixStream::connect(&server.socket).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut greeting = Vec::new();
    (&silent).read_to_end(&mut greeting).unwrap();
    assert_eq!(greeting.len(), 18);
    others_are_served(&server);
}

#[test]
fn half_requests() {
    let server = impatient();
    for cut in [1, 27, 28, 28 + 100] {
        let mut client = Client::ready(&server, true);
        let mut wire = Request { flags: 0, code: 1, cookie: 1, offset: 0, length: 4096 }.encode().to_vec();
        wire.extend([9; 4096]);
        client.say(&wire[..cut]);
        assert!(client.is_hung_up(), "stalled at {cut}");
        let mut client = Client::ready(&server, true);
        client.say(&wire[..cut]);
        client.0.shutdown(Shutdown::Write).unwrap();
        assert!(client.is_hung_up(), "vanished at {cut}");
    }
    let mut client = Client::ready(&server, true);
    assert_eq!(client.ask(0, 0, 0, 4096, &[]).bytes(0, 4096), [0; 4096], "half a write was done");
}

#[test]
fn silence_between_requests_is_fine() {
    let server = impatient();
    let mut client = Client::ready(&server, true);
    pause_ms(1000);
    assert_eq!(client.ask(3, 0, 0, 0, &[]).error, 0);
}

#[test]
fn a_client_that_never_reads_is_let_go() {
    let server = impatient();
    let mut client = Client::ready(&server, false);
    let read = Request { flags: 0, code: 0, cookie: 1, offset: 0, length: 1 << 20 }.encode();
    client.0.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
    while client.0.write_all(&read).is_ok() {}
    others_are_served(&server);
}

#[test]
fn only_so_many_clients() {
    let options = ServerOptions { connections_max: 2, ..Default::default() };
    let server = Running::new(Arc::new(Rigged::new(BYTES)), options);
    let mut first = Client::ready(&server, true);
    let second = Client::ready(&server, true);
    let mut third = UnixStream::connect(&server.socket).unwrap();
    assert_eq!(third.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(first.ask(3, 0, 0, 0, &[]).error, 0);
    drop(second);
    while server.stats().connections > 1 {
        pause_ms(5);
    }
    others_are_served(&server);
}
