//! Keyspaces made, written to together, ingested into, and dropped at run time, beside a map of maps; with the power
//! cut at every call, and on flash.

use crate::doubtful::Doubtful;
use crate::files::open as open_doubtful;
use crate::harness::{Model, directory, flash, forward, open, open_flash, small};
use crate::lives::end_at_every_call;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv, Result};
use vellum_kv::{Batch, Bounds, Durability, FlashMedia, KEYSPACES_MAX, Map, Options, Rules, Store};
use vellum_media::nand::Fault;
use vellum_sim::Sim;

const LAST: &[u8] = b"~last";
const NAMES: [&str; 4] = ["default", "alpha", "beta", "gamma"];

/// Keyspace, key, and value if it is not to be deleted.
type Write = (&'static str, Vec<u8>, Option<Vec<u8>>);
type Models = BTreeMap<String, Model>;

#[derive(Clone, Debug)]
enum Step {
    Create(&'static str),
    Drop(&'static str),
    Write(Vec<Write>),
    /// Keyspace, and sorted keys and values.
    Ingest(&'static str, Model),
    Flush,
    Compact,
}

/// What has been done, the last perhaps not.
#[derive(Default)]
struct Story {
    steps: Vec<Step>,
    /// So many were acknowledged.
    done: usize,
    /// Batches that were promised to survive.
    promised: usize,
}

impl Story {
    /// What is there when of the first `steps` the first `batches` batches happened, and all else.
    fn state(&self, steps: usize, batches: usize) -> Models {
        let mut models = Models::from([("default".to_string(), Model::new())]);
        let mut written = 0;
        for step in &self.steps[..steps] {
            match step {
                Step::Create(name) => drop(models.insert(name.to_string(), Model::new())),
                Step::Drop(name) => drop(models.remove(*name)),
                Step::Write(ops) => {
                    written += 1;
                    if written > batches {
                        continue;
                    }
                    for (name, key, value) in ops {
                        let model = models.get_mut(*name).expect("only live keyspaces are written to");
                        match value {
                            Some(value) => drop(model.insert(key.clone(), value.clone())),
                            None => drop(model.remove(key)),
                        }
                    }
                }
                Step::Ingest(name, entries) => {
                    models.get_mut(*name).expect("live").extend(entries.clone());
                }
                Step::Flush | Step::Compact => {}
            }
        }
        models
    }

    fn batches(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Write(_))).count()
    }

    fn next(&mut self, rng: &mut SmallRng) -> Step {
        let live: Vec<&str> = self.state(self.steps.len(), 0).keys().map(|name| known(name)).collect();
        let name = NAMES[rng.random_range(1..NAMES.len())];
        let step = match rng.random_range(0..60) {
            0..6 if !live.contains(&name) => Step::Create(name),
            0..2 if live.contains(&name) => Step::Drop(name),
            2 => Step::Flush,
            4 => Step::Ingest(live[rng.random_range(0..live.len())], sorted(rng)),
            3 if rng.random_range(0..4) == 0 => Step::Compact,
            _ => Step::Write(self.batch(&live, rng)),
        };
        self.steps.push(step.clone());
        step
    }

    fn batch(&self, live: &[&'static str], rng: &mut SmallRng) -> Vec<Write> {
        let number = self.batches() as u64 + 1;
        let mut ops: Vec<_> = (0..rng.random_range(1..5))
            .map(|_| {
                let key = format!("{:03}", rng.random_range(0..150)).into_bytes();
                let value = vec![number as u8; rng.random_range(0..1500)];
                (live[rng.random_range(0..live.len())], key, (rng.random_range(0..4) > 0).then_some(value))
            })
            .collect();
        ops.push(("default", LAST.to_vec(), Some(number.to_le_bytes().to_vec())));
        ops
    }

    /// Compares a store after a crash, and forgets what did not happen.
    fn settle(&mut self, store: &Store, context: &str) {
        let last = store.get(LAST).unwrap_or_else(|e| panic!("{context}: {e}"));
        let found = last.map_or(0, |last| u64::from_le_bytes(last.try_into().unwrap()) as usize);
        assert!(found >= self.promised, "{context}: {found} batches of {} promised", self.promised);
        let there = read(store).unwrap_or_else(|e| panic!("{context}: {e}"));
        let steps =
            [self.done, self.steps.len()].into_iter().find(|steps| self.state(*steps, found) == there);
        let Some(steps) = steps else {
            let names: Vec<_> = there.iter().map(|(name, model)| (name, model.len())).collect();
            panic!("{context}: {found} batches, {names:?}, last {:?}", self.steps.last())
        };
        let mut batches = 0;
        self.steps.truncate(steps);
        self.steps.retain(|step| {
            batches += matches!(step, Step::Write(_)) as usize;
            !matches!(step, Step::Write(_)) || batches <= found
        });
        (self.done, self.promised) = (self.steps.len(), found);
    }
}

/// Entries for an ingest: few or many, close together or all over.
fn sorted(rng: &mut SmallRng) -> Model {
    let (from, count) = (rng.random_range(0..150), rng.random_range(0..60));
    let key = |i: u32| format!("{:03}", from + i).into_bytes();
    (0..count).map(|i| (key(i), vec![i as u8 ^ 0xA5; rng.random_range(0..900)])).collect()
}

fn known(name: &str) -> &'static str {
    NAMES.into_iter().find(|known| *known == name).unwrap()
}

fn take(store: &Store, step: &Step, durability: Durability) -> Result<()> {
    match step {
        Step::Create(name) => store.create_keyspace(name).map(drop),
        Step::Drop(name) => store.drop_keyspace(name),
        Step::Ingest(name, entries) => {
            let keyspace = store.keyspace(name)?;
            let mut ingest = keyspace.ingest()?;
            entries.iter().try_for_each(|(key, value)| ingest.put(key, value))?;
            let done = ingest.finish()?;
            assert_eq!(done.entries, entries.len() as u64);
            Ok(())
        }
        Step::Flush => store.flush(),
        Step::Compact => store.compact(),
        Step::Write(ops) => {
            let mut batch = Batch::new();
            for (name, key, value) in ops {
                let keyspace = store.keyspace(name)?;
                match value {
                    Some(value) => batch.put_in(&keyspace, key, value)?,
                    None => batch.delete_in(&keyspace, key)?,
                }
            }
            store.write(&batch, durability)
        }
    }
}

fn read(store: &Store) -> Result<Models> {
    let names = store.keyspaces().into_iter();
    names.map(|name| Ok((name.clone(), forward(store.keyspace(&name)?.iter(Bounds::all())?)?))).collect()
}

/// Goes on with a story until the power goes. True if it went.
fn tell(store: &Store, story: &mut Story, rng: &mut SmallRng, steps: usize, nvram: bool) -> bool {
    for _ in 0..steps {
        let step = story.next(rng);
        let durability = if rng.random_range(0..6) == 0 { Durability::Sync } else { Durability::Buffered };
        match take(store, &step, durability) {
            Ok(()) => story.done = story.steps.len(),
            Err(e) if e.kind() == Kind::PowerLost => return true,
            Err(e) => panic!("{step:?}: {e}"),
        }
        if durability == Durability::Sync && matches!(step, Step::Write(_))
            || nvram
            || matches!(&step, Step::Drop(_))
            || matches!(&step, Step::Ingest(_, entries) if !entries.is_empty())
        {
            story.promised = story.batches();
        }
    }
    false
}

fn cut_in_a_directory(seed: u64, nth: u64) -> bool {
    let sim = Sim::new(seed);
    let env: Arc<dyn Env> = sim.env();
    let (files, mut story) = (Doubtful::default(), Story::default());
    let mut rng = SmallRng::seed_from_u64(seed);
    sim.run(|| {
        files.0.lock().left = Some(nth);
        let cut = match open_doubtful(&files, &env) {
            Ok(store) => tell(&store, &mut story, &mut rng, 220, false),
            Err(_) => true,
        };
        let cut = cut || files.0.lock().off;
        files.0.lock().off = true;
        files.0.lock().crash_by_chance(&mut rng);
        let context = format!("seed {seed}, cut at call {nth}");
        let store = open_doubtful(&files, &env).unwrap_or_else(|e| panic!("{context}: {e}"));
        story.settle(&store, &context);
        tell(&store, &mut story, &mut rng, 60, false);
        let expected = story.state(story.steps.len(), usize::MAX);
        assert!(read(&store).unwrap() == expected, "{context}: later");
        cut
    })
}

#[test]
fn a_cut_at_every_call_keeps_keyspaces_whole() {
    end_at_every_call(0..3, 200, cut_in_a_directory);
}

#[test]
fn cuts_on_flash_keep_keyspaces_whole() {
    // In life 1036 a flush after an ingest wrote a lower last number to the manifest than the ingest had.
    vellum_sim::check(1000..1060, |seed| {
        let (flash, mut story) = (flash(seed), Story::default());
        let mut rng = SmallRng::seed_from_u64(seed);
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            for round in 0..4 {
                let store = open_flash(&flash, env.clone()).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                story.settle(&store, &format!("seed {seed}, round {round}"));
                match rng.random() {
                    true => flash.power_cut_at(rng.random_range(1..400)),
                    false => flash.arm(rng.random_range(1..900), Fault::PowerCutInNvram),
                }
                tell(&store, &mut story, &mut rng, 600, true);
                drop(store);
                flash.power_on();
            }
        });
    });
}

#[test]
fn a_store_is_a_map_of_maps() {
    vellum_sim::check(0..4, |seed| {
        let dir = tempfile::tempdir().unwrap();
        let (mut story, mut rng) = (Story::default(), SmallRng::seed_from_u64(seed));
        let mut held = Vec::new();
        for round in 0..6 {
            let store = open(directory(dir.path())).unwrap();
            for _ in 0..4 {
                tell(&store, &mut story, &mut rng, 200, false);
                let now = story.state(story.steps.len(), usize::MAX);
                assert!(read(&store).unwrap() == now, "seed {seed} round {round}");
                held.push((store.snapshot(), now));
                let (snapshot, then) = held.swap_remove(rng.random_range(0..held.len()));
                let default = store.keyspace("default").unwrap();
                let found = forward(snapshot.iter_in(&default, Bounds::all()).unwrap()).unwrap();
                assert!(found == then["default"], "seed {seed} round {round}: snapshot");
                let probe = format!("{:03}", rng.random_range(0..150)).into_bytes();
                let expected = then["default"].get(&probe).cloned();
                assert_eq!(snapshot.get_in(&default, &probe).unwrap(), expected);
            }
            held.clear();
            store.close().unwrap();
        }
        let store = open(directory(dir.path())).unwrap();
        assert!(read(&store).unwrap() == story.state(story.steps.len(), usize::MAX), "seed {seed}");
        store.compact().unwrap();
        let entries: u64 = store.stat().levels.iter().map(|level| level.entries).sum();
        let wanted: usize = read(&store).unwrap().values().map(Model::len).sum();
        assert_eq!(entries, wanted as u64, "seed {seed}: something dropped stays");
    });
}

#[test]
fn dropping_erases_tables_and_frees_the_number() {
    let flash = flash(7);
    let store = open(FlashMedia::open(flash, RealEnv::new()).unwrap()).unwrap();
    for round in 0..600u32 {
        let logs = store.create_keyspace("logs").unwrap();
        assert_eq!(logs.get(b"0").unwrap(), None, "round {round}");
        logs.put(b"0", &round.to_le_bytes()).unwrap();
        store.put(b"kept", &round.to_le_bytes()).unwrap();
        store.drop_keyspace("logs").unwrap();
        assert_eq!(logs.put(b"1", b"").unwrap_err().kind(), Kind::Invalid);
        assert_eq!(logs.get(b"0").unwrap_err().kind(), Kind::Invalid);
        if round % 100 == 99 {
            store.compact().unwrap(); // or there would be 600 numbers in use
        }
    }
    let big = store.create_keyspace("big").unwrap();
    for i in 0..4000u32 {
        big.put(&i.to_be_bytes(), &[7; 300]).unwrap();
    }
    store.compact().unwrap();
    let before = store.stat();
    store.drop_keyspace("big").unwrap();
    store.compact().unwrap();
    let after = store.stat();
    assert!(after.discarded > before.discarded + 2, "{after:?}");
    assert_eq!(after.levels.iter().map(|level| level.entries).sum::<u64>(), 1);
    assert_eq!(store.get(b"kept").unwrap(), Some(599u32.to_le_bytes().to_vec()));
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let store = open(FlashMedia::open(flash(8), RealEnv::new()).unwrap()).unwrap();
    let other = open(FlashMedia::open(flash(9), RealEnv::new()).unwrap()).unwrap();
    let refused = |result: Result<()>, word: &str| {
        let error = result.unwrap_err();
        assert!(error.kind() == Kind::Invalid && error.to_string().contains(word), "{error}");
    };
    refused(store.create_keyspace("").map(drop), "1 to 255");
    refused(store.create_keyspace(&"x".repeat(256)).map(drop), "1 to 255");
    refused(store.create_keyspace("default").map(drop), "already");
    refused(store.drop_keyspace("default"), "stays");
    refused(store.drop_keyspace("none"), "no keyspace");
    let foreign = other.create_keyspace("foreign").unwrap();
    let mut batch = Batch::new();
    batch.put_in(&foreign, b"k", b"v").unwrap();
    refused(store.write(&batch, Durability::Buffered), "foreign");
    for i in 0..KEYSPACES_MAX {
        store.create_keyspace(&format!("name {i}")).unwrap();
    }
    refused(store.create_keyspace("one more").map(drop), "at most 254");
    let last = store.keyspace("name 253").unwrap();
    last.put(&[0xFF; 9], b"v").unwrap();
    assert_eq!(forward(last.iter(Bounds::prefix(&[0xFF])).unwrap()).unwrap().len(), 1);
    store.close().unwrap();
    assert_eq!(last.put(b"k", b"v").unwrap_err().kind(), Kind::Poisoned);
}

/// One at a time, and more in all than there are numbers.
#[test]
fn keyspaces_that_are_dropped_leave_their_numbers() {
    [Rules::Vellum, Rules::LevelDb].into_iter().for_each(dropped_ones_leave_their_numbers);
}

fn dropped_ones_leave_their_numbers(rules: Rules) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { rules, ..small() };
    let store = Store::open(directory(dir.path()), RealEnv::new(), options).unwrap();
    let held = store.create_keyspace("held").unwrap();
    for n in 0..600u32 {
        held.put(&n.to_be_bytes(), &[1; 100]).unwrap();
        let temporary = store.create_keyspace("temporary").unwrap();
        assert_eq!(temporary.get(b"k").unwrap(), None, "{n}");
        temporary.put(b"k", &n.to_be_bytes()).unwrap();
        if n % 7 == 0 {
            store.flush().unwrap();
        }
        store.drop_keyspace("temporary").unwrap();
    }
    assert!((0..600u32).all(|n| held.get(&n.to_be_bytes()).unwrap().is_some()));
}

#[test]
fn a_snapshot_knows_keyspaces_of_its_store_only() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [a, b] = dirs.each_ref().map(|dir| open(directory(dir.path())).unwrap());
    let (of_a, of_b) = (a.create_keyspace("k").unwrap(), b.create_keyspace("k").unwrap());
    of_b.put(b"x", b"b's").unwrap();
    let snapshot = a.snapshot();
    assert_eq!(snapshot.get_in(&of_a, b"x").unwrap(), None);
    assert!(snapshot.get_in(&of_b, b"x").unwrap_err().to_string().contains("of another store"));
    assert!(snapshot.iter_in(&of_b, Bounds::all()).is_err());
}

/// Values that a flush leaves in a log keep no number.
#[test]
fn a_kept_log_does_not_hold_the_numbers_of_what_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(directory(dir.path())).unwrap();
    (0..500u32).for_each(|n| store.put(&n.to_be_bytes(), &[1; 100]).unwrap());
    store.compact().unwrap();
    for n in 0..400u32 {
        store.put(&n.to_be_bytes(), &[1; 60]).unwrap();
        let temporary = store.create_keyspace("temporary").unwrap_or_else(|error| panic!("{n}: {error}"));
        temporary.put(b"k", b"v").unwrap();
        store.drop_keyspace("temporary").unwrap();
    }
}

/// As many as there may be, of which one goes and one comes, again and again.
#[test]
fn the_last_number_comes_again_and_again() {
    for level0_in_log in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { level0_in_log, ..small() };
        let store = Store::open(directory(dir.path()), RealEnv::new(), options).unwrap();
        let make = |name: &str| {
            let space = store.create_keyspace(name).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(space.get(&[0; 4]).unwrap(), None, "{name}");
            (0..5u32).for_each(|n| space.put(&n.to_be_bytes(), &[7; 1000]).unwrap());
        };
        let mut names: Vec<String> = (0..KEYSPACES_MAX).map(|n| format!("first {n}")).collect();
        names.iter().for_each(|name| make(name));
        let mut rng = SmallRng::seed_from_u64(1);
        for round in 0..200 {
            let name = &mut names[rng.random_range(0..KEYSPACES_MAX)];
            store.drop_keyspace(name).unwrap();
            *name = format!("later {round}");
            make(name);
        }
    }
}
