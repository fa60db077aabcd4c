//! A store on a flash image: NAND and NVRAM in a file. Power cuts that tear pages in the file,
//! and processes that are gone without a word; each of its sectors flipped in turn; one opener at a time.
//!
//! What a crash of the host below the image leaves of it is the image's own matter (`vellum_media::image`).

use crate::crash::write;
use crate::harness::{geometry, open, open_of_seed, small};
use crate::history::History;
use crate::rot::{fill, noticed};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use vellum_base::{Env, Kind, RealEnv, Result};
use vellum_kv::{FlashMedia, Map, Media, Options, Store};
use vellum_media::coded::Coded;
use vellum_media::image::{Image, ImageParams};
use vellum_media::nand::{Fault, Nand};
use vellum_sim::Sim;

pub(crate) fn make(path: &Path, nvram_bytes: usize) {
    let params = ImageParams { nvram_bytes, id: Some(7), ..ImageParams::new(geometry()) };
    let flash = Image::create(path, &params).unwrap();
    FlashMedia::format(&flash).unwrap();
    flash.close().unwrap();
}

pub(crate) fn media(path: &Path, read_only: bool) -> Result<Arc<dyn Media>> {
    Ok(FlashMedia::open(Arc::new(Image::open(path, read_only)?), RealEnv::new())?)
}

/// Opens the image anew, as after the process is gone, and the store on it; may be cut again meanwhile.
fn recover(path: &Path, seed: u64, env: &Arc<dyn Env>, rng: &mut SmallRng) -> (Arc<Coded<Nand>>, Store) {
    loop {
        let flash = Arc::new(Image::open(path, false).unwrap_or_else(|e| panic!("seed {seed}: {e}")));
        match rng.random_range(0..3) {
            0 => flash.inner().power_cut_at(rng.random_range(1..30)),
            1 => flash.inner().arm(rng.random_range(1..6), Fault::PowerCutInNvram),
            _ => {}
        }
        match open_of_seed(seed, flash.clone(), env.clone()) {
            Ok(store) => {
                flash.inner().disarm();
                if !flash.inner().is_off() {
                    return (flash, store);
                }
            }
            Err(e) if e.kind() == Kind::PowerLost => {}
            Err(e) => panic!("seed {seed}: {e}"),
        }
    }
}

#[test]
fn cuts_at_random_moments_of_long_lives() {
    vellum_sim::check(700..715, |seed| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        make(&path, 1 << 20);
        let sim = Sim::new(seed);
        let env: Arc<dyn Env> = sim.env();
        let (mut rng, mut history) = (SmallRng::seed_from_u64(seed), History::default());
        sim.run(|| {
            for round in 0..4 {
                let (flash, store) = recover(&path, seed, &env, &mut rng);
                history.settle(&store, &format!("seed {seed} round {round}"));
                match rng.random() {
                    true => flash.inner().power_cut_at(rng.random_range(1..900)),
                    false => flash.inner().arm(rng.random_range(1..2000), Fault::PowerCutInNvram),
                }
                write(&store, &mut history, &mut rng, 1000);
            }
        });
    });
}

#[test]
fn each_written_sector_of_an_image_flipped_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    make(&path, 320 << 10);
    let model = fill(open(media(&path, false).unwrap()).unwrap());
    let bytes = std::fs::read(&path).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let written =
        (0..bytes.len() / 512).filter(|sector| bytes[sector * 512..][..512].iter().any(|byte| *byte != 0));
    let (mut seen, mut flips) = (0, 0);
    for sector in written {
        let at = sector * 512 + [37, 0, 511, 4, 260][sector % 5];
        file.write_all_at(&[bytes[at] ^ 1 << (sector % 8)], at as u64).unwrap();
        let options = Options { read_only: true, ..small() };
        let open = || Store::open(media(&path, true)?, RealEnv::new(), options);
        seen += noticed(open, &model, &format!("byte {at}")) as u32;
        file.write_all_at(&[bytes[at]], at as u64).unwrap();
        flips += 1;
    }
    assert!(flips > 100 && seen > flips / 4, "{seen} of {flips} noticed");
    assert!(!noticed(|| open(media(&path, false)?), &model, "all put back"));
}

#[test]
fn an_image_has_one_opener_who_writes_or_many_who_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    make(&path, 1 << 20);
    let store = open(media(&path, false).unwrap()).unwrap();
    store.put(b"k", b"v").unwrap();
    for read_only in [false, true] {
        assert_eq!(media(&path, read_only).map(drop).unwrap_err().kind(), Kind::Busy);
    }
    store.close().unwrap();
    let readers = [media(&path, true).unwrap(), media(&path, true).unwrap()];
    assert_eq!(media(&path, false).map(drop).unwrap_err().kind(), Kind::Busy);
    for reader in readers {
        let store = Store::open(reader, RealEnv::new(), Options { read_only: true, ..small() }).unwrap();
        assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }
}
