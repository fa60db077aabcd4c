//! What is damaged, full or out of the ordinary on flash that tables share: each costs what it must, and nothing else.

use super::{INTENT, UNIT, content, flash, open};
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Error, Flash, IoClass, Kind, PageAddr, RealEnv};
use vellum_kv::{FlashMedia, Media, Stored};
use vellum_media::nand::{Fault, Nand, NandParams};

/// A table of its own units alone, or of one unit of each of these besides. How many bytes of these stay.
fn write(media: &FlashMedia, number: u64, units: u32, of: &[u64]) -> u64 {
    let mut writer = media.create_table(number, INTENT).unwrap();
    let own: Vec<u8> = (0..units).flat_map(|unit| content((number, unit))).collect();
    writer.append(&own).unwrap();
    let relinked = of.iter().map(|table| {
        let from = Stored { table: *table, offset: 0 };
        writer.append_stored(&content((*table, 0)), from).unwrap()
    });
    let relinked = relinked.sum();
    writer.finish(0).unwrap();
    relinked
}

fn first_units(media: &FlashMedia, table: u64, of: &[u64]) {
    let mut bytes = vec![0; (1 + of.len()) * UNIT];
    media.open_table(table).unwrap().read(0, &mut bytes, IoClass::Foreground).unwrap();
    let expected: Vec<u8> =
        [(table, 0)].into_iter().chain(of.iter().map(|t| (*t, 0))).flat_map(content).collect();
    assert!(bytes == expected, "table {table}");
}

/// Whatever the number, an opening after another table was written knows which tables are gone, though they are there.
#[test]
fn tables_that_are_gone_are_known_however_many_they_are() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 200, 4096));
    let media = open(&flash, &env, None).unwrap();
    let gone: Vec<u64> = (1..=150).collect();
    gone.iter().for_each(|number| assert_eq!(write(&media, *number, 40, &[]), 0));
    assert_eq!(write(&media, 151, 1, &gone), 150 * UNIT as u64);
    gone.iter().for_each(|number| media.erase_table(*number).unwrap());
    assert_eq!(media.placement().unwrap().pinned, 150);
    drop(media);
    let media = open(&flash, &env, None).unwrap();
    assert_eq!(media.tables().unwrap().len(), 151, "nobody has told yet");
    gone.iter().for_each(|number| media.erase_table(*number).unwrap());
    write(&media, 152, 1, &[]);
    drop(media);
    let media = open(&flash, &env, None).unwrap();
    assert_eq!(media.tables().unwrap(), [151, 152]);
    first_units(&media, 151, &gone);
    assert_eq!(media.problems(), Vec::<String>::new());
}

/// Writes tables, each pinned by another, until once more was collected. The number that comes next.
fn collect(media: &FlashMedia, mut next: u64) -> u64 {
    let before = media.placement().unwrap().collections;
    while media.placement().unwrap().collections == before {
        write(media, next, 50, &[]);
        write(media, next + 1, 1, &[next]);
        media.erase_table(next).unwrap();
        next += 2;
        assert!(next < 1000, "nothing is collected");
    }
    next
}

/// A few tables, and what others are left of, collected.
fn collected(flash: &Arc<Nand>, env: &Arc<dyn Env>) -> (Arc<FlashMedia>, u64) {
    let media = open(flash, env, None).unwrap();
    let next = collect(&media, 1);
    (media, next)
}

fn check_collected(media: &FlashMedia, next: u64) {
    (1..next).step_by(2).for_each(|number| first_units(media, number + 1, &[number]));
}

/// Every number that is named anywhere on flash is known, or it would be used again: here that of a table that is gone,
/// with its superblock, and of which another has a unit that was collected.
#[test]
fn a_number_that_only_collected_units_name_is_known() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 12, 4096));
    let media = open(&flash, &env, None).unwrap();
    let mut writer = media.create_table(1001, INTENT).unwrap();
    writer.append(&content((1001, 0))).unwrap();
    write(&media, 1002, 50, &[]);
    writer.append_stored(&content((1002, 0)), Stored { table: 1002, offset: 0 }).unwrap();
    writer.finish(0).unwrap();
    media.erase_table(1002).unwrap();
    let next = collect(&media, 1);
    drop(media);
    let media = open(&flash, &env, None).unwrap();
    assert!(!media.tables().unwrap().contains(&1002));
    assert_eq!(media.highest_table(), 1002);
    first_units(&media, 1001, &[1002]);
    check_collected(&media, next);
}

/// One tag that cannot be read costs nothing; two of each erase block are there for that.
#[test]
fn a_tag_page_that_rots_costs_nothing() {
    let (env, whole): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 12, 4096));
    let (media, next) = collected(&whole, &env);
    drop(media);
    let mut spoilt = 0;
    for block in (0..whole.geometry().blocks()).map(BlockAddr) {
        let pages = whole.report(block).pages_written;
        for page in [0, pages.saturating_sub(1)].into_iter().filter(|page| *page < pages) {
            let fork = Arc::new(whole.fork().unwrap());
            fork.spoil(PageAddr { block, page }).unwrap();
            let media = open(&fork, &env, None).unwrap();
            check_collected(&media, next);
            // What is on it stays there when superblocks are needed.
            for number in (1..next).step_by(2) {
                media.erase_table(number).unwrap();
            }
            write(&media, next + 2, 60, &[]);
            check_collected(&media, next);
            spoilt += 1;
        }
    }
    assert!(spoilt > 10, "{spoilt}");
}

/// Lists are there twice, so that no page is what everything hangs on.
#[test]
fn a_list_may_rot_once() {
    let (env, whole): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 12, 4096));
    let (media, next) = collected(&whole, &env);
    drop(media);
    let lists: Vec<PageAddr> = (0..whole.geometry().blocks())
        .flat_map(|block| {
            (0..whole.report(BlockAddr(block)).pages_written).map(move |page| BlockAddr(block).page(page))
        })
        .filter(|page| {
            let mut magic = [0; 4];
            whole.read(IoClass::Foreground, *page, 0, &mut magic, &mut []).unwrap();
            &magic == b"VKXL"
        })
        .collect();
    assert!(lists.len() > 4, "{lists:?}");
    for page in lists {
        let fork = Arc::new(whole.fork().unwrap());
        fork.spoil(page).unwrap();
        check_collected(&open(&fork, &env, None).unwrap(), next);
    }
}

/// What is lost of a table is a hole in it: the rest can be read, and saved.
#[test]
fn a_superblock_that_is_lost_costs_what_was_on_it() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 8, 4096));
    let media = open(&flash, &env, None).unwrap();
    write(&media, 1, 50, &[]);
    assert_eq!(write(&media, 2, 9, &[1]), UNIT as u64);
    media.erase_table(1).unwrap();
    drop(media);
    let geometry = *flash.geometry();
    let mut unit = vec![0; UNIT];
    let is_of_first = |index: &u32| {
        let page = geometry.block_on(0, *index).page(1);
        flash.read(IoClass::Foreground, page, 0, &mut unit, &mut []).is_ok() && unit == content((1, 0))
    };
    let lost = (0..geometry.blocks_per_die).find(is_of_first).unwrap();
    for block in (0..geometry.dies()).map(|die| geometry.block_on(die, lost)) {
        let last = flash.report(block).pages_written - 1;
        [0, last].into_iter().for_each(|page| flash.spoil(block.page(page)).unwrap());
    }
    let media = open(&flash, &env, None).unwrap();
    let reader = media.open_table(2).unwrap();
    let mut own = vec![0; 9 * UNIT];
    reader.read(0, &mut own, IoClass::Foreground).unwrap();
    assert!(own == (0..9).flat_map(|unit| content((2, unit))).collect::<Vec<u8>>());
    let error = reader.read(9 * UNIT as u64, &mut own[..UNIT], IoClass::Foreground).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    media.erase_table(2).unwrap();
    assert_eq!(media.problems(), Vec::<String>::new());
}

#[test]
fn a_page_that_cannot_be_read_keeps_nothing_else_from_being_collected() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 24, 4096));
    let media = open(&flash, &env, None).unwrap();
    write(&media, 1, 50, &[]);
    write(&media, 2, 1, &[1]);
    // The first unit of table 1 is on the second page of the first die of its superblock.
    let geometry = flash.geometry();
    let first = (0..geometry.blocks_per_die).map(|index| geometry.block_on(0, index));
    let mut unit = vec![0; UNIT];
    let at = first.map(|block| block.page(1)).find(|page| {
        flash.read(IoClass::Foreground, *page, 0, &mut unit, &mut []).is_ok() && unit == content((1, 0))
    });
    media.erase_table(1).unwrap();
    flash.spoil(at.unwrap()).unwrap();
    collect(&media, 3);
    // What else there was to collect was.
    assert!(media.placement().unwrap().pinned < 5, "{:?}", media.placement());
    assert_eq!(media.problems(), Vec::<String>::new());
}

/// Without room for another attempt a table is given up, and what it was on is free again.
#[test]
fn a_program_that_fails_where_nothing_else_is_free_leaves_nothing_behind() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 8, 4096));
    let media = open(&flash, &env, None).unwrap();
    for number in 1..7 {
        write(&media, number, 50, &[]);
    }
    // One of them is for collection alone.
    assert_eq!(media.placement().unwrap().free, 2);
    flash.arm(20, Fault::ProgramFails);
    let mut writer = media.create_table(8, INTENT).unwrap();
    let own: Vec<u8> = (0..50).flat_map(|unit| content((8, unit))).collect();
    let result = writer.append(&own).and_then(|()| writer.finish(0));
    assert_eq!(result.map_err(|e| e.kind()), Err(Kind::NoSpace));
    assert_eq!((flash.counters().program_failures, media.placement().unwrap().free), (1, 2));
    write(&media, 9, 40, &[]);
}

/// Two superblocks that both are one table cannot be: nothing is guessed.
#[test]
fn two_superblocks_of_one_number_are_named() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 8, 4096));
    let media = open(&flash, &env, None).unwrap();
    write(&media, 7, 5, &[]);
    write(&media, 7, 6, &[]);
    drop(media);
    let error: Error = open(&flash, &env, None).map(drop).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.to_string().contains("both say that they are table 7"), "{error}");
}
