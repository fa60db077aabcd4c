//! A crash of the host: each 512 bytes written since the last sync are as they were at any moment since.

use super::file::ImageFile;
use super::*;
use crate::nand::dice::roll;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{Flash, FlashError, IoClass, PageAddr, Source};

const SECTOR: u64 = 512;

/// Contents of 512-byte sectors before each write since the last sync.
#[derive(Default)]
pub(super) struct Unsynced {
    held: Mutex<BTreeMap<u64, Vec<Vec<u8>>>>,
    /// Calls until the host crashes; counts only while positive.
    calls_left: AtomicI64,
    is_dead: AtomicBool,
}

impl Unsynced {
    fn call(&self) -> std::io::Result<()> {
        if self.calls_left.load(Relaxed) > 0 && self.calls_left.fetch_sub(1, Relaxed) == 1 {
            self.is_dead.store(true, Relaxed);
        }
        if self.is_dead.load(Relaxed) { Err(std::io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    pub fn before_write(&self, file: &File, offset: u64, bytes: usize) -> std::io::Result<()> {
        self.call()?;
        let mut held = self.held.lock();
        for sector in offset / SECTOR..(offset + bytes as u64).div_ceil(SECTOR) {
            let mut now = vec![0; SECTOR as usize];
            file.read_exact_at(&mut now, sector * SECTOR)?;
            held.entry(sector).or_default().push(now);
        }
        Ok(())
    }

    pub fn sync(&self) -> std::io::Result<()> {
        self.call()?;
        self.held.lock().clear();
        Ok(())
    }

    pub fn lose(&self, file: &File, seed: u64) {
        self.is_dead.store(true, Relaxed);
        for (sector, versions) in std::mem::take(&mut *self.held.lock()) {
            let chosen = roll(seed, [sector, 0, 0, 0]) as usize % (versions.len() + 1);
            if let Some(version) = versions.get(chosen) {
                file.write_all_at(version, sector * SECTOR).unwrap();
            }
        }
    }
}

const GEOMETRY: Geometry = Geometry {
    channels: 1,
    dies_per_channel: 2,
    blocks_per_die: 3,
    pages_per_block: 8,
    page_bytes: 4096,
    oob_bytes: 60,
};
const AREA_BYTES: usize = 2048;

/// The oracle's model of a block: contents by page, and how many pages the last sync made durable.
#[derive(Clone, Default)]
struct Known {
    pages: Vec<u64>,
    safe: usize,
    erased_since: bool,
}

struct Life {
    nand: Coded<Nand>,
    image: Arc<ImageFile>,
    blocks: Vec<Known>,
    written: Written,
}

/// Contents of both areas of the NVRAM at the last sync, and the writes to them since: which area, and how many pages
/// each block had then.
#[derive(Default)]
struct Written {
    safe: [u8; 2],
    since: Vec<(usize, u8, Vec<usize>)>,
}

fn page_of(content: u64) -> Vec<u8> {
    (0..512).flat_map(|i| roll(content, [i, 0, 0, 0]).to_le_bytes()).collect()
}

impl Life {
    fn step(&mut self, choice: u64, content: u64) -> Result<(), FlashError> {
        let block = (choice / 16) as usize % self.blocks.len();
        let address = BlockAddr(block as u32);
        match choice % 16 {
            0..9 if self.blocks[block].pages.len() < 8 => {
                self.blocks[block].pages.push(content);
                let page = address.page(self.blocks[block].pages.len() as u32 - 1);
                let (data, oob) = (page_of(content), content.to_le_bytes());
                self.nand.program(IoClass::Foreground, page, &[Source::Bytes(&data)], &oob).map(|_| ())
            }
            9 => {
                self.blocks[block] = Known { erased_since: true, ..Known::default() };
                self.nand.erase(IoClass::Foreground, address, vellum_base::Nanos::ZERO).map(|_| ())
            }
            10..13 => {
                let area = (choice / 64) as usize % 2;
                let pages = self.blocks.iter().map(|known| known.pages.len()).collect();
                self.written.since.push((area, content as u8, pages));
                self.nand.nvram().unwrap().write(area * AREA_BYTES, &[content as u8; AREA_BYTES])
            }
            13 => {
                self.nand.sync()?;
                self.written.since.drain(..).for_each(|(area, now, _)| self.written.safe[area] = now);
                for block in &mut self.blocks {
                    (block.safe, block.erased_since) = (block.pages.len(), false);
                }
                Ok(())
            }
            // Syncs of the NVRAM alone.
            14 => {
                [13, 10 + choice / 64 * 64, 13].into_iter().try_for_each(|choice| self.step(choice, content))
            }
            _ => Ok(()),
        }
    }
}

/// After the crash: everything durable is there; anything else that is there was written, in order.
fn check(after: &Coded<Nand>, blocks: &[Known], written: &Written, context: &str) {
    for (b, known) in blocks.iter().enumerate() {
        let written = after.report(BlockAddr(b as u32)).pages_written;
        let readable: Vec<bool> = (0..written)
            .map(|page| {
                let mut data = vec![0; 4096];
                let page = PageAddr { block: BlockAddr(b as u32), page };
                let read = after.read(IoClass::Foreground, page, 0, &mut data, &mut [0; 60]);
                let held = known.pages.get(page.page as usize).is_some_and(|c| page_of(*c) == data);
                assert!(
                    read.is_err() || held || known.erased_since,
                    "{context}: {page} is not what was programmed"
                );
                read.is_ok()
            })
            .collect();
        if !known.erased_since {
            assert!(readable.iter().all(|ok| *ok), "{context}: block {b} has holes: {readable:?}");
            assert!(readable.len() >= known.safe, "{context}: block {b} lost what was synced");
        }
    }
    check_nvram(after, blocks, written, context);
}

/// The NVRAM is as it was after one of the writes, and the next may have begun; and the pages that were there then
/// still are.
fn check_nvram(after: &Coded<Nand>, blocks: &[Known], written: &Written, context: &str) {
    let mut held = [[0; AREA_BYTES]; 2];
    for (area, held) in held.iter_mut().enumerate() {
        after.nvram().unwrap().read(area * AREA_BYTES, held).unwrap();
    }
    let is_all = |bytes: &[u8], content| bytes.iter().all(|byte| *byte == content);
    let (mut state, mut count) = (written.safe, 0);
    loop {
        let next = written.since.get(count);
        let fits = |area: usize| match next {
            Some((torn, new, _)) if *torn == area => {
                let begun = held[area].iter().take_while(|byte| *byte == new).count();
                is_all(&held[area][begun..], state[area]) || is_all(&held[area], state[area])
            }
            _ => is_all(&held[area], state[area]),
        };
        if fits(0) && fits(1) {
            break;
        }
        let (area, new, _) = next.unwrap_or_else(|| panic!("{context}: the NVRAM is as it never was"));
        state[*area] = *new;
        count += 1;
    }
    let Some((_, _, pages)) = count.checked_sub(1).and_then(|last| written.since.get(last)) else { return };
    for (b, pages) in pages.iter().enumerate().filter(|(b, _)| !blocks[*b].erased_since) {
        let there = after.report(BlockAddr(b as u32)).pages_written as usize;
        assert!(there >= *pages, "{context}: the NVRAM is ahead of block {b}: {there} of {pages} pages");
    }
}

/// Runs until the host crashes at its `calls`-th call. False if it did not.
fn live_and_die(seed: u64, calls: i64) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let coding = (seed % 2 == 1).then_some(Coding::PAPER);
    let params = ImageParams { coding, nvram_bytes: 2 * AREA_BYTES, ..ImageParams::new(GEOMETRY) };
    let journal_bytes = [12 << 10, 1 << 20][(seed / 2 % 2) as usize];
    let layout = Layout::new(&GEOMETRY, coding.as_ref(), 2 * AREA_BYTES as u64, journal_bytes).unwrap();
    write_new(&File::create_new(&path).unwrap(), &params, &layout).unwrap();
    let open = || OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let (nand, image) = Image::open_whole(open(), false, Wear::default()).unwrap();
    image.file.unsynced.calls_left.store(calls, Relaxed);
    let blocks = vec![Known::default(); GEOMETRY.blocks() as usize];
    let mut life = Life { nand, image, blocks, written: Written::default() };
    let died = (0..400).any(|n| life.step(roll(seed, [n, 1, 0, 0]), roll(seed, [n, 2, 0, 0])).is_err());
    let Life { nand, image, blocks, written } = life;
    let unsynced = image.file.unsynced.clone();
    if !seed.is_multiple_of(3) {
        unsynced.lose(&open(), seed);
    } // else it was the process that died
    drop((nand, image));
    // Whoever reopens it crashes, too, at some call.
    for again in 0..3 {
        let (file, mut host) = (open(), HostFile::new(open()));
        host.unsynced = unsynced.clone();
        unsynced.is_dead.store(false, Relaxed);
        unsynced.calls_left.store(1 + (seed as i64 + calls + again) % 9, Relaxed);
        let (info, layout) = read_header(&file).unwrap();
        drop(Image::assemble(host, info, layout, (false, Wear::default()), None));
        unsynced.lose(&file, seed ^ again as u64);
    }
    let after = Image::open(&path, false).unwrap();
    check(&after, &blocks, &written, &format!("seed {seed}, call {calls}"));
    died
}

#[test]
fn a_crash_of_the_host_leaves_what_was_synced_and_no_holes() {
    let mut died = 0;
    for seed in 0..20 {
        for calls in 1..60 {
            died += usize::from(live_and_die(seed, calls * 3 + seed as i64 % 3));
        }
    }
    assert!(died > 500, "{died} lives were cut short");
}

/// A killed process has handed all its writes to the kernel, however many, and all synced pages.
#[test]
fn the_death_of_the_process_costs_the_nvram_nothing() {
    for journal_bytes in [12 << 10, 1 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let params = ImageParams { nvram_bytes: 2 * AREA_BYTES, ..ImageParams::new(GEOMETRY) };
        let layout = Layout::new(&GEOMETRY, None, 2 * AREA_BYTES as u64, journal_bytes).unwrap();
        write_new(&File::create_new(&path).unwrap(), &params, &layout).unwrap();
        for life in 0..40u8 {
            let nand = Image::open(&path, false).unwrap();
            let nvram = nand.nvram().unwrap();
            let mut held = [0; AREA_BYTES];
            nvram.read(AREA_BYTES, &mut held).unwrap();
            assert_eq!(held, [if life == 0 { 0 } else { life - 1 + 100 }; AREA_BYTES], "{life}");
            nvram.write(0, &[life; AREA_BYTES]).unwrap();
            if life % 3 == 0 {
                nand.erase(IoClass::Foreground, BlockAddr(0), vellum_base::Nanos::ZERO).unwrap();
                let (page, data) = (BlockAddr(0).page(0), page_of(1));
                nand.program(IoClass::Foreground, page, &[Source::Bytes(&data)], &[]).unwrap();
            }
            // More than fits into the journal, without a sync.
            (0..20).for_each(|n| nvram.write_apart(AREA_BYTES, &[n; AREA_BYTES]).unwrap());
            nvram.write_apart(AREA_BYTES, &[life + 100; AREA_BYTES]).unwrap();
            let killed = std::fs::read(&path).unwrap();
            drop(nand);
            std::fs::write(&path, killed).unwrap();
        }
    }
}
