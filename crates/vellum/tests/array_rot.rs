//! Devices of an array that return something other than was written, without an error.

use crate::array::{SECTORS, assert_generations, content};
use crate::nbd::Client;
use crate::support::Home;
use std::os::unix::fs::FileExt;

#[test]
fn rot_in_a_member_is_located_and_put_right() {
    let home = Home::new();
    home.ok("array create a.toml --level 6 --chunk 16KiB --size 20MiB --members d0 d1 d2 d3 d4");
    let member = std::fs::File::options().write(true).open(home.path("d1")).unwrap();
    let data_start = home.json("array detail a.toml")["data_start_bytes"].as_u64().unwrap();
    member.write_all_at(&[7; 100], data_start + 5 * 4096 + 77).unwrap();
    drop(member);
    assert_eq!(home.run("array scrub a.toml").code, 1);
    let scrubbed = home.json("array scrub a.toml --repair located");
    assert_eq!((&scrubbed["corrected"], &scrubbed["mismatches"]), (&1.into(), &1.into()));
    assert_eq!(home.json("array scrub a.toml")["mismatches"], 0);
}

/// Changes a byte in each page of a cache.
fn rot_cache(home: &Home) {
    let ssd = std::fs::File::options().read(true).write(true).open(home.path("ssd")).unwrap();
    // After the superblock and the log; before the superblock's copy.
    for page in 256..ssd.metadata().unwrap().len() / 4096 - 1 {
        let (mut byte, at) = ([0], page * 4096 + page % 4096);
        ssd.read_exact_at(&mut byte, at).unwrap();
        ssd.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
}

/// In use, and while it is not open: data are read, parity is right, and the damage is reported.
#[test]
fn rot_in_a_cache_is_found_out_and_goes_nowhere() {
    let serve = "array serve a.toml --nbd unix:a.sock";
    for policy in ["kdd-paper", "kdd", "wt"] {
        let home = Home::new();
        home.ok(&format!(
            "array create a.toml --level 6 --chunk 16KiB --size 40MiB --members d0 d1 d2 d3 d4 --cache ssd --policy {policy}"
        ));
        let (server, _) = home.start(serve);
        let mut client = Client::connect(&home.path("a.sock"));
        for generation in 1..=3 {
            for sector in 0..SECTORS {
                client.write(sector * 4096, &content(sector, generation)).unwrap();
            }
        }
        client.flush().unwrap();
        drop(client);
        assert_eq!(server.interrupt().0, 0);

        rot_cache(&home);
        let (server, _) = home.start(serve);
        let mut client = Client::connect(&home.path("a.sock"));
        let mut read = |generation: u64| {
            for sector in 0..SECTORS {
                let mut bytes = vec![0; 4096];
                client.read(sector * 4096, &mut bytes).unwrap();
                assert!(bytes == content(sector, generation), "sector {sector} with {policy}");
            }
        };
        read(3);
        rot_cache(&home);
        read(3);
        let detail = home.json("array detail a.toml");
        assert!(detail["cache"]["wrong_pages"].as_u64().unwrap() > 20, "{policy}: {detail}");
        assert!(home.run("array detail a.toml").out.contains("not what was written"), "{policy}");
        home.ok("array flush a.toml");
        let scrubbed = home.json("array scrub a.toml");
        assert_eq!((&scrubbed["mismatches"], &scrubbed["stale_rows"]), (&0.into(), &0.into()), "{policy}");
        assert_eq!(server.interrupt().0, 0);
        assert_generations(&home, serve, 3..=3);
    }
}
