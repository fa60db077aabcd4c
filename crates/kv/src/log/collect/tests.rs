//! Collections that there is no room for, and what they need of it.

use super::*;
use crate::freewrite::ReuseOptions;
use crate::log::{Options, Store};
use crate::map::Map;
use crate::media::{Directory, DirectoryOptions, Media};
use vellum_base::RealEnv;

const SEGMENT_BYTES: u64 = 64 << 10;

fn options() -> Options {
    Options {
        segment_bytes: SEGMENT_BYTES,
        garbage_share: 1.1,
        collect_max: 8,
        reuse: Reuse::Off.into(),
        ..Options::default()
    }
}

fn open(media: &Arc<Directory>) -> Store {
    Store::open(media.clone() as Arc<dyn Media>, RealEnv::new(), options()).unwrap()
}

/// Writes records of about a KiB, with keys of their own; a segment has 64 KiB.
fn fill(store: &Store, from: u32, records: u32) {
    (from..from + records).for_each(|n| store.put(&n.to_be_bytes(), &[n as u8; 1000]).unwrap());
}

/// Does something while there is room for one segment more.
fn with_room_for_one<T>(core: &Core, what: impl FnOnce() -> T) -> T {
    let mut slots = core.state.lock().slots.clone();
    slots.resize(core.format.slots(), false);
    let free: Vec<usize> = (0..slots.len()).filter(|slot| !slots[*slot]).skip(1).collect();
    free.iter().for_each(|slot| slots[*slot] = true);
    core.state.lock().slots = slots;
    let result = what();
    let slots = &mut core.state.lock().slots;
    free.into_iter().for_each(|slot| slots[slot] = false);
    result
}

/// If only part is copied, and nothing is won by that, it fails as if there were no room at all.
#[test]
fn what_wins_nothing_is_not_done_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
    let store = open(&media);
    for segment in 0..3 {
        fill(&store, 100 * segment, 50);
        store.flush().unwrap();
    }
    let core = &store.core;
    let collect_two = || {
        let (all, weights) = core.weighed();
        let error = with_room_for_one(core, || core.collect(PickedSegments::of(&all, &weights, 0..2))).err();
        (error.map(|error| error.kind()), store.stat().collected_bytes)
    };
    // Of the second segment as much as fits into the room that the first one left.
    let (error, first) = collect_two();
    assert_eq!((error, core.weighed().1[1].has_garbage(true)), (None, true));
    core.erase_obsolete().unwrap();
    let tables = core.media.tables().unwrap();
    for _ in 0..3 {
        assert_eq!(collect_two(), (Some(Kind::NoSpace), first));
    }
    assert_eq!(core.media.tables().unwrap(), tables);
}

/// Where nothing of a segment counts any more, bubbles that it has are no reason for a new one.
#[test]
fn a_dead_segment_with_bubbles_needs_no_table() {
    let dir = tempfile::tempdir().unwrap();
    let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
    let caps = crate::freewrite::Caps { bubble: 1.0, global: 1.0 };
    let how = Options { reuse: ReuseOptions { caps, ..Reuse::Bubbles.into() }, ..options() };
    let store = Store::open(media.clone() as Arc<dyn Media>, RealEnv::new(), how).unwrap();
    fill(&store, 0, 50);
    store.flush().unwrap();
    (0..50).step_by(9).for_each(|n: u32| store.delete(&n.to_be_bytes()).unwrap());
    let core = &store.core;
    let collect_first = || {
        let (all, weights) = core.weighed();
        core.collect(PickedSegments::of(&all, &weights, 0..1)).unwrap();
    };
    collect_first();
    assert!(core.weighed().1[0].bubbles > 0);
    (0..50).for_each(|n: u32| store.delete(&n.to_be_bytes()).unwrap());
    let numbers = core.next_number.load(Relaxed);
    collect_first();
    assert_eq!((core.weighed().1.len(), core.next_number.load(Relaxed)), (0, numbers));
}

/// A segment is collected in part, as there is no table for the rest, and again later: what it deleted and put again is
/// still there when the store is opened.
#[test]
fn what_a_segment_that_stays_deleted_and_put_again_is_not_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
    let store = open(&media);
    store.put(b"older", b"garbage").unwrap();
    store.flush().unwrap();
    store.put(b"older", b"v").unwrap();
    store.put(b"k", b"1").unwrap();
    fill(&store, 0, 20);
    store.flush().unwrap();
    fill(&store, 50, 20);
    store.flush().unwrap();
    store.delete(b"k").unwrap();
    store.put(b"k", b"2").unwrap();
    fill(&store, 100, 40);
    store.flush().unwrap();
    let core = &store.core;
    let (all, weights) = core.weighed();
    assert_eq!(weights.len(), 4);
    // The other three need two.
    with_room_for_one(core, || core.collect(PickedSegments::of(&all, &weights, 1..4))).unwrap();
    let stays = all[3].clone();
    assert_eq!(core.weighed().0.iter().position(|segment| segment.order == stays.order), Some(2));
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    drop((all, weights));
    let (all, weights) = core.weighed();
    core.collect(PickedSegments::of(&all, &weights, 2..3)).unwrap();
    drop((all, weights, stays));
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    store.close().unwrap();
    let store = open(&media);
    assert_eq!(
        store.get(b"k").unwrap().as_deref(),
        Some(&b"2"[..]),
        "it was deleted before it was put again"
    );
    assert_eq!(store.verify().unwrap().problems, Vec::<String>::new());
}
