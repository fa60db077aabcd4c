//! Prints `disk stat`: the ledger, the SMART fields, wear, journals.

use super::{Align, Table, bar, bytes, percent};
use std::fmt::Write;
use vellum::disk::{CodeStat, DiskStat, JournalStat, LedgerStat};
use vellum::{ScrubStat, Size};

const BAR_CELLS: usize = 30;

/// The whole output, for a disk with or without a background scrub.
pub fn render(stat: &DiskStat, scrub: Option<&ScrubStat>) -> String {
    let mut parts =
        vec![overview(stat), ledger(&stat.ledger), smart(stat), wear(stat), file_systems(stat), memory(stat)];
    parts.extend(scrub.map(self::scrub));
    parts.join("\n")
}

/// What was written, programmed and avoided, with the base of every percentage.
pub fn ledger(ledger: &LedgerStat) -> String {
    let host = ledger.host_written_bytes;
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Right]);
    table.row(["host read", &bytes(ledger.host_read_bytes)]);
    table.row(["host wrote", &bytes(host), "100%"]);
    table.row(["programmed", &bytes(ledger.programmed_bytes), &percent(ledger.programmed_bytes, host)]);
    for (cause, amount) in by_size(&ledger.programmed) {
        table.row([format!("  {}", words(cause)), bytes(amount), percent(amount, host)]);
    }
    table.row(["avoided", &bytes(ledger.avoided_bytes), &percent(ledger.avoided_bytes, host)]);
    for (reason, amount) in by_size(&ledger.avoided) {
        table.row([format!("  {}", words(reason)), bytes(amount), percent(amount, host)]);
    }
    let agree = match ledger.programmed_bytes == ledger.device_programmed_bytes {
        true => "the flash counts the same".to_string(),
        false => format!("BUT THE FLASH COUNTS {}", bytes(ledger.device_programmed_bytes)),
    };
    format!(
        "ledger (percent of what the host wrote; {agree})\n{}  write amplification {:.3}\n",
        table.render("  "),
        ledger.write_amplification
    )
}

fn overview(stat: &DiskStat) -> String {
    let mut table = Table::new(&[Align::Left, Align::Left]);
    table.row(["disk", &stat.uuid]);
    table.row([
        "size".to_string(),
        format!("{} on {} of flash", bytes(stat.size_bytes), bytes(stat.flash_bytes)),
    ]);
    table.row([
        "in use".to_string(),
        format!(
            "{} of data ({} of the size), {} of flash valid",
            bytes(stat.mapped_bytes),
            percent(stat.mapped_bytes, stat.size_bytes),
            bytes(stat.valid_bytes)
        ),
    ]);
    table.row(["dedup".to_string(), dedup(stat)]);
    let code = &stat.code;
    table.row([
        "code".to_string(),
        match code.name {
            None => "none: bits that rot stay wrong".to_string(),
            Some(name) => format!(
                "{name}, scrambler {}{}: {} wrong bits put right, {} reads could not be",
                code.scrambler,
                undone(code),
                code.bits_corrected,
                code.reads_uncorrectable
            ),
        },
    ]);
    if let Some(why) = &stat.poisoned {
        table.row(["POISONED".to_string(), format!("takes no more writes: {why}")]);
    }
    table.render("")
}

/// That the host undoes the scrambler, and where it could not.
fn undone(code: &CodeStat) -> String {
    match code.unscrambled_by {
        Some("host") => format!(
            " undone by the host ({} sectors stored plain since the opening, {} as noise, as their cells would have been alike)",
            code.sectors_plain, code.sectors_noise
        ),
        _ => String::new(),
    }
}

/// The mode; and if copies are found by parity, how many were found when.
fn dedup(stat: &DiskStat) -> String {
    if !stat.dedup.starts_with("ecc") {
        return stat.dedup.to_string();
    }
    let found = |reason| stat.ledger.avoided.get(reason).copied().unwrap_or(0);
    let learned = match stat.learned_sectors {
        0 => String::new(),
        sectors => format!(", {sectors} sectors from before the opening entered"),
    };
    format!(
        "{}: {} found while written, {} later, {} sectors still to be looked at; a table of {}{learned}",
        stat.dedup,
        bytes(found("duplicate")),
        bytes(found("duplicate_offline")),
        stat.dedup_waiting_sectors,
        bytes(stat.memory.dedup_bytes as u64)
    )
}

fn smart(stat: &DiskStat) -> String {
    let smart = &stat.smart;
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
    table.row([
        "critical_warning",
        &format!("{:#04x}", smart.critical_warning),
        &warnings(smart.critical_warning),
    ]);
    table.row(["avail_spare", &format!("{}%", smart.avail_spare)]);
    table.row(["spare_thresh", &format!("{}%", smart.spare_thresh)]);
    table.row(["percent_used", &format!("{}%", smart.percent_used)]);
    table.row(["data_units_read", &smart.data_units_read.to_string(), "x 512000 bytes"]);
    table.row(["data_units_written", &smart.data_units_written.to_string(), "x 512000 bytes"]);
    table.row([
        "media_units_written",
        &smart.media_units_written.to_string(),
        "x 512000 bytes, as programmed",
    ]);
    table.row(["host_commands", &smart.host_commands.to_string()]);
    table.row(["power_cycles", &smart.power_cycles.to_string()]);
    table.row(["power_on_hours", &format!("{:.1}", smart.power_on_hours)]);
    table.row(["unsafe_shutdowns", &smart.unsafe_shutdowns.to_string()]);
    table.row(["media_errors", &smart.media_errors.to_string()]);
    format!("smart (names of the NVMe log)\n{}", table.render("  "))
}

fn wear(stat: &DiskStat) -> String {
    let wear = &stat.wear;
    let mut text = format!(
        "wear (erases of the {} usable erase blocks)\n  min {}  mean {:.1}  max {}  bad blocks {}\n",
        wear.histogram.iter().map(|(_, blocks)| u64::from(*blocks)).sum::<u64>(),
        wear.erase_count_min,
        wear.erase_count_mean,
        wear.erase_count_max,
        wear.bad_blocks
    );
    let most = wear.histogram.iter().map(|(_, blocks)| *blocks).max().unwrap_or(0).max(1);
    let mut table = Table::new(&[Align::Right, Align::Right, Align::Left]);
    for (upper, blocks) in &wear.histogram {
        let share = f64::from(*blocks) / f64::from(most);
        table.row([format!("<= {upper}"), format!("{blocks}"), bar(share, BAR_CELLS)]);
    }
    text.push_str(&table.render("  "));
    let _ = writeln!(text, "  {}", life(stat)); // cannot fail
    text
}

fn life(stat: &DiskStat) -> String {
    let wear = &stat.wear;
    let rating = match (wear.tbw_bytes, wear.rated_erases) {
        (0, 0) => return "no rating, so no projection of its life".into(),
        (0, erases) => format!("{erases} erases a block"),
        (tbw, _) => format!("{} TB written by the host", tbw as f64 / 1e12),
    };
    match wear.projected_days_left {
        None => format!("rated for {rating}; nothing used yet"),
        Some(days) if days > 1e5 => format!("rated for {rating}; at this rate more than 270 years are left"),
        Some(days) if days > 800.0 => {
            format!("rated for {rating}; at this rate {:.1} years are left", days / 365.25)
        }
        Some(days) => format!("rated for {rating}; at this rate {days:.1} days are left"),
    }
}

fn file_systems(stat: &DiskStat) -> String {
    if !stat.named_journals.is_empty() {
        return named_journals(&stat.named_journals);
    }
    if stat.file_systems.is_empty() {
        let why = match stat.dedup {
            "journal" | "woj-paper" => "none found".to_string(),
            mode => format!("not looked for with --dedup {mode}"),
        };
        return format!("file systems\n  {why}\n");
    }
    let mut table = Table::new(&[Align::Left, Align::Left, Align::Left]);
    for fs in &stat.file_systems {
        let place = fs.partition.map_or("whole disk".into(), |number| format!("partition {number}"));
        let journal = match (fs.journal_bytes, &fs.no_benefit) {
            (Some(journal), _) => {
                let pieces = if fs.journal_extents == 1 { "piece" } else { "pieces" };
                format!("journal of {} in {} {pieces}", bytes(journal), fs.journal_extents)
            }
            (None, Some(why)) => format!("no benefit: {why}"),
            (None, None) => "no journal".into(),
        };
        table.row([fs.kind.to_string(), place, journal]);
    }
    format!("file systems\n{}", table.render("  "))
}

fn named_journals(named: &[JournalStat]) -> String {
    let mut text = "journals named by --journal (so none are looked for)\n".to_string();
    for journal in named {
        let size = |bytes| Size(bytes).exact();
        let _ = writeln!(text, "  {}+{}", size(journal.offset_bytes), size(journal.bytes)); // cannot fail
    }
    text
}

fn memory(stat: &DiskStat) -> String {
    let memory = &stat.memory;
    format!(
        "memory\n  map {} ({:.1} bytes a sector), dedup {}, verify cache {}, other {}\n",
        bytes(memory.map_bytes as u64),
        memory.map_bytes_per_sector,
        bytes(memory.dedup_bytes as u64),
        bytes(memory.verify_cache_bytes as u64),
        bytes(memory.other_bytes as u64)
    )
}

fn scrub(stat: &ScrubStat) -> String {
    let mut text = format!(
        "scrub (since the disk was opened; a pass takes {} days)\n  {} passes and {} of the next: {} slots read, {} moved, \
         {} damaged sectors\n",
        (stat.every_seconds as f64 / 864.0).round() / 100.0,
        stat.passes,
        percent(stat.pass_slots, stat.slots),
        stat.slots_read,
        stat.refreshed,
        stat.damaged_sectors
    );
    if let Some(why) = &stat.failed {
        let _ = writeln!(text, "  ENDED: {why}"); // cannot fail
    }
    text
}

fn warnings(bits: u8) -> String {
    let names = [(0, "spare is low"), (2, "reliability degraded"), (3, "read-only")];
    let set: Vec<_> = names.iter().filter(|(bit, _)| bits >> bit & 1 == 1).map(|(_, name)| *name).collect();
    set.join(", ")
}

/// Largest first.
fn by_size<'a>(amounts: &std::collections::BTreeMap<&'a str, u64>) -> Vec<(&'a str, u64)> {
    let mut sorted: Vec<_> = amounts.iter().map(|(name, amount)| (*name, *amount)).collect();
    sorted.sort_by_key(|(_, amount)| std::cmp::Reverse(*amount));
    sorted
}

fn words(name: &str) -> String {
    name.replace('_', " ")
}
