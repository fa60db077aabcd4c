//! Runs the built binary.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// A directory to run commands in; gone afterwards.
pub struct Home {
    dir: TempDir,
}

/// What a command said and how it ended.
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Home {
    pub fn new() -> Home {
        Home { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Runs `vellum` with words separated by spaces.
    pub fn run(&self, line: &str) -> Said {
        let out = self.command(line).output().unwrap();
        Said {
            code: out.status.code().unwrap_or(-1),
            out: String::from_utf8(out.stdout).unwrap(),
            err: String::from_utf8(out.stderr).unwrap(),
        }
    }

    /// The same, which must succeed; returns what it printed.
    pub fn ok(&self, line: &str) -> String {
        let said = self.run(line);
        assert_eq!(said.code, 0, "{line}: {}{}", said.out, said.err);
        said.out
    }

    /// The same with `--json`.
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    /// A command that is to run on. `line` gets `--json`; the first line it prints is returned.
    pub fn start(&self, line: &str) -> (Running, Value) {
        let mut child = self.command(&format!("{line} --json")).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let ready = serde_json::from_str(&first).unwrap_or_else(|e| panic!("{line}: {e}: '{first}'"));
        (Running { child, lines }, ready)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vellum"));
        command
            .args(line.split(' ').filter(|w| !w.is_empty()))
            .current_dir(self.dir.path())
            .stdin(Stdio::null());
        command
    }
}

impl Said {
    /// It failed with `code`, said `what` about it in one line, and in the next what to do.
    #[track_caller]
    pub fn failed(&self, code: i32, what: &str) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        let lines: Vec<_> = self.err.lines().collect();
        assert!(lines[0].starts_with("error: ") && lines[0].contains(what), "{}", self.err);
        assert!(lines[1].starts_with(" next: ") && lines.len() == 2, "{}", self.err);
    }
}

/// A command that runs on.
pub struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Running {
    /// Kills it as if the power had gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Interrupts it as Ctrl-C does; returns its exit code and the lines it still printed.
    pub fn interrupt(mut self) -> (i32, Vec<Value>) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let mut lines = Vec::new();
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() > 0 {
            lines.push(serde_json::from_str(&line).unwrap());
            line.clear();
        }
        let status = self.child.wait().unwrap();
        (status.code().unwrap_or(-1), lines)
    }

    /// The next line it prints.
    pub fn next_line(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed half-way must not leave a server behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
