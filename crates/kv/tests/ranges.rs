//! Compaction of a range: what is in it gets deep and clean, the rest stays as it is.

use crate::harness::{flash, forward, small};
use std::sync::Arc;
use vellum_base::Env;
use vellum_kv::{Bounds, FlashMedia, Map, Store};
use vellum_sim::Sim;

fn key(i: u32) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

fn entries(store: &Store) -> u64 {
    store.stat().levels.iter().map(|level| level.entries).sum()
}

#[test]
fn compacting_a_range_cleans_it_and_no_more() {
    let sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let store =
            Store::open(FlashMedia::open(flash(1), env.clone()).unwrap(), env.clone(), small()).unwrap();
        for round in 0..3u8 {
            for i in 0..6000 {
                store.put(&key(i), &[round; 150]).unwrap();
            }
        }
        store.compact().unwrap();
        assert_eq!(entries(&store), 6000);
        let deep = store.stat().levels;
        (0..6000).for_each(|i| store.put(&key(i), &[9; 150]).unwrap());
        store.compact_range(Bounds::from(&key(1000)).until(&key(1200))).unwrap();
        let after = entries(&store);
        // What the range's tables hid is gone; of the other tables most are two levels up from what they hide.
        assert!((7000..=12_000 - 200).contains(&after), "{after} entries");
        assert_ne!(store.stat().levels, deep);
        store.compact_range(Bounds::prefix(b"none")).unwrap();
        assert_eq!(entries(&store), after);
        store.compact_range(Bounds::all()).unwrap();
        assert_eq!(entries(&store), 6000);
        let found = forward(store.iter(Bounds::prefix(b"key01")).unwrap()).unwrap();
        assert!(found.len() == 1000 && found.values().all(|value| value[..] == [9; 150]));
    });
}

#[test]
fn compacting_a_keyspace_leaves_the_others() {
    let sim = Sim::new(2);
    let env: Arc<dyn Env> = sim.env();
    sim.run(|| {
        let media = FlashMedia::open(flash(2), env.clone()).unwrap();
        let store = Store::open(media, env.clone(), small()).unwrap();
        let spaces = [store.create_keyspace("a").unwrap(), store.create_keyspace("b").unwrap()];
        for space in &spaces {
            (0..4000).for_each(|i| space.put(&key(i), &[1; 150]).unwrap());
        }
        store.compact().unwrap();
        for space in &spaces {
            (0..4000).for_each(|i| space.delete(&key(i)).unwrap());
        }
        spaces[0].compact_range(Bounds::all()).unwrap();
        let after = entries(&store);
        // Level 0 is merged as a whole, so some of the other's deletes have met what they delete.
        assert!((1..=8000).contains(&after), "{after} entries");
        assert!(forward(spaces[0].iter(Bounds::all()).unwrap()).unwrap().is_empty());
        store.compact().unwrap();
        assert_eq!(entries(&store), 0);
    });
}
