//! Dump, restore, repair and inspect.

use crate::nbd::Client;
use crate::support::Home;

/// Serves the disk, lets `work` work on it, and closes it.
fn with_disk(home: &Home, work: impl FnOnce(&mut Client)) {
    let (server, _) = home.start("disk serve d --nbd unix:s");
    let mut client = Client::connect(&home.path("s"));
    work(&mut client);
    drop(client);
    assert_eq!(server.interrupt().0, 0);
}

fn read(home: &Home, offset: u64) -> u8 {
    let mut bytes = [0; 4096];
    with_disk(home, |client| client.read(offset, &mut bytes).unwrap());
    assert!(bytes.iter().all(|b| *b == bytes[0]));
    bytes[0]
}

#[test]
fn a_dump_brings_the_old_map_back() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB --dedup none");
    with_disk(&home, |client| client.write(4096, &[1; 4096]).unwrap());
    let text = home.ok("disk dump d");
    assert!(text.lines().count() > 3 && text.starts_with('{'), "{text}");
    home.ok("disk dump d --to d.dump");
    assert_eq!(std::fs::read_to_string(home.path("d.dump")).unwrap(), text);
    home.run("disk dump d --to d.dump").failed(2, "exists already");

    with_disk(&home, |client| client.write(4096, &[2; 4096]).unwrap());
    assert_eq!(read(&home, 4096), 2);
    home.run("disk restore d --from d.dump").failed(2, "forgets");
    assert_eq!(read(&home, 4096), 2);
    let restored = home.json("disk restore d --from d.dump --forget-newer");
    assert_eq!(restored["newer_writes_lost"], 1);
    assert_eq!(read(&home, 4096), 1);
    home.run("disk restore d --from nowhere --forget-newer").failed(3, "nowhere");
    std::fs::write(home.path("bad.dump"), "not a dump\n").unwrap();
    home.run("disk restore d --from bad.dump --forget-newer").failed(4, "bad.dump");
    assert_eq!(home.json("disk check d")["clean"], true);
}

#[test]
fn repair_says_first_and_writes_only_when_told() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB");
    with_disk(&home, |client| client.write(0, &[3; 40960]).unwrap());
    let before = std::fs::read(home.path("d")).unwrap();
    let found = home.json("disk repair d");
    assert_eq!((&found["written"], &found["damaged_sectors"]["count"]), (&false.into(), &0.into()));
    assert_eq!(std::fs::read(home.path("d")).unwrap(), before);
    assert_eq!(home.json("disk repair d --write")["written"], true);
    assert_eq!(read(&home, 4096), 3);
    assert_eq!(home.json("disk check d")["clean"], true);
}

#[test]
fn inspect_names_pages_as_flash_has_them() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB");
    with_disk(&home, |client| client.write(0, &[3; 4096]).unwrap());
    let inspected = home.json("disk inspect d");
    let root = &inspected["roots"][0];
    let page = home.json(&format!("disk inspect d --page {}:{}", root["block"], root["page"]));
    assert!(page["slots"].as_array().unwrap().iter().any(|slot| slot["kind"] == "root"), "{page}");
    assert!(home.ok("disk inspect d").contains("roots, newest first"));
    home.run("disk inspect d --page 99999:0").failed(2, "99999");
    assert_eq!(home.run("disk inspect d --page here").code, 2);
}
