//! Progress reports of long runs.

/// Receives progress reports. `()` ignores them.
pub trait Progress: Sync {
    /// A part of the run begins, with its name and its number of steps (0 if unknown).
    fn begin(&self, what: &str, steps: u64);
    /// This many further steps are done.
    fn advance(&self, steps: u64);
    /// The number of steps is this much higher than [`Progress::begin`] said.
    fn expect_more(&self, _steps: u64) {}
}

impl Progress for () {
    fn begin(&self, _what: &str, _steps: u64) {}
    fn advance(&self, _steps: u64) {}
}
