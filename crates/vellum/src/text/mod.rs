//! Results as text for display: aligned tables, sizes, bars.

pub mod comparison;
pub mod dedup_scan;
pub mod kv;
pub mod kv_bench;
pub mod outcome;
pub mod stat;
mod table;

pub use table::{Align, Table};

/// Number of ranges or rows that are listed.
const SHOWN: usize = 8;

/// Bytes with two decimals in the largest binary unit, for columns.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.iter().find(|(_, scale)| bytes >= *scale) {
        Some((unit, scale)) => format!("{:.2} {unit}", bytes as f64 / *scale as f64),
        None => format!("{bytes} B"),
    }
}

/// A time in its largest units: `3 d 4 h`, `7 min 12 s`, `0.4 s`.
pub fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    let of = |large: u64, name: &str, small: u64, rest: &str| {
        format!("{} {name} {} {rest}", seconds / large, seconds % large / small)
    };
    match seconds {
        0..60 => format!("{:.1} s", ms as f64 / 1000.0),
        60..3600 => of(60, "min", 1, "s"),
        3600..86_400 => of(3600, "h", 60, "min"),
        _ => of(86_400, "d", 3600, "h"),
    }
}

/// A share of `whole` in percent; a dash if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".into(),
        _ => format!("{:.1}%", part as f64 * 100.0 / whole as f64),
    }
}

/// The first few ranges of sectors, given as first and count, with exclusive ends: `100..108, 2000..2001`; and where
/// the others are listed.
pub fn sector_ranges(ranges: &[(u64, u64)]) -> String {
    match ranges.len().checked_sub(SHOWN) {
        None | Some(0) => all_ranges(ranges),
        Some(more) => format!("{} and {more} more: --json has all", all_ranges(&ranges[..SHOWN])),
    }
}

/// The same for a list that may itself be truncated.
pub fn first_ranges(ranges: &[(u64, u64)]) -> String {
    let more = if ranges.len() > SHOWN { ", ... (--json names more)" } else { "" };
    all_ranges(&ranges[..ranges.len().min(SHOWN)]) + more
}

/// All of them.
pub fn all_ranges(ranges: &[(u64, u64)]) -> String {
    let shown: Vec<_> = ranges.iter().map(|(first, count)| format!("{first}..{}", first + count)).collect();
    shown.join(", ")
}

/// A count with its noun: `1 row`, `2 rows`.
pub fn counted(count: u64, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// A line with the first few of these rows, if any: `what 3, 17, ...`.
pub fn rows_named(what: &str, rows: &[u64]) -> String {
    const SHOWN: usize = 12;
    if rows.is_empty() {
        return String::new();
    }
    let shown: Vec<_> = rows.iter().take(SHOWN).map(u64::to_string).collect();
    format!(
        "{what} {}{}\n",
        shown.join(", "),
        if rows.len() > SHOWN { ", ... (--json names more)" } else { "" }
    )
}

/// A bar of at most `width` cells for a share between 0 and 1; not empty unless the share is 0.
pub fn bar(share: f64, width: usize) -> String {
    const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
    let eighths = (share.clamp(0.0, 1.0) * width as f64 * 8.0).ceil() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    bar
}
