//! The journal model keeps jbd2's promises, judged from outside: by its requests alone.

use std::collections::{BTreeMap, BTreeSet};
use vellum_base::{Lba, SECTOR_BYTES};
use vellum_trace::generate::ext::{Config, DataMode, Ext, FileOperation as Op};
use vellum_trace::generate::files::{self, FileSize};
use vellum_trace::generate::leveldb::{self, KeyOrder};
use vellum_trace::{ByteLen, Content, Request, RequestKind};

fn small() -> Config {
    Config { device_bytes: ByteLen(1 << 30), journal_bytes: ByteLen(4 << 20), ..Config::default() }
}

/// Every sector written, in order: where and what.
fn sectors(requests: &[Request]) -> impl Iterator<Item = (u64, &Content)> {
    requests.iter().flat_map(|r| {
        let (Lba(first), _) = r.sectors();
        r.contents.iter().enumerate().map(move |(i, content)| (first + i as u64, content))
    })
}

struct Run {
    requests: Vec<Request>,
    journal: Vec<(u64, u64)>,
}

impl Run {
    fn new(config: Config, operations: impl Iterator<Item = Op>) -> Run {
        let ext = Ext::new(config, operations).unwrap();
        let sector = SECTOR_BYTES as u64;
        let journal =
            ext.journal_ranges().iter().map(|r| (r.offset.0 / sector, r.length.0 / sector)).collect();
        Run { requests: ext.collect::<Result<_, _>>().unwrap(), journal }
    }

    /// The slot of the journal at this sector.
    fn slot(&self, sector: u64) -> Option<u64> {
        let mut before = 0;
        for (start, length) in &self.journal {
            if (*start..start + length).contains(&sector) {
                return Some(before + sector - start);
            }
            before += length;
        }
        None
    }

    fn written(&self) -> u64 {
        sectors(&self.requests).count() as u64
    }

    fn home_written(&self) -> u64 {
        sectors(&self.requests).filter(|(sector, _)| self.slot(*sector).is_none()).count() as u64
    }
}

fn be32(block: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
}

/// Reads the log as a recovering kernel would and checks every home write against it. Returns how many there were.
fn check_journal(run: &Run) -> u64 {
    let mut tags: Vec<u64> = Vec::new(); // homes of the copies that follow, last first
    let mut transaction: BTreeMap<u64, (Content, u64)> = BTreeMap::new();
    let mut committed: BTreeMap<u64, (Content, u64)> = BTreeMap::new();
    let mut holds: BTreeMap<u64, Content> = BTreeMap::new();
    let (mut sequence, mut homes, mut flushed) = (1, 0, false);
    for request in &run.requests {
        if request.kind == RequestKind::Flush {
            flushed = true;
            continue;
        }
        for (sector, content) in sectors(std::slice::from_ref(request)) {
            holds.insert(sector, content.clone());
            let mut bytes = vec![0; SECTOR_BYTES];
            content.fill(&mut bytes);
            let Some(slot) = run.slot(sector) else {
                let (copy, copied_to) = committed.get(&sector).expect("home writes follow a committed copy");
                assert_eq!(content, copy, "the home write is the last committed copy");
                assert_eq!(holds.get(copied_to), Some(copy), "whose slot is not used again");
                homes += 1;
                continue;
            };
            if let Some(home) = tags.pop() {
                transaction.insert(home, (content.clone(), sector));
                continue;
            }
            assert_eq!(be32(&bytes, 0), 0xC03B_3998);
            match be32(&bytes, 4) {
                1 => {
                    assert_eq!(be32(&bytes, 8), sequence);
                    tags = descriptor_tags(&bytes);
                }
                2 => {
                    assert!(
                        flushed && request.fua && request.contents.len() == 1,
                        "flush, then commit with FUA"
                    );
                    assert_eq!(be32(&bytes, 8), sequence);
                    sequence += 1;
                    committed.append(&mut transaction);
                }
                4 => assert!(slot == 0 && flushed && request.fua, "the tail moves after a flush"),
                kind => panic!("journal block of type {kind}"),
            }
        }
        flushed = false;
    }
    homes
}

fn descriptor_tags(bytes: &[u8]) -> Vec<u64> {
    let (mut tags, mut at) = (Vec::new(), 12);
    loop {
        let flags = be32(bytes, at + 4);
        tags.push(u64::from(be32(bytes, at)) | u64::from(be32(bytes, at + 8)) << 32);
        at += if flags & 2 == 0 { 32 } else { 16 };
        if flags & 8 != 0 {
            tags.reverse();
            return tags;
        }
    }
}

#[test]
fn every_home_write_equals_the_last_committed_copy() {
    let workloads: [(&str, Vec<Op>); 5] = [
        ("sequential", files::write_sequential(8000, 10, false, 1).collect()),
        ("random", files::write_random(2000, 6000, 7, true, 2).collect()),
        ("varmail", files::varmail(200, 600, 3).collect()),
        ("fileserver", files::fileserver(50, 150, 4).collect()),
        ("leveldb", leveldb::puts(30_000, 1024, KeyOrder::Random, 5).collect()),
    ];
    for (name, operations) in workloads {
        for config in [
            small(),
            Config { several_tasks: true, ..small() },
            Config { fsync_writes_home: true, indirect: false, journal_pieces: 1, ..small() },
        ] {
            let run = Run::new(config, operations.iter().cloned());
            let homes = check_journal(&run);
            assert!(homes > 500, "{name}: {homes} home writes");
        }
    }
}

/// Sectors written home after the first copy of a transaction and before its commit.
fn home_beside_commits(run: &Run) -> u64 {
    let (mut copying, mut beside) = (false, 0);
    for request in &run.requests {
        match run.slot(request.sectors().0.0) {
            Some(0) => {}
            Some(_) => copying = !request.fua,
            None if copying => beside += request.contents.len() as u64,
            None => {}
        }
    }
    beside
}

#[test]
fn checkpoints_run_beside_commits_that_nobody_waits_for() {
    let run = |config, window| Run::new(config, files::write_sequential(20_000, window, false, 1));
    let share = |run: &Run| home_beside_commits(run) as f64 / run.home_written() as f64;
    let several = Config { several_tasks: true, ..small() };
    let bulk = run(small(), 0);
    // All but what the log holds when the file system is unmounted.
    assert!(share(&bulk) > 0.9, "{}", share(&bulk));
    assert_eq!(home_beside_commits(&run(small(), 100)), 0, "one task waits for each fsync");
    assert!(share(&run(several, 100)) > 0.9);
    // In turns: where a checkpoint runs, hardly two requests of a commit follow one another.
    let writes: Vec<_> = bulk.requests.iter().filter(|r| r.kind == RequestKind::Write && !r.fua).collect();
    let steady: Vec<bool> =
        writes[writes.len() / 2..][..40].iter().map(|r| bulk.slot(r.sectors().0.0).is_some()).collect();
    assert!(steady.chunk_by(|a, b| a == b).all(|turn| !turn[0] || turn.len() <= 2), "{steady:?}");
}

#[test]
fn at_the_end_the_newest_contents_are_at_home() {
    for mode in [DataMode::Journal, DataMode::Ordered] {
        let operations: Vec<Op> = files::varmail(100, 500, 9).collect();
        let mut live: BTreeMap<u64, BTreeMap<u64, Content>> = BTreeMap::new();
        for operation in &operations {
            match operation {
                Op::Write(file, block, content) => {
                    live.entry(file.0).or_default().insert(*block, content.clone());
                }
                Op::Delete(file) => {
                    live.remove(&file.0);
                }
                _ => {}
            }
        }
        let run = Run::new(Config { mode, ..small() }, operations.into_iter());
        let disk: BTreeMap<u64, &Content> = sectors(&run.requests).collect();
        let at_home: BTreeSet<String> = disk
            .iter()
            .filter(|(sector, _)| run.slot(**sector).is_none())
            .map(|(_, content)| format!("{content:?}"))
            .collect();
        for content in live.values().flat_map(BTreeMap::values) {
            assert!(at_home.contains(&format!("{content:?}")), "{mode:?}");
        }
    }
}

#[test]
fn full_journaling_writes_twice_and_more_with_small_windows() {
    // woj.txt, figure 2d: 2.6 with a window of 10, about 2 with 1000.
    const BLOCKS: u64 = 20_000;
    let amplification = |mode, window| {
        let run = Run::new(Config { mode, ..small() }, files::write_sequential(BLOCKS, window, false, 1));
        run.written() as f64 / BLOCKS as f64
    };
    let (ten, thousand) = (amplification(DataMode::Journal, 10), amplification(DataMode::Journal, 1000));
    assert!((2.4..3.4).contains(&ten) && (2.0..2.1).contains(&thousand), "{ten} {thousand}");
    assert!(amplification(DataMode::Ordered, 1000) < 1.1);
    assert!(amplification(DataMode::Journal, 1) > ten);
}

#[test]
fn ordered_data_is_home_before_its_commit_and_never_in_the_journal() {
    let operations: Vec<Op> = files::write_sequential(500, 5, false, 1).collect();
    let run = Run::new(Config { mode: DataMode::Ordered, ..small() }, operations.iter().cloned());
    let data: BTreeSet<String> = operations
        .iter()
        .filter_map(|op| if let Op::Write(_, _, content) = op { Some(format!("{content:?}")) } else { None })
        .collect();
    let written: Vec<_> =
        sectors(&run.requests).filter(|(_, content)| data.contains(&format!("{content:?}"))).collect();
    assert_eq!(written.len(), 500);
    assert!(written.iter().all(|(sector, _)| run.slot(*sector).is_none()));
    // A commit with FUA after each five blocks of data.
    let mut blocks = 0;
    for request in &run.requests {
        blocks += request.contents.iter().filter(|c| data.contains(&format!("{c:?}"))).count();
        assert!(!request.fua || blocks.is_multiple_of(5), "{blocks}");
    }
}

/// Share of home writes that WOJ finds: with `key` as the fingerprint, one entry each, collisions invalidate
/// (woj.txt, section 2.2).
fn found<K: Ord>(run: &Run, key: impl Fn(&Content) -> K) -> f64 {
    let mut pool: BTreeMap<K, Option<u64>> = BTreeMap::new();
    let mut key_of: BTreeMap<u64, Content> = BTreeMap::new();
    let (mut hits, mut homes) = (0u64, 0u64);
    for (sector, content) in sectors(&run.requests) {
        if run.slot(sector).is_some() {
            if let Some(old) = key_of.insert(sector, content.clone())
                && pool.get(&key(&old)) == Some(&Some(sector))
            {
                pool.remove(&key(&old));
            }
            let entry = pool.entry(key(content)).or_insert(Some(sector));
            if *entry != Some(sector) {
                *entry = None;
            }
        } else {
            homes += 1;
            let hit = pool.get(&key(content)).copied().flatten();
            hits += u64::from(hit.is_some_and(|slot| key_of[&slot] == *content));
        }
    }
    hits as f64 / homes as f64
}

/// Empty files in 20 directories; every second one is deleted a little later.
fn create_and_delete(files: u64) -> impl Iterator<Item = Op> {
    use vellum_trace::generate::ext::{DirectoryId, FileId};
    let directories = (1..=20).map(|id| Op::MakeDirectory(DirectoryId(id)));
    directories.chain((0..files).flat_map(|id| {
        let old = id.checked_sub(100).filter(|old| old.is_multiple_of(2)).map(FileId);
        let create = Op::Create(FileId(id), DirectoryId(1 + id % 20));
        let sync = id.is_multiple_of(500).then_some(Op::Fsync(FileId(id)));
        [Some(create), old.map(Op::Delete), sync].into_iter().flatten()
    }))
}

#[test]
fn heads_collide_where_whole_contents_do_not() {
    let head = |content: &Content| {
        let mut bytes = vec![0; SECTOR_BYTES];
        content.fill(&mut bytes);
        bytes[..64].to_vec()
    };
    let whole = |content: &Content| {
        let mut bytes = vec![0; SECTOR_BYTES];
        content.fill(&mut bytes);
        bytes
    };
    let shares = |name, operations: &mut dyn Iterator<Item = Op>| {
        let run = Run::new(small(), operations);
        let (by_head, by_content) = (found(&run, head), found(&run, whole));
        eprintln!("{name}: home writes found by the first 64 bytes {by_head:.3}, by all {by_content:.3}");
        // The rest are bitmaps of different groups with the same bits: one entry a content is too few.
        assert!(by_content > 0.98, "{name}: {by_content}");
        by_head
    };
    // Random data rarely collides; metadata does.
    let data = shares("varmail", &mut files::varmail(300, 1500, 3));
    assert!((0.9..0.99).contains(&data), "{data}");
    let metadata = shares("create and delete", &mut create_and_delete(16_000));
    assert!((0.2..0.8).contains(&metadata), "{metadata}");
}

#[test]
fn create_and_copy_move_whole_files() {
    let created: Vec<Op> = files::create(30, FileSize::Small, 1).collect();
    assert_eq!(created.iter().filter(|op| matches!(op, Op::Write(..))).count(), 30 * 16);
    let run = Run::new(small(), files::copy(30, FileSize::Small, 1));
    check_journal(&run);
    let reads = run.requests.iter().filter(|r| r.kind == RequestKind::Read).count();
    assert_eq!(reads, 30 * 16);
    let mut times = BTreeMap::new();
    let live = run.requests.iter().rev().flat_map(|r| &r.contents).collect::<Vec<_>>();
    for content in live {
        *times.entry(format!("{content:?}")).or_insert(0u32) += 1;
    }
    // Source and copy, each in the journal and at home.
    assert_eq!(times.values().filter(|n| **n == 4).count(), 30 * 16);
    assert_eq!(files::copy(1, FileSize::Large, 1).take(100_000).count(), 100_000, "streams");
}

#[test]
fn leveldb_random_keys_cost_compactions_and_big_values_more_blocks() {
    let written = |order, value_bytes| {
        let operations = leveldb::puts(60_000, value_bytes, order, 1);
        Run::new(small(), operations).home_written() as f64 * 4096.0 / (60_000.0 * value_bytes as f64)
    };
    let (sequential, random) = (written(KeyOrder::Sequential, 1024), written(KeyOrder::Random, 1024));
    assert!((1.9..3.0).contains(&sequential), "log and table: {sequential}");
    assert!(random > sequential + 1.0, "{random}");
    let logs = leveldb::puts(1000, 128, KeyOrder::Random, 1).filter(|op| matches!(op, Op::Write(..))).count();
    assert_eq!(logs, 1000 * (128 + 38) / 4096, "the log is written a block at a time, and not synced");
}

#[test]
fn real_files_are_copied_with_their_contents() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let operations: Vec<Op> = vellum_trace::generate::copy::tree(&root).unwrap().collect();
    let lib = std::fs::read(root.join("lib.rs")).unwrap();
    let mut first = lib[..lib.len().min(SECTOR_BYTES)].to_vec();
    first.resize(SECTOR_BYTES, 0);
    let expected = Content::of_bytes(&first);
    assert!(operations.iter().any(|op| matches!(op, Op::Write(_, 0, content) if *content == expected)));
    let directories = operations.iter().filter(|op| matches!(op, Op::MakeDirectory(_))).count();
    assert_eq!(directories, 5, "formats, generate, generate/ext, generate/kv, vtrace");
    check_journal(&Run::new(small(), operations.into_iter()));
    assert!(vellum_trace::generate::copy::tree(&root.join("lib.rs")).is_err());
}

#[test]
fn the_same_seed_gives_the_same_requests() {
    let run = |seed| Run::new(small(), files::fileserver(20, 50, seed)).requests;
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn the_journal_lies_where_it_is_told_and_wraps() {
    let run = Run::new(small(), files::write_sequential(4000, 100, false, 1));
    assert_eq!(run.journal.len(), 5);
    assert_eq!(run.journal.iter().map(|(_, length)| length).sum::<u64>(), 1024);
    let mut times = BTreeMap::new();
    sectors(&run.requests).filter_map(|(s, _)| run.slot(s)).for_each(|s| *times.entry(s).or_insert(0) += 1);
    assert_eq!(times.len(), 1024);
    assert!(times.values().all(|n| *n >= 2), "every slot is used again");
}

#[test]
fn a_full_file_system_and_unknown_files_are_errors() {
    let config = Config { device_bytes: ByteLen(96 << 20), ..small() };
    let mut ext = Ext::new(config, files::write_sequential(1 << 20, 0, false, 1)).unwrap();
    let error = ext.by_ref().find_map(Result::err).unwrap();
    assert_eq!(error.kind(), vellum_base::Kind::NoSpace);
    assert!(ext.next().is_none());
    let operations = [Op::Delete(vellum_trace::generate::ext::FileId(7))].into_iter();
    assert!(Ext::new(small(), operations).unwrap().any(|r| r.is_err()));
    assert!(Ext::new(Config { journal_bytes: ByteLen(0), ..small() }, std::iter::empty()).is_err());
}

#[test]
fn a_journaled_workload_of_40_thousand_sectors_fits_a_small_vtrace() {
    let run = Run::new(small(), files::write_random(6000, 15_000, 4, true, 1));
    let mut writer = vellum_trace::vtrace::Writer::new(Vec::new(), &Default::default()).unwrap();
    run.requests.iter().for_each(|request| writer.write(request).unwrap());
    let file = writer.finish().unwrap();
    let sectors = run.written();
    eprintln!("{} requests, {sectors} sectors: {} bytes of vtrace", run.requests.len(), file.len());
    assert!(sectors > 20_000 && file.len() < 512 << 10);
    let back: Vec<Request> =
        vellum_trace::vtrace::Reader::new(&file[..]).unwrap().collect::<Result<_, _>>().unwrap();
    let again = Run { requests: back, journal: run.journal.clone() };
    assert_eq!(check_journal(&again), check_journal(&run));
}
