//! Section 3.6: memory for metadata.

use super::{Bench, DMDEDUP, PAPER, VELLUM, WOJ, fast};
use crate::experiment::{Check, Experiment, Outcome, Setting, Table};
use crate::replay::grouped;
use crate::report::{Chart, ChartKind};
use vellum_base::{Result, SECTOR_BYTES};
use vellum_trace::ByteLen;
use vellum_trace::generate::ext::Config;
use vellum_trace::generate::files;

pub(crate) const EXPERIMENT: Experiment = Experiment {
    name: "woj-metadata",
    paper: PAPER,
    figure: "Section 3.6",
    claim: "A journal of 256 MiB needs 1.28 MB of metadata in memory: 768 KiB of fingerprints and 512 KiB of reverse map; \
            full dedup of 400 GB needs 2.4 GB",
    small: "512 MiB written through a journal of 256 MiB, 4 GiB ext3 on the fast SSD",
    full: "the same",
    run,
};

const PAPER_BYTES: u64 = 1_280_000;
const PAPER_DISK_BYTES: f64 = 400e9;

fn run(setting: &Setting<'_>) -> Result<Outcome> {
    const BLOCKS: u64 = 128 << 10;
    let file_system = Config {
        device_bytes: ByteLen(4 << 30),
        journal_bytes: ByteLen(256 << 20),
        seed: setting.seed,
        ..Config::default()
    };
    let configurations = [DMDEDUP, WOJ, VELLUM];
    let bench = Bench { setting, preset: fast()?, file_system, configurations: &configurations };
    let measured = bench.run(&|| Ok(Box::new(files::write_sequential(BLOCKS, 1000, false, setting.seed))))?;
    let [strong, woj, ours] = [0, 1, 2].map(|c| measured.cells[c].dedup_memory_bytes);
    // Every content is stored once: that of the file, and little else.
    let per_sector = strong as f64 / (measured.cells[0].ledger.programmed_bytes as f64 / SECTOR_BYTES as f64);
    let strong_400 = per_sector * PAPER_DISK_BYTES / SECTOR_BYTES as f64;
    let mut table = Table::new("Fingerprint tables", ["configuration", "bytes", "of what"]);
    table.rows = vec![
        vec!["WOJ, by the paper's account".into(), grouped(PAPER_BYTES), "journal of 256 MiB".into()],
        vec!["WOJ_xxh64, as built here".into(), grouped(woj), "journal of 256 MiB".into()],
        vec!["Vellum journal".into(), grouped(ours), "journal of 256 MiB".into()],
        vec!["Dmdedup_sha1, as built here".into(), grouped(strong), "512 MiB of data".into()],
        vec!["Dmdedup_sha1, extrapolated".into(), grouped(strong_400 as u64), "400 GB full of data".into()],
    ];
    let kind = ChartKind::Bars {
        groups: vec!["paper's account".into(), "WOJ_xxh64 here".into(), "Vellum journal".into()],
        series: vec![(
            "fingerprint tables".into(),
            [PAPER_BYTES, woj, ours].map(|b| b as f64 / 1e6).to_vec(),
        )],
    };
    let title = "Memory for a journal of 256 MiB".to_string();
    Ok(Outcome {
        tables: vec![table],
        charts: vec![Chart { title, x: "configuration".into(), y: "MB".into(), kind }],
        checks: vec![small_enough(ours), far_less_than_strong(ours, strong_400)],
        notes: vec![format!(
            "Vellum's reverse map is part of its map (under 16 bytes a sector in all), so nothing is added for it. Its cache \
             of journaled sectors, {} bytes here, saves flash reads when comparing; it can be switched off.",
            grouped(measured.cells[2].verify_cache_bytes)
        )],
    })
}

fn small_enough(ours: u64) -> Check {
    Check::new(
        "1.28 MB of metadata are enough for a journal of 256 MiB",
        "1.28 MB",
        format!("{:.2} MB", ours as f64 / 1e6),
        ours <= PAPER_BYTES,
        ("shape: at most 1.28 MB", "shape: at most 1.28 MB"),
    )
}

fn far_less_than_strong(ours: u64, strong: f64) -> Check {
    let times = strong / ours.max(1) as f64;
    Check::new(
        "That is thousands of times less than full dedup of the disk",
        "2.4 GB for 400 GB, 1900 times",
        format!("{:.1} GB, {times:.0} times", strong / 1e9),
        times > 1000.0,
        ("shape: more than 1000 times", "shape: more than 1000 times"),
    )
}
