//! Leaves that compaction does not change are kept as they are: what the medium is told is true, caps hold, answers are
//! the same.

use crate::doubtful::Doubtful;
use crate::harness::Op;
use crate::harness::{Model, apply, assert_same, batch_of, directory, packed, small};
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use vellum_base::sync::Mutex;
use vellum_base::{Env, Error, IoClass, Kind, LedgerSnapshot, RealEnv, Result};
use vellum_kv::media::{
    Area, AreaReader, AreaWriter, Areas, Intent, MediaShape, Sharing, Stored, TableReader, TableWriter,
    Tables,
};
use vellum_kv::{
    Caps, Directory, FlashMedia, Map, Media, Options, Reuse, ReuseOptions, Store, StoreStat, log,
};
use vellum_sim::Sim;

/// What a medium was given.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    /// Bytes said to be stored already.
    pub stored: u64,
    /// The bits of where such bytes were, where they went, and how many they were: whole units of what divides it.
    pub bits: u64,
    pub bubbles: u64,
    /// Most of a table that was bubbles.
    pub share_max: f64,
}

/// A medium that looks whether what is said to be stored already is.
pub(crate) struct Spy {
    pub inner: Arc<dyn Media>,
    pub seen: Arc<Mutex<Seen>>,
    /// There is no room to try anything out.
    pub full: bool,
    /// Is called before an area is read.
    pub reads: fn(),
    /// Bytes that a table can have, if fewer than it says.
    pub capacity: Option<u64>,
    /// The next sync of an area finds no free handle.
    pub no_handle: AtomicBool,
    /// Tables may point into logs, if that is so below.
    pub keeps_areas: bool,
}

impl Spy {
    pub(crate) fn on(inner: Arc<dyn Media>) -> Spy {
        Spy {
            inner,
            seen: Arc::default(),
            full: false,
            reads: || {},
            capacity: None,
            no_handle: AtomicBool::new(false),
            keeps_areas: false,
        }
    }
}

struct SpyWriter {
    capacity: u64,
    inner: Box<dyn TableWriter>,
    media: Arc<dyn Media>,
    seen: Arc<Mutex<Seen>>,
    bytes: u64,
}

impl TableWriter for SpyWriter {
    fn capacity(&self) -> u64 {
        self.capacity
    }
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.bytes += bytes.len() as u64;
        self.inner.append(bytes)
    }
    fn append_stored(&mut self, bytes: &[u8], from: Stored) -> Result<u64> {
        let mut there = vec![0; bytes.len()];
        self.media.open_table(from.table)?.read(from.offset, &mut there, IoClass::Background)?;
        assert!(there == bytes, "{from:?} holds something else");
        let mut seen = self.seen.lock();
        seen.stored += bytes.len() as u64;
        seen.bits |= from.offset | self.bytes | bytes.len() as u64;
        drop(seen);
        self.append(bytes)?;
        Ok(bytes.len() as u64)
    }
    fn finish(self: Box<Self>, bubbles: u64) -> Result<()> {
        assert!(self.bytes <= self.inner.capacity(), "{} bytes do not fit", self.bytes);
        let mut seen = self.seen.lock();
        seen.bubbles += bubbles;
        seen.share_max = seen.share_max.max(bubbles as f64 / self.bytes as f64);
        drop(seen);
        self.inner.finish(bubbles)
    }
}

impl Media for Spy {
    fn shape(&self) -> MediaShape {
        self.inner.shape()
    }
    fn current(&self) -> Result<Option<Vec<u8>>> {
        self.inner.current()
    }
    fn set_current(&self, bytes: &[u8]) -> Result<()> {
        self.inner.set_current(bytes)
    }
    fn ledger(&self) -> LedgerSnapshot {
        self.inner.ledger()
    }
}

impl Tables for Spy {
    fn sharing(&self, _unit_bytes: u64) -> Result<Sharing> {
        match self.full {
            true => Err(vellum_base::Error::new(vellum_base::Kind::NoSpace, "no room to try it out")),
            false => Ok(Sharing::Remap),
        }
    }
    fn create_table(&self, number: u64, intent: Intent) -> Result<Box<dyn TableWriter>> {
        let inner = self.inner.create_table(number, intent)?;
        let capacity = self.capacity.unwrap_or(u64::MAX).min(inner.capacity());
        Ok(Box::new(SpyWriter {
            capacity,
            inner,
            media: self.inner.clone(),
            seen: self.seen.clone(),
            bytes: 0,
        }))
    }
    fn tables_free(&self) -> u64 {
        self.inner.tables_free()
    }
    fn open_table(&self, number: u64) -> Result<Arc<dyn TableReader>> {
        self.inner.open_table(number)
    }
    fn erase_table(&self, number: u64) -> Result<()> {
        self.inner.erase_table(number)
    }
    fn tables(&self) -> Result<Vec<u64>> {
        self.inner.tables()
    }
    fn table_path(&self, number: u64) -> Option<PathBuf> {
        self.inner.table_path(number)
    }
    fn adopt_table(&self, number: u64, from: &Path) -> Result<bool> {
        self.inner.adopt_table(number, from)
    }
}

impl Areas for Spy {
    fn create_area(&self, area: Area) -> Result<Arc<dyn AreaWriter>> {
        self.inner.create_area(area)
    }
    fn read_area(&self, area: Area) -> Result<Vec<u8>> {
        (self.reads)();
        self.inner.read_area(area)
    }
    fn sync_area(&self, area: Area) -> Result<()> {
        if self.no_handle.swap(false, SeqCst) {
            return Err(Error::new(Kind::NoSpace, "too many open files"));
        }
        self.inner.sync_area(area)
    }
    fn remove_area(&self, area: Area) -> Result<()> {
        self.inner.remove_area(area)
    }
    fn sync_removals(&self) -> Result<()> {
        self.inner.sync_removals()
    }
    fn areas(&self) -> Result<Vec<Area>> {
        self.inner.areas()
    }
    fn keeps_areas(&self) -> bool {
        self.keeps_areas && self.inner.keeps_areas()
    }
    fn open_area(&self, area: Area) -> Result<Arc<dyn AreaReader>> {
        self.inner.open_area(area)
    }
}

/// A value of which some part compresses to nothing, and the rest not at all.
fn mixed(rng: &mut SmallRng, bytes: usize) -> Vec<u8> {
    let mut value = vec![rng.random(); bytes];
    let noise = rng.random_range(0..=bytes);
    rng.fill(&mut value[..noise]);
    value
}

/// Keys that are written: each from the last `near` on, then from anywhere.
fn written(seed: u64, value_bytes: usize, run: usize, options: Options) -> (StoreStat, Seen) {
    let dir = tempfile::tempdir().unwrap();
    let spy = Spy::on(directory(dir.path()));
    let (seen, media): (_, Arc<dyn Media>) = (spy.seen.clone(), Arc::new(spy));
    // In virtual time: what is merged with what must not depend on how busy the machine is.
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let stat = sim.run(|| {
        let store = Store::open(media, env, options).unwrap();
        let (mut rng, mut model) = (SmallRng::seed_from_u64(seed), Model::new());
        let count = (3 << 20) / value_bytes;
        for _ in 0..count / run {
            let start = rng.random_range(0..count * 2);
            let ops: Vec<Op> = (start..start + run)
                .map(|i| {
                    let key = format!("key{i:06}").into_bytes();
                    match rng.random_range(0..10) {
                        0 => Op::Delete(key),
                        _ => Op::Put(key, mixed(&mut rng, value_bytes)),
                    }
                })
                .collect();
            apply(&mut model, &ops);
            store.write(&batch_of(&ops), Default::default()).unwrap();
        }
        store.compact().unwrap();
        assert_same(&store, &model, "at the end");
        let stat = store.stat();
        store.close().unwrap();
        stat
    });
    let seen = *seen.lock();
    (stat, seen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn what_is_kept_is_stored_and_caps_hold(
        seed in any::<u64>(),
        value_bytes in 30usize..3000,
        run in 1usize..30,
        compress in any::<bool>(),
        paper in any::<bool>(),
        bubble in 0.0f64..1.0,
        global in 0.0f64..0.3,
        island_min in 0u64..40_000,
        unit_bytes in prop::sample::select(vec![4096u64, 8192, 16384]),
    ) {
        let mode = if paper { Reuse::Bubbles } else { Reuse::Relink };
        let options = if compress { packed() } else { small() };
        let (stat, seen) = written(seed, value_bytes, run, Options {
            reuse: ReuseOptions {
                mode,
                caps: Caps { bubble, global },
                unit_bytes: Some(unit_bytes),
                island_bytes_min: Some(island_min),
            },
            ..options
        });
        prop_assert!(seen.bits.is_multiple_of(unit_bytes), "{:x} is not whole units", seen.bits);
        let told = if paper { 0 } else { stat.since_opened.reuse().kept_bytes };
        prop_assert_eq!((told, stat.since_opened.reuse().bubble_bytes), (seen.stored, seen.bubbles));
        prop_assert_eq!(stat.since_opened.reuse().relinked_bytes, seen.stored);
        prop_assert!(seen.share_max <= global, "{} of {global} is bubbles", seen.share_max);
    }
}

#[test]
fn clustered_overwrites_keep_most() {
    let at = |mode: Reuse, unit_bytes| {
        let reuse = ReuseOptions { unit_bytes, ..mode.into() };
        let (stat, _) = written(7, 500, 40, Options { reuse, ..small() });
        let tables = stat.ledger.programmed_total() - stat.ledger.programmed_by(vellum_base::Cause::Log);
        (tables, tables - stat.since_opened.reuse().kept_bytes)
    };
    let of = |unit| [Reuse::Off, Reuse::Bubbles, Reuse::Relink].map(|reuse| at(reuse, unit));
    let [(off, _), (_, paper), (_, ours)] = of(None);
    assert!(paper * 10 < off * 9, "{paper} of {off} with bubbles");
    assert!(ours <= paper, "{ours} where the paper's rule writes {paper}");
    let [(coarse_off, _), _, (_, coarse)] = of(Some(16 << 10));
    assert!(coarse < coarse_off && ours < coarse, "{coarse} of {coarse_off}: of larger leaves fewer survive");
}

#[test]
fn auto_shares_where_it_can() {
    let mode = |media: Arc<dyn Media>, mode: Reuse| {
        let options = Options { reuse: mode.into(), ..small() };
        let store = Store::open(media, RealEnv::new(), options).unwrap();
        let stat = store.stat();
        store.close().unwrap();
        (stat.reuse_mode, stat.sharing)
    };
    let clones = || Directory::on(Arc::new(Doubtful::default()), Default::default());
    assert_eq!(mode(clones(), Reuse::Auto), (Reuse::Relink, Sharing::Reflink));
    assert_eq!(mode(clones(), Reuse::Bubbles), (Reuse::Bubbles, Sharing::None), "nobody asked");
    let (files, zones) = crate::zones::formatted(true, 1);
    let zones = |reuse| mode(crate::zones::media(&files, &zones).unwrap(), reuse);
    assert_eq!(zones(Reuse::Auto), (Reuse::Off, Sharing::None), "these zones do not remap");
    assert_eq!(zones(Reuse::Bubbles), (Reuse::Off, Sharing::None), "nothing below deduplicates");
    let flash = FlashMedia::open(crate::harness::flash(1), RealEnv::new()).unwrap();
    assert_eq!(
        mode(flash.clone(), Reuse::Bubbles),
        (Reuse::Off, Sharing::None),
        "nothing below deduplicates"
    );
    let refused = vellum_kv::check_sharing(&*flash, &Reuse::Bubbles.into()).unwrap_err();
    assert_eq!(refused.kind(), vellum_base::Kind::Unsupported, "{refused}");
}

#[test]
fn what_was_shared_is_counted_for_life() {
    let files = Doubtful::default();
    let open = || {
        let media = files.directory();
        Store::open(media, RealEnv::new(), Options { reuse: Reuse::Relink.into(), ..small() }).unwrap()
    };
    let store = open();
    for i in (0..6000u32).chain(1000..1400).chain(3000..3400) {
        store.put(&i.to_be_bytes(), &[i as u8; 500]).unwrap();
    }
    store.compact().unwrap();
    let first = store.stat().since_opened.reuse();
    store.close().unwrap();
    assert!(first.relinked_bytes > 0 && first.relinked_bytes < first.kept_bytes, "some clones are refused");
    let life = open().stat().lifetime;
    assert_eq!(life.reuse(), first);
    assert_eq!((life.reflinked_bytes(), life.remapped_bytes()), (first.relinked_bytes, 0));
    assert!(life.emitted_bytes() > first.kept_bytes && first.padding_share(life.emitted_bytes()) <= 0.05);
}

/// A file system that turns out never to clone is asked once, and nothing is left empty for it from then on.
#[test]
fn what_a_file_system_never_does_is_remembered() {
    let files = Doubtful::default();
    let options =
        || Options { reuse: ReuseOptions { island_bytes_min: Some(0), ..Reuse::Relink.into() }, ..small() };
    let open = || Store::open(files.directory(), RealEnv::new(), options()).unwrap();
    let store = open();
    assert_eq!((store.stat().reuse_mode, store.stat().sharing), (Reuse::Relink, Sharing::Reflink));
    for i in 0..6000u32 {
        store.put(&i.to_be_bytes(), &[i as u8; 500]).unwrap();
    }
    store.compact().unwrap();
    files.0.lock().never_clones = true;
    let (asked, written) = (files.0.lock().clones, |from: u32| {
        (from..from + 400).for_each(|i| store.put(&i.to_be_bytes(), &[7; 500]).unwrap());
        store.compact().unwrap();
        store.stat().since_opened.reuse()
    });
    let first = written(1000);
    assert_eq!((store.stat().reuse_mode, store.stat().sharing), (Reuse::Off, Sharing::None));
    assert_eq!(written(3000), first, "nothing is kept, and no bubble left");
    assert_eq!(files.0.lock().clones, asked + 1, "one refusal is enough");
    store.close().unwrap();
    assert_eq!(open().stat().reuse_mode, Reuse::Relink, "the next life asks again");
}

/// Where trying it out needs room that there is not, what only may be done is not.
#[test]
fn auto_goes_on_without_room_to_try_it_out() {
    let mode = |mode: Reuse| {
        let spy = Spy { full: true, ..Spy::on(Doubtful::default().directory()) };
        let store = Store::open(Arc::new(spy), RealEnv::new(), Options { reuse: mode.into(), ..small() })?;
        Ok::<_, vellum_base::Error>((store.stat().reuse_mode, store.stat().sharing))
    };
    assert_eq!(mode(Reuse::Auto).unwrap(), (Reuse::Off, Sharing::None));
    assert_eq!(mode(Reuse::Relink).unwrap_err().kind(), vellum_base::Kind::NoSpace, "which was wanted");
}

#[test]
fn caps_that_are_no_shares_and_units_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |reuse: ReuseOptions| {
        let options = Options { reuse, ..small() };
        let of_log = log::Options { reuse: options.reuse, ..log::Options::default() };
        let env = || -> Arc<dyn Env> { RealEnv::new() };
        let errors = [
            Store::open(directory(dir.path()), env(), options).map(drop).unwrap_err(),
            log::Store::open(directory(dir.path()), env(), of_log).map(drop).unwrap_err(),
        ];
        assert!(errors.iter().all(|e| e.kind() == Kind::Invalid), "{errors:?}");
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().filter(|e| !is_lock(e)).count(),
            0,
            "nothing is made"
        );
    };
    for cap in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
        refused(ReuseOptions { caps: Caps { bubble: cap, ..Caps::default() }, ..ReuseOptions::default() });
        refused(ReuseOptions { caps: Caps { global: cap, ..Caps::default() }, ..ReuseOptions::default() });
    }
    // Of 256 KiB of a table, a sixteenth at most.
    for unit_bytes in [0, 64, 2048, 5000, 12288, 32768, u64::MAX] {
        refused(ReuseOptions { unit_bytes: Some(unit_bytes), ..ReuseOptions::default() });
    }
}

fn is_lock(entry: &std::io::Result<std::fs::DirEntry>) -> bool {
    entry.as_ref().unwrap().file_name() == "LOCK"
}
