//! The server is killed; what was flushed survives.

use crate::nbd::Client;
use crate::support::Home;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const SECTORS: u64 = 512;

/// The content of a sector in its n-th generation.
fn content(sector: u64, generation: u64) -> Vec<u8> {
    let word = sector << 32 | generation;
    word.to_le_bytes().into_iter().cycle().take(4096).collect()
}

/// Writes generations to all sectors, with a flush after each, until the server is gone.
#[expect(clippy::disallowed_methods, reason = "a real client of a real server")]
fn write_until_it_dies(
    mut client: Client,
    from: u64,
    flushed: Arc<AtomicU64>,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for generation in from.. {
            for sector in 0..SECTORS {
                if client.write(sector * 4096, &content(sector, generation)).is_err() {
                    return;
                }
            }
            if client.flush().is_err() {
                return;
            }
            flushed.store(generation, SeqCst);
        }
    })
}

#[expect(clippy::disallowed_methods, reason = "kills a real server after a while")]
fn pause(ms: u64) {
    std::thread::sleep(std::time::Duration::from_millis(ms));
}

#[test]
fn flushed_sectors_survive_kill_9_at_any_moment() {
    let home = Home::new();
    home.ok("disk create d.vellum --size 16MiB");
    let flushed = Arc::new(AtomicU64::new(0));
    for round in 0..6 {
        let (server, _) = home.start("disk serve d.vellum --nbd unix:v.sock");
        let from = flushed.load(SeqCst) + 1;
        let mut client = Client::connect(&home.path("v.sock"));
        for sector in 0..SECTORS {
            let mut bytes = vec![0; 4096];
            client.read(sector * 4096, &mut bytes).unwrap();
            let generation = u64::from_le_bytes(bytes[..8].try_into().unwrap()) & 0xFFFF_FFFF;
            assert!(generation + 1 >= from, "round {round}: sector {sector} fell back to {generation}");
            let whole = generation == 0 || bytes == content(sector, generation);
            assert!(whole, "round {round}: sector {sector} is mixed");
        }
        let writer = write_until_it_dies(client, from, flushed.clone());
        pause(40 + 67 * round);
        server.kill();
        writer.join().unwrap();
        let checked = home.json("disk check d.vellum");
        assert_eq!(checked["clean"], true, "round {round}: {checked}");
    }
    assert!(flushed.load(SeqCst) > 3, "too little happened to prove anything");
    let stat = home.json("disk stat d.vellum");
    assert_eq!(stat["ledger"]["programmed_bytes"], stat["ledger"]["device_programmed_bytes"]);
    home.run("disk stat d.vellum");
}
