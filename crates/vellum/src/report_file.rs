//! The page with tables and charts that a command writes at its end.
//!
//! Invariants:
//! 1. If the page cannot be written, this is reported before the work begins, as far as it can be foreseen.
//! 2. An existing file is kept, unless the command was told to replace it.

use crate::failure::Failure;
use crate::ui::Ui;
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};
use vellum::base::{Error, Result};
use vellum::lab::report::Page;

/// Whether to write a page, and where.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// Write a page with tables and charts
    #[arg(long, value_name = "HTML")]
    report: Option<PathBuf>,
    /// Replace the page if it exists
    #[arg(long, requires = "report")]
    force: bool,
}

impl ReportArgs {
    /// [`check`], if a page is requested.
    pub fn check(&self) -> Result<(), Failure> {
        self.report.as_ref().map_or(Ok(()), |path| check(path, self.force))
    }

    /// Writes the page, if requested.
    pub fn write(&self, page: impl FnOnce() -> Page, ui: &Ui) -> Result<()> {
        let Some(path) = &self.report else { return Ok(()) };
        page().write(path)?;
        ui.remark(format!("report: {}", path.display()));
        Ok(())
    }
}

/// Refuses a page that would replace an existing one without permission, or cannot be written.
pub fn check(path: &Path, replace: bool) -> Result<(), Failure> {
    let name = path.display();
    if path.symlink_metadata().is_ok() {
        if !replace {
            return Err(Failure::with_next(
                Error::invalid(format!("{name} exists already")),
                "choose another name, or say --force to replace it",
            ));
        }
        if path.is_dir() {
            return Err(Error::invalid(format!("{name} is a directory, not a page")).into());
        }
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // With the dot, so that a parent that is a file is refused.
    let place = if path.exists() { path.to_path_buf() } else { parent.join(".") };
    Ok(access(&place, Access::WRITE_OK).map_err(|errno| Error::io(format!("write {name}"), errno.into()))?)
}
