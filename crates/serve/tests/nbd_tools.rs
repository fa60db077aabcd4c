//! Real clients: libnbd's tools, qemu's, fio. Skipped, saying so, where they are not installed.

use crate::rig::{Rigged, Running, have, noise, tool};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use vellum_serve::nbd::ServerOptions;

const BYTES: u64 = 64 << 20;

#[test]
fn nbdinfo_sees_everything_we_can_do() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let options = ServerOptions { name: "d".into(), ..Default::default() };
    let server = Running::new(Arc::new(Rigged::new(BYTES)), options);
    let seen = tool("nbdinfo", &["--json", &server.uri()]);
    for able in ["cache", "df", "fast_zero", "flush", "fua", "multi_conn", "trim", "zero"] {
        assert!(seen.contains(&format!("\"can_{able}\": true")), "{able}: {seen}");
    }
    for fact in
        ["\"structured\": true", "\"block_size_minimum\": 1,", "base:allocation", "\"export-size\": 67108864"]
    {
        assert!(seen.contains(fact), "{fact}: {seen}");
    }
    let list = tool("nbdinfo", &["--list", &server.uri()]);
    assert!(list.contains("export=\"d\""), "{list}");
}

#[test]
fn nbdinfo_sees_what_a_hard_disk_cannot_do() {
    if !have(&["nbdinfo"]) {
        return;
    }
    let server = Running::new(Arc::new(Rigged::that_writes_zeros(BYTES)), ServerOptions::default());
    let seen = tool("nbdinfo", &["--json", &server.uri()]);
    for (able, is) in [("fast_zero", false), ("trim", false), ("zero", true)] {
        assert!(seen.contains(&format!("\"can_{able}\": {is}")), "{able}: {seen}");
    }
}

#[test]
fn nbdcopy_there_and_back_keeps_content_and_holes() {
    if !have(&["nbdcopy", "nbdinfo"]) {
        return;
    }
    let (_, server) = Running::of(BYTES);
    let dir = tempfile::tempdir().unwrap();
    let (there, back) = (dir.path().join("there"), dir.path().join("back"));
    let mut content = noise(1, BYTES as usize);
    content[5 << 20..40 << 20].fill(0);
    std::fs::write(&there, &content).unwrap();
    tool("nbdcopy", &["--destination-is-zero", there.to_str().unwrap(), &server.uri()]);
    tool("nbdcopy", &[&server.uri(), back.to_str().unwrap()]);
    assert!(std::fs::read(&back).unwrap() == content);
    let map = tool("nbdinfo", &["--map", "--totals", &server.uri()]);
    assert!(map.lines().any(|l| l.contains("36700160")), "35 MiB of holes: {map}");
}

#[test]
fn qemu_io_does_all_it_knows() {
    if !have(&["qemu-io", "qemu-img"]) {
        return;
    }
    let (rigged, server) = Running::of(BYTES);
    let script = [
        "write -P 17 -f 0 64k",
        "write -P 18 513 70001",
        "read -P 17 0 513",
        "read -P 18 513 70001",
        "read -P 0 70514 5000",
        "aio_write -P 19 1M 1M",
        "aio_write -P 20 2M 64k",
        "aio_write -z -u 3M 64k",
        "aio_flush",
        "aio_read -P 19 1M 1M",
        "aio_read -P 20 2M 64k",
        "aio_flush",
        "write -z 1M 512k",
        "read -P 0 1M 512k",
        "read -P 19 1536k 512k",
        "write -P 21 8M 8M",
        "write -z -n 8M 1M",
        "discard 9M 2M",
        "read -P 0 8M 3M",
        "read -P 21 11M 5M",
        "writev -P 22 20M 4k 8k 513",
        "read -P 22 20M 12801",
        "flush",
    ];
    let mut args = vec!["-f", "raw"];
    args.extend(script.iter().flat_map(|line| ["-c", line]));
    let uri = server.uri();
    args.push(&uri);
    let said = tool("qemu-io", &args);
    assert!(!said.contains("failed") && !said.contains("rror"), "{said}");
    assert!(rigged.flushes.load(SeqCst) > 0);
    assert!(rigged.trimmed_sectors.load(SeqCst) >= 512, "discards reach the device");
    let map = tool("qemu-img", &["map", "--output=json", "-f", "raw", &uri]);
    assert!(map.contains("\"zero\": true") && map.contains("\"data\": true"), "{map}");
}

#[test]
fn qemu_img_compares_and_converts() {
    if !have(&["qemu-img"]) {
        return;
    }
    let (_, server) = Running::of(BYTES);
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::write(&image, noise(3, BYTES as usize)).unwrap();
    let (image, uri) = (image.to_str().unwrap(), server.uri());
    let convert = ["convert", "-n", "-W", "-m", "8", "-f", "raw", "-O", "raw", image, &uri];
    tool("qemu-img", &convert);
    assert!(tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", image, &uri]).contains("identical"));
}

#[test]
fn fio_reads_back_what_it_wrote() {
    if !have(&["fio"]) || !tool("fio", &["--enghelp"]).contains("nbd") {
        return;
    }
    let (_, server) = Running::of(BYTES);
    let uri = format!("--uri={}", server.uri());
    for (blocks, mode) in [("4k-4k", "randwrite"), ("512-128k", "randwrite"), ("1m-4m", "write")] {
        let blocks = format!("--bsrange={blocks}");
        let mode = format!("--rw={mode}");
        let fixed = ["--name=v", "--ioengine=nbd", "--size=48m", "--iodepth=32", "--verify=crc32c"];
        let args: Vec<&str> =
            fixed.into_iter().chain(["--verify_fatal=1", "--do_verify=1", &uri, &blocks, &mode]).collect();
        let said = tool("fio", &args);
        assert!(said.contains("err= 0"), "{said}");
    }
    assert_eq!(server.stats().errors, 0);
}
