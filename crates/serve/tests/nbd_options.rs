//! The handshake, option by option.

use crate::client::{ACK, Client};
use crate::rig::{Rigged, Running};
use std::sync::Arc;
use vellum_serve::nbd::ServerOptions;
use vellum_serve::nbd::wire::handshake::{ClientOption, OptionHeader, Reply, info, option};

const BYTES: u64 = 1 << 20;

fn named() -> Running {
    let options = ServerOptions { name: "disk".into(), description: "a test".into(), ..Default::default() };
    Running::new(Arc::new(Rigged::new(BYTES)), options)
}

fn info_option(name: &str, wanted: &[u16], go: bool) -> ClientOption {
    ClientOption::Info { name: name.into(), wanted: wanted.into(), go }
}

fn contexts(queries: &[&str], set: bool) -> ClientOption {
    let queries = queries.iter().map(|q| q.to_string()).collect();
    ClientOption::MetaContext { name: String::new(), queries, set }
}

fn kinds(replies: &[(u32, Vec<u8>)]) -> Vec<u32> {
    replies.iter().map(|r| r.0).collect()
}

#[test]
fn list_tells_the_export_and_abort_says_goodbye() {
    let server = named();
    let mut client = Client::greeted(&server, 3);
    let replies = client.option(&ClientOption::List);
    assert_eq!(replies[0], (Reply::Server as u32, b"\0\0\0\x04disk".to_vec()));
    assert_eq!(kinds(&replies), [Reply::Server as u32, ACK]);
    assert_eq!(client.option(&ClientOption::Abort), [(ACK, vec![])]);
    assert!(client.is_hung_up());
}

#[test]
fn info_describes_and_go_begins() {
    let server = named();
    let mut client = Client::greeted(&server, 3);
    let replies = client.option(&info_option("disk", &[info::NAME, info::DESCRIPTION], false));
    let blocks: Vec<(u16, &[u8])> = replies
        .iter()
        .filter(|r| r.0 == Reply::Info as u32)
        .map(|r| (u16::from_be_bytes([r.1[0], r.1[1]]), &r.1[2..]))
        .collect();
    assert_eq!(&blocks[0].1[..8], &BYTES.to_be_bytes());
    assert_eq!(blocks[1], (info::BLOCK_SIZE, &[0, 0, 0, 1, 0, 0, 0x10, 0, 2, 0, 0, 0][..]));
    assert_eq!(blocks[2..], [(info::NAME, &b"disk"[..]), (info::DESCRIPTION, &b"a test"[..])]);

    let unknown = client.option(&info_option("another", &[], true));
    assert_eq!(kinds(&unknown), [Reply::UnknownExport as u32]);
    let go = client.option(&info_option("", &[], true));
    assert_eq!(kinds(&go), [Reply::Info as u32, Reply::Info as u32, ACK]);
    assert_eq!(client.ask(3, 0, 0, 0, &[]).error, 0);
}

#[test]
fn export_name_begins_with_and_without_zeros() {
    let server = named();
    for (flags, zeros) in [(1, 124), (3, 0)] {
        let mut client = Client::greeted(&server, flags);
        client.say(&ClientOption::ExportName("disk".into()).encode());
        let told = client.take(10 + zeros);
        assert_eq!(told[..8], BYTES.to_be_bytes());
        assert_eq!(client.ask(3, 0, 0, 0, &[]).error, 0);
    }
    let mut client = Client::greeted(&server, 3);
    client.say(&ClientOption::ExportName("another".into()).encode());
    assert!(client.is_hung_up());
}

#[test]
fn transmission_flags_follow_what_was_agreed() {
    let flags_of = |server: &Running, structured: bool| {
        let mut client = Client::greeted(server, 3);
        if structured {
            client.option(&ClientOption::StructuredReply);
        }
        let replies = client.option(&info_option("", &[], true));
        u16::from_be_bytes(replies[0].1[10..12].try_into().unwrap())
    };
    let (_, server) = Running::of(BYTES);
    let all = 0b1101_0110_1101;
    assert_eq!(flags_of(&server, false), all);
    assert_eq!(flags_of(&server, true), all | 1 << 7);
    let options = ServerOptions { read_only: true, ..Default::default() };
    let reader = Running::new(Arc::new(Rigged::new(BYTES)), options);
    assert_eq!(flags_of(&reader, false), 0b101_0000_1111);
    // Zeros can be written on any device; trim and fast zero are promises.
    let disk = Running::new(Arc::new(Rigged::that_writes_zeros(BYTES)), ServerOptions::default());
    assert_eq!(flags_of(&disk, false), all & !(1 << 5 | 1 << 11));
    assert_eq!(flags_of(&disk, true), all & !(1 << 5 | 1 << 11) | 1 << 7);
}

#[test]
fn meta_contexts_need_structured_replies_and_exact_names() {
    let server = named();
    let mut client = Client::greeted(&server, 3);
    assert_eq!(kinds(&client.option(&contexts(&["base:allocation"], true))), [Reply::Invalid as u32]);
    client.option(&ClientOption::StructuredReply);
    let context = Reply::MetaContext as u32;
    for (queries, set, found) in [
        (&[][..], false, true),
        (&["base:"], false, true),
        (&["base:allocation"], false, true),
        (&["qemu:dirty"], false, false),
        (&[], true, false),
        (&["base:"], true, false),
        (&["x:y", "base:allocation"], true, true),
    ] {
        let replies = kinds(&client.option(&contexts(queries, set)));
        let expected = if found { vec![context, ACK] } else { vec![ACK] };
        assert_eq!(replies, expected, "{queries:?} set {set}");
    }
}

#[test]
fn the_last_choice_of_contexts_counts() {
    let server = named();
    let mut client = Client::greeted(&server, 3);
    client.option(&ClientOption::StructuredReply);
    client.option(&contexts(&["base:allocation"], true));
    client.option(&contexts(&[], true));
    client.option(&info_option("", &[], true));
    assert_eq!(client.ask(7, 0, 0, 4096, &[]).error, 22);
}

#[test]
fn unknown_and_malformed_options_leave_the_session_alive() {
    let server = named();
    let mut client = Client::greeted(&server, 3);
    assert_eq!(kinds(&client.option(&ClientOption::Unknown(77))), [Reply::Unsupported as u32]);
    assert_eq!(kinds(&client.option(&ClientOption::StartTls)), [Reply::Unsupported as u32]);
    let mut malformed = |code: u32, data: &[u8]| {
        client.say(&OptionHeader { code, length: data.len() as u32 }.encode());
        client.say(data);
        kinds(&client.option_replies())
    };
    assert_eq!(malformed(option::LIST, b"x"), [Reply::Invalid as u32]);
    assert_eq!(malformed(option::GO, &[0xff; 6]), [Reply::Invalid as u32]);
    assert_eq!(malformed(option::INFO, b"\0\0\0\x01a\0\x09"), [Reply::Invalid as u32]);
    assert_eq!(malformed(option::GO, b"\0\0\0\x02\xff\xfe\0\0"), [Reply::Invalid as u32], "not UTF-8");
    assert_eq!(malformed(option::SET_META_CONTEXT, b"\0\0\0\0\xff\xff\xff\xff"), [Reply::Invalid as u32]);
    assert_eq!(malformed(option::GO, &vec![0; 100_000]), [Reply::TooBig as u32]);
    assert_eq!(kinds(&client.option(&ClientOption::List)), [Reply::Server as u32, ACK]);
}

#[test]
fn a_client_that_is_not_fixed_newstyle_may_only_name_an_export() {
    let server = named();
    let mut client = Client::greeted(&server, 0);
    client.say(&ClientOption::Unknown(77).encode());
    assert!(client.is_hung_up());
}
