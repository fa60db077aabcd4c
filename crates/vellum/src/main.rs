//! The command line: see docs/COMMANDS.md.

// They panic where nobody reads; `ui` has what does not.
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

/// A store has a file for each of its tables: as many may be open as the system allows at all.
fn allow_many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // If not, whoever comes to the limit says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Help and version, or what is wrong with the command line; of that the options are not known but by looking.
fn usage(error: clap::Error) -> ExitCode {
    let mut words = std::env::args_os().skip(1).take_while(|word| word != "--");
    if !error.use_stderr() || !words.any(|word| word == "--json") {
        error.exit();
    }
    let failure = Failure::usage(&error.render().to_string());
    ui::Ui::new(true).failure(&failure);
    failure.exit_code()
}
