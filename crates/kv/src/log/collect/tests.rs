//! Collections that there is no room for.

use super::*;
use crate::log::{Options, Store};
use crate::map::Map;
use crate::media::{Directory, DirectoryOptions, Media};
use vellum_base::RealEnv;

const SEGMENT_BYTES: u64 = 64 << 10;

fn open(media: &Arc<Directory>) -> Store {
    let options = Options {
        segment_bytes: SEGMENT_BYTES,
        garbage_share: 1.1,
        collect_max: 8,
        reuse: Reuse::Off,
        ..Options::default()
    };
    Store::open(media.clone() as Arc<dyn Media>, RealEnv::new(), options).unwrap()
}

/// KiBs of a segment of 64, of keys of its own.
fn fill(store: &Store, from: u32, records: u32) {
    (from..from + records).for_each(|n| store.put(&n.to_be_bytes(), &[n as u8; 1000]).unwrap());
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
    // Room for one segment more, where the other three need two.
    let others = std::mem::take(&mut core.state.lock().slots);
    let mut full = vec![true; core.layout.slots()];
    full[all.len() + 9] = false;
    core.state.lock().slots = full;
    core.collect(Picked::of(&all, &weights, 1..4)).unwrap();
    let stays = all[3].clone();
    assert_eq!(core.weighed().0.iter().position(|segment| segment.order == stays.order), Some(2));
    core.state.lock().slots = others;
    core.state.lock().slots.resize(all.len() + 10, false);
    core.state.lock().slots[all.len() + 9] = true;
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"2"[..]));
    drop((all, weights));
    let (all, weights) = core.weighed();
    core.collect(Picked::of(&all, &weights, 2..3)).unwrap();
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
