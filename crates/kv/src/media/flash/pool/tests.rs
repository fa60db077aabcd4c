//! Superblocks that are taken and given back.

use super::*;
use vellum_base::{Geometry, Nanos, PageAddr, RealEnv, Source};
use vellum_media::nand::{Fault, Nand, NandParams};

fn geometry(channels: u32) -> Geometry {
    Geometry {
        channels,
        dies_per_channel: 1,
        blocks_per_die: 8,
        pages_per_block: 8,
        page_bytes: 4096,
        oob_bytes: 0,
    }
}

fn open(flash: &Arc<dyn Flash>) -> Pool {
    Pool::open(flash.clone(), &(RealEnv::new() as Arc<dyn Env>)).unwrap()
}

fn problems(pool: &Pool) -> Vec<String> {
    pool.problems(&(RealEnv::new() as Arc<dyn Env>))
}

/// A program failed on the only superblock that has all its dies: no other is as wide.
#[test]
fn a_superblock_as_wide_as_none_is_not_searched_for_among_those_that_are() {
    let geometry = geometry(16);
    let flash = Nand::ram(geometry, NandParams::default()).unwrap();
    for index in 1..8 {
        flash.arm(1, Fault::EraseFails);
        flash.erase(IoClass::Background, geometry.block_on(index, index), Nanos::ZERO).unwrap_err();
    }
    let flash: Arc<dyn Flash> = Arc::new(flash);
    let (pool, env) = (open(&flash), RealEnv::new());
    let submitter = Submitter::new(flash, env.clone(), None);
    let take = |supply, width| pool.take(&submitter, &*env, IoClass::Background, (supply, width)).unwrap();
    let whole = take(Supply::Tables, 16).unwrap();
    assert_eq!((whole.index, pool.erased()), (0, 7));
    for supply in [Supply::Tables, Supply::Collection] {
        assert!(take(supply, 16).is_none());
        assert_eq!(pool.erased(), 7, "none is held meanwhile");
    }
    assert_eq!(take(Supply::Tables, 15).unwrap().blocks.len(), 15);
}

#[test]
fn of_few_superblocks_the_narrowest_are_taken_first() {
    let geometry = geometry(4);
    let flash = Nand::ram(geometry, NandParams::default()).unwrap();
    flash.arm(1, Fault::EraseFails);
    flash.erase(IoClass::Background, geometry.block_on(1, 5), Nanos::ZERO).unwrap_err();
    let flash: Arc<dyn Flash> = Arc::new(flash);
    let (pool, env) = (open(&flash), RealEnv::new());
    let submitter = Submitter::new(flash, env.clone(), None);
    let take = || pool.take(&submitter, &*env, IoClass::Background, (Supply::Tables, 0)).unwrap().unwrap();
    let taken: Vec<usize> = (0..3).map(|_| take().blocks.len()).collect();
    assert_eq!(taken, [3, 4, 4]);
}

#[test]
fn what_leaves_the_book_is_being_erased_in_the_same_moment() {
    let flash: Arc<dyn Flash> = Arc::new(Nand::ram(geometry(2), NandParams::default()).unwrap());
    let (pool, env) = (open(&flash), RealEnv::new());
    let submitter = Submitter::new(flash, env.clone(), None);
    let home = pool.take(&submitter, &*env, IoClass::Background, (Supply::Tables, 0)).unwrap().unwrap();
    assert_eq!((pool.erased(), problems(&pool)), (7, Vec::new()));
    // A check now, before it is erased, still finds it.
    pool.with_book(|book| book.give_up(home.index));
    assert_eq!((pool.erased(), problems(&pool)), (8, Vec::new()));
}

/// The host failed, not a block of the flash: whether it was erased is not known, and it belongs to nothing.
#[test]
fn what_could_not_be_erased_is_set_aside() {
    let nand = Arc::new(Nand::ram(geometry(2), NandParams::default()).unwrap());
    let flash: Arc<dyn Flash> = nand.clone();
    let (pool, env) = (Arc::new(open(&flash)), RealEnv::new());
    let submitter = Submitter::new(flash.clone(), env.clone(), None);
    let take = || pool.take(&submitter, &*env, IoClass::Background, (Supply::Tables, 0)).unwrap().unwrap();
    let home = take();
    let page = PageAddr { block: home.blocks[0], page: 0 };
    flash.program(IoClass::Background, page, &[Source::Bytes(&[1; 4096])], &[]).unwrap();
    pool.with_book(|book| book.give_up(home.index));
    nand.arm(1, Fault::Host { errno: 5 });
    assert_eq!(pool.erase_unneeded(&submitter).unwrap_err().kind(), Kind::Io);
    assert_eq!((pool.erased(), problems(&pool)), (7, Vec::new()));
    assert_ne!(take().index, home.index);
}
