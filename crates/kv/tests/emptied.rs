//! Whatever was done to a medium until it is full, all that is in it can be deleted again.

use crate::doubtful::Doubtful;
use crate::harness::{directory, flash, flash_with, of_seed, open_flash, packed, scattered, small};
use crate::mounted::Mounted;
use crate::zones::{formatted, media};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv};
use vellum_kv::{
    Batch, Bounds, Directory, DirectoryOptions, Durability, FlashMedia, Map, Media, Options, ReuseOptions,
    Store,
};
use vellum_media::nand::NandParams;
use vellum_sim::Sim;

/// Deletes keys, with what the error says; nothing is left then.
fn can_be_emptied(store: &Store, keys: impl Iterator<Item = Vec<u8>>, context: &str) {
    are_deleted(store, |key| store.delete(key), keys, context);
    is_empty(store, context);
}

fn are_deleted(
    store: &Store,
    delete: impl Fn(&[u8]) -> vellum_base::Result<()>,
    keys: impl Iterator<Item = Vec<u8>>,
    context: &str,
) {
    for key in keys {
        let Err(error) = delete(&key) else { continue };
        assert_eq!(error.kind(), Kind::NoSpace, "{context}: {error}");
        let compacted = store.compact();
        let tables: Vec<_> = store.stat().levels.iter().map(|l| (l.tables, l.bytes >> 10)).collect();
        let deleted = delete(&key);
        assert!(deleted.is_ok(), "{context}: shut in: {deleted:?}; compact: {compacted:?}; {tables:?}");
    }
}

fn is_empty(store: &Store, context: &str) {
    // What merges made while the first was under way is left to the second.
    (0..2).for_each(|_| store.compact().unwrap());
    assert_eq!(store.stat().levels.iter().map(|level| level.entries).sum::<u64>(), 0, "{context}");
}

fn numbered(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// Puts until one is refused, a flush now and then; compacts.
fn fill_and_compact(store: &Store, rng: &mut SmallRng) {
    for n in 1.. {
        let mut value = vec![0; rng.random_range(0..2500)];
        rng.fill(&mut value[..]);
        let put = store.put(&numbered(rng.random_range(0..20_000)), &value);
        if put.is_err() || n % 700 == 0 && store.flush().is_err() {
            break;
        }
    }
    let _ = store.compact();
}

/// What merges of deeper levels take for good, table by table, deletes have no more.
fn filled_and_compacted(seed: u64, media: impl Fn() -> Arc<dyn Media>) {
    let options = if seed.is_multiple_of(2) { Options::default() } else { small() };
    let open = || Store::open(media(), RealEnv::new(), options.clone()).unwrap();
    let (store, mut rng) = (open(), SmallRng::seed_from_u64(seed));
    (0..10).for_each(|_| fill_and_compact(&store, &mut rng));
    let context = format!("seed {seed}");
    match seed % 4 < 2 {
        true => can_be_emptied(&store, (0..20_000).map(numbered), &context),
        false => {
            drop(store);
            can_be_emptied(&open(), (0..20_000).map(numbered), &context);
        }
    }
}

#[test]
fn flash_that_was_filled_and_compacted_again_and_again() {
    for seed in 0..4 {
        let nand = flash(seed);
        filled_and_compacted(seed, || FlashMedia::open(nand.clone(), RealEnv::new()).unwrap());
    }
}

#[test]
fn zones_that_were_filled_and_compacted_again_and_again() {
    for seed in 0..4 {
        let (files, zones) = formatted(true, seed);
        filled_and_compacted(seed, || media(&files, &zones).unwrap());
    }
}

/// Outputs that were cut for their overlap took superblocks that there was no room for, as merges were planned without.
#[test]
fn flash_full_of_values_of_eight_kilobytes() {
    simulated(0..8, full_of_large_values);
}

/// A third of the keys have so many bytes more.
fn sometimes_long(n: u32, more: Range<usize>) -> Vec<u8> {
    let mut own = SmallRng::seed_from_u64(n.into());
    let more = if own.random_bool(0.3) { own.random_range(more) } else { 4 };
    [&scattered(n)[..], &vec![n as u8; more]].concat()
}

/// Histories in virtual time: a seed gives the same one again.
fn simulated(seeds: Range<u64>, history: impl Fn(u64, &Arc<dyn Env>)) {
    for seed in seeds {
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| history(seed, &env));
    }
}

/// Steps until many in a row find no room.
fn until_refused(mut step: impl FnMut() -> vellum_base::Result<()>) {
    let mut refused = 0;
    for _ in 0..12_000 {
        refused = if step().is_ok() { 0 } else { refused + 1 };
        if refused > 200 {
            break;
        }
    }
}

fn full_of_large_values(seed: u64, env: &Arc<dyn Env>) {
    let (store, mut rng) = (open_flash(&flash(seed), env.clone()).unwrap(), SmallRng::seed_from_u64(seed));
    let key = |n: u32| scattered(n).to_vec();
    until_refused(|| {
        let n = rng.random_range(0..8000);
        match rng.random_range(0..1000) {
            0..4 => store.compact(),
            4..10 => store.flush(),
            10..250 => store.delete(&key(n)),
            _ => {
                let mut value = vec![0; rng.random_range(0..8000)];
                rng.fill(&mut value[..]);
                store.put(&key(n), &value)
            }
        }
    });
    can_be_emptied(&store, (0..8000).map(key), &format!("seed {seed}"));
}

/// What was compressed, or in small units, is merged by a store that does neither: in tight room it does, too.
#[test]
fn flash_filled_with_other_options_at_each_opening() {
    simulated(0..4, full_of_many_options);
}

fn full_of_many_options(seed: u64, env: &Arc<dyn Env>) {
    let (nand, mut rng) = (flash(seed), SmallRng::seed_from_u64(seed));
    let key = |n: u32| scattered(n).to_vec();
    let open = |rng: &mut SmallRng| {
        let options = match rng.random_range(0..3) {
            0 => small(),
            1 => packed(),
            _ => wide(),
        };
        Store::open(FlashMedia::open(nand.clone(), env.clone()).unwrap(), env.clone(), options).unwrap()
    };
    let mut store = Some(open(&mut rng));
    until_refused(|| {
        let n = rng.random_range(0..8000);
        let here = store.as_ref().expect("it is open");
        match rng.random_range(0..1000) {
            0..3 => {
                drop(store.take());
                store = Some(open(&mut rng));
                Ok(())
            }
            3..7 => here.compact(),
            7..13 => here.flush(),
            13..250 => here.delete(&key(n)),
            _ => {
                let mut value = vec![n as u8; rng.random_range(0..20_000)];
                let half = value.len() / 2;
                rng.fill(&mut value[..half]);
                here.put(&key(n), &value)
            }
        }
    });
    drop(store);
    can_be_emptied(&open(&mut rng), (0..8000).map(key), &format!("seed {seed}"));
}

/// A third of the keys have kilobytes: tables begin and end with any of them, and hold few.
#[test]
fn flash_full_of_keys_of_all_lengths() {
    simulated(0..8, full_of_long_keys);
}

fn full_of_long_keys(seed: u64, env: &Arc<dyn Env>) {
    let (nand, mut rng) = (flash(seed), SmallRng::seed_from_u64(seed));
    let key = |n: u32| sometimes_long(n, 2000..4000);
    let open = || open_flash(&nand, env.clone()).unwrap();
    let mut store = Some(open());
    until_refused(|| {
        let (n, what) = (rng.random_range(0..8000), rng.random_range(0..1000));
        if what < 2 {
            drop(store.take());
            store = Some(open());
            return Ok(());
        }
        let store = store.as_ref().unwrap();
        match what {
            ..6 => store.compact(),
            6..12 => store.flush(),
            12..220 => store.delete(&key(n)),
            _ => store.put(&key(n), &vec![3; rng.random_range(0..[50, 8000][seed as usize % 2])]),
        }
    });
    can_be_emptied(&store.unwrap(), (0..8000).map(key), &format!("seed {seed}"));
}

/// Keys, values and options of every kind, keyspaces, snapshots, openings. What tells long keys apart was taken to be
/// as long as they are, so tables ended when they were next to empty, and each took a superblock.
#[test]
fn flash_full_of_anything() {
    simulated(10..18, full_of_anything);
}

/// With leaves of whole blocks of 16 KiB.
fn wide() -> Options {
    let reuse = ReuseOptions { unit_bytes: Some(16 << 10), ..ReuseOptions::default() };
    Options { reuse, ..packed() }
}

fn full_of_anything(seed: u64, env: &Arc<dyn Env>) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let nvram_bytes = [320 << 10, 1 << 20, 10 * (256 << 10)][rng.random_range(0..3)];
    let nand = flash_with(NandParams { seed, nvram_bytes, ..Default::default() });
    let longest_key = [4, 200, 4000, 15_000][rng.random_range(0..4)];
    let longest_value = [50, 2000, 8000, 20_000][rng.random_range(0..4)];
    let spaces = [1, 3, 40][rng.random_range(0..3)];
    let all_options = [small(), packed(), wide(), Options::default()];
    let key = |n: u32| sometimes_long(n, 0..longest_key + 1);
    let open = |rng: &mut SmallRng| {
        let options = all_options[rng.random_range(0..4)].clone();
        Store::open(FlashMedia::open(nand.clone(), env.clone()).unwrap(), env.clone(), options).unwrap()
    };
    let space = |store: &Store, n: u32| {
        let name = format!("space{}", n % spaces);
        store.keyspace(&name).or_else(|_| store.create_keyspace(&name))
    };
    let (mut store, mut snapshot) = (Some(open(&mut rng)), None);
    until_refused(|| {
        let n = rng.random_range(0..8000);
        let here = store.as_ref().expect("it is open");
        match rng.random_range(0..1000) {
            0..2 => {
                snapshot = None;
                drop(store.take());
                store = Some(open(&mut rng));
                Ok(())
            }
            2..4 => {
                snapshot = Some(here.snapshot());
                Ok(())
            }
            4..7 => here.compact(),
            7..10 => here.compact_range(Bounds::from(&key(n))),
            10..18 => here.flush(),
            18..240 => space(here, n)?.delete(&key(n)),
            _ => {
                let mut value = vec![n as u8; rng.random_range(0..longest_value)];
                let half = value.len() / 2;
                rng.fill(&mut value[..half]);
                space(here, n)?.put(&key(n), &value)
            }
        }
    });
    drop((snapshot, store));
    let store = open(&mut rng);
    let context =
        format!("seed {seed}: keys to {longest_key}, values to {longest_value}, {spaces} keyspaces");
    for number in 0..spaces {
        let Ok(space) = store.keyspace(&format!("space{number}")) else { continue };
        let keys = (0..8000).filter(|n| n % spaces == number).map(key);
        are_deleted(&store, |key| space.delete(key), keys, &context);
    }
    is_empty(&store, &context);
}

/// Puts that were refused, deletes that flush those that were not, flushes and compactions on request.
#[test]
fn flash_that_was_full_for_long() {
    for seed in 0..6 {
        let (nand, mut rng) = (flash(seed), SmallRng::seed_from_u64(seed));
        let options = if seed.is_multiple_of(2) { of_seed(seed) } else { Options::default() };
        let media = FlashMedia::open(nand, RealEnv::new()).unwrap();
        let store = Store::open(media, RealEnv::new(), options).unwrap();
        let (mut refused, mut value) = (0, [0; 2500]);
        for step in 0..24_000 {
            let deletes = if step / 3000 % 4 == 3 { 70 } else { 10 };
            let key = numbered(rng.random_range(0..20_000));
            let done = match rng.random_range(0..4000) {
                0..6 => store.flush(),
                6..9 => store.compact(),
                9..13 => store.compact_range(Bounds::from(&key)),
                n if n % 100 < deletes => store.delete(&key),
                n => {
                    let value = &mut value[..n % 2500];
                    rng.fill(value);
                    store.put(&key, value)
                }
            };
            refused += usize::from(done.is_err_and(|error| {
                assert_eq!(error.kind(), Kind::NoSpace, "seed {seed}, step {step}: {error}");
                true
            }));
        }
        assert!(refused > 100, "seed {seed}: {refused} refused");
        can_be_emptied(&store, (0..20_000).map(numbered), &format!("seed {seed}"));
    }
}

/// Deletes flush the puts beside them with the room that is theirs: no put may be let in that leaves too little of it.
#[test]
fn puts_and_deletes_in_turn_on_a_full_file_system() {
    for (room, options) in [(4, small()), (8, Options::default()), (16, small())] {
        let files = Doubtful::default();
        files.0.lock().room = Some(room << 20);
        put_and_delete_in_turn(files.directory(), options.clone(), &format!("{room} MiB, simulated"));
        let Some(mount) = Mounted::tmpfs(room << 20) else { continue };
        let media = Directory::open(&mount.root.join("store"), DirectoryOptions::default()).unwrap();
        put_and_delete_in_turn(media, options, &format!("{room} MiB"));
    }
}

fn put_and_delete_in_turn(media: Arc<dyn Media>, options: Options, context: &str) {
    let store = Store::open(media, RealEnv::new(), options).unwrap();
    let (mut rng, mut value, mut there) = (SmallRng::seed_from_u64(1), [0; 1200], Vec::new());
    let mut put = |there: &mut Vec<u32>, n: u32| {
        rng.fill(&mut value[..]);
        store.put(&scattered(n), &value).map(|()| there.push(n))
    };
    let first = (0..).find(|n| put(&mut there, *n).is_err()).unwrap();
    for n in 0..20_000 {
        let _ = store.delete(&numbered((1 << 31) + n));
        let _ = put(&mut there, first + n);
    }
    can_be_emptied(&store, there.iter().map(|n| scattered(*n).to_vec()), context);
}

/// An ingest asks for room at each table, not at the first alone.
#[test]
fn an_ingest_that_would_fill_the_flash_is_refused() {
    for beside in [0, 2000u32] {
        let nand = flash(3);
        let open = || open_flash(&nand, RealEnv::new()).unwrap();
        let store = open();
        (0..beside).for_each(|n| store.put(&numbered(8 * n), &[1; 900]).unwrap());
        store.compact().unwrap();
        let mut ingest = store.ingest().unwrap();
        let put = (0..16_000).try_for_each(|n| ingest.put(&numbered(n), &[7; 900]));
        let refused = put.and_then(|()| ingest.finish().map(drop)).unwrap_err();
        assert_eq!(refused.kind(), Kind::NoSpace, "{refused}");
        let mut ingest = store.ingest().unwrap();
        (0..2000).for_each(|n| ingest.put(&numbered(n), &[7; 900]).unwrap());
        ingest.finish().unwrap();
        can_be_emptied(&store, (0..16_000).map(numbered), "ingested");
    }
}

/// A batch that is more than a memtable has to fit as a log, as tables, and beside what they become.
#[test]
fn a_batch_that_there_is_no_room_to_flush_is_refused() {
    for mount in Mounted::all() {
        is_refused_on(&mount);
    }
}

fn is_refused_on(mount: &Mounted) {
    let media = || Directory::open(&mount.root.join("store"), DirectoryOptions::default()).unwrap();
    let open = || Store::open(media(), RealEnv::new(), Options::default()).unwrap();
    let (store, mut rng) = (open(), SmallRng::seed_from_u64(1));
    let mut batch_of = |records: u32| {
        let mut batch = Batch::new();
        let mut value = [0; 1000];
        for n in 0..records {
            rng.fill(&mut value[..]);
            batch.put(&numbered(n), &value).unwrap();
        }
        batch
    };
    let refused = store.write(&batch_of(20 << 10), Durability::Sync).unwrap_err();
    assert_eq!(refused.kind(), Kind::NoSpace, "{refused}");
    store.write(&batch_of(4 << 10), Durability::Sync).unwrap();
    store.flush().unwrap();
    can_be_emptied(&store, (0..20 << 10).map(numbered), "batch");
}

/// The manifest, a slot of NVRAM, names two keys of each table.
#[test]
fn two_long_keys_are_no_reason_to_refuse_short_ones() {
    for (nvram_bytes, longest) in [(10 * (256 << 10), 10_000), (1 << 20, 4000)] {
        let nand = flash_with(NandParams { seed: 3, nvram_bytes, ..Default::default() });
        let open = || open_flash(&nand, RealEnv::new()).unwrap();
        let store = open();
        let long = |first: u8| vec![first; longest];
        assert_eq!(store.put(&[1; 17_000], b"a").unwrap_err().kind(), Kind::Invalid);
        [1, 9].iter().for_each(|first| store.put(&long(*first), b"a").unwrap());
        store.flush().unwrap();
        (0..5000).for_each(|n| store.put(&numbered(n), &[1; 100]).unwrap());
        [1, 9].iter().for_each(|first| store.delete(&long(*first)).unwrap());
        can_be_emptied(&store, (0..5000).map(numbered), "long keys");
    }
}

/// The manifest has their names, too.
#[test]
fn keyspaces_are_refused_before_their_names_fill_the_manifest() {
    let nand = flash_with(NandParams { seed: 3, nvram_bytes: 1 << 20, ..Default::default() });
    let store = open_flash(&nand, RealEnv::new()).unwrap();
    let made = (0..255).map_while(|n| store.create_keyspace(&format!("{n:0>255}")).ok()).count();
    assert!(made > 50, "{made}");
    (0..5000).for_each(|n| store.put(&numbered(n), &[1; 100]).unwrap());
    store.compact().unwrap();
}

/// A batch without entries makes those before it as safe as it asks.
#[test]
fn an_empty_batch_has_what_was_written_before_survive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(directory(dir.path()), RealEnv::new(), small()).unwrap();
    let mut batch = Batch::new();
    batch.put(b"k", b"v").unwrap();
    store.write(&batch, Durability::None).unwrap();
    store.write(&Batch::new(), Durability::Buffered).unwrap();
    let copy = crate::harmed::copy_of_open(dir.path());
    let after = Store::open(directory(copy.path()), RealEnv::new(), small()).unwrap();
    assert_eq!(after.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
}
