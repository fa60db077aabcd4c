//! Bad input from users and files: a clear message, what to do next, the right exit code.

use crate::support::Home;
use std::os::unix::fs::FileExt;

#[test]
fn images_that_are_none() {
    let home = Home::new();
    home.run("disk stat nowhere").failed(3, "nowhere");
    home.run("disk check no/such/dir/d").failed(3, "no/such/dir/d");
    home.run("disk create no/such/dir/d --size 8MiB").failed(3, "no/such/dir/d");
    std::fs::create_dir(home.path("dir")).unwrap();
    assert_ne!(home.run("disk stat dir").code, 0);
    home.run("disk create dir --size 8MiB --force").failed(2, "not a regular file");
    std::fs::write(home.path("text"), "some text that is no image").unwrap();
    home.run("disk check text").failed(2, "not a flash image");
    home.run("disk create text --size 8MiB").failed(2, "exists already");
    assert_eq!(std::fs::read(home.path("text")).unwrap(), b"some text that is no image");
}

#[test]
fn damaged_images() {
    let home = Home::new();
    home.ok("disk create d --size 8MiB");
    let whole = std::fs::read(home.path("d")).unwrap();

    std::fs::write(home.path("cut"), &whole[..whole.len() / 2]).unwrap();
    home.run("disk check cut").failed(4, "was cut");
    home.run("disk serve cut --nbd unix:s").failed(4, "was cut");

    std::fs::write(home.path("long"), [&whole[..], &[7; 100]].concat()).unwrap();
    let said = home.run("disk check long");
    said.failed(4, "what lies behind its end is not its own");
    assert!(!said.err.contains("cut or copied") && said.err.contains("disk repair"), "{}", said.err);
    assert!(home.ok("disk repair long --write").contains("what lies behind its end"));
    assert_eq!(home.path("long").metadata().unwrap().len(), whole.len() as u64);
    home.ok("disk check long");

    std::fs::write(home.path("scratched"), &whole).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(home.path("scratched")).unwrap();
    // Both headers, and everything else up to the flash itself.
    file.write_all_at(&[0x5A; 64 << 10], 0).unwrap();
    let said = home.run("disk check scratched");
    assert!(matches!(said.code, 2 | 4), "{}", said.err);
    assert_eq!(std::fs::read(home.path("d")).unwrap(), whole, "looking changes nothing");
}

#[test]
fn noise_anywhere_in_an_image_is_an_error_and_no_panic() {
    let home = Home::new();
    home.ok("disk create d --size 4MiB --nvram 4KiB");
    let whole = std::fs::read(home.path("d")).unwrap();
    let used = whole.iter().rposition(|b| *b != 0).unwrap();
    for i in 0..24 {
        let at = used * i / 24;
        let mut noisy = whole.clone();
        let end = (at + 200).min(whole.len());
        noisy[at..end].iter_mut().enumerate().for_each(|(k, b)| *b ^= (k * 37 + i + 1) as u8);
        std::fs::write(home.path("noisy"), &noisy).unwrap();
        for command in ["disk check noisy", "disk stat noisy"] {
            let said = home.run(command);
            assert!((0..=5).contains(&said.code), "{command} at {at}: {} {}", said.code, said.err);
            assert!(!said.err.contains("panicked"), "{command} at {at}: {}", said.err);
        }
    }
}

#[test]
fn shapes_that_cannot_be() {
    let home = Home::new();
    for (options, says) in [
        ("--size 0", "not zero"),
        ("--size 10000", "multiple of 4KiB"),
        ("--size 8EiB", "not a size"),
        ("--size 100TiB", "too large"),
        ("--size 1GiB --op 5000%", "over-provisioning"),
        ("--size 1GiB --op -3%", "-3"),
        ("--size 1GiB --page 5000", "page size"),
        ("--size 1GiB --page 1MiB", "page size"),
        ("--size 1GiB --channels 0", "channels"),
        ("--size 1GiB --dies 99999", "dies"),
        ("--size 1GiB --pages-per-block 0", "pages per block"),
        ("--size 1GiB --nvram 1TiB", "NVRAM"),
        ("--size 4GB", "'4GB' is not a size; write it like 4GiB"),
        ("--size 10%", "4GiB, 512MiB"),
        ("--size 1GiB --page big", "4GiB, 512MiB"),
        ("--size 1GiB --nvram big", "number of bytes; or none"),
        ("--size 1GiB --op lots", "write it like 12%"),
        ("--size 1GiB --op 12", "did you mean 12%?"),
        ("--size 1GiB --tbw lots", "write it like 300TB"),
        ("--size 1GiB --dedup magic", "magic"),
        ("--size 1GiB --tbw lots", "lots"),
    ] {
        let said = home.run(&format!("disk create d {options}"));
        assert_eq!(said.code, 2, "{options}: {}", said.err);
        assert!(said.err.contains(says), "{options}: {}", said.err);
        assert!(!home.path("d").exists(), "{options}");
    }
    for size in ["0", "4097", "100TiB"] {
        let said = home.run(&format!("disk create d --size {size}"));
        assert!(
            said.err.ends_with("\n next: choose a whole number of 4KiB sectors, such as --size 16GiB\n"),
            "{}",
            said.err
        );
    }
    home.run("disk create d --size 4097").failed(2, "a disk of 4097B is not possible");
    let said = home.run("disk create d --size 1GiB --channels 0");
    assert!(said.err.contains("leave out --op, --page, --channels"), "{}", said.err);
}

#[test]
fn every_hash_that_is_listed_works() {
    let home = Home::new();
    let said = home.run("disk create d --size 8MiB --dedup magic");
    assert!(said.code == 2 && said.err.contains("strong[:sha1|md5|sha256|blake3]"), "{}", said.err);
    for hash in ["sha1", "md5", "sha256", "blake3"] {
        let made = home.json(&format!("disk create {hash} --size 8MiB --dedup strong:{hash}"));
        assert_eq!(made["dedup"], format!("strong:{hash}"));
    }
}

#[test]
fn nvram_too_small_to_be_used_is_told() {
    let home = Home::new();
    let said = home.run("disk create d --size 8MiB --nvram 4KiB");
    assert!(said.code == 0 && said.err.contains("too small to be used"), "{}", said.err);
    for page in ["4KiB", "16KiB", "64KiB"] {
        let said = home.run(&format!("disk create d{page} --size 64MiB --page {page}"));
        assert!(said.code == 0 && said.err.is_empty(), "{page}: {}", said.err);
    }
}

#[test]
fn woj_paper_wants_consent_and_warns_every_time() {
    let home = Home::new();
    home.run("disk create d --size 8MiB --dedup woj-paper").failed(2, "can corrupt");
    assert!(!home.path("d").exists());
    home.run("disk serve --ram 8MiB --dedup woj-paper --nbd unix:s").failed(2, "can corrupt");
    let made = home.run("disk create d --size 8MiB --dedup woj-paper --i-know-this-can-corrupt");
    assert_eq!(made.code, 0, "{}", made.err);
    home.run("disk serve d --nbd unix:s").failed(2, "can corrupt");
    let looked = home.run("disk stat d");
    assert!(looked.code == 0 && looked.err.contains("WILL\ncorrupt"), "{}", looked.err);
    let (server, _) = home.start("disk serve d --nbd unix:s --i-know-this-can-corrupt");
    assert_eq!(server.interrupt().0, 0);
}

#[test]
fn dedup_options_are_for_disks_that_heed_them() {
    let home = Home::new();
    home.ok("disk create d --size 8MiB");
    home.ok("disk create e --size 8MiB --dedup ecc");
    for option in ["--dedup-when inline", "--dedup-table 10%", "--dedup-budget 50%"] {
        home.run(&format!("disk serve d --nbd unix:s {option}")).failed(2, "dedup mode journal");
        home.run(&format!("disk serve --ram 8MiB --nbd unix:s {option}")).failed(2, "dedup mode journal");
        let (server, _) = home.start(&format!("disk serve e --nbd unix:s {option}"));
        assert_eq!(server.interrupt().0, 0);
    }
    let never = home.run("disk serve e --nbd unix:s --dedup-when never");
    assert!(never.code == 2 && never.err.contains("inline, offline or both"), "{}", never.err);
    home.run("disk serve e --nbd unix:s --dedup-table 0%").failed(2, "more than 0");
    home.run("disk serve e --nbd unix:s --dedup-table 1000000000000%").failed(2, "at most 100%");
    home.run("disk serve --ram 64MiB --dedup ecc --nbd unix:s --dedup-budget 101%").failed(2, "at most 100%");
    assert_eq!(home.run("disk serve e --nbd unix:s --dedup-budget 101%").code, 2);
}

#[test]
fn sizes_and_shares_say_how_they_are_written() {
    let home = Home::new();
    for (line, says) in [
        ("disk serve --ram big --nbd unix:s", "4GiB, 512MiB"),
        ("disk mount --ram big mnt", "4GiB, 512MiB"),
        ("disk record --ram big --nbd unix:s --to t", "4GiB, 512MiB"),
        ("disk repair d --size big", "4GiB, 512MiB"),
        ("disk serve d --nbd unix:s --journal 4GiB", "OFFSET+LENGTH like 4GiB+128MiB"),
        ("disk serve d --nbd unix:s --journal big+4KiB", "OFFSET+LENGTH like 4GiB+128MiB"),
        ("replay t --size big", "4GiB, 512MiB"),
        ("replay t --fill most", "write it like 12%"),
        ("replay t --overwrite most", "write it like 12%"),
        ("replay t --content duplicates:most", "write it like 12%"),
    ] {
        let said = home.run(line);
        assert!(said.code == 2 && said.err.contains(says), "{line}: {}", said.err);
    }
}

#[test]
fn dedup_of_a_disk_that_exists_is_not_chosen_anew() {
    let home = Home::new();
    home.ok("disk create d --size 8MiB");
    for command in ["disk serve d --nbd unix:s", "disk record d --nbd unix:s --to t"] {
        let said = home.run(&format!("{command} --dedup none"));
        said.failed(2, "settled when it was created");
        assert!(
            said.err.contains("vellum disk stat d") && said.err.contains("--dedup none makes"),
            "{}",
            said.err
        );
    }
    assert!(!home.path("t").exists());
}

#[test]
fn places_to_listen() {
    let home = Home::new();
    home.run("disk serve --ram 8MiB --nbd tcp:0.0.0.0:0").failed(2, "other machines");
    assert_eq!(home.run("disk serve --ram 8MiB --nbd nowhere").code, 2);
    home.run("disk serve --ram 8MiB --nbd unix:no/such/dir/s").failed(3, "no/such/dir/s");
    std::fs::write(home.path("file"), "x").unwrap();
    home.run("disk serve --ram 8MiB --nbd unix:file").failed(2, "not a socket");
    let (_server, _) = home.start("disk serve --ram 8MiB --nbd unix:s");
    home.run("disk serve --ram 8MiB --nbd unix:s").failed(5, "listening");
}

#[test]
fn errors_are_json_too() {
    let home = Home::new();
    let said = home.run("disk stat nowhere --json");
    let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
    assert_eq!((said.code, &error["exit_code"], &error["kind"]), (3, &3.into(), &"io".into()));
    assert!(error["error"].as_str().unwrap().contains("nowhere") && error["next"].is_string());
    for (line, what, next) in [
        ("disk create d --size big --json", "'big' is not a size; write it like 4GiB", "--help"),
        ("--json disk create d", "--size <SIZE>", "--help"),
        ("disk stat d --jsn --json", "unexpected argument '--jsn'", "similar argument"),
        ("disk --json", "subcommand", "--help"),
        ("nonsense --json", "unrecognized subcommand 'nonsense'", "--help"),
    ] {
        let said = home.run(line);
        let error: serde_json::Value = serde_json::from_str(&said.err).unwrap();
        assert_eq!((said.code, &error["exit_code"], &error["kind"]), (2, &2.into(), &"invalid".into()));
        assert!(error["error"].as_str().unwrap().contains(what), "{line}: {error}");
        assert!(error["next"].as_str().unwrap().contains(next), "{line}: {error}");
        assert!(said.out.is_empty() && !said.err.contains("error: "), "{line}: {}", said.err);
    }
    assert!(home.run("disk stat -- --json --jsn").err.starts_with("error: "), "a name is no option");
    assert!(home.ok("disk stat --json --help").contains("Usage: "));
}
