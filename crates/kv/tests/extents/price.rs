//! What stays, and what had better be written anew: the price of superblocks when a table is begun.

use super::damage::write;
use super::{INTENT, UNIT, contents, contents_of, flash, open};
use std::sync::Arc;
use vellum_base::{Cause, Env, IoClass, RealEnv};
use vellum_kv::media::{Intent, Relinking, Stored, TableWriter, Tables};
use vellum_kv::{FlashMedia, Media};
use vellum_media::nand::{Nand, NandParams};

/// On each of so many superblocks one unit is left, and on that of table 1000 so many of 61.
fn pinned(nand: &Arc<Nand>, superblocks: u64, left: u64) -> Arc<FlashMedia> {
    let env: Arc<dyn Env> = RealEnv::new();
    let media = open(nand, &env, None).unwrap();
    write(&media, 1000, 61, &[]);
    (1..=superblocks).for_each(|table| assert_eq!(write(&media, table, 50, &[]), 0));
    let all: Vec<u64> = (1..=superblocks).collect();
    assert_eq!(write(&media, 1001, 1, &all), superblocks * UNIT as u64);
    let mut writer = media.create_table(1002, INTENT).unwrap();
    append(&mut *writer, 1000, left);
    writer.finish(0).unwrap();
    all.into_iter().chain([1000]).for_each(|table| media.erase_table(table).unwrap());
    media.set_relinking(Relinking::default());
    media
}

/// Appends the first units that a table wrote, as they are stored in another. How many stay.
fn append(writer: &mut dyn TableWriter, table: u64, units: u64) -> u64 {
    let bytes = contents((0..units as u32).map(|unit| (table, unit)));
    writer.append_stored(&bytes, Stored { table, offset: 0 }).unwrap() / UNIT as u64
}

fn of_table(media: &FlashMedia, table: u64, offset: u64, units: u64) -> Vec<u8> {
    let mut bytes = vec![0; units as usize * UNIT];
    let reader = media.open_table(table).unwrap();
    reader.read(offset * UNIT as u64, &mut bytes, IoClass::Foreground).unwrap();
    bytes
}

/// A table of so many new units, and then of one that the table 1001 took over from table 1, and of all of 1002: how
/// many of each stay, which it is asked before.
fn merged(media: &FlashMedia, number: u64, new: u32, left: u64) -> [u64; 2] {
    let mut writer = media.create_table(number, INTENT).unwrap();
    let own = contents((0..new).map(|unit| (number, unit)));
    writer.append(&own).unwrap();
    [(1001, 1, 1), (1002, 0, left)].map(|(table, offset, units)| {
        let from = Stored { table, offset: offset * UNIT as u64 };
        let (shares, bytes) =
            (writer.would_share(units * UNIT as u64, from), of_table(media, table, offset, units));
        let stays = match shares {
            true => writer.append_stored(&bytes, from).unwrap() / UNIT as u64,
            false => writer.append(&bytes).map(|()| 0).unwrap(),
        };
        assert_eq!(shares, stays > 0, "what was said is done");
        stays
    })
}

#[test]
fn what_would_be_collected_soon_is_written_anew() {
    // Of 40 a quarter is 10. One is kept back, 3 are those of 1001, 1002 and the table at hand.
    for (superblocks, stays) in [(20, [1, 30]), (28, [0, 30])] {
        let nand = flash(1, NandParams::default(), 40, 4096);
        let media = pinned(&nand, superblocks, 30);
        assert_eq!(merged(&media, 2000, 0, 30), stays, "{superblocks} superblocks are pinned");
    }
}

#[test]
fn what_hardly_survives_merges_is_written_anew() {
    let nand = flash(1, NandParams::default(), 40, 4096);
    let media = pinned(&nand, 28, 4);
    // Of 64 units 4 are live, which is more than of those that would be collected; if one of six stays so it is less.
    assert_eq!(merged(&media, 2000, 0, 4)[1], 4);
    assert_eq!(merged(&media, 2001, 50, 4)[1], 0);
    // What the last table was made of counts, too.
    assert_eq!(merged(&media, 2002, 0, 4)[1], 0);
    assert_eq!(merged(&media, 2003, 0, 4)[1], 4);
}

#[test]
fn a_flush_takes_nothing_over_and_leaves_no_room_for_a_list() {
    let media =
        open(&flash(1, NandParams::default(), 8, 4096), &(RealEnv::new() as Arc<dyn Env>), None).unwrap();
    write(&media, 1, 9, &[]);
    let writer = |number, cause| media.create_table(number, Intent { cause, ..INTENT }).unwrap();
    let (mut flushed, mut merged) = (writer(2, Cause::Flush), writer(3, Cause::Compaction1));
    assert_eq!(flushed.capacity(), media.shape().table_bytes);
    assert!(merged.capacity() < flushed.capacity());
    merged.links_nothing();
    assert_eq!(merged.capacity(), flushed.capacity());
    assert!(!flushed.would_share(UNIT as u64, Stored { table: 1, offset: 0 }));
    assert_eq!(append(&mut *flushed, 1, 1), 0);
}

/// Every other unit of table 1, and how many of them stay.
fn every_other(media: &FlashMedia, number: u64, first: u32, units: u32) -> usize {
    let mut writer = media.create_table(number, INTENT).unwrap();
    let (mut bytes, mut stay) = (Vec::new(), 0);
    for unit in (first..units).step_by(2) {
        let (part, from) = (contents_of(64, [(1, unit)]), Stored { table: 1, offset: u64::from(unit) * 64 });
        let shares = writer.would_share(64, from);
        let stays = writer.append_stored(&part, from).unwrap() > 0;
        assert_eq!(shares, stays, "what was said is done");
        stay += stays as usize;
        bytes.extend(part);
    }
    writer.finish(0).unwrap();
    let mut found = vec![0; bytes.len()];
    media.open_table(number).unwrap().read(0, &mut found, IoClass::Foreground).unwrap();
    assert!(found == bytes, "table {number}");
    stay
}

#[test]
fn what_would_be_a_run_too_many_is_written_anew() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 12, 4096));
    let media = open(&flash, &env, None).unwrap();
    media.set_relinking(Relinking { free_min: 0.0, runs_max: Some(100), ..Relinking::default() });
    let mut writer = media.create_table(1, INTENT).unwrap();
    writer.append(&contents_of(64, (0..3000).map(|unit| (1, unit)))).unwrap();
    writer.finish(0).unwrap();
    assert_eq!(media.placement().unwrap().runs, 1);
    assert_eq!(every_other(&media, 2, 0, 3000), 99);
    // Its own units, and its list.
    assert_eq!(media.placement().unwrap().runs, 101);
    assert_eq!(every_other(&media, 3, 1, 3000), 0);
    assert_eq!(media.problems(), Vec::<String>::new());
    drop(media);
    let media = open(&flash, &env, None).unwrap();
    assert_eq!(media.placement().unwrap().runs, 102);
    // Those of a table that is gone are free.
    media.set_relinking(Relinking { free_min: 0.0, runs_max: Some(100), ..Relinking::default() });
    media.erase_table(2).unwrap();
    assert_eq!(media.placement().unwrap().runs, 2);
    assert_eq!(every_other(&media, 4, 0, 3000), 98);
    assert_eq!(media.problems(), Vec::<String>::new());
}
