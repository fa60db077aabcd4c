//! A store whose tables are on our own disk, which maps one sector into two tables when compaction requests it
//! (docs/decisions/0021): that saves programming these sectors, every ledger adds up, and a power cut between a remap
//! and the manifest that needs it loses nothing that was promised.

use crate::doubtful::Doubtful;
use crate::harness::{Model, Op, apply, assert_same, batch_of, of_seed, small};
use crate::history::{History, Style};
use crate::lives::{Power, live_on, write};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use vellum_base::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use vellum_base::{Avoided, Cause, Env, Flash, Geometry, RealEnv, Result, SECTOR_BYTES};
use vellum_disk::{DedupMode, Disk, Format, Options as DiskOptions, sectors_max};
use vellum_kv::{
    Caps, Directory, DirectoryOptions, Map, Media, Options, Reuse, ReuseOptions, Store, StoreStat, ZoneMedia,
};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::zones::BlockZones;
use vellum_sim::Sim;

const ZONE_BYTES: u64 = 260 << 10;
const STYLE: Style = Style { keys: 3000, value_bytes: 900 };

/// 2 dies × 200 blocks × 16 pages of 4 KiB: 25 MiB.
fn geometry() -> Geometry {
    Geometry {
        channels: 2,
        dies_per_channel: 1,
        blocks_per_die: 200,
        pages_per_block: 16,
        page_bytes: SECTOR_BYTES as u32,
        oob_bytes: 32,
    }
}

/// Flash and a directory in memory, with a common power switch.
struct Machine {
    files: Doubtful,
    nand: Arc<Nand>,
}

impl Machine {
    /// Makes a machine with a disk, and the directory of a store on it.
    fn new(env: &Arc<dyn Env>, dedup: DedupMode, seed: u64) -> Machine {
        let nand = Nand::ram(geometry(), NandParams { seed, nvram_bytes: 64 << 10, ..NandParams::default() });
        let machine = Machine { files: Doubtful::default(), nand: Arc::new(nand.unwrap()) };
        let format = Format { dedup, ..Format::new(sectors_max(&geometry(), 0)) };
        Disk::format(machine.nand.clone(), env.clone(), &format).unwrap();
        let disk = machine.disk(env).unwrap();
        let zones = BlockZones::new(disk.clone(), ZONE_BYTES).unwrap();
        ZoneMedia::format(&machine.directory(), &zones, "disk", [7; 16], false).unwrap();
        disk.close().unwrap();
        machine
    }

    fn directory(&self) -> Arc<Directory> {
        Directory::on(Arc::new(self.files.clone()), DirectoryOptions::default())
    }

    fn disk(&self, env: &Arc<dyn Env>) -> Result<Arc<Disk>> {
        let options = DiskOptions { journals: Some(Vec::new()), ..DiskOptions::default() };
        Ok(Arc::new(Disk::open(self.nand.clone(), env.clone(), options)?))
    }

    fn media(&self, disk: &Arc<Disk>) -> Result<Arc<dyn Media>> {
        let zones = BlockZones::new(disk.clone(), ZONE_BYTES)?;
        Ok(ZoneMedia::open(self.directory(), Arc::new(zones))?)
    }
}

/// The map is consistent, everything is readable, and the ledger equals the device's counters.
fn assert_sound(disk: &Disk, nand: &Nand, context: &str) {
    let report = disk.check(true, |_, _| {}).unwrap();
    assert!(report.is_clean(), "{context}: {report:?}");
    let programmed = nand.counters().pages_programmed * u64::from(geometry().page_bytes);
    assert_eq!(disk.ledger().programmed_total(), programmed, "{context}: bytes programmed");
}

/// Repeatedly writes runs of twenty keys; returns the store's statistics, and the disk below it.
fn clustered(reuse: Reuse, dedup: DedupMode) -> (StoreStat, Arc<Disk>, Machine) {
    let env: Arc<dyn Env> = RealEnv::new();
    let machine = Machine::new(&env, dedup, 1);
    let disk = machine.disk(&env).unwrap();
    let store =
        Store::open(machine.media(&disk).unwrap(), env.clone(), Options { reuse: reuse.into(), ..small() })
            .unwrap();
    let (mut rng, mut model) = (SmallRng::seed_from_u64(3), Model::new());
    for _ in 0..600 {
        let start = rng.random_range(0..6000);
        let put = |key| Op::Put(format!("key{key:05}").into(), (0..500).map(|_| rng.random()).collect());
        let ops: Vec<Op> = (start..start + 20).map(put).collect();
        apply(&mut model, &ops);
        store.write(&batch_of(&ops), Default::default()).unwrap();
    }
    store.compact().unwrap();
    assert_same(&store, &model, &format!("{reuse:?}"));
    let stat = store.stat();
    store.close().unwrap();
    disk.close().unwrap();
    assert_sound(&disk, &machine.nand, &format!("{reuse:?}"));
    let again = machine.disk(&env).unwrap();
    let store = Store::open(machine.media(&again).unwrap(), env, small()).unwrap();
    assert_same(&store, &model, &format!("{reuse:?}, opened again"));
    (stat, disk, machine)
}

#[test]
fn what_is_remapped_is_not_programmed() {
    let (_, off, _) = clustered(Reuse::Off, DedupMode::None);
    let (stat, disk, _) = clustered(Reuse::Auto, DedupMode::None);
    let ledger = disk.ledger();
    let remapped = ledger.avoided_by(Avoided::Remap);
    assert!(
        stat.since_opened.reuse().relinked_bytes == stat.since_opened.reuse().kept_bytes
            && stat.since_opened.reuse().islands > 0,
        "{:?}",
        stat.since_opened.reuse()
    );
    assert_eq!(
        (remapped, remapped),
        (stat.since_opened.reuse().relinked_bytes, stat.lifetime.remapped_bytes()),
        "store and disk"
    );
    // Every sector that the store wrote was programmed once, or there is a reason why not.
    let avoided: u64 =
        Avoided::ALL.iter().filter(|why| **why != Avoided::Trim).map(|why| ledger.avoided_by(*why)).sum();
    assert_eq!(ledger.host_written_bytes, ledger.programmed_by(Cause::HostData) + avoided);
    let (before, after) = (off.ledger().programmed_total(), ledger.programmed_total());
    assert!(after * 5 < before * 4, "{after} bytes programmed, {before} without reuse");
}

/// The paper's way: the device is not told, and deduplication finds the copies.
#[test]
fn bubbles_are_enough_for_a_disk_that_deduplicates() {
    let (stat, disk, _) = clustered(Reuse::Bubbles, DedupMode::Strong(vellum_codes::HashKind::Sha1));
    let found = disk.ledger().avoided_by(Avoided::Duplicate);
    assert_eq!(stat.since_opened.reuse().relinked_bytes, 0);
    // Sectors that end within a leaf of several are sometimes zeros, which are counted under another reason.
    assert!(
        found * 100 >= stat.since_opened.reuse().kept_bytes * 98,
        "{found} bytes found of {}",
        stat.since_opened.reuse().kept_bytes
    );
}

impl Power for Machine {
    fn is_off(&self) -> bool {
        self.files.is_off() || self.nand.is_off()
    }
    fn cycle(&self, rng: &mut SmallRng) {
        self.nand.power_on();
        self.files.cycle(rng);
    }
    fn arm_for_recovery(&self, rng: &mut SmallRng) {
        match rng.random_range(0..4) {
            0 => self.files.0.lock().left = Some(rng.random_range(1..12)),
            1 => self.nand.power_cut_at(rng.random_range(1..20)),
            _ => {}
        }
    }
    fn arm(&self, rng: &mut SmallRng) {
        match rng.random() {
            true => self.files.arm(rng),
            false => self.nand.power_cut_at(rng.random_range(1..600)),
        }
    }
    fn disarm(&self) {
        self.files.disarm();
        self.nand.disarm();
    }
}

/// Options that reuse much of what exists.
fn reusing(seed: u64) -> Options {
    let caps = if seed.is_multiple_of(3) { Caps::default() } else { Caps { bubble: 1.0, global: 1.0 } };
    let options = of_seed(seed);
    let reuse = ReuseOptions { mode: Reuse::Relink, caps, island_bytes_min: None, ..options.reuse };
    Options { reuse, ..options }
}

#[test]
fn cuts_between_remaps_and_manifests_lose_nothing() {
    let (orphans, remapped) = (AtomicUsize::new(0), AtomicUsize::new(0));
    vellum_sim::check(0..60, |seed| {
        let context = format!("seed {seed}");
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let machine = Machine::new(&env, DedupMode::None, seed);
            let (mut history, mut rng) = (History::default(), SmallRng::seed_from_u64(seed));
            let open = || {
                let disk = machine.disk(&env)?;
                assert_sound_while_on(&disk, &machine, &context);
                let media = machine.media(&disk)?;
                let found = media.tables()?.len();
                let store = Store::open(media, env.clone(), reusing(seed))?;
                let named: usize = store.stat().levels.iter().map(|level| level.tables).sum();
                orphans.fetch_add((found > named) as usize, Relaxed);
                remapped.fetch_add((disk.ledger().avoided_by(Avoided::Remap) > 0) as usize, Relaxed);
                Ok(store)
            };
            match seed % 3 {
                0 => machine.nand.power_cut_at(1 + seed * 7919 % 900),
                1 => machine.files.0.lock().left = Some(1 + seed * 7919 % 2000),
                _ => {}
            }
            if let Ok(store) = open() {
                write(&store, &mut history, &mut rng, 3000, &STYLE);
            }
            live_on(&machine, open, &mut history, &mut rng, &STYLE, &context);
        });
    });
    let (orphans, remapped) = (orphans.into_inner(), remapped.into_inner());
    assert!(
        orphans > 10 && remapped > 20,
        "{orphans} times a table that no manifest named, {remapped} remaps"
    );
}

/// Like [`assert_sound`], but the power may be cut meanwhile.
fn assert_sound_while_on(disk: &Disk, machine: &Machine, context: &str) {
    match disk.check(true, |_, _| {}) {
        Ok(report) => assert!(report.is_clean(), "{context}: {report:?}"),
        Err(e) => assert!(machine.is_off(), "{context}: {e}"),
    }
}
