//! `dedup-scan`: what deduplication would find in existing files.

use super::replay::command_line;
use crate::failure::{Failure, Outcome, Verdict};
use crate::report_file::ReportArgs;
use crate::text;
use crate::ui::Ui;
use clap::ValueEnum;
use serde::Serialize;
use std::path::PathBuf;
use vellum::Size;
use vellum::base::{Env, Error, Kind, RealEnv, Result};
use vellum::lab::dedup_scan::{self, CHUNK_BYTES, Scan, ScanOptions, Tails};
use vellum::lab::report::Page;

/// Tell how much of directories, images or block devices would be deduplicated; changes nothing
#[derive(clap::Args)]
#[command(after_help = "\
All is read once and counted as one set of data, at 2, 4, 8, 16 and 32 KiB. Each file begins a
chunk. Zeros and holes are counted apart. Hard links count once, symbolic links are not followed.

Example:
  vellum dedup-scan /home /var/lib/images/vm.raw
  sudo vellum dedup-scan /dev/sdb --chunk 4KiB --report sdb.html

Exit codes: 0 scanned, 1 scanned but for some files that could not be read, 2 usage, 3 I/O")]
pub struct Args {
    /// Directories, disk images, block devices
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Chunk size of which the skew and the tables are shown: 2KiB, 4KiB, 8KiB, 16KiB or 32KiB
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = parse_chunk)]
    chunk: u64,
    /// Go into file systems that are mounted below, too
    #[arg(long)]
    cross: bool,
    /// What becomes of the last chunk of a file, if the file does not fill it
    #[arg(long, value_name = "TAILS", default_value = "padded")]
    tails: TailsArg,
    /// Threads that read [default: one a core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Most memory for fingerprints; where they need more, a fair sample of them is counted
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    memory: Size,
    /// Key of the fingerprints: another one takes another sample
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TailsArg {
    /// It is filled with zeros, as a file system stores it
    Padded,
    /// It does not count
    LeftOut,
}

/// docs/json/dedup-scan.md
#[derive(Serialize)]
struct Answer<'a> {
    #[serde(flatten)]
    scan: &'a Scan,
    threads: usize,
    seconds: f64,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        self.report.check()?;
        let options = self.options();
        let env = RealEnv::new();
        let scan = dedup_scan::scan(&self.paths, &options, &ui.bars()).map_err(advise)?;
        let seconds = env.now().0 as f64 / 1e9;
        let answer = Answer { scan: &scan, threads: options.threads, seconds };
        ui.result(&answer, || text::dedup_scan::render(&scan, self.chunk, options.threads, seconds));
        let page = || {
            let mut page = Page::new("What deduplication would find");
            page.scan(&self.names(), &scan, self.chunk, &command_line());
            page
        };
        self.report.write(page, ui)?;
        Ok(if scan.left_out.unreadable == 0 { Verdict::Fine } else { Verdict::Problems })
    }

    fn names(&self) -> String {
        self.paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    }

    fn options(&self) -> ScanOptions {
        let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
        ScanOptions {
            threads: self.threads.map_or_else(cores, usize::from),
            memory_bytes: self.memory.0,
            tails: match self.tails {
                TailsArg::Padded => Tails::Padded,
                TailsArg::LeftOut => Tails::LeftOut,
            },
            cross: self.cross,
            seed: self.seed,
        }
    }
}

/// Advice for a scan: the default advice is for disks.
fn advise(error: Error) -> Failure {
    match error.kind() {
        Kind::Io => Failure::with_next(error, "look at the path, and whether you may read it"),
        _ => error.into(),
    }
}

fn parse_chunk(text: &str) -> Result<u64> {
    let bytes = text.parse::<Size>()?.0;
    match CHUNK_BYTES.contains(&bytes) {
        true => Ok(bytes),
        false => Err(Error::invalid(format!("no chunk size '{text}': 2KiB, 4KiB, 8KiB, 16KiB or 32KiB"))),
    }
}
