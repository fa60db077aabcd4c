//! A token that tells every server and mount that holds it to finish.
//!
//! States: running, stopped. Invariants:
//! 1. It changes from running to stopped once, and never back.
//! 2. After that, [`Stop::as_fd`] is readable for ever, so that any number of pollers see it.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vellum_base::{Error, Result};

/// A stop token. Clones share one state.
#[derive(Clone, Debug)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    stopped: AtomicBool,
    // Shutting `pull` down makes `watch` readable (end of file) for all pollers.
    watch: UnixStream,
    pull: UnixStream,
    again: OnceLock<Stop>,
}

impl Stop {
    /// A token that runs until [`Stop::stop`] is called.
    pub fn new() -> Result<Stop> {
        let (watch, pull) = UnixStream::pair().map_err(|e| Error::io("make a stop token", e))?;
        let (stopped, again) = (AtomicBool::new(false), OnceLock::new());
        Ok(Stop { shared: Arc::new(Shared { stopped, watch, pull, again }) })
    }

    /// A token that is stopped by SIGINT, SIGTERM and SIGHUP. A second signal ends the process at once, in case
    /// finishing hangs; if there is a token of [`Stop::again`], the second signal stops that, and a third ends the
    /// process. SIGHUP never counts as a second signal: a terminal that goes away sends several. It stays ignored if
    /// the process was started that way (`nohup`).
    pub fn on_signals() -> Result<Stop> {
        let stop = Stop::new()?;
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let hangup = (!ignores_hangup(&status)).then_some(SIGHUP);
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup))
            .map_err(|e| Error::io("watch SIGINT, SIGTERM and SIGHUP", e))?;
        let told = stop.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                for signal in signals.forever() {
                    if signal == SIGHUP {
                        told.stop();
                        continue;
                    }
                    let mut left = [Some(&told), told.shared.again.get()].into_iter().flatten();
                    match left.find(|stop| !stop.is_stopped()) {
                        Some(stop) => stop.stop(),
                        // Cannot fail for the two signals watched; the default action ends the process.
                        None => drop(signal_hook::low_level::emulate_default_handler(signal)),
                    }
                }
            })
            .map_err(|e| Error::io("start the signal thread", e))?;
        Ok(stop)
    }

    /// The token that a second signal stops, for a process that has more to do before it can be ended.
    pub fn again(&self) -> Result<Stop> {
        let new = Stop::new()?;
        Ok(self.shared.again.get_or_init(|| new).clone())
    }

    /// Stops everything that holds the token. May be called repeatedly.
    pub fn stop(&self) {
        self.shared.stopped.store(true, Ordering::Release);
        // The pair is ours and open, so this fails only if it was shut down before.
        let _ = self.shared.pull.shutdown(Shutdown::Write);
    }

    /// True after [`Stop::stop`].
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// Waits for the stop, no longer than `limit` if given. True if it is stopped.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(self, PollFlags::IN)];
        let limit =
            limit.map(|d| Timespec { tv_sec: d.as_secs() as i64, tv_nsec: i64::from(d.subsec_nanos()) });
        loop {
            match poll(&mut fds, limit.as_ref()) {
                Err(rustix::io::Errno::INTR) if limit.is_none() => {}
                _ if limit.is_none() && !self.is_stopped() => {}
                _ => return self.is_stopped(),
            }
        }
    }
}

/// Makes a write beyond the file size limit fail (EFBIG) instead of ending the process by a signal. Child processes are
/// not affected.
pub fn outlive_file_size_limit() -> Result<()> {
    let done = signal_hook::flag::register(SIGXFSZ, Arc::default());
    done.map(drop).map_err(|e| Error::io("watch SIGXFSZ", e))
}

/// True if a process with this `/proc/PID/status` was started with SIGHUP ignored.
fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.watch.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_under_nohup_is_known() {
        let status = |mask| format!("Name:\tvellum\nSigBlk:\t0000000000000001\nSigIgn:\t{mask}\n");
        assert!(ignores_hangup(&status("0000000000001001")));
        assert!(!ignores_hangup(&status("0000000000001000")));
        assert!(!ignores_hangup(""));
    }

    #[test]
    fn a_stop_is_seen_by_every_clone_and_stays() {
        let stop = Stop::new().unwrap();
        let other = stop.clone();
        assert!(!other.wait(Some(Duration::from_millis(1))));
        stop.stop();
        stop.stop();
        for _ in 0..2 {
            assert!(other.wait(None));
            assert!(other.is_stopped());
        }
    }
}
