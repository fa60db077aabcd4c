//! Prints `dedup-scan`: what was read, redundancy by chunk size, skew, tables.

use super::{Align, Table, bytes};
use std::fmt::Write;
use vellum::lab::dedup_scan::figures::HOT_ABOVE;
use vellum::lab::dedup_scan::{ChunkFigures, Scan, Tails};

/// Number of unreadable files that are listed; `--json` has more.
const UNREAD_SHOWN: usize = 10;

/// The whole output; skew and tables at one chunk size.
pub fn render(scan: &Scan, chunk_bytes: u64, threads: usize, seconds: f64) -> String {
    let mut parts = vec![overview(scan, threads, seconds), redundancy(scan)];
    if let Some(figures) = scan.sizes.iter().find(|figures| figures.chunk_bytes == chunk_bytes) {
        match figures.duplicate_chunks {
            0 => parts.push(format!("no content is there twice at {}\n", kib(chunk_bytes))),
            _ => parts.extend([skew(figures), tables(figures)]),
        }
    }
    if !scan.unread.is_empty() {
        parts.push(unread(scan));
    }
    parts.join("\n")
}

fn overview(scan: &Scan, threads: usize, seconds: f64) -> String {
    let read = scan.file_bytes - scan.hole_bytes;
    let mut text = format!(
        "{} files of {}: {} read in {seconds:.1} s ({}/s, threads: {threads}), {} in holes\n",
        scan.files,
        bytes(scan.file_bytes),
        bytes(read),
        bytes((read as f64 / seconds.max(1e-9)) as u64),
        bytes(scan.hole_bytes)
    );
    let left = &scan.left_out;
    let counts = [
        (left.hard_links, "further hard links"),
        (left.symlinks, "symbolic links"),
        (left.special, "special files"),
        (left.other_file_systems, "other file systems (--cross goes into them)"),
        (left.vanished, "that vanished"),
        (left.unreadable, "that could not be read"),
    ];
    let said: Vec<_> = counts.iter().filter(|c| c.0 > 0).map(|(n, what)| format!("{n} {what}")).collect();
    if !said.is_empty() {
        let _ = writeln!(text, "left out: {}", said.join(", ")); // cannot fail
    }
    text
}

fn redundancy(scan: &Scan) -> String {
    let tails = match scan.tails {
        Tails::Padded => "tails are padded with zeros",
        Tails::LeftOut => "tails are left out",
    };
    let mut table = Table::new(&[Align::Right; 7]);
    table.row(["chunks of", "in all", "zeros", "distinct", "duplicate", "of all", "of non-zero"]);
    for figures in &scan.sizes {
        let size = |chunks: u64| bytes(chunks * figures.chunk_bytes);
        table.row([
            kib(figures.chunk_bytes),
            size(figures.chunks),
            size(figures.zero_chunks),
            size(figures.distinct_chunks),
            size(figures.duplicate_chunks),
            within(figures.duplicate_share, figures.duplicate_share_error),
            percent(figures.duplicate_share_of_nonzero),
        ]);
    }
    let mut text =
        format!("redundancy by chunk size (each file begins a chunk, {tails})\n{}", table.render("  "));
    let sampled: Vec<_> = scan.sizes.iter().filter(|figures| figures.sampled_one_in > 1).collect();
    if !sampled.is_empty() {
        let each = sampled.iter().map(|f| format!("{} one in {}", kib(f.chunk_bytes), f.sampled_one_in));
        let each = each.collect::<Vec<_>>().join(", ");
        // Cannot fail.
        let _ = writeln!(
            text,
            "  SAMPLED to stay within --memory: of contents at {each}. Figures with ± are right within that in 19 of 20 cases."
        );
    }
    text
}

fn skew(figures: &ChunkFigures) -> String {
    let mut table = Table::new(&[Align::Right; 4]);
    table.row(["copies", "contents", "duplicates", "of all duplicates"]);
    for row in figures.copies.iter().filter(|row| row.copies_max > 1) {
        let copies = match row.copies_min == row.copies_max {
            true => row.copies_max.to_string(),
            false => format!("{}-{}", row.copies_min, row.copies_max),
        };
        let duplicates = row.duplicate_chunks;
        let share = duplicates as f64 / figures.duplicate_chunks.max(1) as f64;
        table.row([
            copies,
            row.contents.to_string(),
            bytes(duplicates * figures.chunk_bytes),
            percent(share),
        ]);
    }
    format!(
        "skew at {}: of {} contents with copies {} are hot (there more than {HOT_ABOVE} times); they have {} of the duplicates\n{}",
        kib(figures.chunk_bytes),
        figures.duplicated,
        within(figures.hot_share, figures.hot_share_error),
        within(figures.hot_share_of_duplicates, figures.hot_share_of_duplicates_error),
        table.render("  ")
    )
}

fn tables(figures: &ChunkFigures) -> String {
    let mut table = Table::new(&[Align::Right; 5]);
    table.row(["table", "fingerprints", "best", "hot", "any"]);
    for row in &figures.tables {
        table.row([
            format!("{:.0}%", row.table_share * 100.0),
            row.fingerprints.to_string(),
            percent(row.best),
            percent(row.hot),
            percent(row.any),
        ]);
    }
    format!(
        "duplicates that a fingerprint table catches at {} (table: percent of the chunks that are not zeros;\nbest: \
         holding those with most copies; hot: hot ones only, no matter which; any: no matter which)\n{}",
        kib(figures.chunk_bytes),
        table.render("  ")
    )
}

fn unread(scan: &Scan) -> String {
    let mut text = String::from("could not be read\n");
    for unread in scan.unread.iter().take(UNREAD_SHOWN) {
        let _ = writeln!(text, "  {}: {}", unread.path, unread.why); // cannot fail
    }
    if scan.left_out.unreadable > UNREAD_SHOWN as u64 {
        text.push_str("  ... (--json names up to 1000)\n");
    }
    text
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes >> 10)
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

fn within(share: f64, error: f64) -> String {
    match error > 0.0 {
        true => format!("{:.2}% ± {:.2}%", share * 100.0, error * 100.0),
        false => percent(share),
    }
}
