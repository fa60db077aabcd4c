//! Runs the built binary.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use tempfile::TempDir;

/// A temporary directory to run commands in.
pub struct Home {
    dir: TempDir,
}

/// Output of a command, and how it ended.
pub struct Said {
    /// Id of the process.
    pub id: u32,
    /// -1 if a signal ended it.
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

    /// Runs `vellum` with space-separated arguments.
    pub fn run(&self, line: &str) -> Said {
        Said::by(self.command(line))
    }

    /// The same, with another search path for tools.
    pub fn run_with_path(&self, line: &str, path: &Path) -> Said {
        let mut command = self.command(line);
        command.env("PATH", path);
        Said::by(command)
    }

    /// [`Home::run`], which must succeed; returns its output.
    pub fn ok(&self, line: &str) -> String {
        let said = self.run(line);
        assert_eq!(said.code, 0, "{line}: {}{}", said.out, said.err);
        said.out
    }

    /// [`Home::run`] for a command that would keep running if it were not refused.
    #[track_caller]
    pub fn refused(&self, line: &str) -> Said {
        let mut command = self.command(line);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if child.stdout.take().unwrap().read(&mut [0]).unwrap() > 0 {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("{line}: it was not refused");
        }
        Said::of(child)
    }

    /// [`Home::ok`] with `--json`.
    pub fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.ok(&format!("{line} --json"))).unwrap()
    }

    /// Starts a command of which only standard error matters; returns that for reading by lines.
    pub fn listen(&self, line: &str) -> (Child, BufReader<ChildStderr>) {
        let mut child = self.command(line).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stderr.take().unwrap());
        (child, said)
    }

    /// Starts a command that keeps running, with `--json`; returns the first line it prints.
    pub fn start(&self, line: &str) -> (Running, Value) {
        let mut running = self.begin(line);
        let ready = running.next_line().unwrap_or_else(|| panic!("{line}: ended before it was ready"));
        (running, ready)
    }

    /// The same, without waiting for anything.
    pub fn begin(&self, line: &str) -> Running {
        self.begin_with_remarks_to(line, Stdio::inherit())
    }

    /// The same, with its remarks redirected.
    pub fn begin_with_remarks_to(&self, line: &str, remarks: Stdio) -> Running {
        let mut command = self.command(&format!("{line} --json"));
        let mut child = command.stdout(Stdio::piped()).stderr(remarks).spawn().unwrap();
        let lines = File::from(OwnedFd::from(child.stdout.take().unwrap()));
        Running { child, lines: BufReader::new(lines) }
    }

    /// Starts a command that keeps running, whose output and remarks are not read.
    pub fn begin_unheard(&self, line: &str) -> Running {
        let child = self.command(line).stdout(nobody()).stderr(nobody()).spawn().unwrap();
        Running { child, lines: BufReader::new(File::open("/dev/null").unwrap()) }
    }

    /// The same, until it ends; returns its exit code.
    pub fn code_unheard(&self, line: &str, output: Stdio) -> Option<i32> {
        self.command(line).stdout(output).stderr(nobody()).status().unwrap().code()
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

/// A pipe whose reader has gone away.
pub fn nobody() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

impl Drop for Home {
    fn drop(&mut self) {
        // A test that failed halfway must not leave mounts behind, nor have files in them deleted.
        let here = self.dir.path().display().to_string();
        let table = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
        for line in table.lines().rev() {
            let mut words = line.split(' ');
            let (source, at) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
            if at.starts_with(&here) {
                let _ = Command::new("umount").args(["--lazy", at]).output();
                if source.starts_with("/dev/loop") {
                    let _ = Command::new("losetup").args(["--detach", source]).output();
                }
            }
        }
    }
}

impl Said {
    fn by(mut command: Command) -> Said {
        Said::of(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn of(child: Child) -> Said {
        let id = child.id();
        let out = child.wait_with_output().unwrap();
        Said {
            id,
            code: out.status.code().unwrap_or(-1),
            out: String::from_utf8(out.stdout).unwrap(),
            err: String::from_utf8(out.stderr).unwrap(),
        }
    }

    /// It failed with `code`; one line says `what`, and the next what to do.
    #[track_caller]
    pub fn failed(&self, code: i32, what: &str) {
        assert_eq!(self.code, code, "{}{}", self.out, self.err);
        let lines: Vec<_> = self.err.lines().collect();
        assert!(lines[0].starts_with("error: ") && lines[0].contains(what), "{}", self.err);
        assert!(lines[1].starts_with(" next: ") && lines.len() == 2, "{}", self.err);
    }
}

/// A command that keeps running.
pub struct Running {
    child: Child,
    lines: BufReader<File>,
}

impl Running {
    /// Kills it, as a power failure would.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Interrupts it like Ctrl-C; returns its exit code and the remaining lines it printed.
    pub fn interrupt(self) -> (i32, Vec<Value>) {
        self.end(Signal::INT)
    }

    /// Sends a signal; returns its exit code (-1 if it died of the signal) and the remaining lines it printed.
    pub fn end(mut self, signal: Signal) -> (i32, Vec<Value>) {
        self.signal(signal);
        self.finish()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; returns its exit code (-1 if a signal ended it) and the remaining lines it printed.
    pub fn finish(&mut self) -> (i32, Vec<Value>) {
        let lines = std::iter::from_fn(|| self.next_line()).collect();
        (self.child.wait().unwrap().code().unwrap_or(-1), lines)
    }

    /// The next line it prints; `None` at its end. A server that prints nothing for 90 seconds has hung.
    pub fn next_line(&mut self) -> Option<Value> {
        if self.lines.buffer().is_empty() {
            let mut fds = [PollFd::new(self.lines.get_ref(), PollFlags::IN)];
            let limit = Timespec { tv_sec: 90, tv_nsec: 0 };
            assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "the server hangs");
        }
        let mut line = String::new();
        match self.lines.read_line(&mut line).unwrap() {
            0 => None,
            _ => Some(serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: '{line}'"))),
        }
    }

    /// Id of its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed halfway must not leave a server behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
