//! The reader of a command's output has gone away.

use crate::nbd::Client;
use crate::real::host::wait_until;
use crate::support::{Home, Running, nobody};
use std::fs::OpenOptions;
use std::os::unix::net::UnixStream;

/// Offset of the sector that has rotted.
const ROTTEN: u64 = 6 * 4096;

/// Content of a sector.
fn content(sector: u64) -> Vec<u8> {
    (0..4096).map(|k| (k * 7 % 251 + sector) as u8 | 1).collect()
}

/// Makes a disk that holds a few sectors, one of them rotten.
fn rotten_disk(home: &Home) {
    home.ok("disk create d --size 16MiB");
    let (server, _) = home.start("disk serve d --nbd unix:s");
    let mut client = Client::connect(&home.path("s"));
    for i in 0..4 {
        client.write(2 * i * 4096, &content(2 * i)).unwrap();
    }
    drop(client);
    assert_eq!(server.interrupt().0, 0);
    let mut image = std::fs::read(home.path("d")).unwrap();
    let at = (0..image.len() - 4096)
        .step_by(64)
        .find(|at| image[*at..*at + 4096] == content(ROTTEN / 4096))
        .unwrap();
    image[at + 2000..at + 2050].iter_mut().for_each(|byte| *byte ^= 0x5A); // beyond correction
    std::fs::write(home.path("d"), image).unwrap();
}

fn closed_cleanly(home: &Home, server: Running) {
    assert_eq!(server.interrupt().0, 0);
    assert_eq!(home.json("disk stat d")["smart"]["unsafe_shutdowns"], 0);
    assert!(!home.path("d.sock").exists());
}

#[test]
fn remarks_for_nobody_cost_no_connection_and_no_clean_end() {
    let home = Home::new();
    rotten_disk(&home);
    let mut server = home.begin_with_remarks_to("disk serve d --nbd unix:s --scrub-every off", nobody());
    assert_eq!(server.next_line().unwrap()["event"], "ready");
    let mut client = Client::connect(&home.path("s"));
    for _ in 0..20 {
        assert_ne!(client.read_failing(ROTTEN, 4096).expect("the connection lives"), 0);
    }
    let mut read = vec![0; 4096];
    client.read(2 * 4096, &mut read).unwrap();
    assert_eq!(read, content(2));
    client.write(ROTTEN, &read).unwrap();
    client.read(ROTTEN, &mut read).unwrap();
    drop(client);
    closed_cleanly(&home, server);
}

#[test]
fn a_server_serves_on_when_nobody_reads_its_output() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB");
    let server = home.begin_unheard("disk serve d --nbd unix:s");
    wait_until("the server answers", || UnixStream::connect(home.path("s")).is_ok());
    let mut client = Client::connect(&home.path("s"));
    client.write(4096, &content(1)).unwrap();
    client.flush().unwrap();
    let mut read = vec![0; 4096];
    client.read(4096, &mut read).unwrap();
    assert_eq!(read, content(1));
    drop(client);
    closed_cleanly(&home, server);
}

#[test]
fn results_for_nobody_end_as_the_work_did() {
    let home = Home::new();
    rotten_disk(&home);
    assert_eq!(home.code_unheard("disk check d", nobody()), Some(1), "there are problems, heard or not");
    assert_eq!(home.code_unheard("disk stat d", nobody()), Some(0));
    assert_eq!(home.code_unheard("disk stat d --watch", nobody()), Some(0), "it does not watch for nobody");
    if let Ok(full) = OpenOptions::new().write(true).open("/dev/full") {
        assert_eq!(home.code_unheard("disk stat d", full.into()), Some(3), "a result that got lost");
    }
}
