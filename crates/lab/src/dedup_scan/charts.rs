//! Presents a scan as charts and a table.

use super::{ChunkFigures, Scan};
use crate::experiment::Table;
use crate::report::{Chart, ChartKind};

type Column = (&'static str, fn(&ChunkFigures) -> String);
type Series = (&'static str, fn(&ChunkFigures) -> f64);

impl Scan {
    /// Redundancy and its skew by chunk size, and the duplicates that tables catch at one size.
    pub(crate) fn charts(&self, chunk_bytes: u64) -> Vec<Chart> {
        let mut charts = vec![
            self.by_size(
                "Redundancy (SES-Dedup, figure 1)",
                "% of all chunks",
                [("duplicate", |f| f.duplicate_share), ("zeros", |f| f.zero_share)],
            ),
            self.by_size(
                "Skew (SES-Dedup, table III)",
                "%",
                [
                    ("hot, of contents with copies", |f| f.hot_share),
                    ("theirs, of all duplicates", |f| f.hot_share_of_duplicates),
                ],
            ),
        ];
        charts.extend(self.sizes.iter().filter(|f| f.chunk_bytes == chunk_bytes).map(ChunkFigures::chart));
        charts
    }

    /// The figures of all chunk sizes.
    pub(crate) fn table(&self) -> Table {
        const COLUMNS: [Column; 9] = [
            ("chunks of", |f| kib(f.chunk_bytes)),
            ("chunks", |f| f.chunks.to_string()),
            ("zeros", |f| f.zero_chunks.to_string()),
            ("distinct", |f| f.distinct_chunks.to_string()),
            ("duplicate", |f| f.duplicate_chunks.to_string()),
            ("duplicate, % of all", |f| percent(f.duplicate_share, f.duplicate_share_error)),
            ("hot, % of contents with copies", |f| percent(f.hot_share, f.hot_share_error)),
            ("theirs, % of duplicates", |f| {
                percent(f.hot_share_of_duplicates, f.hot_share_of_duplicates_error)
            }),
            ("sampled", |f| format!("1 in {}", f.sampled_one_in)),
        ];
        Table {
            title: "All chunk sizes".into(),
            columns: COLUMNS.iter().map(|(name, _)| name.to_string()).collect(),
            rows: self.sizes.iter().map(|f| COLUMNS.iter().map(|(_, cell)| cell(f)).collect()).collect(),
        }
    }

    fn by_size(&self, title: &str, y: &str, series: [Series; 2]) -> Chart {
        let groups = self.sizes.iter().map(|f| kib(f.chunk_bytes)).collect();
        let values = |of: fn(&ChunkFigures) -> f64| self.sizes.iter().map(|f| of(f) * 100.0).collect();
        let series = series.map(|(name, of)| (name.to_string(), values(of))).into();
        Chart {
            title: title.into(),
            x: "chunk size".into(),
            y: y.into(),
            kind: ChartKind::Bars { groups, series },
        }
    }
}

impl ChunkFigures {
    fn chart(&self) -> Chart {
        let groups = self.tables.iter().map(|t| format!("{:.0}%", t.table_share * 100.0)).collect();
        let all = |of: fn(&super::TableFigures) -> f64| self.tables.iter().map(|t| of(t) * 100.0).collect();
        let series = vec![
            ("best: most copies".to_string(), all(|t| t.best)),
            ("hot ones only".to_string(), all(|t| t.hot)),
            ("any".to_string(), all(|t| t.any)),
        ];
        Chart {
            title: format!("Duplicates that a table catches at {}", kib(self.chunk_bytes)),
            x: "fingerprints in the table, % of chunks that are not zeros".into(),
            y: "% of duplicates".into(),
            kind: ChartKind::Bars { groups, series },
        }
    }
}

fn kib(bytes: u64) -> String {
    format!("{} KiB", bytes >> 10)
}

fn percent(share: f64, error: f64) -> String {
    match error > 0.0 {
        true => format!("{:.2} ± {:.2}", share * 100.0, error * 100.0),
        false => format!("{:.2}", share * 100.0),
    }
}
