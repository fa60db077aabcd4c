//! Wrong requests and failing devices: the right error, and a session that lives on.

use crate::client::Client;
use crate::rig::{Rigged, Running, noise};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use vellum_base::{Kind, Lba};
use vellum_serve::nbd::ServerOptions;

const BYTES: u64 = 4 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const CACHE: u16 = 5;
const ZERO: u16 = 6;
const STATUS: u16 = 7;
const FAST: u16 = 1 << 4;
const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const EOVERFLOW: u32 = 75;
const ENOTSUP: u32 = 95;
const ESHUTDOWN: u32 = 108;

/// The session still works.
fn alive(client: &mut Client) {
    assert_eq!(client.ask(WRITE, 0, 4096, 5, b"alive").error, 0);
    assert_eq!(client.ask(READ, 0, 4096, 5, &[]).data[0].1, b"alive");
}

#[test]
fn ranges_beyond_the_end() {
    let (_, server) = Running::of(BYTES);
    for structured in [false, true] {
        let mut client = Client::ready(&server, structured);
        for (offset, length) in [(BYTES, 1), (BYTES - 10, 11), (u64::MAX, 1), (u64::MAX - 3, 100)] {
            for (code, error) in [(READ, EINVAL), (TRIM, EINVAL), (CACHE, EINVAL), (ZERO, ENOSPC)] {
                assert_eq!(client.ask(code, 0, offset, length, &[]).error, error, "{code} {offset}");
            }
            assert_eq!(client.ask(WRITE, 0, offset, length, &vec![1; length as usize]).error, ENOSPC);
        }
        alive(&mut client);
    }
}

#[test]
fn empty_ranges() {
    let (_, server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    for code in [READ, WRITE, TRIM, CACHE, ZERO, STATUS] {
        assert_eq!(client.ask(code, 0, 4096, 0, &[]).error, EINVAL, "{code}");
    }
    assert_eq!(client.ask(FLUSH, 0, 1, 0, &[]).error, EINVAL);
    assert_eq!(client.ask(FLUSH, 0, 0, 1, &[]).error, EINVAL);
    alive(&mut client);
}

#[test]
fn flags_that_do_not_belong_and_unknown_commands() {
    let (_, server) = Running::of(BYTES);
    let mut simple = Client::ready(&server, false);
    assert_eq!(simple.ask(READ, 4, 0, 512, &[]).error, EINVAL, "DF without structured replies");
    assert_eq!(simple.ask(STATUS, 0, 0, 512, &[]).error, EINVAL, "no context");
    let mut client = Client::ready(&server, true);
    for (code, flags) in [(READ, 2), (READ, 1 << 9), (TRIM, 4), (ZERO, 8), (STATUS, 16), (FLUSH, 2)] {
        let length = if code == FLUSH { 0 } else { 512 };
        assert_eq!(client.ask(code, flags, 0, length, &[]).error, EINVAL, "{code} {flags}");
    }
    assert_eq!(client.ask(WRITE, 1 << 5, 0, 512, &[1; 512]).error, EINVAL);
    for code in [8, 99, u16::MAX] {
        assert_eq!(client.ask(code, 0, 0, 512, &[]).error, EINVAL);
    }
    alive(&mut client);
}

#[test]
fn requests_too_large() {
    let (rigged, server) = Running::of(128 << 20);
    let mut client = Client::ready(&server, true);
    let too_long = (32 << 20) + 1;
    assert_eq!(client.ask(READ, 0, 0, too_long, &[]).error, EINVAL);
    assert_eq!(client.ask(READ, 4, 0, too_long, &[]).error, EOVERFLOW);
    // The payload of a write that is somewhat too long is passed over...
    let answer = client.ask(WRITE, 0, 0, too_long, &vec![1; too_long as usize]);
    assert_eq!(answer.error, EINVAL);
    alive(&mut client);
    // ...ranges without payload may be as long as the export...
    assert_eq!(client.ask(TRIM, 0, 0, 128 << 20, &[]).error, 0);
    assert_eq!(client.ask(ZERO, 0, 1, (128 << 20) - 2, &[]).error, 0);
    // ...and a payload nobody should send ends the session, without being read.
    client.send(WRITE, 0, 0, u32::MAX, 7);
    assert!(client.is_hung_up());
    drop(rigged);
}

/// A device may also become slow after its flags were told: a hard disk took the place of a member.
#[test]
fn zeros_that_were_to_be_fast_are_refused_where_they_would_be_written() {
    let (rigged, server) = Running::of(BYTES);
    for structured in [false, true] {
        let mut client = Client::ready(&server, structured);
        rigged.trims.store(true, SeqCst);
        assert_eq!(client.ask(WRITE, 0, 0, 8192, &[7; 8192]).error, 0);
        assert_eq!(client.ask(ZERO, FAST, 0, 4096, &[]).error, 0);
        rigged.trims.store(false, SeqCst);
        let zeroed = rigged.zeroed_sectors.load(SeqCst);
        assert_eq!(client.ask(ZERO, FAST, 0, 8192, &[]).error, ENOTSUP);
        let read = client.ask(READ, 0, 0, 8192, &[]).bytes(0, 8192);
        assert!(read[..4096] == [0; 4096] && read[4096..] == [7; 4096]);
        assert_eq!(rigged.zeroed_sectors.load(SeqCst), zeroed, "nothing was done");
        assert_eq!(client.ask(ZERO, FAST, BYTES, 1, &[]).error, ENOSPC, "a wrong range is that first");
        // Without hurry both are done, so that zeros are read.
        assert_eq!(client.ask(ZERO, 0, 0, 4096, &[]).error, 0);
        assert_eq!(client.ask(TRIM, 0, 4096, 4096, &[]).error, 0);
        assert_eq!(client.ask(READ, 0, 0, 8192, &[]).bytes(0, 8192), [0; 8192]);
        alive(&mut client);
    }
}

#[test]
fn a_read_only_export_takes_no_changes() {
    let options = ServerOptions { read_only: true, ..Default::default() };
    let by_option = Running::new(Arc::new(Rigged::new(BYTES)), options);
    let device = Arc::new(Rigged { read_only: true, ..Rigged::new(BYTES) });
    let by_device = Running::new(device, ServerOptions::default());
    for server in [by_option, by_device] {
        let mut client = Client::ready(&server, true);
        assert_eq!(client.ask(WRITE, 0, 0, 512, &[1; 512]).error, EPERM);
        assert_eq!(client.ask(WRITE, 0, 0, 1 << 20, &vec![1; 1 << 20]).error, EPERM);
        assert_eq!(client.ask(TRIM, 0, 0, 512, &[]).error, EPERM);
        assert_eq!(client.ask(ZERO, 0, 0, 512, &[]).error, EPERM);
        assert_eq!(client.ask(READ, 0, 0, 512, &[]).bytes(0, 512), [0; 512]);
    }
}

#[test]
fn a_device_that_fails() {
    let (rigged, server) = Running::of(BYTES);
    for structured in [false, true] {
        let mut client = Client::ready(&server, structured);
        assert_eq!(client.ask(WRITE, 0, 0, 2 << 20, &noise(1, 2 << 20)).error, 0);
        for (kind, error) in [
            (Kind::Io, EIO),
            (Kind::Corrupt, EIO),
            (Kind::Poisoned, EIO),
            (Kind::NoSpace, ENOSPC),
            (Kind::Invalid, EINVAL),
            (Kind::Unsupported, ENOTSUP),
            (Kind::PowerLost, ESHUTDOWN),
        ] {
            *rigged.bad.lock() = Some((Lba(300), kind));
            assert_eq!(client.ask(READ, 0, 300 * 4096, 4096, &[]).error, error);
            // A long read that fails half-way, in each way there is to read.
            assert_eq!(client.ask(READ, 0, 0, 2 << 20, &[]).error, error);
            if structured {
                assert_eq!(client.ask(READ, 4, 0, 2 << 20, &[]).error, error);
            }
            assert_eq!(client.ask(WRITE, 0, 300 * 4096 + 5, 10, &[1; 10]).error, error);
            assert_eq!(client.ask(WRITE, 0, 0, 2 << 20, &noise(1, 2 << 20)).error, error);
            assert_eq!(client.ask(ZERO, 0, 299 * 4096, 8192, &[]).error, error);
            *rigged.bad.lock() = None;
            alive(&mut client);
        }
    }
}

#[test]
fn a_failed_long_read_says_where_and_delivers_what_came_before() {
    let (rigged, server) = Running::of(BYTES);
    let mut client = Client::ready(&server, true);
    let content = noise(2, 2 << 20);
    assert_eq!(client.ask(WRITE, 0, 0, 2 << 20, &content).error, 0);
    *rigged.bad.lock() = Some((Lba(300), Kind::Corrupt));
    let answer = client.ask(READ, 0, 0, 2 << 20, &[]);
    assert_eq!((answer.error, answer.message.as_str()), (EIO, "rigged"));
    let good = answer.error_offset.expect("the error has a place");
    assert!(good <= 300 * 4096 && !answer.data.is_empty());
    for (offset, data) in &answer.data {
        assert!(offset + data.len() as u64 <= good);
        assert_eq!(data, &content[*offset as usize..][..data.len()]);
    }
    *rigged.bad.lock() = None;
}
