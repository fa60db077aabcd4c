//! Figures of a disk as Prometheus text: named as by smartctl's exporter where possible, otherwise `vellum_*`.

use crate::ScrubStat;
use std::fmt::{Display, Write};
use vellum_disk::DiskStat;

/// The page for a disk called `device`, with its background scrub if it has one.
///
/// ```
/// let stack = vellum::Stack::create(&vellum::Config::ram(64 << 20))?;
/// let page = vellum::metrics::prometheus("scratch", &stack.disk().stat(), None);
/// assert!(page.contains("smartctl_device_percentage_used{device=\"scratch\"} 0\n"));
/// # Ok::<(), vellum::base::Error>(())
/// ```
pub fn prometheus(device: &str, stat: &DiskStat, scrub: Option<&ScrubStat>) -> String {
    let mut page = Page { text: String::new(), device: escape(device) };
    smart(&mut page, stat);
    ledger(&mut page, stat);
    wear_and_memory(&mut page, stat);
    if let Some(scrub) = scrub {
        self::scrub(&mut page, scrub);
    }
    page.text
}

struct Page {
    text: String,
    device: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n"); // cannot fail
    }

    fn sample(&mut self, name: &str, label: Option<(&str, &str)>, value: impl Display) {
        let more = label.map(|(key, value)| format!(",{key}=\"{}\"", escape(value))).unwrap_or_default();
        let _ = writeln!(self.text, "{name}{{device=\"{}\"{more}}} {value}", self.device);
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, None, value);
    }
}

fn smart(page: &mut Page, stat: &DiskStat) {
    let smart = &stat.smart;
    let ledger = &stat.ledger;
    page.one("smartctl_device_capacity_bytes", "gauge", "Logical size.", stat.size_bytes);
    page.one(
        "smartctl_device_smart_status",
        "gauge",
        "1 if all is well.",
        u8::from(smart.critical_warning == 0),
    );
    page.one(
        "smartctl_device_critical_warning",
        "gauge",
        "NVMe critical warning bits.",
        smart.critical_warning,
    );
    page.one("smartctl_device_percentage_used", "counter", "Rated life used, percent.", smart.percent_used);
    page.one(
        "smartctl_device_available_spare",
        "gauge",
        "Spare erase blocks left, percent.",
        smart.avail_spare,
    );
    page.one(
        "smartctl_device_available_spare_threshold",
        "gauge",
        "Spare below which the disk warns, percent.",
        smart.spare_thresh,
    );
    page.one("smartctl_device_media_errors", "counter", "Reads that failed.", smart.media_errors);
    page.one(
        "vellum_bits_corrected_total",
        "counter",
        "Wrong bits that the flash put right.",
        stat.code.bits_corrected,
    );
    page.one("smartctl_device_power_cycle_count", "counter", "Times opened.", smart.power_cycles);
    let seconds = (smart.power_on_hours * 3600.0) as u64;
    page.one("smartctl_device_power_on_seconds", "counter", "Time in service.", seconds);
    page.one("smartctl_device_bytes_read", "counter", "Bytes the host read.", ledger.host_read_bytes);
    page.one("smartctl_device_bytes_written", "counter", "Bytes the host wrote.", ledger.host_written_bytes);
    page.one(
        "vellum_unsafe_shutdowns_total",
        "counter",
        "Openings without a clean close.",
        smart.unsafe_shutdowns,
    );
    page.one("vellum_host_commands_total", "counter", "Commands from the host.", smart.host_commands);
    page.one("vellum_poisoned", "gauge", "1 if no more writes are taken.", u8::from(stat.poisoned.is_some()));
}

fn ledger(page: &mut Page, stat: &DiskStat) {
    let ledger = &stat.ledger;
    let name = "vellum_flash_programmed_bytes_total";
    page.head(name, "counter", "Bytes programmed to flash by cause.");
    ledger.programmed.iter().for_each(|(cause, bytes)| page.sample(name, Some(("cause", cause)), bytes));
    let name = "vellum_flash_avoided_bytes_total";
    page.head(name, "counter", "Bytes not programmed, by reason.");
    ledger.avoided.iter().for_each(|(reason, bytes)| page.sample(name, Some(("reason", reason)), bytes));
    page.one(
        "vellum_flash_device_programmed_bytes_total",
        "counter",
        "Bytes programmed as the flash counts them; equals the sum over causes.",
        ledger.device_programmed_bytes,
    );
    page.one("vellum_waf", "gauge", "Bytes programmed for each byte written.", ledger.write_amplification);
}

fn wear_and_memory(page: &mut Page, stat: &DiskStat) {
    let (wear, memory) = (&stat.wear, &stat.memory);
    let name = "vellum_erase_count";
    page.head(name, "gauge", "Erases of the usable erase blocks.");
    page.sample(name, Some(("of", "min")), wear.erase_count_min);
    page.sample(name, Some(("of", "mean")), wear.erase_count_mean);
    page.sample(name, Some(("of", "max")), wear.erase_count_max);
    page.one("vellum_bad_blocks", "gauge", "Erase blocks that are bad.", wear.bad_blocks);
    if let Some(days) = wear.projected_days_left {
        page.one("vellum_projected_life_seconds", "gauge", "Until the rating is used up.", days * 86_400.0);
    }
    page.one("vellum_flash_bytes", "gauge", "Raw flash.", stat.flash_bytes);
    page.one("vellum_mapped_bytes", "gauge", "Sectors that hold data.", stat.mapped_bytes);
    page.one("vellum_valid_bytes", "gauge", "Flash that holds valid data.", stat.valid_bytes);
    let waiting = stat.dedup_waiting_sectors;
    page.one(
        "vellum_dedup_waiting_sectors",
        "gauge",
        "Sectors to be looked at for copies when idle.",
        waiting,
    );
    let name = "vellum_memory_bytes";
    page.head(name, "gauge", "Memory in use.");
    let parts = [
        ("map", memory.map_bytes),
        ("dedup", memory.dedup_bytes),
        ("verify_cache", memory.verify_cache_bytes),
        ("other", memory.other_bytes),
    ];
    parts.into_iter().for_each(|(part, bytes)| page.sample(name, Some(("part", part)), bytes));
}

fn scrub(page: &mut Page, stat: &ScrubStat) {
    page.one(
        "vellum_scrub_passes_total",
        "counter",
        "Scrubs of the whole disk since it was opened.",
        stat.passes,
    );
    let share = stat.pass_slots as f64 / stat.slots.max(1) as f64;
    page.one("vellum_scrub_pass_ratio", "gauge", "Share of the scrub under way that is done.", share);
    page.one("vellum_scrub_slots_read_total", "counter", "Slots that scrubs have read.", stat.slots_read);
    page.one(
        "vellum_scrub_refreshed_total",
        "counter",
        "Slots moved because bits had to be corrected.",
        stat.refreshed,
    );
    page.one(
        "vellum_scrub_damaged_sectors",
        "gauge",
        "Sectors that a scrub could not read.",
        stat.damaged_sectors,
    );
    page.one(
        "vellum_scrub_failed",
        "gauge",
        "1 if the scrub has ended with an error.",
        u8::from(stat.failed.is_some()),
    );
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
