//! The share of the duplicates of real files found by the tables of `ecc` and `ecc-paper`, by their memory.
//!
//! `cargo bench -p vellum-disk --bench dedup_table -- DIR...` writes the files below the directories to a disk in
//! memory, in the order of their names like a copy, each beginning at a new sector. The maximum that could be saved are
//! the copies beyond the first of each content. It takes as much memory as the files.
//!
//! Columns: bytes of table per sector of the disk, and the share of the duplicates that needed no program.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use vellum_base::{Avoided, BlockDevice, Geometry, Lba, RealEnv, Result, SECTOR_BYTES};
use vellum_codes::fingerprint::seeded64;
use vellum_disk::{DedupMode, DedupWhen, Disk, Format, Options};
use vellum_media::nand::{Nand, NandParams};

/// Mode and share of the sectors with an entry. 21.4 % of `ecc` takes as much memory as the paper's 15 %.
const TABLES: [(DedupMode, f64); 9] = [
    (DedupMode::EccPaper, 1.0),
    (DedupMode::EccPaper, 0.15),
    (DedupMode::EccPaper, 0.05),
    (DedupMode::Ecc, 1.0),
    (DedupMode::Ecc, 0.214),
    (DedupMode::Ecc, 0.15),
    (DedupMode::Ecc, 0.07),
    (DedupMode::Ecc, 0.05),
    (DedupMode::Ecc, 0.02),
];

fn main() {
    let roots: Vec<PathBuf> =
        std::env::args().skip(1).filter(|a| !a.starts_with("--")).map(PathBuf::from).collect();
    let (mut sectors, mut stored, mut distinct) = (0u64, 0u64, BTreeSet::new());
    each_sector(&roots, &mut |sector| {
        sectors += 1;
        if !vellum_codes::is_zero(sector) {
            stored += 1;
            distinct.insert(seeded64(1, sector));
        }
    });
    if sectors == 0 {
        return println!("name directories: cargo bench -p vellum-disk --bench dedup_table -- DIR...");
    }
    let duplicates = stored - distinct.len() as u64;
    println!("{stored} sectors that are not zeros, {duplicates} of them duplicates");
    for (mode, share) in TABLES {
        let (saved, table_bytes) = run(&roots, sectors, mode, share).expect("a disk");
        println!(
            "{:9} {:5.1} % of sectors, {:.2} bytes a sector: {:5.1} % of duplicates",
            mode.name(),
            share * 100.0,
            table_bytes as f64 / sectors as f64,
            saved as f64 * 100.0 / duplicates as f64
        );
    }
}

/// Number of sectors that needed no program as duplicates, and bytes of the table.
fn run(roots: &[PathBuf], sectors: u64, dedup: DedupMode, share: f64) -> Result<(u64, usize)> {
    let blocks_per_die = (sectors / (4 * 4 * 256)) as u32 * 5 / 4 + 16;
    let geometry = Geometry {
        channels: 4,
        dies_per_channel: 1,
        blocks_per_die,
        pages_per_block: 256,
        page_bytes: 16384,
        oob_bytes: 256,
    };
    let flash = Arc::new(Nand::ram(geometry, NandParams::default())?);
    Disk::format(flash.clone(), RealEnv::new(), &Format { dedup, ..Format::new(sectors) })?;
    let options = Options { dedup_table_share: share, dedup_when: DedupWhen::Inline, ..Options::default() };
    let disk = Disk::open(flash, RealEnv::new(), options)?;
    let (mut lba, mut failed) = (0, None);
    each_sector(roots, &mut |sector| {
        if lba < sectors && failed.is_none() {
            failed = disk.write(Lba(lba), sector, false).err();
        }
        lba += 1;
    });
    failed.map_or(Ok(()), Err)?;
    let saved = disk.ledger().avoided_by(Avoided::Duplicate) / SECTOR_BYTES as u64;
    Ok((saved, disk.stat().memory.dedup_bytes))
}

/// The sectors of all files below the roots. Links are not followed; unreadable files are skipped.
fn each_sector(roots: &[PathBuf], f: &mut impl FnMut(&[u8; SECTOR_BYTES])) {
    for path in roots {
        let Ok(metadata) = std::fs::symlink_metadata(path) else { continue };
        if metadata.is_dir() {
            let Ok(entries) = std::fs::read_dir(path) else { continue };
            let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            names.sort_unstable();
            each_sector(&names, f);
        } else if metadata.is_file()
            && let Ok(bytes) = std::fs::read(path)
        {
            for chunk in bytes.chunks(SECTOR_BYTES) {
                let mut sector = [0; SECTOR_BYTES];
                sector[..chunk.len()].copy_from_slice(chunk);
                f(&sector);
            }
        }
    }
}
