//! `disk repair`: rebuilds the map from everything on the flash.

use super::target::advise;
use crate::failure::{Failure, Outcome, Verdict};
use crate::text::{Align, Table, first_ranges};
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use vellum::base::{Error, Kind, RealEnv};
use vellum::config::parse_dedup;
use vellum::disk::tools::{self, RepairOptions, RepairReport};
use vellum::disk::{DedupMode, Format};
use vellum::media::reason::IMAGE_HEADERS;
use vellum::media::{Image, Mended};
use vellum::{Config, Size};

/// Rebuild a disk that does not open from every page on its flash
#[derive(clap::Args)]
#[command(after_help = "\
Without --write it only says what would be found and what is lost. Keep a copy of the image before
--write. An image that was cut gets its length back; a damaged header is written anew from the
other. Where nothing was lost by that, everything is there.

Example:
  vellum disk repair d.vellum
  cp --sparse=always d.vellum copy.vellum; vellum disk repair d.vellum --write

Exit codes: 0 everything is there, 1 something is lost or doubtful (the report says what), 2 usage,
3 I/O, 4 the image itself is damaged, 5 in use")]
pub struct Args {
    /// The disk's image
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Write what was rebuilt
    #[arg(long)]
    write: bool,
    /// Logical size, if nothing on the flash says it
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Dedup mode, with --size
    #[arg(long, value_name = "MODE", value_parser = parse_dedup, requires = "size")]
    dedup: Option<DedupMode>,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let identity = match self.size {
            Some(size) => {
                let sectors = vellum::shape::sectors(&Config::ram(size.0))?;
                Some(Format { dedup: self.dedup.unwrap_or_default(), ..Format::new(sectors) })
            }
            None => None,
        };
        let opened = Image::open_to_repair(&self.image, !self.write);
        let (flash, mended) = opened.map_err(|e| self.no_use(e))?;
        let flash = Arc::new(flash);
        let options = RepairOptions { write: self.write, identity };
        let repaired = tools::repair(flash.clone(), RealEnv::new(), &options, ui.progress("repair"));
        let closed = vellum::stack::close_flash(flash);
        if self.write && (repaired.is_err() || closed.is_err()) {
            // These problems will not be found again.
            mended.problems.iter().for_each(|problem| ui.remark(problem));
        }
        let report = repaired.map_err(|e| self.no_use(e))?;
        closed?;
        let Mended { problems, nvram_doubtful } = mended;
        let repaired = Repaired { image_problems: problems, nvram_doubtful, report };
        ui.result(&repaired, || repaired.describe(&self.image.display().to_string()));
        let is_whole = repaired.report.is_whole() && !nvram_doubtful;
        Ok(if is_whole { Verdict::Fine } else { Verdict::Problems })
    }

    /// Advice other than to repair.
    fn no_use(&self, error: Error) -> Failure {
        match error.kind() {
            Kind::Corrupt if !error.is_because(IMAGE_HEADERS) => Failure::with_next(
                error,
                "there is nothing to rebuild a disk from in this file: restore it from a copy",
            ),
            _ => advise(error, &self.image),
        }
    }
}

/// docs/json/repair.md
#[derive(Serialize)]
struct Repaired {
    image_problems: Vec<String>,
    nvram_doubtful: bool,
    #[serde(flatten)]
    report: RepairReport,
}

impl Repaired {
    fn describe(&self, image: &str) -> String {
        let mut text = describe(image, &self.report, self.nvram_doubtful);
        for problem in &self.image_problems {
            let done = if self.report.written { "; put right" } else { "" };
            text.push_str(&format!("  {problem}{done}\n"));
        }
        text + &match self.report.written {
            true => format!("written; now: vellum disk check {image}\n"),
            false => {
                format!(
                    "nothing was written; if the disk does not open: vellum disk repair {image} --write\n"
                )
            }
        }
    }
}

fn describe(image: &str, report: &RepairReport, nvram_doubtful: bool) -> String {
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
    let dedup = &report.dedup;
    table.row(["size in sectors", &report.sectors.to_string(), &format!("dedup {dedup}")]);
    table.row(["pages looked at", &report.pages_scanned.to_string()]);
    table.row(["pages unreadable", &report.unreadable_pages.to_string()]);
    table.row(["slots torn by a power cut", &report.torn_slots.to_string()]);
    table.row(["log slots unreadable", &report.log_slots_unreadable.to_string()]);
    table.row(["sectors recovered", &report.recovered_sectors.to_string()]);
    table.row([
        "sectors damaged",
        &report.damaged_sectors.count.to_string(),
        &first_ranges(&report.damaged_sectors.ranges),
    ]);
    table.row([
        "sectors lost",
        &report.lost_sectors.count.to_string(),
        &first_ranges(&report.lost_sectors.ranges),
    ]);
    table.row([
        "sectors perhaps too old",
        &report.stale_sectors.count.to_string(),
        &first_ranges(&report.stale_sectors.ranges),
    ]);
    let verdict = match (report.is_whole(), nvram_doubtful) {
        (true, false) => "everything is there",
        (true, true) => "everything may be there, but for what was written last",
        (false, _) => "not everything could be saved",
    };
    let mut text = format!("{image}: {verdict}\n{}", table.render("  "));
    if report.newer_may_be_gone {
        text.push_str(&format!(
            "  {} pages and {} log slots cannot be read, and what was in them is not known: any sector listed as perhaps \
             too old may be older than it was, or read as zeros. Compare with a backup.\n",
            report.unreadable_pages, report.log_slots_unreadable
        ));
    }
    for conflict in &report.conflicts {
        text.push_str(&format!("  {conflict}\n"));
    }
    text
}
