//! Replays: deterministic, honest about corruption, and `journal` better than the paper's rule.

use std::ops::Range;
use vellum_base::{Lba, Nanos, Result, SECTOR_BYTES};
use vellum_lab::replay::{Comparison, Core, Mode, Pace, Precondition, ReplayOptions, run};
use vellum_media::Preset;
use vellum_trace::generate::ext::{Config, DataMode, Ext};
use vellum_trace::generate::files;
use vellum_trace::source::from_iter;
use vellum_trace::{ByteLen, ByteOffset, Content, Request, RequestKind, RequestSource};

fn config(seed: u64) -> Config {
    let (device_bytes, journal_bytes) = (ByteLen(256 << 20), ByteLen(16 << 20));
    Config { device_bytes, journal_bytes, seed, ..Config::default() }
}

fn journals(config: Config) -> Vec<Range<Lba>> {
    let sector = |bytes: u64| Lba(bytes / SECTOR_BYTES as u64);
    let ranges = Ext::new(config, std::iter::empty()).unwrap().journal_ranges();
    ranges.iter().map(|r| sector(r.offset.0)..sector(r.offset.0 + r.length.0)).collect()
}

fn options(modes: &str, preset: &str) -> ReplayOptions {
    ReplayOptions::new(Mode::list(modes).unwrap(), Preset::by_name(preset).unwrap())
}

fn varmail(config: Config, seed: u64) -> Result<Box<dyn RequestSource>> {
    Ok(Box::new(Ext::new(config, files::varmail(100, 400, seed))?))
}

fn compare_varmail(modes: &str, seed: u64) -> Comparison {
    let options =
        ReplayOptions { journals: Some(journals(config(seed))), seed, ..options(modes, "intel-520") };
    run(&|| varmail(config(seed), seed), &options, &()).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let json = |seed| serde_json::to_string(&compare_varmail("none,strong,journal", seed)).unwrap();
    assert_eq!(json(7), json(7));
    let (a, b) = (compare_varmail("journal", 7), compare_varmail("journal", 8));
    assert_ne!(a.modes[0].log_hash, b.modes[0].log_hash);
}

#[test]
fn journal_removes_what_the_paper_removes_and_more() {
    let found = compare_varmail("none,strong,strong-verify,woj-paper,journal", 1);
    let by = |name: &str| found.modes.iter().find(|m| m.mode.starts_with(name)).unwrap();
    let removed = |name: &str| by(name).home.removed_percent().unwrap();
    assert_eq!(removed("none"), 0.0);
    assert!(removed("journal") > 99.9, "{found}");
    assert!(removed("journal") > removed("woj-paper"), "{found}");
    assert_eq!(by("journal").wrong_sectors, 0);
    assert!(by("journal").ledger.programmed_bytes < by("woj-paper").ledger.programmed_bytes, "{found}");
    let hosts: Vec<u64> = found.modes.iter().map(|m| m.host_sectors_written).collect();
    assert!(hosts.iter().all(|n| *n == hosts[0] && *n > 1000), "every mode got the same work: {hosts:?}");
    assert!(found.modes.iter().all(|m| m.checked_sectors > 1000));
}

#[test]
fn ordered_mode_has_fewer_home_writes_to_remove() {
    let ordered = Config { mode: DataMode::Ordered, ..config(1) };
    let options = ReplayOptions { journals: Some(journals(ordered)), ..options("journal", "intel-520") };
    let found = run(&|| varmail(ordered, 1), &options, &()).unwrap();
    assert!(found.modes[0].home.removed_percent().unwrap() < 90.0, "data goes home without a copy: {found}");
}

/// A block of an inode table that begins with zeros, so that its first 64 bytes equal those of many others.
fn zero_prefixed(fill: u8) -> Content {
    let mut block = vec![0; SECTOR_BYTES];
    block[256..].fill(fill);
    Content::verbatim(&block)
}

#[test]
fn a_write_that_never_passed_the_journal_corrupts_only_in_the_papers_mode() {
    let write = |lba, contents| Request::write(Nanos::ZERO, Lba(lba), contents, false);
    // Journaled: some inode block. At home: another one, as written by lazy initialisation.
    let workload = vec![write(10, vec![zero_prefixed(1)]), write(50, vec![zero_prefixed(2)])];
    let options = ReplayOptions {
        journals: Some(vec![Lba(10)..Lba(20)]),
        device_bytes: Some(ByteLen(4 << 20)),
        ..options("woj-paper,journal,strong,none", "mlc-1")
    };
    let found = run(&|| Ok(Box::new(from_iter(workload.clone().into_iter()))), &options, &()).unwrap();
    let wrong: Vec<u64> = found.modes.iter().map(|m| m.wrong_sectors).collect();
    assert_eq!(wrong, [1, 0, 0, 0], "{found}");
    assert!(found.to_string().contains("CORRUPTED 1 of 2 sectors"), "{found}");
}

fn mixed(seed: u64) -> Vec<Request> {
    let mut rng = vellum_trace::generate::Seeded::new(seed);
    let kinds = [RequestKind::Read, RequestKind::Write, RequestKind::Write, RequestKind::Trim];
    let mut requests = Vec::new();
    for i in 0..3000u64 {
        let kind = match rng.below(40) {
            0 => RequestKind::Flush,
            1 => RequestKind::WriteZeroes,
            n => kinds[n as usize % 4],
        };
        let (offset, length) = (rng.below(1 << 23), 1 + rng.below(40_000));
        requests.push(match kind {
            RequestKind::Flush => Request::flush(Nanos::from_us(50 * i)),
            _ => Request {
                fua: kind == RequestKind::Write && rng.chance(0.05),
                ..Request::new(Nanos::from_us(50 * i), kind, ByteOffset(offset), ByteLen(length))
            },
        });
    }
    requests
}

#[test]
fn unaligned_overlapping_requests_end_as_the_trace_says_at_any_pace() {
    for pace in [Pace::Closed { queue_depth: 1 }, Pace::Closed { queue_depth: 64 }, Pace::Open { speed: 3.0 }]
    {
        let options = ReplayOptions { pace, ..options("none,strong,journal+elide", "slc") };
        let open = || Ok(Box::new(from_iter(mixed(5).into_iter())) as Box<dyn RequestSource>);
        let found = run(&open, &options, &()).unwrap(); // this checks every sector
        assert!(found.setup.requests.unaligned > 2000 && found.setup.modelled_content_sectors > 1000);
        assert!(found.modes.iter().all(|m| m.latency.read.count > 500 && m.latency.sync.count > 50));
        if let Pace::Open { speed } = pace {
            let span = 50_000.0 * 3000.0 / speed;
            assert!(found.modes[0].duration_ns as f64 > span * 0.95, "an open replay keeps the trace's time");
        }
    }
}

#[test]
fn a_full_disk_collects_garbage_and_the_preparation_is_not_counted() {
    let job = vellum_trace::generate::fio::Job {
        device_bytes: ByteLen(64 << 20),
        requests: 10_000,
        ..Default::default()
    };
    let precondition = Precondition { fill_share: 1.0, overwrite_share: 1.0 };
    let options = ReplayOptions { precondition, op_share: 0.25, ..options("none", "mlc-1") };
    let found = run(&|| Ok(Box::new(job.start()?)), &options, &()).unwrap();
    let none = &found.modes[0];
    assert_eq!(none.host_sectors_written, 10_000);
    assert_eq!(none.checked_sectors, (64 << 20) / 4096);
    assert!(none.erases > 0, "{found}");
}

#[test]
fn hashing_costs_throughput_on_a_slow_core() {
    let at = |core| {
        let options = ReplayOptions { core, ..options("strong", "intel-750") };
        let job = vellum_trace::generate::fio::Job {
            device_bytes: ByteLen(64 << 20),
            requests: 5_000,
            pattern: vellum_trace::generate::fio::Pattern::Sequential,
            ..Default::default()
        };
        run(&|| Ok(Box::new(job.start()?)), &options, &()).unwrap().modes[0].throughput_bytes_per_second / 1e6
    };
    let (fast, slow) = (at(Core::Host3GHz), at(Core::Controller1200MHz));
    assert!((160.0..=181.0).contains(&slow), "SHA-1 at 172.5 MiB/s, not {slow} MB/s");
    assert!((400.0..=493.0).contains(&fast), "SHA-1 at 470.1 MiB/s, not {fast} MB/s");
}

#[test]
fn what_cannot_be_replayed_is_said() {
    let none = || Ok(Box::new(from_iter(std::iter::empty())) as Box<dyn RequestSource>);
    let message = |options: &ReplayOptions| run(&none, options, &()).unwrap_err().to_string();
    assert!(message(&options("none", "slc")).contains("nothing to replay"));
    let no_queue = ReplayOptions { pace: Pace::Closed { queue_depth: 0 }, ..options("none", "slc") };
    assert!(message(&no_queue).contains("queue depth"));
    let write = Request::new(Nanos::ZERO, RequestKind::Write, ByteOffset(1 << 30), ByteLen(4096));
    let far = || Ok(Box::new(from_iter([write.clone()].into_iter())) as Box<dyn RequestSource>);
    let small = ReplayOptions { device_bytes: Some(ByteLen(1 << 20)), ..options("none", "slc") };
    assert!(run(&far, &small, &()).unwrap_err().to_string().contains("choose a larger one"));
}
