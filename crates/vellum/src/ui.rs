//! Output of a command: results on standard output, remarks on standard error, progress only on a terminal.
//!
//! Invariant: the reader may have gone away, or never have existed; nothing here ends or panics because of that, since
//! disks and mounts may be open.

use crate::failure::{Failure, kind_name};
use crate::harmless::{harmless, harmless_json};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;
use vellum::base::sync::Mutex;
use vellum::base::{Env, Error, Nanos, RealEnv};
use vellum::lab::Progress;
use vellum::serve::Stop;

/// A bar is shown for work that takes longer than this.
const PROGRESS_AFTER: Nanos = Nanos::from_ms(2000);

/// Output channel of a command.
pub struct Ui {
    /// Results as JSON.
    pub json: bool,
    env: Arc<RealEnv>,
    /// Why a result could not be printed.
    unheard: Mutex<Option<io::Error>>,
}

/// Prints a line on standard error; failure to do so is ignored.
pub fn say(line: impl AsRef<str>) {
    let line = format!("{}\n", line.as_ref());
    let _ = io::stderr().write_all(line.as_bytes());
}

impl Ui {
    /// Uses this process's terminal or pipes.
    pub fn new(json: bool) -> Ui {
        Ui { json, env: RealEnv::new(), unheard: Mutex::new(None) }
    }

    /// Prints a result as text. [`Ui::heard`] returns whether that succeeded.
    pub fn print(&self, text: impl AsRef<str>) {
        self.bytes(text.as_ref().as_bytes());
    }

    /// Prints a result that is bytes, unchanged.
    pub fn bytes(&self, bytes: &[u8]) {
        let mut out = io::stdout().lock();
        if let Err(e) = out.write_all(bytes).and_then(|()| out.flush()) {
            *self.unheard.lock() = Some(e);
        }
    }

    /// False once a result could not be printed: further ones would have no reader.
    pub fn has_listener(&self) -> bool {
        self.unheard.lock().is_none()
    }

    /// Fails unless all results were printed. A reader that stopped early (`| head`) is not a failure; a full disk is.
    pub fn heard(&self) -> Result<(), Failure> {
        match self.unheard.lock().take() {
            Some(e) if e.kind() != ErrorKind::BrokenPipe => {
                let next =
                    "make room where the output goes, or send it elsewhere, then run the command again";
                Err(Failure::with_next(Error::io("print the result", e), next))
            }
            _ => Ok(()),
        }
    }

    /// Prints `page` every second, until interrupted or the reader has gone away.
    pub fn watch(&self, mut page: impl FnMut() -> Result<String, Failure>) -> Result<(), Failure> {
        let stop = Stop::on_signals()?;
        loop {
            let page = page()?;
            let clear = if self.is_terminal() && !self.json { CLEAR_SCREEN } else { "" };
            let gap = if self.is_terminal() || self.json { "" } else { "\n" };
            self.print(format!("{clear}{page}{gap}"));
            if !self.has_listener() || stop.wait(Some(WATCH_EVERY)) {
                return Ok(());
            }
        }
    }

    /// Prints a result: `text`, or with `--json` `value` on several lines.
    pub fn result(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        match self.json {
            true => self.print(json_pretty(value)),
            false => self.print(text()),
        }
    }

    /// Prints an event of a server: `text`, or `value` on one line. The server continues without a reader.
    pub fn event(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        let _ = match self.json {
            true => print(&json_line(value)),
            false => print(&text()),
        };
    }

    /// Prints a remark that is not a result.
    pub fn remark(&self, text: impl AsRef<str>) {
        say(harmless(text.as_ref()));
    }

    /// Prints why a command failed, and what to do next.
    pub fn failure(&self, failure: &Failure) {
        if self.json {
            let value = serde_json::json!({
                "error": failure.error().to_string(),
                "kind": kind_name(failure.error().kind()),
                "next": failure.next(),
                "exit_code": failure.code(),
            });
            say(harmless_json(value.to_string()));
        } else {
            let what = one_line(&failure.error().to_string());
            say(format!("error: {}\n next: {}", harmless(&what), harmless(&failure.next())));
        }
    }

    /// A progress bar for long work. Receives how much is done, and the total.
    pub fn progress(&self, label: &'static str) -> impl FnMut(u64, u64) + use<> {
        let bars = self.bars();
        let mut begun = false;
        let mut told = 0;
        move |done, all| {
            if !std::mem::replace(&mut begun, true) {
                bars.begin(label, all);
            }
            bars.advance(done.saturating_sub(told));
            told = done;
        }
    }

    /// Progress bars for work in several parts. They appear after a while, and only on a terminal.
    pub fn bars(&self) -> Bars {
        let wanted = io::stderr().is_terminal();
        Bars { env: self.env.clone(), began: self.env.now(), wanted, bar: Mutex::new(None) }
    }

    /// Does work of unknown progress; on a terminal, the elapsed time is shown.
    pub fn during<T>(&self, label: &'static str, work: impl FnOnce() -> T) -> T {
        let bar = io::stderr().is_terminal().then(|| ProgressBar::new_spinner().with_style(clock(label)));
        bar.iter().for_each(|bar| bar.enable_steady_tick(TICK_EVERY));
        let done = work();
        bar.iter().for_each(ProgressBar::finish_and_clear);
        done
    }

    /// True if standard output is a terminal.
    pub fn is_terminal(&self) -> bool {
        io::stdout().is_terminal()
    }
}

fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Interval between updates of elapsed time.
const TICK_EVERY: Duration = Duration::from_millis(500);
/// Interval between pages of `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Joins several lines printed by tools into one.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}

/// JSON on several lines, for reading.
pub fn json_pretty(value: &impl Serialize) -> String {
    harmless_json(serde_json::to_string_pretty(value).expect("our own values have a JSON form")) + "\n"
}

/// See [`Ui::bars`].
pub struct Bars {
    env: Arc<RealEnv>,
    began: Nanos,
    wanted: bool,
    bar: Mutex<Option<ProgressBar>>,
}

impl Progress for Bars {
    fn begin(&self, what: &str, steps: u64) {
        if self.wanted {
            let bar = ProgressBar::hidden().with_message(what.to_string()).with_style(style(steps));
            bar.set_length(steps);
            *self.bar.lock() = Some(bar);
        }
    }

    fn expect_more(&self, steps: u64) {
        let bar = self.bar.lock();
        let Some(bar) = &*bar else { return };
        if bar.length() == Some(0) && steps > 0 {
            bar.set_style(style(steps));
        }
        bar.inc_length(steps);
    }

    fn advance(&self, steps: u64) {
        let bar = self.bar.lock();
        let Some(bar) = &*bar else { return };
        bar.inc(steps);
        if bar.is_hidden() && self.env.now().saturating_sub(self.began) >= PROGRESS_AFTER {
            bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Bars {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.lock().take() {
            bar.finish_and_clear();
        }
    }
}

fn style(steps: u64) -> ProgressStyle {
    let template = if steps > 0 { "{msg} {wide_bar} {percent}% {eta}" } else { "{msg} {spinner} {pos}" };
    ProgressStyle::with_template(template).expect("the template is constant")
}

fn clock(label: &'static str) -> ProgressStyle {
    let late = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        if state.elapsed() >= Duration::from_nanos(PROGRESS_AFTER.0) {
            // Drawing has no way to report a failure.
            let _ = write!(out, "{label}: {} s", state.elapsed().as_secs());
        }
    };
    ProgressStyle::with_template("{late}").expect("the template is constant").with_key("late", late)
}

/// JSON on one line.
pub fn json_line(value: &impl Serialize) -> String {
    harmless_json(serde_json::to_string(value).expect("our own values have a JSON form")) + "\n"
}
