//! Fault injection: a plan, derived from a seed, that a component asks at each operation whether to fail.
//!
//! Operations of each named stream ("nand.program") are counted from 0. The decisions of a plan depend only on its
//! seed, the stream and the operation's number, so streams do not affect each other.

use crate::log::finish;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use vellum_base::sync::Mutex;

/// Maximum number of fired faults that are kept for [`FaultPlan::replay_line`].
const FIRED_MAX: usize = 64;

/// A plan of faults. It is shared between the components that fail and the test that created it.
#[derive(Default)]
pub struct FaultPlan {
    seed: u64,
    rules: BTreeMap<String, Vec<Rule>>,
    progress: Mutex<Progress>,
}

enum Rule {
    At(u64),
    /// Fires if the operation's hash is below this.
    Chance(u64),
}

#[derive(Default)]
struct Progress {
    next: BTreeMap<String, u64>,
    fired: Vec<(String, u64)>,
    fired_count: u64,
}

impl FaultPlan {
    /// A plan without faults.
    pub fn new(seed: u64) -> FaultPlan {
        FaultPlan { seed, ..FaultPlan::default() }
    }

    /// Fires at operation `index` of `stream`.
    pub fn at(self, stream: &str, index: u64) -> FaultPlan {
        self.with(stream, Rule::At(index))
    }

    /// Fires once, at an operation of `stream` in `range` that the seed selects. Never fires if the range is empty.
    pub fn once_within(self, stream: &str, range: Range<u64>) -> FaultPlan {
        let choices = range.end.saturating_sub(range.start);
        if choices == 0 {
            return self;
        }
        let ordinal = self.rules.get(stream).map_or(0, Vec::len) as u64;
        let index = range.start + decide(!self.seed, stream, ordinal) % choices;
        self.at(stream, index)
    }

    /// Fires at each operation of `stream` with `probability` (0 to 1).
    pub fn chance(self, stream: &str, probability: f64) -> FaultPlan {
        assert!((0.0..=1.0).contains(&probability), "{probability} is no probability");
        self.with(stream, Rule::Chance((probability * u64::MAX as f64) as u64))
    }

    /// Counts an operation of `stream`, and returns whether it fails.
    pub fn fires(&self, stream: &str) -> bool {
        let mut progress = self.progress.lock();
        let index = match progress.next.get_mut(stream) {
            Some(next) => {
                *next += 1;
                *next - 1
            }
            None => {
                progress.next.insert(stream.to_string(), 1);
                0
            }
        };
        let fires = self.rules.get(stream).is_some_and(|rules| {
            rules.iter().any(|rule| match *rule {
                Rule::At(at) => at == index,
                Rule::Chance(below) => decide(self.seed, stream, index) < below,
            })
        });
        if fires {
            progress.fired_count += 1;
            if progress.fired.len() < FIRED_MAX {
                progress.fired.push((stream.to_string(), index));
            }
        }
        fires
    }

    /// Number of operations of `stream` so far.
    pub fn count(&self, stream: &str) -> u64 {
        self.progress.lock().next.get(stream).copied().unwrap_or(0)
    }

    /// Number of faults so far.
    pub fn fired_count(&self) -> u64 {
        self.progress.lock().fired_count
    }

    /// The faults so far, as code that creates a plan with exactly these, to paste into a test.
    pub fn replay_line(&self) -> String {
        self.to_string()
    }

    fn with(mut self, stream: &str, rule: Rule) -> FaultPlan {
        self.rules.entry(stream.to_string()).or_default().push(rule);
        self
    }
}

impl fmt::Display for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let progress = self.progress.lock();
        write!(f, "FaultPlan::new({})", self.seed)?;
        for (stream, index) in &progress.fired {
            write!(f, ".at({stream:?}, {index})")?;
        }
        match progress.fired_count - progress.fired.len() as u64 {
            0 => Ok(()),
            more => write!(f, " /* and {more} more */"),
        }
    }
}

/// A hash of the arguments.
fn decide(seed: u64, stream: &str, index: u64) -> u64 {
    let name = stream.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3)
    });
    finish(finish(finish(seed).wrapping_add(name)).wrapping_add(index))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firings(plan: &FaultPlan, stream: &str, operations: u64) -> Vec<u64> {
        (0..operations).filter(|_| plan.fires(stream)).collect()
    }

    #[test]
    fn named_operations_fire_and_others_do_not() {
        let plan = FaultPlan::new(1).at("nand.program", 3).at("nand.program", 5).at("nand.erase", 0);
        assert_eq!(firings(&plan, "nand.program", 10), [3, 5]);
        assert_eq!(firings(&plan, "nand.erase", 10), [0]);
        assert_eq!(firings(&plan, "nand.read", 10), []);
        assert_eq!((plan.count("nand.program"), plan.count("never"), plan.fired_count()), (10, 0, 3));
    }

    #[test]
    fn the_seed_picks_one_operation_in_the_range() {
        let picks: Vec<u64> = (0..200)
            .map(|seed| {
                let fired = firings(&FaultPlan::new(seed).once_within("s", 10..20), "s", 40);
                assert!(fired.len() == 1 && (10..20).contains(&fired[0]), "seed {seed}: {fired:?}");
                fired[0]
            })
            .collect();
        assert!((10..20).all(|index| picks.contains(&index)), "some operation is never picked");
        assert_eq!(firings(&FaultPlan::new(0).once_within("s", 5..5), "s", 40), []);
    }

    #[test]
    fn chance_keeps_its_probability_and_ignores_other_streams() {
        let alone = FaultPlan::new(9).chance("a", 0.01);
        let fired = firings(&alone, "a", 100_000);
        assert!((800..1200).contains(&fired.len()), "{} of 100000 at 1 %", fired.len());
        let mixed = FaultPlan::new(9).chance("a", 0.01).chance("b", 0.5);
        let among: Vec<u64> = (0..100_000)
            .filter(|_| {
                mixed.fires("b");
                mixed.fires("a")
            })
            .collect();
        assert_eq!(fired, among);
        assert_eq!(firings(&FaultPlan::new(9).chance("a", 1.0), "a", 100).len(), 100);
        assert_eq!(firings(&FaultPlan::new(9).chance("a", 0.0), "a", 100).len(), 0);
    }

    #[test]
    fn the_replay_line_names_what_fired() {
        let plan = FaultPlan::new(4).chance("x", 1.0).at("y", 1);
        let fired = [plan.fires("x"), plan.fires("y"), plan.fires("y")];
        assert_eq!(fired, [true, false, true]);
        assert_eq!(plan.replay_line(), r#"FaultPlan::new(4).at("x", 0).at("y", 1)"#);
        firings(&plan, "x", 100);
        assert!(plan.replay_line().ends_with("/* and 38 more */"), "{plan}");
    }
}
