//! Third-party clients: libnbd's tools, qemu's, fio, fstrim. Each leaves a disk in order.

use super::bridge::{BRIDGE_TOOLS, Bridge, NBD_DOOR, Way, uri};
use super::files::{Files, noise};
use super::host::{EXT_TOOLS, all_is_well, can_mount, disk_is_well, have, sh, skipped};
use crate::nbd::Client;
use crate::support::{Home, Running};
use serde_json::Value;

const BYTES: u64 = 64 << 20;

fn served(size: &str) -> (Home, Running, String) {
    let home = Home::new();
    home.ok(&format!("disk create d --size {size}"));
    let (server, _) = home.start(&format!("disk serve d {NBD_DOOR}"));
    let uri = uri(&home);
    (home, server, uri)
}

#[track_caller]
fn ends_well(home: &Home, server: Running) {
    assert_eq!(server.interrupt().0, 0);
    disk_is_well(home, "d");
}

#[test]
fn nbdinfo_sees_what_the_disk_can_do() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let (home, server, uri) = served("64MiB");
    let said: Value = serde_json::from_str(&sh(&format!("nbdinfo --json '{uri}'"))).unwrap();
    let export = &said["exports"][0];
    for able in ["cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"] {
        assert_eq!(export[format!("can_{able}")], true, "{able}: {export}");
    }
    assert_eq!((&export["is_read_only"], &export["is_rotational"]), (&false.into(), &false.into()));
    assert_eq!(export["export-size"], BYTES);
    assert_eq!((&export["block_size_minimum"], &export["block_size_preferred"]), (&1.into(), &4096.into()));
    assert_eq!(export["contexts"], serde_json::json!(["base:allocation"]), "{export}");
    let map = sh(&format!("nbdinfo --map --json '{uri}'"));
    let map: Value = serde_json::from_str(&map).unwrap();
    assert_eq!(map.as_array().map(Vec::len), Some(1), "a new disk is one hole: {map}");
    assert_eq!((&map[0]["length"], &map[0]["type"]), (&BYTES.into(), &3.into()), "{map}");
    ends_well(&home, server);
    let (server, _) = home.start(&format!("disk serve d {NBD_DOOR} --read-only"));
    assert!(sh(&format!("nbdinfo --json '{uri}'")).contains("\"is_read_only\": true"));
    ends_well(&home, server);
}

#[test]
fn nbdcopy_and_qemu_img_there_and_back() {
    if !have(&["nbdcopy", "nbdinfo", "qemu-img"]) {
        return;
    }
    let (home, server, uri) = served("64MiB");
    let mut content = noise(3, BYTES as usize);
    content[5 << 20..30 << 20].fill(0);
    let [there, back, qcow] = ["there", "back", "copy.qcow2"].map(|name| home.path(name));
    std::fs::write(&there, &content).unwrap();
    let (there, back_name, qcow) = (there.display(), back.display(), qcow.display());

    sh(&format!("nbdcopy --connections=4 --flush {there} '{uri}'"));
    sh(&format!("nbdcopy --connections=4 '{uri}' {back_name}"));
    assert!(std::fs::read(&back).unwrap() == content);
    assert!(sh(&format!("nbdinfo --map --totals '{uri}'")).contains("26214400"), "25 MiB of zeros");
    sh(&format!("qemu-img compare -f raw -F raw {there} '{uri}'"));
    sh(&format!("qemu-img convert -f raw -O qcow2 '{uri}' {qcow}"));
    sh(&format!("qemu-io -f raw -c 'discard 0 64M' -c 'write -P 9 4k 8k' -c flush '{uri}'"));
    assert!(!sh_fails(&format!("qemu-img compare -f raw -F raw {there} '{uri}'")).is_empty());
    sh(&format!("qemu-img convert -n -W -m 8 -f qcow2 -O raw {qcow} '{uri}'"));
    sh(&format!("qemu-img compare -f qcow2 -F raw {qcow} '{uri}'"));
    sh(&format!("qemu-img compare -f raw -F raw {there} '{uri}'"));
    let map: Value =
        serde_json::from_str(&sh(&format!("qemu-img map --output=json -f raw '{uri}'"))).unwrap();
    let zero = map.as_array().unwrap().iter().filter(|extent| extent["zero"] == true);
    let zero: u64 = zero.map(|extent| extent["length"].as_u64().unwrap()).sum();
    assert_eq!(zero, 25 << 20, "{map}");
    ends_well(&home, server);
}

#[track_caller]
fn sh_fails(command: &str) -> String {
    let (fine, said) = super::host::try_sh(command);
    assert!(!fine, "{command}: {said}");
    said
}

#[test]
fn qemu_io_reads_the_patterns_it_wrote() {
    if !have(&["qemu-io"]) {
        return;
    }
    let (home, server, uri) = served("64MiB");
    let script = [
        "write -P 17 -f 0 64k",
        "write -P 18 -f 513 70001",
        "read -P 17 0 513",
        "read -P 18 513 70001",
        "read -P 0 70514 5000",
        "aio_write -P 19 1M 1M",
        "aio_write -z -u 3M 64k",
        "aio_flush",
        "aio_read -P 19 1M 1M",
        "aio_flush",
        "write -z 1M 512k",
        "read -P 0 1M 512k",
        "read -P 19 1536k 512k",
        "write -P 21 8M 8M",
        "write -z -u -n 8M 1M",
        "discard 9M 2M",
        "read -P 0 8M 3M",
        "read -P 21 11M 5M",
        "writev -P 22 20M 4k 8k 513",
        "read -P 22 20M 12801",
        "flush",
    ];
    let script: String = script.iter().map(|line| format!("-c '{line}' ")).collect();
    let said = sh(&format!("qemu-io -f raw {script} '{uri}'"));
    assert!(!said.contains("failed") && !said.contains("rror"), "{said}");
    let ledger = &home.json("disk stat d")["ledger"];
    assert!(ledger["avoided"]["zero"].as_u64().unwrap() > 1 << 20, "{ledger}");
    // What was written with FUA survives without a flush; that is all that can be checked after a kill.
    sh(&format!("qemu-io -f raw -c 'write -P 33 -f 40M 100k' '{uri}'"));
    server.kill();
    let (server, _) = home.start(&format!("disk serve d {NBD_DOOR}"));
    let said = sh(&format!("qemu-io -f raw -c 'read -P 33 40M 100k' -c 'read -P 22 20M 12801' '{uri}'"));
    assert!(!said.contains("failed"), "{said}");
    ends_well(&home, server);
}

#[test]
fn a_flush_on_one_connection_covers_all() {
    let (home, server, _) = served("64MiB");
    let mut clients = [(); 3].map(|()| Client::connect(&home.path("v.sock")));
    for sector in 0..300u64 {
        let client = &mut clients[sector as usize % 2];
        client.write(sector * 4096, &noise(sector, 4096)).unwrap();
    }
    clients[2].flush().unwrap();
    server.kill();
    let (server, _) = home.start(&format!("disk serve d {NBD_DOOR}"));
    let mut client = Client::connect(&home.path("v.sock"));
    let mut bytes = vec![0; 4096];
    for sector in 0..300u64 {
        client.read(sector * 4096, &mut bytes).unwrap();
        assert!(bytes == noise(sector, 4096), "sector {sector}");
    }
    drop(client);
    ends_well(&home, server);
}

#[test]
fn fio_verifies_through_nbd() {
    if !have(&["fio"]) {
        return;
    }
    if !sh("fio --enghelp").split_whitespace().any(|engine| engine == "nbd") {
        skipped("this fio has no NBD engine");
        return;
    }
    let (home, server, uri) = served("128MiB");
    for how in [
        "--rw=randwrite --bs=4k --size=48m",
        "--rw=write --bsrange=64k-1m --size=96m",
        "--rw=randwrite --bsrange=512-24k --bs_unaligned=1 --size=32m",
        "--rw=randtrimwrite --bs=4k --size=32m",
    ] {
        let fixed = "--ioengine=nbd --iodepth=16 --verify=crc32c --verify_fatal=1 --do_verify=1 --randseed=7";
        let verify =
            if how.contains("trim") { fixed.replace("--do_verify=1", "--do_verify=0") } else { fixed.into() };
        let said = sh(&format!("cd {} && fio --name=v {verify} --uri='{uri}' {how}", home.dir().display()));
        assert!(said.contains("err= 0"), "{said}");
    }
    ends_well(&home, server);
}

#[test]
fn fio_verifies_through_the_kernel() {
    if !can_mount(&["fio"]) || !have(BRIDGE_TOOLS) {
        return;
    }
    let (home, server, _) = served("128MiB");
    let bridge = Bridge::new(&home, &Way::default());
    for how in ["--rw=randwrite --bs=4k --size=48m", "--rw=randrw --bsrange=4k-256k --size=64m --fsync=32"] {
        let said = sh(&format!(
            "cd {} && fio --name=v --ioengine=libaio --direct=1 --iodepth=16 --verify=crc32c --verify_fatal=1 \
             --do_verify=1 --randseed=9 --filename={} {how}",
            home.dir().display(),
            bridge.device
        ));
        assert!(said.contains("err= 0"), "{said}");
    }
    drop(bridge);
    ends_well(&home, server);
}

#[test]
fn fstrim_and_discard_reach_the_ledger() {
    if !can_mount(EXT_TOOLS) || !have(&["fstrim"]) {
        return;
    }
    let home = Home::new();
    home.ok("disk create d --size 128MiB");
    let (mounted, _) = home.start("disk mount d mnt --mount-options discard");
    let figure = |name: &str| home.json("disk stat d")[name].as_u64().unwrap();
    let trimmed = || home.json("disk stat d")["ledger"]["avoided"]["trim"].as_u64().unwrap_or(0);
    let files = Files::write(&home.path("mnt"), 6);
    let (in_use, before) = (figure("mapped_bytes"), trimmed());
    let big = home.path("mnt/more");
    std::fs::write(&big, noise(9, 16 << 20)).unwrap();
    rustix::fs::syncfs(std::fs::File::open(home.path("mnt")).unwrap()).unwrap();
    assert!(figure("mapped_bytes") >= in_use + (16 << 20));
    std::fs::remove_file(&big).unwrap();
    rustix::fs::syncfs(std::fs::File::open(home.path("mnt")).unwrap()).unwrap();
    super::host::wait_until("the discards of a deleted file", || figure("mapped_bytes") < in_use + (4 << 20));
    assert!(trimmed() >= before + (12 << 20), "{before} and then {} bytes trimmed", trimmed());
    // The rest of the file system was never written, or is free.
    sh(&format!("fstrim -v {}", home.path("mnt").display()));
    files.check();
    assert_eq!(mounted.interrupt().0, 0);
    all_is_well(&home, "d");
    let (mounted, _) = home.start("disk mount d mnt");
    files.check();
    assert_eq!(mounted.interrupt().0, 0);
}
