//! The command line: see docs/COMMANDS.md.

mod commands;
mod doors;
mod failure;
mod live;
mod text;
mod ui;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = commands::Cli::parse();
    let ui = ui::Ui::new(cli.json);
    match cli.run(&ui) {
        Ok(verdict) => verdict.exit_code(),
        Err(failure) => {
            ui.failure(&failure);
            failure.exit_code()
        }
    }
}
