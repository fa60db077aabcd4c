//! Reports what a trace's reader rejected or found odd; errors name the trace's file.

use crate::ui::Ui;
use crate::watched::watched;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use vellum::base::sync::Mutex;
use vellum::trace::{RequestSource, RowCounts};

/// The trace at `path`, with errors that name it. `rows` receives what was odd about it at its end.
pub fn telling(
    trace: Box<dyn RequestSource>,
    path: &Path,
    rows: &Arc<Mutex<RowCounts>>,
) -> Box<dyn RequestSource> {
    let (path, rows) = (path.to_path_buf(), rows.clone());
    watched(trace, move |trace, next| {
        if next.is_none() {
            *rows.lock() = trace.rows();
        }
        next.map(|request| request.map_err(|error| error.context(path.display())))
    })
}

/// docs/json/replay.md and replay-array.md: a result, with what was odd about its trace.
#[derive(Serialize)]
pub struct WithOddRows<'a, T> {
    #[serde(flatten)]
    result: &'a T,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    odd_rows: Vec<OddRows>,
}

#[derive(Serialize)]
struct OddRows {
    kind: &'static str,
    rows: u64,
    first: String,
}

impl<'a, T: Serialize> WithOddRows<'a, T> {
    /// Reports on standard error what was odd about the rows of the trace at `path`.
    pub fn tell(result: &'a T, path: &Path, rows: &RowCounts, ui: &Ui) -> WithOddRows<'a, T> {
        for (kind, count, first) in rows.kinds() {
            let what = match kind {
                "out of order" => "rows out of order, taken as they come".to_string(),
                _ => format!("rows left out as {kind}"),
            };
            ui.remark(format!("note: {}: {what}: {count}, the first at {first}", path.display()));
        }
        let odd_rows = rows
            .kinds()
            .map(|(kind, rows, first)| OddRows { kind, rows, first: first.to_string() })
            .collect();
        WithOddRows { result, odd_rows }
    }
}
