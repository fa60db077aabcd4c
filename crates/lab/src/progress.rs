//! How a long run tells how far it is.

/// Told how far a run is. `()` is told and says nothing.
pub trait Progress: Sync {
    /// A part of the run begins: what it is, and how many steps it will take (0 if that is not known).
    fn begin(&self, what: &str, steps: u64);
    /// So many more steps are done.
    fn advance(&self, steps: u64);
    /// There are so many more steps than [`Progress::begin`] said.
    fn expect_more(&self, _steps: u64) {}
}

impl Progress for () {
    fn begin(&self, _what: &str, _steps: u64) {}
    fn advance(&self, _steps: u64) {}
}
