//! Prints what libraries log on standard error: FUSE reports replies that the kernel did not accept only there.
//!
//! Invariant: what a client can trigger as often as it likes does not flood the output.

use crate::reported::Tally;
use crate::ui::say;
use log::{LevelFilter, Log, Metadata, Record};

/// How the FUSE library's messages begin that are not failures: requests that we leave to the kernel, mounts that we
/// unmounted before it tried, and replies to requests that the kernel dropped on unmounting.
const NO_FAILURES: [&str; 3] =
    ["[Not Implemented]", "Unmount failed: ", "Failed to send FUSE reply: No such file or directory"];

/// Prints warnings and errors.
struct Aloud {
    said: Tally,
}

/// Starts to print the warnings of libraries.
pub fn listen() {
    static ALOUD: Aloud = Aloud { said: Tally::new() };
    if log::set_logger(&ALOUD).is_ok() {
        log::set_max_level(LevelFilter::Warn);
    }
}

impl Aloud {
    /// The line for a record, if it is to be printed.
    fn line(&self, record: &Record) -> Option<String> {
        let text = record.args().to_string();
        if !self.enabled(record.metadata()) || NO_FAILURES.iter().any(|begin| text.starts_with(begin)) {
            return None;
        }
        let so_far = self.said.one_more()?;
        let library = record.target().split("::").next().unwrap_or_default();
        Some(format!("{library}: {text}{so_far}"))
    }
}

impl Log for Aloud {
    fn enabled(&self, metadata: &Metadata) -> bool {
        metadata.level() <= LevelFilter::Warn
    }

    fn log(&self, record: &Record) {
        if let Some(line) = self.line(record) {
            say(line);
        }
    }

    fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use log::Level;

    #[test]
    fn failures_are_said_and_the_rest_is_not() {
        let aloud = Aloud { said: Tally::new() };
        let line = |level, text: &str| {
            aloud.line(
                &Record::builder().level(level).target("fuser::reply").args(format_args!("{text}")).build(),
            )
        };
        let failed = line(Level::Error, "Failed to send FUSE reply: Invalid argument (os error 22)");
        assert_eq!(
            failed.as_deref(),
            Some("fuser: Failed to send FUSE reply: Invalid argument (os error 22)")
        );
        assert_eq!(
            line(Level::Error, "Failed to send FUSE reply: No such file or directory (os error 2)"),
            None
        );
        assert_eq!(line(Level::Warn, "strange").as_deref(), Some("fuser: strange"));
        assert_eq!(line(Level::Info, "Unmounting"), None);
        assert_eq!(line(Level::Warn, "[Not Implemented] getxattr(ino: 1)"), None);
        assert_eq!(line(Level::Warn, "Unmount failed: Invalid argument (os error 22)"), None);
        let said = (2..2000).filter_map(|_| line(Level::Error, "again")).collect::<Vec<_>>();
        assert_eq!(said.len(), 8 + 2);
        assert_eq!(said[9], "fuser: again (2000 failures so far)");
    }
}
