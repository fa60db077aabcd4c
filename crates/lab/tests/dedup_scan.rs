//! `dedup_scan` against a slow, simple oracle: whole chunks in a map.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use vellum_base::Kind;
use vellum_lab::dedup_scan::{CHUNK_BYTES, ChunkFigures, Scan, ScanOptions, Tails, scan};

/// Enough memory for all fingerprints.
const PLENTY: u64 = 64 << 20;

fn options(threads: usize) -> ScanOptions {
    ScanOptions { threads, memory_bytes: PLENTY, tails: Tails::Padded, cross: false, seed: 1 }
}

fn scanned(path: &Path, options: &ScanOptions) -> Scan {
    scan(&[path.to_path_buf()], options, &()).unwrap()
}

/// Bytes that differ from those of any other `seed`, at any chunk size.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let words = (0..bytes.div_ceil(8) as u64).map(|i| xxh(seed, i));
    words.flat_map(u64::to_le_bytes).take(bytes).collect()
}

fn xxh(seed: u64, i: u64) -> u64 {
    let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i.wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// A tree with duplicates of known kinds, tails, zeros, holes, links, an empty file and special files.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let write = |name: &str, bytes: &[u8]| std::fs::write(at(name), bytes).unwrap();
    std::fs::create_dir_all(at("a/deep/er")).unwrap();
    std::fs::create_dir_all(at("b")).unwrap();
    let large = noise(1, 9 << 20); // more than a piece
    write("a/large", &large);
    write("b/large-again", &large);
    write("b/shifted", &large[2048..200_000]); // equal at 2 KiB only
    write("a/deep/er/third", &large[..65536]);
    for i in 0..300 {
        write(&format!("a/deep/small-{i}"), &noise(100 + i % 40, 1 + (i % 40) as usize * 331));
    }
    write("empty", &[]);
    write("zeros", &[0; 70_000]);
    write("nearly-zeros", &[&[0; 40_000][..], b"x", &[0; 5000]].concat());
    let holes = std::fs::File::create(at("holes")).unwrap();
    holes.write_all_at(&large[..40_000], 1 << 20).unwrap();
    holes.write_all_at(&noise(2, 3000), (20 << 20) + 7 * 2048).unwrap();
    holes.set_len((25 << 20) + 1234).unwrap();
    std::fs::hard_link(at("a/large"), at("b/link-1")).unwrap();
    std::fs::hard_link(at("a/large"), at("b/link-2")).unwrap();
    symlink(at("a"), at("b/loop")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(at("socket")).unwrap());
    dir
}

/// Every regular file once.
fn files(dir: &Path, met: &mut BTreeSet<u64>, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        if meta.is_dir() {
            files(&path, met, found);
        } else if meta.is_file() && met.insert(meta.ino()) {
            found.push(path);
        }
    }
}

/// Number of chunks, and the number of copies of each non-zero content.
fn oracle(contents: &[Vec<u8>], chunk_bytes: u64, tails: Tails) -> (u64, BTreeMap<Vec<u8>, u64>) {
    let (mut chunks, mut copies) = (0, BTreeMap::new());
    for bytes in contents {
        for chunk in bytes.chunks(chunk_bytes as usize) {
            let mut chunk = chunk.to_vec();
            if tails == Tails::LeftOut && chunk.len() < chunk_bytes as usize {
                continue;
            }
            chunk.resize(chunk_bytes as usize, 0);
            chunks += 1;
            if chunk.iter().any(|b| *b != 0) {
                *copies.entry(chunk).or_insert(0) += 1;
            }
        }
    }
    (chunks, copies)
}

fn agrees(figures: &ChunkFigures, chunks: u64, copies: &BTreeMap<Vec<u8>, u64>) {
    let counts: Vec<u64> = copies.values().copied().collect();
    let nonzero: u64 = counts.iter().sum();
    let with = |least: u64| counts.iter().filter(|c| **c >= least).count() as u64;
    let duplicates = |least: u64| counts.iter().filter(|c| **c >= least).map(|c| c - 1).sum::<u64>();
    let size = figures.chunk_bytes;
    assert_eq!((figures.chunks, figures.zero_chunks), (chunks, chunks - nonzero), "{size}");
    assert_eq!((figures.distinct_chunks, figures.duplicate_chunks), (with(1), nonzero - with(1)), "{size}");
    assert_eq!((figures.duplicated, figures.hot), (with(2), with(3)), "{size}");
    let share = |part: u64, whole: u64| part as f64 / whole as f64;
    assert_eq!(figures.hot_share_of_duplicates, share(duplicates(3), duplicates(2)), "{size}");
    let mut falling = counts.clone();
    falling.sort_by_key(|c| std::cmp::Reverse(*c));
    for table in &figures.tables {
        let held: u64 = falling.iter().take(table.fingerprints as usize).map(|c| c - 1).sum();
        assert!((table.best - share(held, duplicates(2))).abs() < 1e-9, "{size} {table:?}");
    }
}

#[test]
fn a_tree_is_counted_as_an_oracle_counts_it_with_any_number_of_threads() {
    let dir = tree();
    let mut found = Vec::new();
    files(dir.path(), &mut BTreeSet::new(), &mut found);
    let contents: Vec<_> = found.iter().map(|path| std::fs::read(path).unwrap()).collect();
    for tails in [Tails::Padded, Tails::LeftOut] {
        let one = scanned(dir.path(), &ScanOptions { tails, ..options(1) });
        for (figures, chunk_bytes) in one.sizes.iter().zip(CHUNK_BYTES) {
            let (chunks, copies) = oracle(&contents, chunk_bytes, tails);
            agrees(figures, chunks, &copies);
        }
        assert_eq!(one.files, found.len() as u64);
        assert_eq!(one.file_bytes, contents.iter().map(|c| c.len() as u64).sum::<u64>());
        let left = one.left_out;
        assert_eq!((left.hard_links, left.symlinks, left.special, left.unreadable), (2, 2, 1, 0));
        for threads in [2, 4, 9] {
            assert_eq!(
                one,
                scanned(dir.path(), &ScanOptions { tails, ..options(threads) }),
                "{threads} threads"
            );
        }
    }
}

#[test]
fn holes_are_not_read_and_count_as_zeros() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("d");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(1 << 40).unwrap(); // reading it would take minutes
    file.write_all_at(&noise(1, 2048), (1 << 39) + 4096).unwrap();
    if file.metadata().unwrap().blocks() * 512 >= 1 << 39 {
        return eprintln!("skipped: no holes on this file system");
    }
    let found = scanned(&path, &options(2));
    assert_eq!((found.files, found.file_bytes), (1, 1 << 40));
    assert!(found.hole_bytes >= (1 << 40) - (1 << 20), "{}", found.hole_bytes);
    for figures in &found.sizes {
        assert_eq!(figures.chunks, (1 << 40) / figures.chunk_bytes);
        assert_eq!((figures.distinct_chunks, figures.duplicate_chunks), (1, 0));
        assert_eq!(figures.zero_chunks, figures.chunks - 1);
    }
}

#[test]
fn an_image_counts_as_the_files_it_is_made_of() {
    let dir = tempfile::tempdir().unwrap();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let mut image = Vec::new();
    for i in 0..50u64 {
        let bytes = noise(i % 7, 32768 * (1 + i as usize % 7)); // whole groups: no padding
        std::fs::write(tree.join(i.to_string()), &bytes).unwrap();
        image.extend(bytes);
    }
    let path = dir.path().join("image");
    std::fs::write(&path, &image).unwrap();
    let (of_tree, of_image) = (scanned(&tree, &options(3)), scanned(&path, &options(3)));
    assert_eq!(of_tree.sizes, of_image.sizes);
    assert_eq!((of_tree.files, of_image.files), (50, 1));
    assert!(of_image.sizes[2].duplicate_share > 0.8);
}

#[test]
fn paths_that_overlap_count_once() {
    let dir = tree();
    let whole = scanned(dir.path(), &options(2));
    let [a, large, link] = ["a", "a/large", "b/link-1"].map(|name| dir.path().join(name));
    let paths = [a, large, dir.path().to_path_buf(), link];
    let again = scan(&paths, &options(2), &()).unwrap();
    assert_eq!(again.sizes, whole.sizes);
    assert_eq!((again.files, again.file_bytes), (whole.files, whole.file_bytes));
}

#[test]
fn a_sample_is_near_the_truth_and_the_same_with_any_number_of_threads() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..64u64 {
        // Half of each file is repeated in the next.
        let bytes = [noise(i / 2, 1 << 20), noise(1000 + i, 1 << 20)].concat();
        std::fs::write(dir.path().join(i.to_string()), bytes).unwrap();
    }
    let whole = scanned(dir.path(), &options(2));
    let little = |threads| ScanOptions { memory_bytes: 1 << 20, ..options(threads) };
    let sample = scanned(dir.path(), &little(1));
    assert_eq!(sample, scanned(dir.path(), &little(4)));
    assert_eq!((whole.sizes[0].sampled_one_in, whole.sizes[0].duplicate_share), (1, 0.25));
    for (sample, whole) in sample.sizes.iter().zip(&whole.sizes) {
        assert!(sample.sampled_one_in >= 2, "{sample:?}");
        let off = (sample.duplicate_share - whole.duplicate_share).abs();
        let error = sample.duplicate_share_error;
        assert!(error > 0.0 && error < 0.2 && off <= 2.0 * error, "{off} {error}");
    }
}

#[test]
fn what_cannot_be_scanned_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let error = |path: &str, options: &ScanOptions| scan(&[path.into()], options, &()).unwrap_err().kind();
    assert_eq!(error("/no/such/place", &options(1)), Kind::Io);
    assert_eq!(error("/dev/null", &options(1)), Kind::Invalid);
    assert_eq!(error("/proc", &options(1)), Kind::Invalid);
    let here = dir.path().to_str().unwrap();
    assert_eq!(error(here, &options(0)), Kind::Invalid);
    assert_eq!(error(here, &ScanOptions { memory_bytes: 1000, ..options(1) }), Kind::Invalid);
    let nothing = scanned(dir.path(), &options(2));
    assert_eq!((nothing.files, nothing.sizes[0].chunks), (0, 0));
}
