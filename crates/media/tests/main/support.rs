//! Small devices, contents and a manual clock.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vellum_base::Scrambling;
use vellum_base::{
    BlockAddr, Done, Env, Flash, FlashError, Geometry, IoClass, Nanos, PageAddr, Source, Task,
};
use vellum_codes::ecc::Rate;
use vellum_codes::pattern::Pattern;
use vellum_media::coded::{Coded, Coding};
use vellum_media::image::{Image, ImageParams};
use vellum_media::nand::{Nand, NandParams};

/// Two channels of one die, four blocks of eight pages of two slots each.
pub const SMALL: Geometry = Geometry {
    channels: 2,
    dies_per_channel: 1,
    blocks_per_die: 4,
    pages_per_block: 8,
    page_bytes: 8192,
    oob_bytes: 32,
};

/// The device of all tests: virtual flash, with coded pages or not.
pub type Device = Coded<Nand>;

/// Uncoded pages; and every codeword size, every rate and every scrambler at least once.
pub const CODINGS: [Option<Coding>; 4] = [
    None,
    Some(Coding::PAPER),
    Some(Coding { codeword_bytes: 2048, rate: Rate::R16_17, scrambling: Scrambling::BySector }),
    Some(Coding { codeword_bytes: 4096, rate: Rate::R8_9, scrambling: Scrambling::ByPage { period: 4 } }),
];

pub fn ram(params: NandParams) -> Device {
    coded_ram(params, None)
}

pub fn coded_ram(params: NandParams, coding: Option<Coding>) -> Device {
    let below = coding.map_or(SMALL, |coding| coding.geometry_below(&SMALL).unwrap());
    over(Nand::ram(below, params).unwrap(), coding)
}

/// An independent copy of a device in memory.
pub fn fork(device: &Device) -> Device {
    over(device.inner().fork().unwrap(), device.coding().copied())
}

fn over(nand: Nand, coding: Option<Coding>) -> Device {
    match coding {
        None => Coded::plain(nand),
        Some(coding) => Coded::new(nand, SMALL.oob_bytes, coding).unwrap(),
    }
}

/// Runs a check in memory and in a file, with every coding.
pub fn everywhere(check: impl Fn(&Device)) {
    for coding in CODINGS {
        check(&coded_ram(NandParams::default(), coding));
        check(&InFile::coded(coding).create(SMALL));
    }
}

/// A device in a file that is deleted with it.
pub struct InFile {
    pub dir: tempfile::TempDir,
    coding: Option<Coding>,
}

impl InFile {
    pub fn new() -> InFile {
        InFile::coded(None)
    }
    pub fn coded(coding: Option<Coding>) -> InFile {
        InFile { dir: tempfile::tempdir().unwrap(), coding }
    }
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("d.flash")
    }
    pub fn create(&self, geometry: Geometry) -> Device {
        let mut params = ImageParams::new(geometry);
        params.nvram_bytes = 512;
        params.label = "test".into();
        params.coding = self.coding;
        Image::create(&self.path(), &params).unwrap()
    }
    pub fn open(&self) -> Device {
        Image::open(&self.path(), false).unwrap()
    }
}

/// A page-sized content, distinct for each `id`: a pattern, zeros or plain bytes.
pub fn content(id: u64) -> Vec<u8> {
    let mut out = vec![0; SMALL.page_bytes as usize];
    for (slot, sector) in out.chunks_exact_mut(4096).enumerate() {
        let id = id * 2 + slot as u64;
        match id % 3 {
            0 => sector[..8].copy_from_slice(&(id + 1).to_le_bytes()),
            1 => Pattern::unique(id).fill(sector),
            _ => sector.iter_mut().enumerate().for_each(|(i, b)| *b = (id as usize * 31 + i) as u8),
        }
    }
    out
}

pub fn program(nand: &dyn Flash, block: u32, page: u32, id: u64) -> Result<Done, FlashError> {
    let page = BlockAddr(block).page(page);
    nand.program(IoClass::Foreground, page, &[Source::Bytes(&content(id))], &id.to_le_bytes())
}

pub fn read(nand: &dyn Flash, page: PageAddr) -> Result<(Vec<u8>, Vec<u8>), FlashError> {
    let g = nand.geometry();
    let (mut data, mut oob) = (vec![1; g.page_bytes as usize], vec![1; g.oob_bytes as usize]);
    nand.read(IoClass::Foreground, page, 0, &mut data, &mut oob)?;
    Ok((data, oob))
}

/// True if the page holds what [`program`] wrote for `id`.
pub fn holds(nand: &dyn Flash, block: u32, page: u32, id: u64) -> bool {
    read(nand, BlockAddr(block).page(page))
        .is_ok_and(|(data, oob)| data == content(id) && oob[..8] == id.to_le_bytes())
}

pub fn is_erased(nand: &dyn Flash, block: u32, page: u32) -> bool {
    let (data, oob) = read(nand, BlockAddr(block).page(page)).unwrap();
    data.iter().chain(&oob).all(|b| *b == 0xFF)
}

pub fn erase(nand: &dyn Flash, block: u32) -> Result<Done, FlashError> {
    nand.erase(IoClass::Background, BlockAddr(block), Nanos::ZERO)
}

/// A clock that a test sets.
#[derive(Default)]
pub struct ManualEnv {
    now: AtomicU64,
}

impl ManualEnv {
    pub fn new() -> Arc<ManualEnv> {
        Arc::default()
    }
}

impl Env for ManualEnv {
    fn now(&self) -> Nanos {
        Nanos(self.now.load(Ordering::Relaxed))
    }
    fn sleep_until(&self, time: Nanos) {
        self.now.fetch_max(time.0, Ordering::Relaxed);
    }
    fn charge(&self, cpu: Nanos) {
        self.now.fetch_add(cpu.0, Ordering::Relaxed);
    }
    fn spawn(self: Arc<Self>, _name: &str, run: Box<dyn FnOnce() + Send>) -> Task {
        run();
        Task::new(Box::new(|| ()))
    }
    fn random(&self) -> u64 {
        4 // chosen by fair dice roll
    }
}
