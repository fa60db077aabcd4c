//! Self-contained HTML pages: tables, and charts as inline SVG. No external resources.

mod chart;
mod image;
mod page;

use serde::Serialize;
use std::path::Path;
use vellum_base::{Error, Result};

/// A chart of figures.
#[derive(Clone, Debug, Serialize)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Label of the horizontal axis, with unit.
    pub x: String,
    /// Label of the vertical axis, with unit.
    pub y: String,
    /// What is drawn.
    pub kind: ChartKind,
}

/// What a chart draws.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChartKind {
    /// Groups of bars, with one bar per series.
    Bars {
        /// Names of the groups.
        groups: Vec<String>,
        /// Name of each series, and its value in every group.
        series: Vec<(String, Vec<f64>)>,
    },
    /// Stacked bars.
    Stacked {
        /// Names of the bars.
        groups: Vec<String>,
        /// Name of each part, and its value in every bar.
        series: Vec<(String, Vec<f64>)>,
    },
    /// Lines through points, with a logarithmic x axis.
    Lines {
        /// Name of each line, and its points.
        series: Vec<(String, Vec<(f64, f64)>)>,
    },
}

impl Chart {
    /// The names of its series, in the order of their colours.
    fn series(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        match &self.kind {
            ChartKind::Bars { series, .. } | ChartKind::Stacked { series, .. } => {
                Box::new(series.iter().map(|(name, _)| &name[..]))
            }
            ChartKind::Lines { series } => Box::new(series.iter().map(|(name, _)| &name[..])),
        }
    }

    /// The chart with title and legend as an SVG file, which adapts to light and dark by itself.
    pub fn image(&self) -> Result<String> {
        image::of(self)
    }
}

/// A page to which sections are added.
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// Writes the page to a file.
    pub fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.html()).map_err(|e| Error::io(format_args!("write {}", path.display()), e))
    }
}
