//! Disks in use: by another name, when the terminal is closed, when the recorder is killed.

use crate::nbd::Client;
use crate::real::host::wait_until;
use crate::support::Home;
use rustix::process::Signal;
use std::os::unix::fs::symlink;

#[test]
fn a_terminal_that_goes_away_ends_servers_in_good_order() {
    let home = Home::new();
    home.ok("disk create d --size 16MiB");
    for command in ["disk serve d --nbd unix:s", "disk record d --nbd unix:s --to t.vtrace"] {
        let (mut server, _) = home.start(command);
        let mut client = Client::connect(&home.path("s"));
        client.write(4096, &[7; 4096]).unwrap();
        drop(client);
        // The shell sends one, and so does the kernel: a second one must not kill.
        server.signal(Signal::HUP);
        server.signal(Signal::HUP);
        let (code, lines) = server.finish();
        assert_eq!((code, &lines[0]["event"]), (0, &"closed".into()), "{command}: {lines:?}");
        assert!(!home.path("d.sock").exists() && !home.path("s").exists(), "{command}");
    }
    assert_eq!(home.json("disk stat d")["smart"]["unsafe_shutdowns"], 0);
}

#[test]
fn a_disk_in_use_answers_by_every_name() {
    let home = Home::new();
    home.ok("disk create d.vellum --size 16MiB");
    std::fs::create_dir(home.path("sub")).unwrap();
    symlink("../d.vellum", home.path("sub/link.vellum")).unwrap();
    symlink("sub", home.path("other")).unwrap();
    let real = home.path("d.vellum").display().to_string();
    let names = ["d.vellum", "sub/link.vellum", "other/link.vellum", "sub/../d.vellum", &real];
    for served in names {
        let (server, _) = home.start(&format!("disk serve {served} --nbd unix:s"));
        let mut client = Client::connect(&home.path("s"));
        client.write(0, &[9; 4096]).unwrap();
        let written = home.json("disk stat d.vellum")["ledger"]["host_written_bytes"].as_u64().unwrap();
        assert!(written > 0 && home.path("d.vellum.sock").exists());
        for asked in names {
            let stat = home.json(&format!("disk stat {asked}"));
            assert_eq!(stat["ledger"]["host_written_bytes"], written, "{asked} is {served}");
        }
        drop(client);
        assert_eq!(server.interrupt().0, 0);
        assert!(!home.path("d.vellum.sock").exists());
    }
}

#[test]
fn the_beginning_of_a_killed_recording_is_replayed() {
    let home = Home::new();
    let (recorder, _) = home.start("disk record --ram 32MiB --nbd unix:s --to t.vtrace");
    let mut client = Client::connect(&home.path("s"));
    (0..50u8).for_each(|i| client.write(u64::from(i) * 4096, &[i + 1; 4096]).unwrap());
    let replay = "replay t.vtrace --compare none --device slc";
    wait_until("what was recorded is saved", || {
        let said = home.run(&format!("{replay} --json"));
        said.code == 0 && said.out.contains("\"host_data\": 204800")
    });
    recorder.kill();
    let said = home.ok(replay);
    assert!(said.contains("the trace has no end record"), "{said}");
    let said = home.run("replay t.vtrace --array raid5 --compare wt");
    assert!(said.code == 0 && said.err.contains("the trace has no end record"), "{}", said.err);
    let told = home.json("replay t.vtrace --array raid5 --compare wt --report r.html");
    assert!(told["notes"][0].as_str().unwrap().contains("the trace has no end record"), "{told}");
    let page = std::fs::read_to_string(home.path("r.html")).unwrap();
    assert!(page.contains("the trace has no end record"));
    // Damage other than a cut is still an error.
    let mut trace = std::fs::read(home.path("t.vtrace")).unwrap();
    let last = trace.len() - 1;
    trace[last] ^= 1;
    std::fs::write(home.path("t.vtrace"), trace).unwrap();
    home.run(replay).failed(4, "checksum mismatch");
}

#[test]
fn a_disk_that_looks_for_no_file_system_says_so() {
    let home = Home::new();
    for (mode, says) in
        [("ecc", "not looked for with --dedup ecc"), ("none", "not looked for with --dedup none")]
    {
        home.ok(&format!("disk create {mode} --size 16MiB --dedup {mode}"));
        let said = home.ok(&format!("disk stat {mode}"));
        assert!(said.contains(&format!("file systems\n  {says}\n")), "{said}");
    }
    home.ok("disk create journal --size 16MiB");
    assert!(!home.ok("disk stat journal").contains("not looked for"));
    home.ok("disk create kept --size 16MiB --dedup strong --keep-copies ext4");
    assert!(!home.ok("disk stat kept").contains("not looked for"), "keeping copies apart takes a look");
}
