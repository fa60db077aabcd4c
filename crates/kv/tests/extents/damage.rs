//! What is damaged, full or out of the ordinary on flash that tables share: each costs what it must, and nothing else.

use super::{INTENT, UNIT, content, contents, contents_of, flash, open};
use std::sync::Arc;
use vellum_base::{BlockAddr, Env, Flash, IoClass, Kind, PageAddr, RealEnv};
use vellum_kv::media::{Sharing, Stored, Tables};
use vellum_kv::{FlashMedia, Media};
use vellum_media::nand::{Fault, Nand, NandParams};

/// A table of its own units alone, or of one unit of each of these besides. How many bytes of these stay.
pub(super) fn write(media: &FlashMedia, number: u64, units: u32, of: &[u64]) -> u64 {
    let mut writer = media.create_table(number, INTENT).unwrap();
    let own = contents((0..units).map(|unit| (number, unit)));
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
    let expected = contents([table].into_iter().chain(of.iter().copied()).map(|table| (table, 0)));
    assert!(bytes == expected, "table {table}");
}

/// The page of a unit that a table wrote as one of the first.
fn page_of(flash: &Nand, unit: (u64, u32)) -> PageAddr {
    let mut found = vec![0; UNIT];
    let mut is_there = |page: &PageAddr| {
        flash.read(IoClass::Foreground, *page, 0, &mut found, &mut []).is_ok() && found == content(unit)
    };
    (0..flash.geometry().blocks()).map(|block| BlockAddr(block).page(1)).find(&mut is_there).unwrap()
}

/// Nothing says any more what the superblock is on which a unit lies. Its erase blocks.
fn lose_the_name(flash: &Nand, unit: (u64, u32)) -> Vec<BlockAddr> {
    let geometry = *flash.geometry();
    let at = page_of(flash, unit).block;
    let index =
        (0..geometry.blocks_per_die).find(|index| geometry.block_on(geometry.die_of(at), *index) == at);
    let blocks: Vec<BlockAddr> =
        (0..geometry.dies()).map(|die| geometry.block_on(die, index.unwrap())).collect();
    for block in &blocks {
        let last = flash.report(*block).pages_written - 1;
        [0, last].into_iter().for_each(|page| flash.spoil(block.page(page)).unwrap());
    }
    blocks
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
/// with its superblock, of which another has a unit that was collected, and which no list tells of.
#[test]
fn a_number_that_only_collected_units_name_is_known() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 13, 4096));
    let media = open(&flash, &env, None).unwrap();
    // Two are left, and one for collection.
    let next = 11;
    for number in (1..next).step_by(2) {
        write(&media, number, 50, &[]);
        write(&media, number + 1, 1, &[number]);
        media.erase_table(number).unwrap();
    }
    let mut writer = media.create_table(1001, INTENT).unwrap();
    writer.append(&content((1001, 0))).unwrap();
    write(&media, 1002, 50, &[]);
    writer.append_stored(&content((1002, 0)), Stored { table: 1002, offset: 0 }).unwrap();
    writer.finish(0).unwrap();
    media.erase_table(1002).unwrap();
    assert_eq!(media.placement().unwrap().collections, 0);
    write(&media, next, 1, &[]);
    assert_eq!(media.placement().unwrap().collections, 1);
    // It says that the table is gone, and goes as well.
    media.erase_table(next).unwrap();
    drop(media);
    let media = open(&flash, &env, None).unwrap();
    assert!(!media.tables().unwrap().contains(&1002));
    assert_eq!(media.highest_table(), 1002);
    first_units(&media, 1001, &[1002]);
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

/// The pages on which lists begin.
fn lists_of(flash: &Nand, which: impl Fn(&[u8]) -> bool) -> Vec<PageAddr> {
    let blocks = (0..flash.geometry().blocks()).map(BlockAddr);
    let pages =
        blocks.flat_map(|block| (0..flash.report(block).pages_written).map(move |page| block.page(page)));
    let is_one = |page: &PageAddr| {
        let mut bytes = vec![0; flash.geometry().page_bytes as usize];
        flash.read(IoClass::Foreground, *page, 0, &mut bytes, &mut []).unwrap();
        bytes.chunks(64).any(|unit| &unit[..4] == b"VKXL" && which(unit))
    };
    pages.filter(is_one).collect()
}

/// Lists are there twice, so that no page is what everything hangs on.
#[test]
fn a_list_may_rot_once() {
    let (env, whole): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 12, 4096));
    let (media, next) = collected(&whole, &env);
    drop(media);
    let lists = lists_of(&whole, |_| true);
    assert!(lists.len() > 4, "{lists:?}");
    for page in &lists {
        let fork = Arc::new(whole.fork().unwrap());
        fork.spoil(*page).unwrap();
        let media = open(&fork, &env, None).unwrap();
        // What else is on the page is lost, but it is known where everything is.
        for number in (2..next).step_by(2) {
            let reader = media.open_table(number).unwrap();
            assert_eq!((reader.bytes().unwrap(), reader.lost_bytes()), (2 * UNIT as u64, 0), "{page:?}");
        }
        // What an opening would not find is told of while the store is open.
        assert_eq!(media.problems(), Vec::<String>::new());
        lists.iter().for_each(|page| fork.spoil(*page).unwrap());
        assert!(!media.problems().is_empty());
    }
}

/// What has lost its name may be of a table that the store counts on: it stays until the store says that it does not.
#[test]
fn what_has_lost_its_name_stays_until_it_is_given_up() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 8, 4096));
    let media = open(&flash, &env, None).unwrap();
    write(&media, 1, 9, &[]);
    drop(media);
    let blocks = lose_the_name(&flash, (1, 0));
    let media = open(&flash, &env, None).unwrap();
    assert_eq!(media.tables().unwrap(), [0]);
    assert_eq!(media.open_table(0).map(drop).unwrap_err().kind(), Kind::Corrupt);
    let free = media.tables_free();
    (0..free).for_each(|nth| assert_eq!(write(&media, 2 + nth, 9, &[]), 0));
    assert_eq!(media.create_table(100, INTENT).map(drop).unwrap_err().kind(), Kind::NoSpace);
    assert!(blocks.iter().all(|block| flash.report(*block).pages_written > 2), "it was erased");
    assert_eq!(media.problems(), Vec::<String>::new());
    media.erase_table(0).unwrap();
    assert!(blocks.iter().all(|block| flash.report(*block).pages_written == 0));
    write(&media, 100, 9, &[]);
}

/// A program that failed may have done its work: then two superblocks are one table, and either will do.
#[test]
fn two_superblocks_that_say_the_same_are_one_table() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 8, 4096));
    let media = open(&flash, &env, None).unwrap();
    write(&media, 7, 5, &[]);
    write(&media, 7, 5, &[]);
    drop(media);
    let media = open(&flash, &env, None).unwrap();
    first_units(&media, 7, &[]);
    assert_eq!((media.problems(), media.tables().unwrap()), (Vec::new(), vec![0, 7]));
    media.erase_table(0).unwrap();
    assert_eq!(media.placement().unwrap().free, 7);
    first_units(&media, 7, &[]);
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
    lose_the_name(&flash, (1, 0));
    let media = open(&flash, &env, None).unwrap();
    let reader = media.open_table(2).unwrap();
    assert_eq!(reader.lost_bytes(), UNIT as u64);
    let mut own = vec![0; 9 * UNIT];
    reader.read(0, &mut own, IoClass::Foreground).unwrap();
    assert!(own == contents((0..9).map(|unit| (2, unit))));
    let error = reader.read(9 * UNIT as u64, &mut own[..UNIT], IoClass::Foreground).unwrap_err();
    assert_eq!(error.kind(), Kind::Corrupt);
    media.erase_table(2).unwrap();
    assert_eq!(media.problems(), Vec::<String>::new());
}

/// Nobody knows what a table is made of whose lists have rotted, both: it is not whole, and what it wrote itself is
/// saved, wherever that is.
#[test]
fn without_its_lists_a_table_is_what_it_wrote_itself() {
    for is_collected in [false, true] {
        let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 12, 4096));
        let media = open(&flash, &env, None).unwrap();
        write(&media, 1, 50, &[]);
        write(&media, 2, 3, &[1]);
        media.erase_table(1).unwrap();
        if is_collected {
            collect(&media, 3);
        }
        drop(media);
        for page in lists_of(&flash, |list| list[24..32] == 2u64.to_le_bytes()) {
            flash.spoil(page).unwrap();
        }
        let media = open(&flash, &env, None).unwrap();
        let reader = media.open_table(2).unwrap();
        assert_eq!((reader.bytes().unwrap(), reader.lost_bytes()), (3 * UNIT as u64 + 64, 64));
        // Where it was collected the last of them shares a page with the list.
        let mut own = vec![0; 2 * UNIT];
        reader.read(0, &mut own, IoClass::Foreground).unwrap();
        assert!(own == contents((0..2).map(|unit| (2, unit))));
        assert_eq!(
            reader.read(3 * UNIT as u64, &mut own[..64], IoClass::Foreground).unwrap_err().kind(),
            Kind::Corrupt
        );
        media.erase_table(2).unwrap();
        assert_eq!(media.problems(), Vec::<String>::new());
    }
}

#[test]
fn a_page_that_cannot_be_read_keeps_nothing_else_from_being_collected() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 24, 4096));
    let media = open(&flash, &env, None).unwrap();
    write(&media, 1, 50, &[]);
    write(&media, 2, 1, &[1]);
    let at = page_of(&flash, (1, 0));
    media.erase_table(1).unwrap();
    flash.spoil(at).unwrap();
    collect(&media, 3);
    // What else there was to collect was.
    assert!(media.placement().unwrap().pinned < 5, "{:?}", media.placement());
    assert_eq!(media.problems(), Vec::<String>::new());
}

/// However short the pieces are that are left of superblocks, what was promised can be had.
#[test]
fn pieces_of_one_unit_each_are_collected_as_was_promised() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 24, 4096));
    let (media, units) = (open(&flash, &env, None).unwrap(), 3800);
    let every_other = |table| contents_of(64, (0..units).step_by(2).map(|unit| (table, unit)));
    for first in [1, 11, 21] {
        for table in first..first + 6 {
            let mut writer = media.create_table(table, INTENT).unwrap();
            writer.append(&contents_of(64, (0..units).map(|unit| (table, unit)))).unwrap();
            writer.finish(0).unwrap();
        }
        let mut writer = media.create_table(first + 6, INTENT).unwrap();
        for table in first..first + 6 {
            for (piece, unit) in every_other(table).chunks(64).zip((0..u64::from(units)).step_by(2)) {
                let from = Stored { table, offset: unit * 64 };
                assert_eq!(writer.append_stored(piece, from).unwrap(), 64);
            }
        }
        writer.finish(0).unwrap();
        (first..first + 6).for_each(|table| media.erase_table(table).unwrap());
    }
    let promised = media.tables_free();
    assert!(promised > 3, "{promised}");
    for nth in 1..=promised {
        write(&media, 100 + nth, 60, &[]);
        assert!(media.tables_free() + nth >= promised, "{} are left of {promised}", media.tables_free());
    }
    assert!(media.placement().unwrap().collections > 1, "{:?}", media.placement());
    assert_eq!(media.problems(), Vec::<String>::new());
    for first in [1, 11, 21] {
        let expected: Vec<u8> = (first..first + 6).flat_map(every_other).collect();
        let mut bytes = vec![0; expected.len()];
        media.open_table(first + 6).unwrap().read(0, &mut bytes, IoClass::Foreground).unwrap();
        assert!(bytes == expected, "table {}", first + 6);
    }
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
    let own = contents((0..50).map(|unit| (8, unit)));
    let result = writer.append(&own).and_then(|()| writer.finish(0));
    assert_eq!(result.map_err(|e| e.kind()), Err(Kind::NoSpace));
    assert_eq!((flash.counters().program_failures, media.placement().unwrap().free), (1, 2));
    write(&media, 9, 40, &[]);
}

/// Two superblocks that both are one table, and not the same, cannot be: nothing is guessed.
#[test]
fn two_superblocks_of_one_number_are_no_table() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 8, 4096));
    let media = open(&flash, &env, None).unwrap();
    write(&media, 7, 5, &[]);
    write(&media, 7, 6, &[]);
    drop(media);
    let media = open(&flash, &env, None).unwrap();
    assert_eq!(media.tables().unwrap(), [7]);
    assert_eq!(media.open_table(7).map(drop).unwrap_err().kind(), Kind::Corrupt);
    assert_eq!(media.problems(), Vec::<String>::new());
    media.erase_table(7).unwrap();
    assert_eq!(media.placement().unwrap().free, 8);
}

#[test]
fn formatting_gives_up_what_was_there() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 8, 4096));
    let media = open(&flash, &env, None).unwrap();
    write(&media, 1, 50, &[]);
    write(&media, 2, 9, &[1]);
    drop(media);
    FlashMedia::format(&*flash).unwrap();
    let media = open(&flash, &env, None).unwrap();
    assert_eq!((media.tables().unwrap(), media.placement().unwrap().free), (Vec::new(), 8));
}

/// Programs that know of version 1 alone take tables that share superblocks for remains: they refuse version 2, and
/// what they made stays as they know it.
#[test]
fn a_store_of_version_1_shares_nothing() {
    let (env, flash): (Arc<dyn Env>, _) = (RealEnv::new(), flash(1, NandParams::default(), 8, 4096));
    let mut head = [0; 32];
    let nvram = flash.nvram().unwrap();
    nvram.read(0, &mut head).unwrap();
    let mut set_version = |version: u8| {
        head[8] = version;
        let crc = vellum_codes::crc32c(&head[8..]);
        head[4..8].copy_from_slice(&crc.to_le_bytes());
        nvram.write(0, &head).unwrap();
    };
    set_version(1);
    let media = open(&flash, &env, None).unwrap();
    assert_eq!(media.sharing(64).unwrap(), Sharing::None);
    write(&media, 1, 50, &[]);
    assert_eq!(write(&media, 2, 9, &[1]), 0);
    assert_eq!(media.tables_free(), 6);
    assert_eq!(media.shape().unit_bytes, 4096);
    for (version, advice) in [(2, "dump the store with the program that made it"), (4, "newer")] {
        set_version(version);
        let error = open(&flash, &env, None).map(drop).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.to_string().contains(advice), "{error}");
    }
    set_version(3);
    assert_eq!(open(&flash, &env, None).unwrap().shape().unit_bytes, 64);
}
