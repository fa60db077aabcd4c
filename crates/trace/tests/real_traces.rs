//! The real traces, where they are at hand: request counts and write shares as their README says.

use std::path::PathBuf;
use vellum_trace::devices::{Layout, Select, select, shift_down};
use vellum_trace::{ByteLen, Format, ReadOptions, RequestKind, Summary, open};

/// `None`, with a message, where the trace is absent.
fn trace(name: &str) -> Option<PathBuf> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces").join(name);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: the trace {name} is not here");
    None
}

fn summary(name: &str, format: Option<Format>) -> Option<Summary> {
    let source = open(&trace(name)?, format, ReadOptions::default()).unwrap();
    Some(Summary::of(source).unwrap())
}

#[test]
fn counts_and_write_shares_are_those_of_the_readme() {
    let ascii = [
        ("spc_Financial1_head.ssdsim.ascii", Format::Mqsim, 10_000, 59.2),
        ("heimdall_msr_rw_20_80.105.trace", Format::Replayer, 10_000, 79.8),
        ("heimdall_msr_most_thpt_rand_iops.1006.trace", Format::Replayer, 10_000, 16.8),
        ("mqsim_tpcc-small.trace", Format::Mqsim, 6_999, 37.4),
        ("mqsim_wsrch-small.trace", Format::Mqsim, 24_783, 0.0),
        ("disksim_ssd-postmark-aligned2.trace", Format::Disksim, 62_257, 16.8),
    ];
    let told = [
        ("cloudPhysicsIO.vscsi", 113_872, 58.7),
        ("hplajw_1992_1week.srt", 44_519, 70.7),
        ("Financial_mini.spc", 949, 80.7),
        ("apress_blktrace.txt", 15_524, 99.5),
    ];
    let named =
        ascii.into_iter().map(|(name, format, requests, writes)| (name, Some(format), requests, writes));
    let sniffed = told.into_iter().map(|(name, requests, writes)| (name, None, requests, writes));
    for (name, format, requests, writes) in named.chain(sniffed) {
        let Some(summary) = summary(name, format) else { continue };
        assert_eq!((summary.requests_total(), summary.rows.rejected()), (requests, 0), "{name}");
        assert_eq!(summary.rows.out_of_order, summary.out_of_order, "{name}");
        let share = (summary.write_share() * 1000.0).round() / 10.0;
        assert_eq!(share, writes, "{name}");
    }
}

#[test]
fn cloud_physics_bytes_span_and_alignment() {
    let Some(path) = trace("cloudPhysicsIO.vscsi") else { return };
    let open = || open(&path, None, ReadOptions::default()).unwrap();
    let summary = Summary::of(open()).unwrap();
    let mib = |kind| (summary.bytes(kind).0 as f64 / f64::from(1 << 20)).round() as u64;
    assert_eq!((mib(RequestKind::Read), mib(RequestKind::Write)), (1714, 2297));
    let (first, last) = summary.span.unwrap();
    assert_eq!((first.0, last.as_secs_f64().round()), (0, 7200.0));
    let before = summary.aligned;
    let after = Summary::of(shift_down(open(), ByteLen(63 * 512))).unwrap().aligned;
    assert!(
        before * 100 < summary.requests_total() && after * 2 > summary.requests_total(),
        "{before} {after}"
    );
}

#[test]
fn hplajw_lies_within_its_disks() {
    let Some(summary) = summary("hplajw_1992_1week.srt", None) else { return };
    // 1449 cylinders, 8 heads, 113 sectors of 256 bytes.
    let disk_bytes = 1449 * 8 * 113 * 256;
    assert_eq!(summary.devices.len(), 2);
    assert!(summary.devices.values().all(|d| d.end.0 <= disk_bytes), "{:?}", summary.devices);
    assert!(summary.devices.values().any(|d| d.end.0 > disk_bytes / 2));
}

#[test]
fn financial_has_many_devices_that_fit_side_by_side() {
    let Some(path) = trace("spc_Financial1_head.ssdsim.ascii") else { return };
    let open = || open(&path, Some(Format::Mqsim), ReadOptions::default()).unwrap();
    let summary = Summary::of(open()).unwrap();
    assert_eq!(summary.devices.len(), 22);
    assert!(select(open(), Select::Single).any(|r| r.is_err()));
    let layout = Layout::pack(&summary).unwrap();
    let size = layout.size();
    let placed = Summary::of(select(open(), Select::SideBySide(layout))).unwrap();
    assert_eq!((placed.devices.len(), placed.requests_total()), (1, 10_000));
    assert!(placed.devices.values().all(|d| d.end.0 <= size.0));
}
