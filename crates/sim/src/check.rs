//! A test over many seeds, of which any one can be replayed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Name of the environment variable that makes [`check`] run one seed only.
pub const SEED_VARIABLE: &str = "VELLUM_SEED";

/// Name of the environment variable that says how many seeds [`check`] runs, instead of as many as the test says.
pub const SEEDS_VARIABLE: &str = "VELLUM_SEEDS";

/// Calls `run` for every seed, or for so many from the first on as `VELLUM_SEEDS` says, or only for the one in
/// `VELLUM_SEED` if that is set. When a seed panics, prints the command that replays it, and goes on panicking.
///
/// Panics if a variable holds no number (decimal, or hexadecimal after `0x`).
pub fn check(seeds: Range<u64>, run: impl Fn(u64)) {
    match seed_from_env() {
        Some(seed) => one(seed, &run),
        None => {
            let end = number_from_env(SEEDS_VARIABLE).map_or(seeds.end, |count| seeds.start + count);
            (seeds.start..end).for_each(|seed| one(seed, &run));
        }
    }
}

/// The seed that `VELLUM_SEED` asks for.
pub fn seed_from_env() -> Option<u64> {
    number_from_env(SEED_VARIABLE)
}

fn number_from_env(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    let number = parse(&text);
    Some(number.unwrap_or_else(|| panic!("{name} is not a number: {text:?}")))
}

fn one(seed: u64, run: &impl Fn(u64)) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(seed))) {
        eprintln!("seed {seed} failed; replay with\n  {}", replay_command(seed));
        resume_unwind(panic);
    }
}

/// Cargo tells a test its package, the test harness names the thread after the test.
fn replay_command(seed: u64) -> String {
    let package = std::env::var("CARGO_PKG_NAME").map_or(String::new(), |name| format!(" -p {name}"));
    let thread = std::thread::current();
    let test = thread.name().filter(|name| *name != "main").map_or(String::new(), |name| format!(" {name}"));
    format!("{SEED_VARIABLE}={seed} cargo test{package}{test}")
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(parse("123"), Some(123));
        assert_eq!(parse(" 0xff\n"), Some(255));
        assert_eq!(parse("seven"), None);
        assert_eq!(parse(""), None);
    }
}
