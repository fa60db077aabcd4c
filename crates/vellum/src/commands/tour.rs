//! `tour`: a minute's introduction to Vellum.

use super::replay::{DEFAULT_MODES, command_line};
use crate::failure::{Failure, Outcome, Verdict};
use crate::report_file;
use crate::text;
use crate::ui::Ui;
use std::path::{Path, PathBuf};
use vellum::lab::experiment::{self, Scale, Setting};
use vellum::lab::replay::{self, DEFAULT_PRESET, Mode, ReplayOptions};
use vellum::lab::report::Page;
use vellum::media::Preset;
use vellum::trace::vtrace::Reader;
use vellum::trace::{RequestSource, vtrace::Header};

/// A recording of a real ext4, made with `vellum disk record`.
static FIXTURE: &[u8] = include_bytes!("../../fixtures/tour.vtrace");

/// See in a minute what Vellum does: ext4, key-value stores and caches of an array in every mode, side by side
#[derive(clap::Args)]
#[command(after_help = "\
Needs no root, no device and no network: everything runs in virtual time on modelled flash.

Example:
  vellum tour
  vellum tour --json

Exit codes: 0 done, 2 usage or a page that exists already, 3 the page cannot be written")]
pub struct Args {
    /// The page with tables and charts to write
    #[arg(long, value_name = "HTML", default_value = DEFAULT_REPORT)]
    report: PathBuf,
    /// Replace the page if it exists; the one that is written by default is its own, and replaced without asking
    #[arg(long)]
    force: bool,
    /// Decides everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// A separate default, so that a second tour may replace the report of the first.
const DEFAULT_REPORT: &str = "vellum-tour.html";

/// Compared for the cost of its hash: the alternative to `ecc` (SES-Dedup paper).
const SLOW_HASH: &str = "strong:sha256";

const NEXT: &str = "\
next:
  vellum disk create d.vellum --size 16GiB                      a disk of your own
  vellum disk serve d.vellum --nbd unix:/tmp/v.sock             offered over NBD (no root)
  sudo vellum disk mount d.vellum ./mnt --data journal          with an ext4 on it; Ctrl-C ends it
  vellum disk stat d.vellum --watch                             what it writes, and why
  sudo vellum disk record --ram 2GiB --mount ./mnt --data journal --to w.vtrace
  vellum replay w.vtrace --report w.html                        the same comparison on your workload
  vellum array create a.toml --level 5 --size 1GiB --members d0 d1 d2 d3 --cache ssd.img --dwpd 1
  vellum lab list                                               the papers' experiments
";

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        // The default page was not requested: that it cannot be written is no reason to show nothing.
        if self.report != Path::new(DEFAULT_REPORT) {
            report_file::check(&self.report, self.force)?;
        }
        let header = Reader::new(FIXTURE)?.header().clone();
        let modes = Mode::list(&format!("{DEFAULT_MODES},{SLOW_HASH}"))?;
        let options =
            ReplayOptions { seed: self.seed, ..ReplayOptions::new(modes, Preset::by_name(DEFAULT_PRESET)?) };
        if !ui.json {
            ui.print(introduction(&header));
        }
        let open = || Ok(Box::new(Reader::new(FIXTURE)?) as Box<dyn RequestSource>);
        let comparison = replay::run(&open, &options, &ui.bars())?;
        let chapter = experiment::key_value_chapter();
        let stores = (chapter.run)(&Setting { scale: Scale::Small, seed: self.seed, progress: &ui.bars() })?;
        let reuse = experiment::reuse_chapter();
        let reused = (reuse.run)(&Setting { scale: Scale::Small, seed: self.seed, progress: &ui.bars() })?;
        let caches = experiment::cache_chapter();
        let cached = (caches.run)(&Setting { scale: Scale::Small, seed: self.seed, progress: &ui.bars() })?;
        let mut page = Page::new("A tour of Vellum");
        page.comparison(&header.label, &comparison, &command_line());
        page.outcome(chapter, &stores, &command_line());
        page.outcome(reuse, &reused, &command_line());
        page.outcome(caches, &cached, &command_line());
        let written = page.write(&self.report);
        ui.result(&comparison, || {
            let charts = written.as_ref().map(|()| format!("charts: {}\n\n", self.report.display()));
            format!(
                "{}\n{}\n{}\n{}\n{}{NEXT}",
                text::comparison::render(&comparison),
                key_value(&stores),
                merges(&reused),
                caches_of_an_array(&cached),
                charts.unwrap_or_default()
            )
        });
        written.map_err(|e| {
            Failure::with_next(
                e,
                "only the page with charts is missing: vellum tour --report PATH writes it elsewhere",
            )
        })?;
        Ok(Verdict::Fine)
    }
}

/// The chapter on key-value stores.
fn key_value(stores: &experiment::Outcome) -> String {
    let tables = stores.tables.iter().take(1).map(text::outcome::table);
    format!(
        "A key-value store under YCSB A, on modelled open-channel flash: on a file system on an FTL, on a file system that knows the flash, \
         and one that is its own file system and FTL (vellum kv).\n\n{}",
        tables.collect::<String>()
    )
}

/// The chapter on merges that do not rewrite unchanged data.
fn merges(reused: &experiment::Outcome) -> String {
    let tables = reused.tables.iter().take(1).map(text::outcome::table);
    format!(
        "A key-value store on a Vellum disk: what a merge need not change, the disk shows at a second place (vellum kv --reuse auto).\n\n{}",
        tables.collect::<String>()
    )
}

/// The chapter on caches of an array.
fn caches_of_an_array(cached: &experiment::Outcome) -> String {
    let tables = cached.tables.iter().take(1).map(text::outcome::table);
    format!(
        "An SSD in front of RAID-5, under a workload of small writes: none, write-around, write-through, old and new versions (LeavO), data and \
         deltas as published (kdd-25), and as Vellum ships them (vellum array create --cache).\n\n{}",
        tables.collect::<String>()
    )
}

fn introduction(header: &Header) -> String {
    format!(
        "{} ({}), replayed in virtual time through every mode.\n\
         none: an ordinary SSD. strong: every write fingerprinted. woj-paper: write-once journaling as published.\n\
         journal: write-once journaling as Vellum ships it, every match compared byte by byte.\n\
         ecc: any copy that a small table finds by the parity of the error-correcting code, compared byte by byte.\n\n",
        header.label, header.comment
    )
}
