//! Runs a test for many seeds, each of which can be replayed.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Environment variable that makes [`check`] run only one seed.
pub const SEED_VARIABLE: &str = "VELLUM_SEED";

/// Environment variable for the number of seeds that [`check`] runs, instead of the number that the test requests.
pub const SEEDS_VARIABLE: &str = "VELLUM_SEEDS";

/// Calls `run` for each seed, or for the number of seeds in `VELLUM_SEEDS` from the first on, or only for the seed in
/// `VELLUM_SEED` if that is set. If a seed panics, prints the command that replays it, and continues the panic.
///
/// Panics if the value of a variable is not a number (decimal, or hexadecimal after `0x`).
pub fn check(seeds: Range<u64>, run: impl Fn(u64)) {
    match seed_from_env() {
        Some(seed) => one(seed, &run),
        None => asked(seeds).for_each(|seed| one(seed, &run)),
    }
}

/// As [`check`], on all cores: for a test that takes longer than all others of its binary together.
pub fn check_on_all_cores(seeds: Range<u64>, run: impl Fn(u64) + Sync) {
    if let Some(seed) = seed_from_env() {
        return one(seed, &run);
    }
    let seeds = asked(seeds);
    let next = AtomicU64::new(seeds.start);
    let work = || {
        while let Some(seed) = Some(next.fetch_add(1, Relaxed)).filter(|seed| seeds.contains(seed)) {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| one(seed, &run))) {
                next.store(seeds.end, Relaxed); // the other seeds need not run
                resume_unwind(panic);
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let name = std::thread::current().name().unwrap_or("main").to_string();
    std::thread::scope(|scope| {
        let spawn = |_| std::thread::Builder::new().name(name.clone()).spawn_scoped(scope, work);
        let tasks: Vec<_> = (1..cores).map(spawn).collect();
        work();
        for task in tasks {
            task.expect("a thread").join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
}

/// The given seeds, or the number of seeds in `VELLUM_SEEDS`.
fn asked(seeds: Range<u64>) -> Range<u64> {
    let count = number_from_env(SEEDS_VARIABLE);
    seeds.start..count.map_or(seeds.end, |count| seeds.start + count)
}

/// The seed in `VELLUM_SEED`, if that is set.
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

/// Cargo passes the package to a test, and the test harness names the thread after the test.
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
    fn all_cores_run_each_seed_once_and_a_panic_reaches_the_caller() {
        if std::env::var_os(SEED_VARIABLE).or(std::env::var_os(SEEDS_VARIABLE)).is_some() {
            return; // other seeds were requested
        }
        let sum = AtomicU64::new(0);
        check_on_all_cores(1..101, |seed| {
            sum.fetch_add(1 << 32 | seed, Relaxed);
        });
        assert_eq!(sum.into_inner(), 100 << 32 | 5050);
        let failing = || check_on_all_cores(0..100, |seed| assert!(seed != 7));
        assert!(catch_unwind(failing).is_err());
    }

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(parse("123"), Some(123));
        assert_eq!(parse(" 0xff\n"), Some(255));
        assert_eq!(parse("seven"), None);
        assert_eq!(parse(""), None);
    }
}
