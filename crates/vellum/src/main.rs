//! The command line: see docs/COMMANDS.md.

// They panic if the output is closed; `ui` has replacements that do not.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod commands;
mod doors;
mod endurance;
mod failure;
mod harmless;
mod host_memory;
mod live;
mod logged;
mod mounting;
mod odd_rows;
mod report_file;
mod reported;
mod text;
mod ui;
mod until_cut;
mod watched;

use clap::Parser;
use failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::process::ExitCode;
use vellum::serve::outlive_file_size_limit;

fn main() -> ExitCode {
    let cli = match commands::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(commands::suggest(error)),
    };
    logged::listen();
    allow_many_files();
    let ui = ui::Ui::new(cli.json);
    let ran = outlive_file_size_limit().map_err(Failure::from).and_then(|()| cli.run(&ui));
    match ran.and_then(|verdict| ui.heard().map(|()| verdict)) {
        Ok(verdict) => verdict.exit_code(),
        Err(failure) => {
            ui.failure(&failure);
            failure.exit_code()
        }
    }
}

/// A store has a file for each table: raises the limit of open files to the system's maximum.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If this fails, whatever reaches the limit reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Prints help, version, or a usage error; after that `--json` is not parsed, so it is searched for.
fn usage(error: clap::Error) -> ExitCode {
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    if !error.use_stderr() || !words.any(|word| word == "--json") {
        error.exit();
    }
    let failure = Failure::usage(&error.render().to_string());
    ui::Ui::new(true).failure(&failure);
    failure.exit_code()
}
