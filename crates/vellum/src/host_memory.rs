//! Whether the host has enough memory for a disk in memory.

use vellum::Size;

/// A remark if a disk of `size` in memory needs more than the host has available.
pub fn remark_on(size: Size) -> Option<String> {
    remark(size, available_bytes(&std::fs::read_to_string("/proc/meminfo").ok()?)?)
}

fn remark(size: Size, available: u64) -> Option<String> {
    (size.0 > available).then(|| {
        format!(
            "note: the host has {} of memory available, and a disk of {size} in memory takes more as it fills: the system \
             may then kill it, and what is on it is gone",
            Size(available)
        )
    })
}

/// Parses `MemAvailable` of `/proc/meminfo`.
fn available_bytes(meminfo: &str) -> Option<u64> {
    let amount = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    amount.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_disk_that_does_not_fit_is_remarked_on() {
        let meminfo = "MemTotal:       16384 kB\nMemFree:  12 kB\nMemAvailable:    8192 kB\nBuffers: 1 kB\n";
        let available = available_bytes(meminfo).unwrap();
        assert_eq!(available, 8 << 20);
        assert_eq!(remark(Size(8 << 20), available), None);
        let said = remark(Size(9 << 20), available).unwrap();
        assert!(said.contains("has 8MiB") && said.contains("of 9MiB in memory"), "{said}");
        assert_eq!(available_bytes("MemTotal: 16384 kB\n"), None);
    }
}
