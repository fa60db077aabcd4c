//! Resources used by this process: bytes written, processor time, memory. From `/proc`, so that all engines are
//! measured alike; 0 if there is no `/proc`.

use std::fs::read_to_string;
use vellum_base::Nanos;

/// Counters of this process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes handed to the file system (`wchar`).
    pub written_bytes: u64,
    /// Bytes that dirtied pages or went to a device (`write_bytes`).
    pub dirtied_bytes: u64,
    /// Processor time of all threads.
    pub cpu: Nanos,
    /// Current memory not backed by files (`RssAnon`).
    pub memory_bytes: u64,
}

impl Usage {
    /// The counters up to now.
    pub fn now() -> Usage {
        let io = read_to_string("/proc/self/io").unwrap_or_default();
        let status = read_to_string("/proc/self/status").unwrap_or_default();
        Usage {
            written_bytes: field(&io, "wchar:"),
            dirtied_bytes: field(&io, "write_bytes:"),
            cpu: cpu(&read_to_string("/proc/self/stat").unwrap_or_default()),
            memory_bytes: field(&status, "RssAnon:") << 10,
        }
    }

    /// The difference to `before`; memory as it is now.
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            dirtied_bytes: self.dirtied_bytes.saturating_sub(before.dirtied_bytes),
            cpu: self.cpu.saturating_sub(before.cpu),
            memory_bytes: self.memory_bytes,
        }
    }
}

/// True if another thread of this process runs, or waits for a disk.
pub fn others_are_busy() -> bool {
    let own = rustix::thread::gettid().as_raw_pid().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let mut others = tasks.filter(|task| task.file_name().to_str() != Some(&own));
    others
        .any(|task| state(&read_to_string(task.path().join("stat")).unwrap_or_default()).is_some_and(is_busy))
}

/// The third field of `stat`, after a name in brackets.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

fn is_busy(state: char) -> bool {
    matches!(state, 'R' | 'D')
}

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// User and system time: fields 14 and 15, in hundredths of a second; field 2, in brackets, may contain anything.
fn cpu(stat: &str) -> Nanos {
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    let ticks: u64 = fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Nanos::from_ms(ticks * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_is_seen() {
        assert_eq!((state("7 (a) b) D 1"), state("")), (Some('D'), None));
        let env: std::sync::Arc<dyn vellum_base::Env> = vellum_base::RealEnv::new();
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let seen = stop.clone();
        let work = move || while !seen.load(std::sync::atomic::Ordering::Relaxed) {};
        let task = env.spawn("busy", Box::new(work));
        assert!((0..1000).any(|_| others_are_busy()));
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        task.join();
    }

    #[test]
    fn figures_are_found_in_their_files() {
        assert_eq!(field("rchar: 1\nwchar: 27\nwrite_bytes: 4096\n", "write_bytes:"), 4096);
        assert_eq!(cpu("1 (a) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20"), Nanos::from_ms(2000));
        assert_eq!(cpu(""), Nanos::ZERO);
        let before = Usage::now();
        std::fs::write(tempfile::NamedTempFile::new().unwrap().path(), vec![1; 100_000]).unwrap();
        let used = Usage::now().since(&before);
        assert!(used.written_bytes >= 100_000 && used.memory_bytes > 0, "{used:?}");
    }
}
