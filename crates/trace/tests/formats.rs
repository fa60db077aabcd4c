//! Every unit and polarity trap of the trace formats, each by name.

use std::io::Cursor;
use std::path::Path;
use vellum_base::{Kind, Nanos, Result};
use vellum_trace::formats::blkparse::Action;
use vellum_trace::formats::{Format, open_reader};
use vellum_trace::{ByteLen, ByteOffset, DeviceId, Place, ReadOptions, Request, RequestKind, RowCounts};

type Simple = (u64, u32, RequestKind, u64, u64);

fn read_with(format: Format, bytes: &[u8], options: ReadOptions) -> Result<(Vec<Request>, RowCounts)> {
    let input = Cursor::new(bytes.to_vec());
    let mut source = open_reader(input, Path::new("trace"), Some(format), options)?;
    let requests = source.by_ref().collect::<Result<Vec<_>>>()?;
    Ok((requests, source.rows()))
}

fn read(format: Format, text: &str) -> Vec<Simple> {
    let (requests, rows) = read_with(format, text.as_bytes(), ReadOptions::default()).unwrap();
    assert_eq!(rows.rejected(), 0, "{text}");
    requests.iter().map(|r| (r.time.0, r.device.0, r.kind, r.offset.0, r.length.0)).collect()
}

use RequestKind::{Flush, Read, Trim, Write};

#[test]
fn mqsim_is_ns_and_zero_is_write() {
    let rows = read(Format::Mqsim, "938513000 4 264719034 16 0\n938828000 3 8 16 1\n");
    assert_eq!(rows, [(0, 4, Write, 264719034 * 512, 8192), (315_000, 3, Read, 4096, 8192)]);
}

#[test]
fn disksim_is_ms_and_bit_zero_is_read() {
    let rows = read(
        Format::Disksim,
        "7961.833 0 20 8 0\n8346.206 0 28 8 1\n8346.206 0 28 8 0x3\n8346.206 0 28 8 a\n",
    );
    let later = 384_373_000;
    let expected = [
        (0, 0, Write, 20 * 512, 4096),
        (later, 0, Read, 28 * 512, 4096),
        (later, 0, Read, 28 * 512, 4096),
        (later, 0, Write, 28 * 512, 4096),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn replayer_is_ms_and_bytes_and_one_is_read() {
    let rows = read(Format::Replayer, "0.000 0 200626176 4096 0\n223.412 0 512 512 1");
    assert_eq!(rows, [(0, 0, Write, 200626176, 4096), (223_412_000, 0, Read, 512, 512)]);
}

#[test]
fn the_same_digits_are_not_guessed() {
    let error = Format::sniff(Path::new("x.trace"), b"938513000 4 264719034 16 0\n").unwrap_err();
    for name in ["mqsim", "disksim", "replayer"] {
        assert!(error.to_string().contains(name), "{error}");
    }
    assert_eq!(error.kind(), Kind::Invalid);
}

#[test]
fn msr_time_is_100_ns_and_a_device_is_host_and_disk() {
    let text = "128166372003061629,hm,0,Read,8192,4096,1331\n\
                128166372003061639,hm,1,Write,4096,512,10\n\
                128166372003061649,web,0,WRITE,0,4096,10\n\
                128166372003061650,hm,0,write,0,4096,10\n";
    let expected = [
        (0, 0, Read, 8192, 4096),
        (1000, 1, Write, 4096, 512),
        (2000, 2, Write, 0, 4096),
        (2100, 0, Write, 0, 4096),
    ];
    assert_eq!(read(Format::Msr, text), expected);
    let mut source =
        open_reader(Cursor::new(text), Path::new("x"), Some(Format::Msr), ReadOptions::default()).unwrap();
    assert_eq!(source.by_ref().count(), 4);
    assert_eq!(source.device_names(), ["hm.0", "hm.1", "web.0"]);
}

#[test]
fn spc_lba_is_512_byte_blocks_but_size_is_bytes() {
    let text = "0,20941264,8192,W,0.551706,Alpha/NT\n1, 8, 512, r, 1.5\n0,8,512,R,1.500001,,x,y\n";
    let expected = [
        (0, 0, Write, 20941264 * 512, 8192),
        (948_294_000, 1, Read, 4096, 512),
        (948_295_000, 0, Read, 4096, 512),
    ];
    assert_eq!(read(Format::Spc, text), expected);
}

#[test]
fn the_misprinted_row_of_the_spc_document_is_malformed_not_misread() {
    let text = b"0,1,512,R,0.0\n0,2 448003,512,R,0.1\n1,1,512,W,2 448003\n";
    let (requests, rows) = read_with(Format::Spc, text, ReadOptions::default()).unwrap();
    assert_eq!((requests.len(), rows.malformed), (1, 2));
}

#[test]
fn fio_2_waits_are_relative_us_and_short_ones_are_dropped() {
    let text = "fio version 2 iolog\n/dev/sda add\n/dev/sda open\n/dev/sda write 4096 8192\n\
                /dev/sda wait 150 0\n/dev/sda wait 99 0\n/dev/sda read 0 4096\n/dev/sdb trim 0 1048576\n\
                /dev/sda datasync 0 0\n/dev/sda sync\n/dev/sda close\n";
    let expected = [
        (0, 0, Write, 4096, 8192),
        (150_000, 0, Read, 0, 4096),
        (150_000, 1, Trim, 0, 1 << 20),
        (150_000, 0, Flush, 0, 0),
        (150_000, 0, Flush, 0, 0),
    ];
    assert_eq!(read(Format::Fio, text), expected);
}

#[test]
fn fio_3_times_are_us_and_absolute() {
    let text =
        "fio version 3 iolog\n10 f add\n12 f open\n100 f write 0 4096\n350 f read 4096 4096\n400 f close\n";
    assert_eq!(read(Format::Fio, text), [(0, 0, Write, 0, 4096), (250_000, 0, Read, 4096, 4096)]);
    let wait = b"fio version 3 iolog\n100 f write 0 4096\n200 f wait 100 0\n";
    let (_, rows) = read_with(Format::Fio, wait, ReadOptions::default()).unwrap();
    assert_eq!(rows.malformed, 1, "version 3 has no wait");
}

#[test]
fn fio_1_is_refused() {
    let error = read_with(Format::Fio, b"0, 4096, 4096\n1, 0, 4096\n", ReadOptions::default()).unwrap_err();
    assert!(error.to_string().contains("no row"), "{error}");
}

const BLKPARSE: &str = "\
  8,16   5        1     0.000000000 18615  A   W 1444645666 + 256 <- (8,17) 1444645632
  8,16   5        2     0.000001850 18615  Q   W 1444645666 + 256 [java]
  8,16   5        3     0.000006438 18615  G   W 1444645666 + 256 [java]
  8,16   5        4     0.000008750 18615  P   N [java]
  8,16   5        5     0.000010000     0  m   N cfq18615 insert_request
  8,16   5        6     0.000020000 18615  D   W 1444645666 + 256 [java]
  8,16   5        7     0.000030000     0  C   W 1444645666 + 256 [0]
  8,16   5        8     0.000101850 18615  Q  RA 8 + 8 [java]
  8,16   5        9     0.000201850 18615  Q   D 16 + 65536 [fstrim]
  8,16   5       10     0.000301850 18615  Q FWFS 24 + 8 [jbd2/sdb1-8]
  8,16   5       11     0.000401850 18615  Q FWS [jbd2/sdb1-8]
  8,16   5       12     0.000501850 18615  Q  WFS 32 + 8 [jbd2/sdb1-8]
  8,17   5       13     0.000601850 18615  Q  FN [x]
CPU5 (8,16):
 Reads Queued:           1,        4KiB  Writes Queued:           3,      136KiB
Total (8,16):
";

#[test]
fn blkparse_counts_one_action_and_skips_the_rest() {
    let expected = [
        (0, 0, Write, 1444645666 * 512, 256 * 512),
        (100_000, 0, Read, 4096, 4096),
        (200_000, 0, Trim, 8192, 65536 * 512),
        (300_000, 0, Flush, 0, 0),
        (300_000, 0, Write, 24 * 512, 4096),
        (400_000, 0, Flush, 0, 0),
        (500_000, 0, Write, 32 * 512, 4096),
        (600_000, 1, Flush, 0, 0),
    ];
    assert_eq!(read(Format::Blkparse, BLKPARSE), expected);
    for action in [Action::Issued, Action::Completed] {
        let options = ReadOptions { blkparse_action: action, ..ReadOptions::default() };
        let (requests, _) = read_with(Format::Blkparse, BLKPARSE.as_bytes(), options).unwrap();
        assert_eq!(requests.len(), 1, "{action:?}");
    }
}

#[test]
fn blkparse_f_before_is_a_flush_and_f_behind_is_fua() {
    let (requests, _) = read_with(Format::Blkparse, BLKPARSE.as_bytes(), ReadOptions::default()).unwrap();
    let fua: Vec<_> = requests.iter().map(|r| r.fua).collect();
    assert_eq!(fua, [false, false, false, false, true, false, true, false]);
}

fn vscsi(version: u8, command: u16, lbn: u64, bytes: u32, us: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let version = u16::from(version) << 8;
    if version == 0x100 {
        out.extend([1u32, bytes, 1].iter().flat_map(|w| w.to_le_bytes()));
        out.extend([command, version].iter().flat_map(|w| w.to_le_bytes()));
    } else {
        out.extend([command, version].iter().flat_map(|w| w.to_le_bytes()));
        out.extend([1u32, bytes, 1].iter().flat_map(|w| w.to_le_bytes()));
    }
    out.extend([lbn, us].iter().flat_map(|w| w.to_le_bytes()));
    if version == 0x200 {
        out.extend(77u64.to_le_bytes());
    }
    out
}

#[test]
fn vscsi_1_and_2_have_different_layouts_and_us() {
    for version in [1, 2] {
        let mut file = vscsi(version, 0x2A, 63, 4096, 5_633_898_368_802);
        file.extend(vscsi(version, 0x28, 8, 512, 5_633_898_368_812));
        file.extend(vscsi(version, 0x12, 0, 96, 5_633_898_368_813));
        file.extend(vscsi(version, 0x35, 0, 0, 5_633_898_368_814));
        assert_eq!(Format::sniff(Path::new("x"), &file).unwrap(), Format::Vscsi);
        let (requests, _) = read_with(Format::Vscsi, &file, ReadOptions::default()).unwrap();
        let rows: Vec<_> = requests.iter().map(|r| (r.time.0, r.kind, r.offset.0, r.length.0)).collect();
        assert_eq!(rows, [(0, Write, 63 * 512, 4096), (10_000, Read, 4096, 512), (12_000, Flush, 0, 0)]);
        let cut = read_with(Format::Vscsi, &file[..file.len() - 1], ReadOptions::default());
        assert_eq!(cut.unwrap_err().kind(), Kind::Corrupt);
    }
}

fn srt(kind: u32, flags: u32, sector: u32) -> Vec<u8> {
    let words = if kind == 4 { 15 } else { 14 };
    let mut record =
        vec![4 * words, 4 << 16 | kind, 3, 250, 0, 0, 1024, sector, 0x0800_0107, 4, 0, flags, 0, 1, 9];
    record.truncate(words as usize);
    record.iter().flat_map(|w| w.to_be_bytes()).collect()
}

#[test]
fn srt_is_big_endian_with_the_sector_size_of_its_header() {
    let mut file = b"$$TR_IOREC-1.3 (x)\0\nsectorsize  = 256,\nsectorsize = 256\n};\n\x0c".to_vec();
    file.extend(srt(1, 0x1B, 1056));
    file.extend(srt(4, 0, 8));
    file.extend(srt(1, 0x100, 1060));
    let (requests, rows) = read_with(Format::Srt, &file, ReadOptions::default()).unwrap();
    let simple: Vec<_> = requests.iter().map(|r| (r.device.0, r.kind, r.offset.0, r.length.0)).collect();
    assert_eq!(simple, [(1, Read, 1056 * 256, 1024), (1, Write, 1060 * 256, 1024)]);
    assert_eq!(rows.rejected(), 0, "a suspect record is no error");
    let mixed = b"$$TR_IOREC-1.3\nsectorsize = 256,\nsectorsize = 512,\n\x0c";
    assert_eq!(read_with(Format::Srt, mixed, ReadOptions::default()).unwrap_err().kind(), Kind::Unsupported);
}

#[test]
fn empty_and_far_too_long_rows_are_counted_and_rejected() {
    let text =
        b"0,8,0,R,0.0\n0,8,8388608,W,0.1\n0,8,8388609,W,0.2\n0,8,512,W,0.3\n0,8,99999999999999,R,0.4\n";
    let (requests, rows) = read_with(Format::Spc, text, ReadOptions::default()).unwrap();
    assert_eq!(requests.len(), 2);
    let firsts = [None, Some(Place::Line(1)), Some(Place::Line(3)), None];
    assert_eq!(rows, RowCounts { empty: 1, too_long: 2, firsts, ..RowCounts::default() });
    let none = read_with(Format::Spc, b"0,8,0,R,0.0\n0,8,8388609,W,0.2\n", ReadOptions::default());
    let error = none.unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("1 empty (first: line 1), 1 too long (first: line 2)"), "{error}");
}

#[test]
fn rows_out_of_order_are_counted_and_kept() {
    let (requests, rows) =
        read_with(Format::Mqsim, b"500 0 0 8 0\n400 0 8 8 0\n600 0 16 8 0\n", ReadOptions::default())
            .unwrap();
    let times: Vec<_> = requests.iter().map(|r| r.time.0).collect();
    assert_eq!((times, rows.out_of_order), (vec![0, 0, 100], 1));
}

#[test]
fn malformed_rows_are_skipped_up_to_a_limit() {
    let options = ReadOptions { malformed_max: 2, ..ReadOptions::default() };
    let good = "0 0 0 8 0\n";
    let text = format!("{good}x\n0 0 0 8 2\n{good}");
    let (requests, rows) = read_with(Format::Mqsim, text.as_bytes(), options).unwrap();
    assert_eq!((requests.len(), rows.malformed), (2, 2));
    let text = format!("{text}\u{e9} 0\n{good}");
    let error = read_with(Format::Mqsim, text.as_bytes(), options).unwrap_err();
    assert!(error.to_string().starts_with("line 5: "), "{error}");
    let endless = format!("{good}{}\n{good}", "1 ".repeat(100_000));
    let (requests, rows) = read_with(Format::Mqsim, endless.as_bytes(), options).unwrap();
    assert_eq!((requests.len(), rows.malformed), (2, 1));
}

#[test]
fn numbers_that_overflow_are_malformed() {
    for (format, text) in [
        (Format::Mqsim, "0 0 99999999999999999 8 0\n"),
        (Format::Mqsim, "0 4294967296 0 8 0\n"),
        (Format::Disksim, "99999999999999999.0 0 0 8 0\n"),
        (Format::Spc, "0,99999999999999999,512,r,0\n"),
        (Format::Msr, "18446744073709551615,h,0,Read,0,512,0\n"),
    ] {
        let error = read_with(format, text.as_bytes(), ReadOptions::default()).unwrap_err();
        assert!(error.to_string().contains("no row"), "{text}: {error}");
    }
    let (requests, rows) =
        read_with(Format::Replayer, b"0 0 18446744073709551615 512 1\n0 0 0 512 1", ReadOptions::default())
            .unwrap();
    assert_eq!((requests.len(), rows.too_long), (1, 1));
}

#[test]
fn formats_are_told_by_content_then_by_name() {
    let sniff = |name: &str, first: &[u8]| Format::sniff(Path::new(name), first).unwrap();
    assert_eq!(sniff("x", BLKPARSE.as_bytes()), Format::Blkparse);
    assert_eq!(sniff("x", b"1,hm,0,Read,0,512,0\n"), Format::Msr);
    assert_eq!(sniff("x", b"0,1,512,w,0.1\n"), Format::Spc);
    assert_eq!(sniff("x", b"fio version 3 iolog\n"), Format::Fio);
    assert_eq!(sniff("x", b"VELTRACE\x01"), Format::Vtrace);
    assert_eq!(sniff("a/b.srt", b""), Format::Srt);
    assert_eq!(sniff("a/hm_0.csv.zst", b""), Format::Msr);
    assert!(Format::sniff(Path::new("a.bin"), b"\0\0\0").is_err());
    for format in Format::ALL {
        assert_eq!(Format::by_name(format.name()).unwrap(), format);
    }
    assert_eq!(Format::by_name("ssdsim").unwrap(), Format::Mqsim);
    assert!(Format::by_name("tape").is_err());
}

#[test]
fn first_request_in_full() {
    let (requests, _) = read_with(Format::Mqsim, b"5 7 3 1 1\n", ReadOptions::default()).unwrap();
    let expected =
        Request { device: DeviceId(7), ..Request::new(Nanos::ZERO, Read, ByteOffset(1536), ByteLen(512)) };
    assert_eq!(requests, [expected]);
}
