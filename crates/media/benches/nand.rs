//! CPU cost of operations. `cargo bench -p vellum-media`.

use std::sync::Arc;
use vellum_base::{
    BlockAddr, Env, Flash, FlashOp, Geometry, IoClass, Nanos, PageAddr, RealEnv, Scrambling, Source,
};
use vellum_codes::pattern::Pattern;
use vellum_media::coded::{Coded, Coding};
use vellum_media::image::{Image, ImageParams};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::timing::{Timed, Timing};

const GEOMETRY: Geometry = Geometry {
    channels: 4,
    dies_per_channel: 2,
    blocks_per_die: 64,
    pages_per_block: 256,
    page_bytes: 4096,
    oob_bytes: 64,
};
/// Operations per sample.
const OPS: u32 = 100_000;

fn main() {
    divan::main();
}

fn ram() -> Nand {
    Nand::ram(GEOMETRY, NandParams::default()).unwrap()
}

/// Programs page after page around the device, erasing each block before it is reused.
struct Log<'a> {
    flash: &'a dyn Flash,
    next: u32,
}

impl Log<'_> {
    fn next_page(&mut self) -> PageAddr {
        let n = self.next;
        self.next = (n + 1) % (GEOMETRY.pages() as u32);
        let stripe = n / GEOMETRY.dies() / GEOMETRY.pages_per_block;
        let block = BlockAddr(stripe * GEOMETRY.dies() + n % GEOMETRY.dies());
        let page = n / GEOMETRY.dies() % GEOMETRY.pages_per_block;
        if page == 0 {
            self.flash.erase(IoClass::Background, block, Nanos::ZERO).unwrap();
        }
        block.page(page)
    }

    fn program(&mut self, parts: &[Source<'_>]) {
        let page = self.next_page();
        self.flash.program(IoClass::Foreground, page, parts, &[1; 64]).unwrap();
    }
}

fn sector(unique: bool) -> Vec<u8> {
    let mut out = vec![0; 4096];
    Pattern::unique(7).fill(&mut out);
    if !unique {
        out[9] ^= 1; // no longer a pattern
    }
    out
}

fn programs(bencher: divan::Bencher, flash: &dyn Flash, parts: &[Source<'_>]) {
    let mut log = Log { flash, next: 0 };
    (0..GEOMETRY.pages()).for_each(|_| log.program(parts));
    bencher
        .counter(divan::counter::ItemsCount::new(OPS))
        .bench_local(|| (0..OPS).for_each(|_| log.program(parts)));
}

#[divan::bench]
fn ram_program_pattern(bencher: divan::Bencher) {
    programs(bencher, &ram(), &[Source::Bytes(&sector(true))]);
}

#[divan::bench]
fn ram_program_zeros(bencher: divan::Bencher) {
    programs(bencher, &ram(), &[Source::Pad(4096)]);
}

#[divan::bench]
fn ram_program_bytes(bencher: divan::Bencher) {
    programs(bencher, &ram(), &[Source::Bytes(&sector(false))]);
}

fn copies(bencher: divan::Bencher, flash: &dyn Flash) {
    let bytes = sector(true);
    let mut log = Log { flash, next: 0 };
    (0..GEOMETRY.pages()).for_each(|_| log.program(&[Source::Bytes(&bytes)]));
    let mut from = 0u32;
    bencher.counter(divan::counter::ItemsCount::new(OPS)).bench_local(|| {
        for _ in 0..OPS {
            from = (from + 77_771) % GEOMETRY.pages() as u32;
            let page = BlockAddr(from / 256).page(from % 256);
            log.program(&[Source::Copy { page, offset: 0, bytes: 4096 }]);
        }
    });
}

#[divan::bench]
fn ram_copy(bencher: divan::Bencher) {
    copies(bencher, &ram());
}

#[divan::bench]
fn timed_copy(bencher: divan::Bencher) {
    copies(bencher, &timed());
}

#[divan::bench]
fn ram_read_pattern(bencher: divan::Bencher) {
    reads(bencher, &ram());
}

fn reads(bencher: divan::Bencher, flash: &dyn Flash) {
    let bytes = sector(true);
    let mut log = Log { flash, next: 0 };
    (0..GEOMETRY.pages()).for_each(|_| log.program(&[Source::Bytes(&bytes)]));
    let (mut out, mut from) = (vec![0; 4096], 0u32);
    bencher.counter(divan::counter::ItemsCount::new(OPS)).bench_local(|| {
        for _ in 0..OPS {
            from = (from + 77_771) % GEOMETRY.pages() as u32;
            let page = BlockAddr(from / 256).page(from % 256);
            flash.read(IoClass::Foreground, page, 0, &mut out, &mut []).unwrap();
        }
    });
}

fn timed() -> Timed<Nand> {
    let timing = Timing {
        read: Nanos::from_us(50),
        program: Nanos::from_us(600),
        erase: Nanos::from_ms(3),
        suspend: Nanos::from_us(20),
        channel_bytes_per_second: 1_200_000_000,
    };
    Timed::new(Arc::new(ram()), timing, RealEnv::new() as Arc<dyn Env>)
}

#[divan::bench]
fn timed_program_zeros(bencher: divan::Bencher) {
    programs(bencher, &timed(), &[Source::Pad(4096)]);
}

/// Codings by name.
const CODINGS: [&str; 3] = ["plain", "32/33", "32/33, scrambled"];

fn coding(name: &str) -> Option<Coding> {
    match name {
        "plain" => None,
        "32/33" => Some(Coding::PAPER),
        _ => Some(Coding { scrambling: Scrambling::BySector, ..Coding::PAPER }),
    }
}

/// A device in a file of the temporary directory; the page cache is the medium.
fn in_file(dir: &tempfile::TempDir, name: &str) -> Coded<Nand> {
    let params = ImageParams { coding: coding(name), ..ImageParams::new(GEOMETRY) };
    Image::create(&dir.path().join("d.flash"), &params).unwrap()
}

#[divan::bench(sample_count = 10, args = CODINGS)]
fn file_program(bencher: divan::Bencher, coding: &str) {
    let dir = tempfile::tempdir().unwrap();
    programs(bencher, &in_file(&dir, coding), &[Source::Bytes(&sector(true))]);
}

#[divan::bench(sample_count = 10, args = CODINGS)]
fn file_copy(bencher: divan::Bencher, coding: &str) {
    let dir = tempfile::tempdir().unwrap();
    copies(bencher, &in_file(&dir, coding));
}

/// In memory, so that the code dominates. The bytes are no pattern.
#[divan::bench(args = CODINGS)]
fn ram_coded_program(bencher: divan::Bencher, name: &str) {
    programs(bencher, &coded_ram(name), &[Source::Bytes(&sector(false))]);
}

#[divan::bench(args = CODINGS)]
fn ram_coded_read(bencher: divan::Bencher, name: &str) {
    reads(bencher, &coded_ram(name));
}

fn coded_ram(name: &str) -> Coded<Nand> {
    let Some(coding) = coding(name) else { return Coded::plain(ram()) };
    let nand = Nand::ram(coding.geometry_below(&GEOMETRY).unwrap(), NandParams::default()).unwrap();
    Coded::new(nand, GEOMETRY.oob_bytes, coding).unwrap()
}

/// The same pages, with sixteen adjacent pages per batch.
#[divan::bench(sample_count = 10, args = CODINGS)]
fn file_program_runs(bencher: divan::Bencher, coding: &str) {
    const RUN: u32 = 16;
    let dir = tempfile::tempdir().unwrap();
    let flash = in_file(&dir, coding);
    let bytes = sector(true);
    let parts = [Source::Bytes(&bytes)];
    let mut next = 0;
    bencher.counter(divan::counter::ItemsCount::new(OPS)).bench_local(|| {
        for _ in 0..OPS / RUN {
            let (block, page) = (BlockAddr(next / 16 % GEOMETRY.blocks()), next % 16 * RUN);
            next += 1;
            if page == 0 {
                flash.erase(IoClass::Background, block, Nanos::ZERO).unwrap();
            }
            let mut ops: Vec<_> = (page..page + RUN)
                .map(|page| FlashOp::Program {
                    page: block.page(page),
                    parts: &parts,
                    oob: &[1; 64],
                    seeds: &[],
                })
                .collect();
            flash.submit(IoClass::Foreground, &mut ops).unwrap();
        }
    });
}

#[divan::bench(sample_count = 10, args = CODINGS)]
fn file_read(bencher: divan::Bencher, coding: &str) {
    let dir = tempfile::tempdir().unwrap();
    reads(bencher, &in_file(&dir, coding));
}

/// Erasing blocks that hold 256 pages.
#[divan::bench]
fn ram_erase(bencher: divan::Bencher) {
    let nand = ram();
    bencher
        .with_inputs(|| {
            let mut log = Log { flash: &nand, next: 0 };
            (0..GEOMETRY.dies() * GEOMETRY.pages_per_block).for_each(|_| log.program(&[Source::Pad(4096)]));
        })
        .counter(divan::counter::ItemsCount::new(GEOMETRY.dies()))
        .bench_local_values(|()| {
            (0..GEOMETRY.dies()).for_each(|die| {
                nand.erase(IoClass::Background, BlockAddr(die), Nanos::ZERO).unwrap();
            });
        });
}
