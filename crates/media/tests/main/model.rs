//! Random operations compared with an oracle that is a table of pages.

use crate::support::*;
use proptest::prelude::*;
use vellum_base::{BlockAddr, Flash, FlashError, FlashOp, IoClass, Nanos, PageAddr, Source};
use vellum_codes::pattern::Pattern;
use vellum_media::nand::NandParams;

/// A part of a page, without lifetimes.
#[derive(Clone, Debug)]
enum Part {
    Bytes { id: u64, len: u32 },
    Copy { block: u32, page: u32, offset: u32, len: u32 },
    Pad { len: u32 },
}

#[derive(Clone, Debug)]
enum Op {
    /// Programs the next pages of a block in one batch, or one too far.
    Program {
        block: u32,
        skip: u32,
        pages: Vec<Vec<Part>>,
    },
    Read {
        block: u32,
        page: u32,
        offset: u32,
        len: u32,
    },
    Erase {
        block: u32,
    },
    Sync,
    Reopen,
}

const BLOCKS: u32 = 8;

fn part() -> impl Strategy<Value = Part> {
    // Lengths are in half slots, so that half of the parts are not aligned.
    let len = (1u32..4).prop_map(|halves| halves * 2048);
    prop_oneof![
        3 => (any::<u64>(), len.clone()).prop_map(|(id, len)| Part::Bytes { id, len }),
        3 => (0..BLOCKS, 0u32..8, 0u32..3, len.clone()).prop_map(|(block, page, half, len)| Part::Copy {
            block, page, offset: half * 2048, len
        }),
        1 => len.prop_map(|len| Part::Pad { len }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let pages = prop::collection::vec(prop::collection::vec(part(), 1..6), 1..4);
    prop_oneof![
        6 => (0..BLOCKS, prop::sample::select(vec![0u32, 0, 0, 0, 0, 1]), pages)
            .prop_map(|(block, skip, pages)| Op::Program { block, skip, pages }),
        4 => (0..BLOCKS, 0u32..8, 0u32..8192, 0u32..8192)
            .prop_map(|(block, page, offset, len)| Op::Read { block, page, offset, len: len.min(8192 - offset) }),
        2 => (0..BLOCKS).prop_map(|block| Op::Erase { block }),
        1 => Just(Op::Sync),
        1 => Just(Op::Reopen),
    ]
}

/// Bytes for a part; every fourth id is a pattern, every fifth zeros.
fn bytes(id: u64, len: u32) -> Vec<u8> {
    let mut sectors = vec![0; 8192];
    for sector in sectors.chunks_exact_mut(4096) {
        match id % 5 {
            0 => {}
            1 | 2 => Pattern::unique(id).fill(sector),
            _ => sector.iter_mut().enumerate().for_each(|(i, b)| *b = (id as usize + i * 7) as u8),
        }
    }
    sectors.truncate(len as usize);
    sectors
}

/// Truncates or pads the parts so that they fill a page.
fn fill_page(parts: &[Part]) -> Vec<Part> {
    let mut left = 8192;
    let mut out = Vec::new();
    for part in parts {
        let mut part = part.clone();
        let (Part::Bytes { len, .. } | Part::Copy { len, .. } | Part::Pad { len }) = &mut part;
        *len = (*len).min(left);
        if let Part::Copy { offset, len, .. } = &mut part {
            *offset = (*offset).min(8192 - *len);
        }
        let (Part::Bytes { len, .. } | Part::Copy { len, .. } | Part::Pad { len }) = &part;
        left -= len;
        if *len > 0 {
            out.push(part);
        }
    }
    if left > 0 {
        out.push(Part::Pad { len: left });
    }
    out
}

/// Blocks as lists of pages.
struct Oracle {
    blocks: Vec<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Oracle {
    fn read(&self, page: PageAddr) -> (Vec<u8>, Vec<u8>) {
        let erased = || (vec![0xFF; 8192], vec![0xFF; 32]);
        self.blocks[page.block.index()].get(page.page as usize).cloned().unwrap_or_else(erased)
    }

    fn program(&mut self, block: u32, parts: &[Part], oob: &[u8]) {
        let mut data = Vec::new();
        for part in parts {
            match part {
                Part::Bytes { id, len } => data.extend(bytes(*id, *len)),
                Part::Copy { block, page, offset, len } => {
                    let from = self.read(BlockAddr(*block).page(*page)).0;
                    data.extend(&from[*offset as usize..(offset + len) as usize]);
                }
                Part::Pad { len } => data.resize(data.len() + *len as usize, 0),
            }
        }
        let mut oob = oob.to_vec();
        oob.resize(32, 0);
        self.blocks[block as usize].push((data, oob));
    }
}

/// Programs on both, which must agree on what is refused.
fn run_program(nand: &Device, oracle: &mut Oracle, block: u32, skip: u32, pages: &[Vec<Part>], stamp: u64) {
    let first = oracle.blocks[block as usize].len() as u32 + skip;
    let pages: Vec<_> = pages.iter().map(|parts| fill_page(parts)).collect();
    let buffers: Vec<Vec<Vec<u8>>> = pages
        .iter()
        .map(|parts| {
            let bytes = |part: &Part| match part {
                Part::Bytes { id, len } => bytes(*id, *len),
                _ => Vec::new(),
            };
            parts.iter().map(bytes).collect()
        })
        .collect();
    let sources: Vec<Vec<Source<'_>>> = pages
        .iter()
        .zip(&buffers)
        .map(|(parts, buffers)| {
            parts
                .iter()
                .zip(buffers)
                .map(|(part, buffer)| match part {
                    Part::Bytes { .. } => Source::Bytes(buffer),
                    Part::Copy { block, page, offset, len } => {
                        Source::Copy { page: BlockAddr(*block).page(*page), offset: *offset, bytes: *len }
                    }
                    Part::Pad { len } => Source::Pad(*len),
                })
                .collect()
        })
        .collect();
    let oobs: Vec<_> = (0..pages.len() as u64).map(|i| (stamp * 10 + i).to_le_bytes()).collect();
    let mut ops: Vec<_> = (0..pages.len())
        .map(|i| FlashOp::Program {
            page: BlockAddr(block).page(first + i as u32),
            parts: &sources[i],
            oob: &oobs[i],
            seeds: &[],
        })
        .collect();
    let result = nand.submit(IoClass::Foreground, &mut ops);
    let fitting = if skip > 0 { 0 } else { pages.len().min((8 - first) as usize) };
    for i in 0..fitting {
        oracle.program(block, &pages[i], &oobs[i]);
    }
    match result {
        Ok(_) => assert_eq!(fitting, pages.len()),
        Err(e) => {
            assert!(matches!(e.error, FlashError::Rule(_)), "{}", e.error);
            assert_eq!(e.index, fitting);
        }
    }
}

fn check(mut nand: Device, reopen: impl Fn(Device) -> Device, ops: &[Op]) {
    let mut oracle = Oracle { blocks: vec![Vec::new(); BLOCKS as usize] };
    let mut erases = [0; BLOCKS as usize];
    for (stamp, op) in ops.iter().enumerate() {
        match op {
            Op::Program { block, skip, pages } => {
                run_program(&nand, &mut oracle, *block, *skip, pages, stamp as u64)
            }
            Op::Read { block, page, offset, len } => {
                let page = BlockAddr(*block).page(*page);
                let (mut data, mut oob) = (vec![5; *len as usize], vec![5; 32]);
                nand.read(IoClass::Foreground, page, *offset, &mut data, &mut oob).unwrap();
                let want = oracle.read(page);
                assert!(data == want.0[*offset as usize..(offset + len) as usize], "{page}");
                assert_eq!(oob, want.1, "{page}");
            }
            Op::Erase { block } => {
                nand.erase(IoClass::Background, BlockAddr(*block), Nanos::ZERO).unwrap();
                oracle.blocks[*block as usize].clear();
                erases[*block as usize] += 1;
            }
            Op::Sync => nand.sync().unwrap(),
            Op::Reopen => nand = reopen(nand),
        }
    }
    let nand = reopen(nand);
    for block in 0..BLOCKS {
        let report = nand.report(BlockAddr(block));
        assert_eq!(report.pages_written as usize, oracle.blocks[block as usize].len());
        assert_eq!(report.erase_count, erases[block as usize]);
        for page in 0..8 {
            let page = BlockAddr(block).page(page);
            assert!(read(&nand, page).unwrap() == oracle.read(page), "{page}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn in_memory(ops in prop::collection::vec(op(), 1..60), coding in prop::sample::select(&CODINGS)) {
        check(coded_ram(NandParams::default(), coding), |device| fork(&device), &ops);
    }

    #[test]
    fn in_a_file(ops in prop::collection::vec(op(), 1..60), coding in prop::sample::select(&CODINGS)) {
        let home = InFile::coded(coding);
        check(home.create(SMALL), |nand| { nand.close().unwrap(); home.open() }, &ops);
    }
}
