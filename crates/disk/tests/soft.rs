//! A flash that tests can edit: pages, out-of-band bytes, NVRAM, block reports. Used by the hostile tests, the golden
//! image and the fuzz target.

use std::collections::BTreeMap;
use vellum_base::flash::BatchError;
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockAddr, BlockReport, BlockState, Done, Flash, FlashCounters, FlashError, FlashOp, Geometry, IoClass,
    Nvram, PageAddr, SECTOR_BYTES, Source,
};

/// Maximum number of calls before the flash assumes that its caller loops.
const CALLS_MAX: u64 = 3_000_000;

/// The editable flash; see the module.
pub struct Soft {
    geometry: Geometry,
    state: Mutex<State>,
    nvram: Option<SoftNvram>,
}

#[derive(Clone, Default)]
struct State {
    blocks: Vec<SoftBlock>,
    counters: FlashCounters,
    calls: u64,
    /// Reports of blocks that replace the true ones.
    lies: BTreeMap<BlockAddr, BlockReport>,
}

/// An erase block.
#[derive(Clone, Default)]
pub struct SoftBlock {
    /// Data and out-of-band bytes of the pages written.
    pub pages: Vec<(Vec<u8>, Vec<u8>)>,
    /// Erases so far.
    pub erase_count: u32,
    /// Bad.
    pub bad: bool,
}

impl Soft {
    /// A flash with these blocks.
    pub fn new(geometry: Geometry, blocks: Vec<SoftBlock>, nvram: Vec<u8>) -> Soft {
        let pages_programmed = blocks.iter().map(|b| b.pages.len() as u64).sum();
        let counters = FlashCounters { pages_programmed, ..FlashCounters::default() };
        let nvram = (!nvram.is_empty()).then(|| SoftNvram(Mutex::new(nvram)));
        Soft { geometry, state: Mutex::new(State { blocks, counters, ..State::default() }), nvram }
    }

    /// A copy of the contents of another flash.
    pub fn copy(flash: &dyn Flash) -> Soft {
        let geometry = *flash.geometry();
        let copy_block = |block: BlockAddr| {
            let report = flash.report(block);
            let pages = (0..report.pages_written).map(|page| {
                let mut data = vec![0; geometry.page_bytes as usize];
                let mut oob = vec![0; geometry.oob_bytes as usize];
                let _ = flash.read(IoClass::Metadata, block.page(page), 0, &mut data, &mut oob);
                (data, oob)
            });
            SoftBlock {
                pages: pages.collect(),
                erase_count: report.erase_count,
                bad: report.state == BlockState::Bad,
            }
        };
        let blocks = (0..geometry.blocks()).map(BlockAddr).map(copy_block).collect();
        let mut nvram = vec![0; flash.nvram().map_or(0, |n| n.bytes())];
        if let Some(device) = flash.nvram() {
            device.read(0, &mut nvram).unwrap();
        }
        let soft = Soft::new(geometry, blocks, nvram);
        soft.state.lock().counters = flash.counters();
        soft
    }

    /// An independent copy.
    pub fn fork(&self) -> Soft {
        let state = State { calls: 0, ..self.state.lock().clone() };
        let nvram = self.nvram.as_ref().map(|n| SoftNvram(Mutex::new(n.0.lock().clone())));
        Soft { geometry: self.geometry, state: Mutex::new(state), nvram }
    }

    /// A copy of the blocks.
    pub fn blocks(&self) -> Vec<SoftBlock> {
        self.state.lock().blocks.clone()
    }

    /// All pages written.
    pub fn pages(&self) -> Vec<PageAddr> {
        let state = self.state.lock();
        let pages = |(block, b): (u32, &SoftBlock)| {
            let count = b.pages.len() as u32;
            (0..count).map(move |page| BlockAddr(block).page(page))
        };
        (0u32..).zip(&state.blocks).flat_map(pages).collect()
    }

    /// Changes a written page.
    pub fn edit(&self, page: PageAddr, edit: impl FnOnce(&mut [u8], &mut [u8])) {
        let mut state = self.state.lock();
        let (data, oob) = &mut state.blocks[page.block.index()].pages[page.page as usize];
        edit(data, oob);
    }

    /// Changes the NVRAM, if there is one.
    pub fn edit_nvram(&self, edit: impl FnOnce(&mut [u8])) {
        if let Some(nvram) = &self.nvram {
            edit(&mut nvram.0.lock());
        }
    }

    /// Makes a block return a false report.
    pub fn lie(&self, block: BlockAddr, report: BlockReport) {
        self.state.lock().lies.insert(block, report);
    }

    /// Changes a slot, and recomputes all its checksums: a deliberate forgery.
    pub fn forge(&self, page: PageAddr, index: usize, edit: impl FnOnce(&mut [u8], &mut [u8])) {
        let address = self.geometry.slot_of(page, index as u32).0;
        self.edit(page, |data, oob| {
            let data = &mut data[index * SECTOR_BYTES..][..SECTOR_BYTES];
            let oob = &mut oob[index * 24..][..24];
            edit(data, oob);
            seal_structures(data);
            oob[12..16].copy_from_slice(&vellum_codes::crc32c(data).to_le_bytes());
            seal_entry(oob, address);
        });
    }
}

/// Recomputes the checksums of roots and log slots.
pub fn seal_structures(data: &mut [u8]) {
    if data.starts_with(b"VELLUMD\0") {
        let crc = vellum_codes::crc32c(&data[16..]) ^ vellum_codes::crc32c(&data[..12]).rotate_left(1);
        data[12..16].copy_from_slice(&crc.to_le_bytes());
    }
    if data.starts_with(b"VLOG") {
        let length = usize::from(u16::from_le_bytes([data[12], data[13]])).clamp(8, data.len());
        let crc = vellum_codes::crc32c(&data[8..length]);
        data[4..8].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Recomputes the checksum of the out-of-band entry of slot `address`.
fn seal_entry(entry: &mut [u8], address: u32) {
    let crc = vellum_codes::crc32c(&[&entry[..20], &address.to_le_bytes()].concat());
    entry[20..24].copy_from_slice(&crc.to_le_bytes());
}

/// Recomputes the checksum of an NVRAM image, and those of its staged entries.
pub fn seal_image(area: &mut [u8]) {
    let word = |at: usize| u32::from_le_bytes([area[at], area[at + 1], area[at + 2], area[at + 3]]);
    let length = (word(12) as usize).clamp(416, area.len());
    let staged = usize::from(u16::from_le_bytes([area[56], area[57]]));
    for entry in (0..staged).map(|i| 416 + i * (24 + SECTOR_BYTES)).take_while(|at| at + 24 <= length) {
        seal_entry(&mut area[entry..entry + 24], u32::MAX);
    }
    let crc = vellum_codes::crc32c(&area[12..length]);
    area[8..12].copy_from_slice(&crc.to_le_bytes());
}

impl State {
    fn report(&self, block: BlockAddr) -> BlockReport {
        let b = &self.blocks[block.index()];
        let state = if b.bad { BlockState::Bad } else { BlockState::Good };
        let truth = BlockReport { state, pages_written: b.pages.len() as u32, erase_count: b.erase_count };
        self.lies.get(&block).copied().unwrap_or(truth)
    }

    fn read(&self, page: PageAddr, offset: u32, data: &mut [u8], oob: &mut [u8]) -> Result<(), FlashError> {
        let outside = || FlashError::Rule(format!("{page} is outside the device"));
        let block = self.blocks.get(page.block.index()).ok_or_else(outside)?;
        let Some((bytes, spare)) = block.pages.get(page.page as usize) else {
            data.fill(0xFF);
            oob.fill(0xFF);
            return Ok(());
        };
        let from = offset as usize;
        data.copy_from_slice(bytes.get(from..from + data.len()).ok_or_else(outside)?);
        oob.copy_from_slice(&spare[..oob.len()]);
        Ok(())
    }

    fn program(
        &mut self,
        g: &Geometry,
        page: PageAddr,
        parts: &[Source<'_>],
        oob: &[u8],
    ) -> Result<(), FlashError> {
        let mut bytes = Vec::new();
        for part in parts {
            match part {
                Source::Bytes(part) => bytes.extend_from_slice(part),
                Source::Pad(count) => bytes.resize(bytes.len() + *count as usize, 0),
                Source::Copy { page, offset, bytes: count } => {
                    let mut copied = vec![0; *count as usize];
                    self.read(*page, *offset, &mut copied, &mut [])?;
                    bytes.extend_from_slice(&copied);
                }
            }
        }
        let block = self.blocks.get_mut(page.block.index());
        let next = block.filter(|b| !b.bad && b.pages.len() == page.page as usize);
        match next.filter(|_| page.page < g.pages_per_block && bytes.len() == g.page_bytes as usize) {
            Some(block) => {
                let mut oob = oob.to_vec();
                oob.resize(g.oob_bytes as usize, 0);
                block.pages.push((bytes, oob));
                self.counters.pages_programmed += 1;
                Ok(())
            }
            None => Err(FlashError::Rule(format!("{page} cannot be programmed now"))),
        }
    }

    fn erase(&mut self, block: BlockAddr) -> Result<(), FlashError> {
        let known = self.blocks.get_mut(block.index()).filter(|b| !b.bad);
        let known = known.ok_or_else(|| FlashError::Rule(format!("{block} cannot be erased")))?;
        known.pages.clear();
        known.erase_count += 1;
        self.counters.blocks_erased += 1;
        self.lies.remove(&block);
        Ok(())
    }
}

impl Flash for Soft {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, _class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError> {
        let mut state = self.state.lock();
        for (index, op) in ops.iter_mut().enumerate() {
            state.calls += 1;
            assert!(state.calls < CALLS_MAX, "this never ends");
            let result = match op {
                FlashOp::Read { page, offset, data, oob } => state.read(*page, *offset, data, oob),
                FlashOp::Program { page, parts, oob, .. } => state.program(&self.geometry, *page, parts, oob),
                FlashOp::Erase { block, .. } => state.erase(*block),
            };
            result.map_err(|error| BatchError { index, done: Done::default(), error })?;
        }
        Ok(Done::default())
    }

    fn report(&self, block: BlockAddr) -> BlockReport {
        self.state.lock().report(block)
    }
    fn counters(&self) -> FlashCounters {
        self.state.lock().counters
    }
    fn sync(&self) -> Result<(), FlashError> {
        Ok(())
    }
    fn nvram(&self) -> Option<&dyn Nvram> {
        self.nvram.as_ref().map(|n| n as &dyn Nvram)
    }
}

struct SoftNvram(Mutex<Vec<u8>>);

impl Nvram for SoftNvram {
    fn bytes(&self) -> usize {
        self.0.lock().len()
    }
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), FlashError> {
        out.copy_from_slice(&self.0.lock()[offset..offset + out.len()]);
        Ok(())
    }
    fn write(&self, offset: usize, data: &[u8]) -> Result<(), FlashError> {
        self.0.lock()[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }
}
