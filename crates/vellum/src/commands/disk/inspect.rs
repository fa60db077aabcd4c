//! `disk inspect`: interprets an image according to the formats.

use super::target::{advise, open_flash};
use crate::failure::{Outcome, Verdict};
use crate::text::{self, Align, Table};
use crate::ui::Ui;
use serde::Serialize;
use std::path::PathBuf;
use vellum::base::{BlockAddr, Error, Flash, PageAddr, Result};
use vellum::disk::tools::{self, FoundRootInfo, Inspection, PageInspection};
use vellum::media::Image;

/// Show layout, limits and roots of an image, or what is in one of its pages; changes nothing
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum disk inspect d.vellum
  vellum disk inspect d.vellum --page 12:0

Exit codes: 0 shown, 2 usage, 3 I/O, 4 the image is damaged, 5 in use")]
pub struct Args {
    /// The disk's image
    #[arg(value_name = "IMG")]
    image: PathBuf,
    /// Show one page: erase block and page within it
    #[arg(long, value_name = "BLOCK:PAGE", value_parser = parse_page)]
    page: Option<PageAddr>,
}

/// docs/json/inspect.md
#[derive(Serialize)]
struct Inspected {
    image: String,
    image_id: String,
    label: String,
    endurance_erases: u32,
    ecc: String,
    codeword_bytes: u32,
    scrambler: String,
    spare_bytes: u32,
    #[serde(flatten)]
    flash: Inspection,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        let flash = open_flash(&self.image, true)?;
        if let Some(page) = self.page {
            let page = tools::inspect_page(&*flash, page)?;
            ui.result(&page, || describe_page(&page));
            return Ok(Verdict::Fine);
        }
        let info = Image::inspect(&self.image).map_err(|e| advise(e, &self.image))?;
        let (ecc, codeword_bytes, scrambler) = vellum::coding::text(info.coding.as_ref());
        let inspected = Inspected {
            image: self.image.display().to_string(),
            image_id: format!("{:032x}", info.id),
            label: info.label,
            endurance_erases: info.endurance,
            ecc,
            codeword_bytes,
            scrambler,
            spare_bytes: flash.inner().geometry().oob_bytes,
            flash: tools::inspect(&*flash)?,
        };
        ui.result(&inspected, || describe(&inspected));
        Ok(Verdict::Fine)
    }
}

fn parse_page(text: &str) -> Result<PageAddr> {
    let parts =
        text.split_once(':').and_then(|(block, page)| Some((block.parse().ok()?, page.parse().ok()?)));
    let (block, page) =
        parts.ok_or_else(|| Error::invalid(format!("'{text}' is no page; write it like 12:0")))?;
    Ok(BlockAddr(block).page(page))
}

fn describe(inspected: &Inspected) -> String {
    let parts = [
        layout(inspected),
        limits(&inspected.flash),
        roots(&inspected.flash.roots),
        on_flash(&inspected.flash),
    ];
    parts.join("\n")
}

fn layout(inspected: &Inspected) -> String {
    let flash = &inspected.flash;
    let g = &flash.geometry;
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
    table.row(["channels", &g.channels.to_string()]);
    table.row(["dies a channel", &g.dies_per_channel.to_string()]);
    table.row(["erase blocks a die", &g.blocks_per_die.to_string(), &format!("{} in all", flash.blocks)]);
    table.row(["pages an erase block", &g.pages_per_block.to_string(), &text::bytes(flash.block_bytes)]);
    table.row(["bytes a page", &g.page_bytes.to_string(), &format!("{} slots", flash.slots_per_page)]);
    table.row([
        "out-of-band bytes a page",
        &g.oob_bytes.to_string(),
        &format!("{} used", flash.oob_bytes_used),
    ]);
    let code = match inspected.codeword_bytes {
        0 => String::new(),
        bytes => format!("{} codewords, scrambler {}", text::bytes(bytes.into()), inspected.scrambler),
    };
    table.row(["error-correcting code", &inspected.ecc, &code]);
    table.row([
        "spare bytes a page",
        &inspected.spare_bytes.to_string(),
        "with out-of-band bytes and parity",
    ]);
    table.row([
        "erase blocks written",
        &flash.written_blocks.to_string(),
        &format!("{} bad", flash.bad_blocks),
    ]);
    table.row(["raw flash", &text::bytes(flash.flash_bytes)]);
    let most = flash.sectors_max * flash.limits.sector_bytes;
    table.row(["largest disk", &text::bytes(most), &format!("{} sectors", flash.sectors_max)]);
    let label = if inspected.label.is_empty() { String::new() } else { format!(" ({})", inspected.label) };
    let id = &inspected.image_id;
    format!(
        "layout of {} {id}{label}, rated for {} erases\n{}",
        inspected.image,
        inspected.endurance_erases,
        table.render("  ")
    )
}

fn limits(flash: &Inspection) -> String {
    let limits = &flash.limits;
    let mut table = Table::new(&[Align::Left, Align::Right]);
    table.row(["bytes of an out-of-band entry", &limits.oob_entry_bytes.to_string()]);
    table.row(["places in a map node", &limits.fanout.to_string()]);
    table.row(["directories of a root", &limits.directories_max.to_string()]);
    table.row(["log numbers", &limits.log_numbers_max.to_string()]);
    table.row(["packed sectors in a log slot", &limits.packed_entries_max.to_string()]);
    table.row(["largest packed sector in bytes", &limits.packed_bytes_max.to_string()]);
    table.row(["sectors sharing a place", &limits.owners_max.to_string()]);
    table.row(["NVRAM that lets a flush program nothing", &text::bytes(limits.nvram_bytes_needed)]);
    table.row(["memory of the largest disk", &text::bytes(flash.memory_bytes_at_most)]);
    format!("limits of the format on this flash\n{}", table.render("  "))
}

fn roots(roots: &[FoundRootInfo]) -> String {
    if roots.is_empty() {
        return "roots\n  none: there is no disk on this flash\n".into();
    }
    use Align::{Left, Right};
    let mut table = Table::new(&[Right, Right, Right, Right, Left, Left]);
    table.row(["block:page", "number", "sectors", "opened", "dedup", "closed"]);
    for root in roots {
        let closed = if root.clean { "cleanly" } else { "no" };
        table.row([
            &format!("{}:{}", root.block, root.page),
            &root.seq.to_string(),
            &root.sectors.to_string(),
            &root.opened.to_string(),
            &root.dedup,
            closed,
        ]);
    }
    format!("roots, newest first\n{}", table.render("  "))
}

fn on_flash(flash: &Inspection) -> String {
    let mut table = Table::new(&[Align::Left, Align::Right, Align::Left]);
    if let Some(tree) = &flash.tree {
        table.row(["map nodes", &tree.map_nodes.to_string(), &format!("of at most {}", tree.map_nodes_max)]);
        table.row([
            "log nodes",
            &tree.log_nodes.to_string(),
            &format!("listing {} log slots", tree.log_slots),
        ]);
        table.row(["directories", &tree.directories.to_string()]);
        table.row(["bytes of all these", &tree.node_bytes.to_string()]);
        table.row(["unreadable", &tree.unreadable.to_string()]);
    }
    match &flash.nvram {
        None => table.row(["NVRAM", "none"]),
        Some(nvram) => {
            let used = if nvram.is_used { "" } else { "too small to be used" };
            table.row(["NVRAM", &text::bytes(nvram.bytes), used]);
            table.row(["slots kept in NVRAM", &nvram.staged_slots.to_string()]);
            table.row(["log bytes kept in NVRAM", &nvram.log_bytes.to_string()])
        }
    };
    format!("of the newest root\n{}", table.render("  "))
}

fn describe_page(page: &PageInspection) -> String {
    use Align::{Left, Right};
    let mut table = Table::new(&[Right, Left, Right, Right, Left, Left]);
    table.row(["slot", "kind", "id", "number", "cause", "bytes"]);
    for slot in &page.slots {
        let bytes = if slot.checks_out { "check out" } else { "do not check out" };
        let (slot_text, id, seq) = (slot.slot.to_string(), slot.id.to_string(), slot.seq.to_string());
        table.row([&slot_text, slot.kind, &id, &seq, slot.cause, bytes]);
    }
    let state = match (page.unreadable, page.page >= page.pages_written) {
        (true, _) => "unreadable",
        (_, true) => "erased",
        _ => "written",
    };
    let health = if page.block_is_good { "good" } else { "bad" };
    format!(
        "page {} of erase block {} ({health}, {} erases, {} pages written): {state}\n{}",
        page.page,
        page.block,
        page.erase_count,
        page.pages_written,
        table.render("  ")
    )
}
