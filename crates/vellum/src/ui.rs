//! What a command says: results on standard output, remarks on standard error, progress only for people.

use crate::failure::{Failure, kind_name};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use vellum::base::{Env, Nanos, RealEnv};

/// Work that takes longer than this shows a bar.
const PROGRESS_AFTER: Nanos = Nanos::from_ms(2000);

/// How a command talks.
pub struct Ui {
    /// Results as JSON.
    pub json: bool,
    env: Arc<RealEnv>,
}

impl Ui {
    /// Talks to this process' terminal or pipes.
    pub fn new(json: bool) -> Ui {
        Ui { json, env: RealEnv::new() }
    }

    /// A result for people. A reader that has gone away ends the program quietly.
    pub fn print(&self, text: impl AsRef<str>) {
        let mut out = std::io::stdout().lock();
        let said = out.write_all(text.as_ref().as_bytes()).and_then(|()| out.flush());
        if said.is_err() {
            std::process::exit(0);
        }
    }

    /// A result for people and programs: `text` without `--json`, `value` in several lines with it.
    pub fn result(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        match self.json {
            true => self.print(json_pretty(value)),
            false => self.print(text()),
        }
    }

    /// One of a stream of results: `text`, or `value` on one line.
    pub fn event(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        match self.json {
            true => self.print(json_line(value)),
            false => self.print(text()),
        }
    }

    /// A remark that is no result.
    pub fn remark(&self, text: impl AsRef<str>) {
        eprintln!("{}", text.as_ref());
    }

    /// How a command failed, and what to do next.
    pub fn failure(&self, failure: &Failure) {
        if self.json {
            let value = serde_json::json!({
                "error": failure.error().to_string(),
                "kind": kind_name(failure.error().kind()),
                "next": failure.next(),
                "exit_code": failure.code(),
            });
            eprintln!("{value}");
        } else {
            eprintln!("error: {}\n next: {}", failure.error(), failure.next());
        }
    }

    /// A bar for long work. Takes how much is done and how much there is.
    pub fn progress(&self, label: &'static str) -> impl FnMut(u64, u64) + use<> {
        let (env, began) = (self.env.clone(), self.env.now());
        let mut bar: Option<ProgressBar> = None;
        let wanted = std::io::stderr().is_terminal();
        move |done, all| {
            if !wanted || bar.is_none() && env.now().saturating_sub(began) < PROGRESS_AFTER {
                return;
            }
            let bar = bar.get_or_insert_with(|| new_bar(label));
            bar.set_length(all);
            bar.set_position(done);
            if done >= all {
                bar.finish_and_clear();
            }
        }
    }

    /// True if standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        std::io::stdout().is_terminal()
    }
}

/// JSON in several lines, for people who look at it.
pub fn json_pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("our own values have a JSON form") + "\n"
}

/// JSON on one line.
pub fn json_line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own values have a JSON form") + "\n"
}

fn new_bar(label: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {percent}% {eta}");
    ProgressBar::new(0).with_message(label).with_style(style.expect("the template is constant"))
}
