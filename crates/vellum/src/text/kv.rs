//! Prints a key-value store: what it holds, and the causes of its writes.

use super::{Align, Table, bytes, percent};
use crate::commands::kv::notation::names;
use crate::commands::kv::stat::{
    Figures, Glimpse, Glimpsed, Held, Level, Levels, Placed, Reuse, Segments, Writing,
};
use vellum::Size;

/// Its contents; then bytes by cause, also per byte written by users: since the store was opened, if it wrote anything,
/// and since it was created, if that is more.
pub fn figures(figures: &Figures) -> String {
    let (since, all) = (&figures.since_opened, &figures.lifetime);
    let mut text = held(figures);
    figures.placement.iter().for_each(|placed| text.push_str(&placement(placed)));
    for (what, writing, wanted) in [
        (&*format!("since it was opened with {}", reusing(figures)), since, since.written_bytes > 0),
        ("since it was made", all, all.written_bytes > since.written_bytes),
    ] {
        if wanted {
            text.push('\n');
            text.push_str(&written(what, writing));
        }
    }
    text
}

/// The same for a store that may be in use, according to its manifest.
pub fn glimpse(glimpse: &Glimpse) -> String {
    let held = match &glimpse.held {
        Glimpsed::Lsm { levels, keyspaces } => {
            let tables = levels.iter().map(|level| level.tables).sum();
            let table = level_table(levels, (tables, glimpse.table_bytes, glimpse.entries));
            format!("{table}keyspaces: {}\n", names(keyspaces))
        }
        Glimpsed::Log { segments } => format!(
            "a log store: {} records in {segments} segments of {}\n",
            glimpse.entries,
            bytes(glimpse.table_bytes)
        ),
    };
    let in_logs = glimpse.unflushed_log_bytes.map_or("an unknown amount".into(), bytes);
    let written = written("since it was made", &glimpse.lifetime);
    format!(
        "as of the last flush or merge; what came since is only in logs\n{held}in logs, not yet in tables: {in_logs}\n\n{written}"
    )
}

/// How unchanged data is reused since the store was opened.
fn reusing(figures: &Figures) -> String {
    let how = match figures.sharing {
        "none" => String::new(),
        sharing => format!(" by {sharing}"),
    };
    format!("reuse {}{how}, units of {}", figures.reuse_mode, Size(figures.unit_bytes))
}

fn held(figures: &Figures) -> String {
    match &figures.held {
        Held::Lsm(held) => levels(figures, held),
        Held::Log(held) => segments(figures, held),
    }
}

/// Levels, with the tables, bytes and entries of all.
fn level_table(levels: &[Level], all: (usize, u64, u64)) -> String {
    let mut columns = [Align::Right; 7];
    columns[0] = Align::Left;
    let mut table = Table::new(&columns);
    table.row(["", "tables", "bytes", "entries", "deletes", "older", "units"]);
    for level in levels {
        table.row([
            format!("level {}", level.level),
            level.tables.to_string(),
            bytes(level.bytes),
            level.entries.to_string(),
            level.deletes.to_string(),
            level.older.to_string(),
            units(level),
        ]);
    }
    table.row(["all".to_string(), all.0.to_string(), bytes(all.1), all.2.to_string()]);
    table.render("")
}

fn levels(figures: &Figures, held: &Levels) -> String {
    let (tables, table_bytes) = figures.tables();
    let table = level_table(&held.levels, (tables, table_bytes, figures.entries));
    let kept = match held.kept_logs {
        0 => String::new(),
        logs => format!(
            "in logs: {} of values that level 0 points to; {logs} kept for that, of {}\n",
            bytes(held.pointed_bytes),
            bytes(held.kept_log_bytes)
        ),
    };
    format!(
        "{table}keyspaces: {}\nin memory: {} of keys and values not yet in tables, {} cached\n{kept}",
        names(&held.keyspaces),
        bytes(held.unflushed_bytes),
        bytes(held.cache_bytes as u64)
    )
}

/// Unit sizes of a level's tables.
fn units(level: &Level) -> String {
    let [least, most] = [level.unit_bytes_min, level.unit_bytes_max]
        .map(|bytes| bytes.map_or(String::new(), |bytes| Size(bytes as u64).to_string()));
    if least == most { least } else { format!("{least} to {most}") }
}

fn segments(figures: &Figures, held: &Segments) -> String {
    let parts = [
        ("live", held.live_bytes),
        ("deletes", held.delete_bytes),
        ("garbage", held.garbage_bytes),
        ("bubbles", held.bubble_bytes),
    ];
    let all = parts.iter().map(|(_, amount)| amount).sum();
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Right]);
    table.row(["records", &bytes(all), &percent(all, all)]);
    parts.iter().for_each(|(what, amount)| {
        table.row([format!("  {what}"), bytes(*amount), percent(*amount, all)]);
    });
    let skipped = match held.segments_skipped {
        0 => String::new(),
        skipped => format!("; {skipped} are not collected: see `vellum kv verify`"),
    };
    format!(
        "a log store: {} keys in {} segments of {} (percent of records){skipped}\n{}in memory: {} not yet in segments, {} of index\n",
        figures.entries,
        held.segments,
        bytes(figures.table_bytes),
        table.render("  "),
        bytes(held.open_bytes),
        bytes(held.index_bytes as u64)
    )
}

/// Superblocks on flash; the share is of the capacity of pinned ones.
fn placement(placed: &Placed) -> String {
    let mut text = format!("superblocks: {}, {} of them free", placed.superblocks, placed.superblocks_free);
    if placed.superblocks_pinned > 0 {
        text.push_str(&format!(
            ", {} pinned, {} of what these could hold",
            placed.superblocks_pinned,
            percent(placed.pinned_live_bytes, placed.pinned_bytes)
        ));
    }
    if placed.collections > 0 {
        text.push_str(&format!(
            "; {} collections since it was opened copied {}",
            placed.collections,
            bytes(placed.collected_bytes)
        ));
    }
    text + "\n"
}

fn written(what: &str, figures: &Writing) -> String {
    let user = figures.user_bytes;
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Right]);
    table.row(["users wrote", &bytes(user), &percent(user, user)]);
    table.row(["written", &bytes(figures.written_bytes), &percent(figures.written_bytes, user)]);
    for (cause, amount) in &figures.written {
        table.row([format!("  {}", cause.replace('_', " ")), bytes(*amount), percent(*amount, user)]);
    }
    if figures.nvram_bytes > 0 {
        table.row([
            "in NVRAM, not on flash",
            &bytes(figures.nvram_bytes),
            &percent(figures.nvram_bytes, user),
        ]);
    }
    table.row(["moved, not written", &bytes(figures.moved_bytes), &percent(figures.moved_bytes, user)]);
    table.row([
        "kept, not merged",
        &bytes(figures.reuse.kept_bytes),
        &percent(figures.reuse.kept_bytes, user),
    ]);
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "{what} (percent of what users wrote)\n{}  write amplification {}; {} flushes, {} compactions, {} tables moved\n  \
         writers waited {} times, {:.0} ms, and were slowed down for {:.0} ms\n{}",
        table.render("  "),
        amplification(figures),
        figures.flushes,
        figures.compactions,
        figures.moves,
        figures.stalls,
        ms(figures.stalled_ns),
        ms(figures.slowed_ns),
        reused(&figures.reuse)
    )
}

/// Log and manifest alone do not predict what a byte will cost.
fn amplification(figures: &Writing) -> String {
    let is_more = |cause: &&str| !["log", "store_metadata"].contains(cause);
    match figures.written.keys().any(is_more) {
        _ if figures.user_bytes == 0 => "- (users wrote nothing)".into(),
        true => format!("{:.3}", figures.write_amplification),
        false => "- (nothing is in tables yet)".into(),
    }
}

/// Leaves that compaction left unchanged, if any.
fn reused(reuse: &Reuse) -> String {
    if reuse.islands == 0 {
        return String::new();
    }
    let shared = [
        ("remapped", reuse.remapped_bytes),
        ("reflinked", reuse.reflinked_bytes),
        ("left in place", reuse.linked_bytes),
    ];
    let shared: Vec<String> = shared
        .iter()
        .filter(|(_, amount)| *amount > 0)
        .map(|(how, amount)| format!("{} {how}", bytes(*amount)))
        .collect();
    format!(
        "  unmodified: {} islands with {}: {}{}written again, for a device below to recognise: {}\n  \
         bubbles: {} with {}, {:.2} % of the islands (--bubble-cap); with older ones {:.2} % of what was emitted (--global-cap)\n",
        reuse.islands,
        bytes(reuse.kept_bytes),
        shared.join(", "),
        if shared.is_empty() { "" } else { ", " },
        bytes(reuse.hashed_bytes),
        reuse.bubbles,
        bytes(reuse.bubble_bytes),
        reuse.bubble_share * 100.0,
        reuse.padding_share * 100.0
    )
}
