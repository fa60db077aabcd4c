//! The HTML around tables and charts. All foreign text is escaped.

use super::chart;
use super::{Chart, Page};
use crate::array_cache::CacheComparison;
use crate::dedup_scan::Scan;
use crate::experiment::{Check, Experiment, Outcome, Table};
use crate::replay::Comparison;
use std::fmt::Write;

const STYLE: &str = concat!(include_str!("colours.css"), include_str!("style.css"));

impl Page {
    /// An empty page.
    pub fn new(title: impl Into<String>) -> Page {
        Page { title: title.into(), body: String::new() }
    }

    /// Adds the tables and charts of a replay. `command` reproduces it.
    pub fn comparison(&mut self, heading: &str, comparison: &Comparison, command: &str) {
        self.heading(heading);
        self.paragraph(&comparison.setup.to_string());
        self.command(command);
        for note in comparison.notes.iter().filter(|note| note.contains("CORRUPTED")) {
            self.push(&format!("<p class=\"bad\">{}</p>", escape(note)));
        }
        self.charts(&comparison.charts(), command);
        let columns = std::iter::once(String::new()).chain(comparison.modes.iter().map(|m| m.mode.clone()));
        let row = |(name, cells): (String, Vec<String>)| std::iter::once(name).chain(cells).collect();
        self.table(&Table {
            title: "All figures".into(),
            columns: columns.collect(),
            rows: comparison.rows().into_iter().map(row).collect(),
        });
        self.notes(&comparison.notes);
    }

    /// Adds a comparison of an array's caches. `command` reproduces it.
    pub fn caches(&mut self, heading: &str, comparison: &CacheComparison, command: &str) {
        self.heading(heading);
        self.paragraph(&comparison.setup());
        self.command(command);
        self.charts(&comparison.charts(), command);
        self.table(&comparison.table());
        self.notes(&comparison.notes);
    }

    /// Adds the claims, tables and charts of an experiment. `command` reproduces it.
    pub fn outcome(&mut self, experiment: &Experiment, outcome: &Outcome, command: &str) {
        self.heading(&format!("{}: {}", experiment.name, experiment.figure));
        self.push(&format!(
            "<blockquote>{}<footer>{}</footer></blockquote>",
            escape(experiment.claim),
            escape(experiment.paper)
        ));
        self.command(command);
        self.checks(&outcome.checks);
        self.charts(&outcome.charts, command);
        outcome.tables.iter().for_each(|table| self.table(table));
        self.notes(&outcome.notes);
    }

    /// Adds the results of a scan, in detail at one chunk size. `command` reproduces it.
    pub fn scan(&mut self, heading: &str, scan: &Scan, chunk_bytes: u64, command: &str) {
        self.heading(heading);
        self.command(command);
        self.charts(&scan.charts(chunk_bytes), command);
        self.table(&scan.table());
    }

    /// The HTML of the page.
    pub fn html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <meta name=\"color-scheme\" content=\"light dark\">\
             <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body><main>\n<h1>{title}</h1>\n{body}</main></body></html>\n",
            title = escape(&self.title),
            body = self.body
        )
    }

    fn push(&mut self, html: &str) {
        self.body += html;
        self.body.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.push(&format!("<h2>{}</h2>", escape(text)));
    }

    fn paragraph(&mut self, text: &str) {
        self.push(&format!("<p>{}</p>", escape(text)));
    }

    fn command(&mut self, command: &str) {
        self.push(&format!("<pre><code>{}</code></pre>", escape(command)));
    }

    fn notes(&mut self, notes: &[String]) {
        if !notes.is_empty() {
            let items: String = notes.iter().map(|note| format!("<li>{}</li>", escape(note))).collect();
            self.push(&format!("<ul class=\"notes\">{items}</ul>"));
        }
    }

    fn checks(&mut self, checks: &[Check]) {
        let mut html = String::from(
            "<div class=\"wide\"><table class=\"checks\"><caption>Claims</caption><thead><tr><th>Claim</th>\
             <th>Paper</th><th>Here</th><th>Shape</th><th>Why</th></tr></thead><tbody>",
        );
        for check in checks {
            let (class, word) = if check.holds { ("good", "holds") } else { ("bad", "does not hold") };
            let cells = [&check.claim, &check.paper, &check.ours].map(|text| escape(text));
            let [claim, paper, ours] = cells;
            let why = escape(&check.why);
            let _ = write!(
                html,
                "<tr><td>{claim}</td><td>{paper}</td><td>{ours}</td><td class=\"{class}\">{word}</td><td>{why}</td></tr>"
            );
        }
        html += "</tbody></table></div>";
        self.push(&html);
    }

    fn charts(&mut self, charts: &[Chart], command: &str) {
        for chart in charts {
            let drawing = match chart::svg(chart) {
                Ok(svg) => svg,
                Err(e) => format!("<p class=\"bad\">{}</p>", escape(&e.to_string())),
            };
            self.push(&format!(
                "<figure><h3>{}</h3>{}{drawing}<figcaption>made by <code>{}</code></figcaption></figure>",
                escape(&chart.title),
                legend(chart),
                escape(command)
            ));
        }
    }

    fn table(&mut self, table: &Table) {
        let head: String = table.columns.iter().map(|c| format!("<th>{}</th>", escape(c))).collect();
        let mut html = format!(
            "<div class=\"wide\"><table><caption>{}</caption><thead><tr>{head}</tr></thead><tbody>",
            escape(&table.title)
        );
        for row in &table.rows {
            html += "<tr>";
            for (i, cell) in row.iter().enumerate() {
                // Cells that begin with spaces are parts of the row above.
                let class = match cell {
                    _ if i > 0 => " class=\"n\"",
                    name if name.starts_with("  ") => " class=\"part\"",
                    _ => "",
                };
                let _ = write!(html, "<td{class}>{}</td>", escape(cell.trim_start()));
            }
            html += "</tr>";
        }
        html += "</tbody></table></div>";
        self.push(&html);
    }
}

fn legend(chart: &Chart) -> String {
    let item = |(i, name): (usize, &str)| {
        let colour = i % chart::COLOURS;
        format!("<li><i style=\"background:var(--s{colour})\"></i>{}</li>", escape(name))
    };
    format!("<ul class=\"legend\">{}</ul>", chart.series().enumerate().map(item).collect::<String>())
}

/// Formats a whole number with separated thousands.
pub(super) fn grouped(value: f64) -> String {
    let sign = if value < 0.0 { "-" } else { "" };
    format!("{sign}{}", crate::replay::grouped(value.abs().round() as u64))
}

pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::ChartKind;
    use super::*;

    #[test]
    fn pages_hold_everything_and_fetch_nothing() {
        let experiment = Experiment {
            name: "x",
            paper: "P",
            figure: "Figure 1",
            claim: "a < b",
            small: "",
            full: "",
            run: |_| Ok(Outcome::default()),
        };
        let series = vec![("m".to_string(), vec![1.0])];
        let kind = ChartKind::Bars { groups: vec!["g".into()], series };
        let outcome = Outcome {
            tables: vec![Table {
                title: "T".into(),
                columns: vec!["<c>".into(), "d".into()],
                rows: vec![vec!["  row".into(), "1".into()]],
            }],
            charts: vec![Chart { title: "C".into(), x: "x".into(), y: "y".into(), kind }],
            checks: vec![Check {
                claim: "c".into(),
                paper: "1".into(),
                ours: "2".into(),
                holds: false,
                why: "because".into(),
            }],
            notes: vec!["note & more".into()],
        };
        let mut page = Page::new("A & B");
        page.outcome(&experiment, &outcome, "vellum lab run x > y");
        let html = page.html();
        for part in [
            "A &amp; B",
            "a &lt; b",
            "&lt;c&gt;",
            "class=\"part\">row",
            "does not hold",
            "run x &gt; y",
            "<svg",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        for foreign in ["src=", "href=", "url(", "@import", "<script"] {
            assert!(!html.contains(foreign), "{foreign}");
        }
        // An XML namespace is not fetched; it must be the only address.
        assert_eq!(
            html.matches("http").count(),
            html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
        );
    }
}
