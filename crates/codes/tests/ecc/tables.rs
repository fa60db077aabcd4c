//! The origin of the shifts: repeats the search that found them.

use super::oracle::Random;
use vellum_codes::ecc::{COLUMN_WEIGHT, Code};

const TRIES: usize = 2000;

/// The shifts of the first seed with which as few sectors filled with one byte as possible have the same parity.
///
/// If all words are equal, the parity is the sum of that word moved by all shifts. If all bytes are equal too, it is
/// that byte rotated by the rotations modulo 8: a product with a polynomial modulo `x⁸ + 1 = (x + 1)⁸`. The number of
/// rotations is even, so the polynomial has the factor `x + 1`: a byte and its complement have the same parity. It has
/// the factor only once if its derivative at 1, the number of odd rotations, is odd.
fn draw(lanes: usize, words: usize) -> Vec<[u16; COLUMN_WEIGHT]> {
    let odd = |shifts: &[[u16; COLUMN_WEIGHT]]| {
        shifts.as_flattened().iter().filter(|s| *s % 2 == 1).count() % 2 == 1
    };
    (1..).map(|seed| draw_from(seed, lanes, words)).find(|shifts| odd(shifts)).expect("every other one has")
}

/// Draws the words one after the other: of `TRIES` random sets of seven shifts, the one whose differences have been
/// used least so far. Two columns share a parity bit for each pair of shifts with the same difference, and shared bits
/// make errors look alike. Differences that are their own negatives are not used, because they count twice.
fn draw_from(seed: u64, lanes: usize, words: usize) -> Vec<[u16; COLUMN_WEIGHT]> {
    let mut random = Random(seed);
    let mut used = vec![0u64; 64 * lanes];
    let minus = |a: usize, b: usize| (a / 64 + lanes - b / 64) % lanes * 64 + (a + 64 - b % 64) % 64;
    let mut drawn = Vec::new();
    for _ in 0..words {
        let mut best: Option<(u64, Vec<usize>, Vec<usize>)> = None;
        for _ in 0..TRIES {
            let mut shifts = random.distinct(COLUMN_WEIGHT, 64 * lanes);
            shifts.sort_unstable();
            let pairs = shifts.iter().flat_map(|a| shifts.iter().map(move |b| (*a, *b)));
            let differences: Vec<usize> = pairs.filter(|(a, b)| a != b).map(|(a, b)| minus(a, b)).collect();
            let cost = take(&mut used, &differences);
            give_back(&mut used, &differences);
            let own_negative = differences.iter().any(|d| minus(0, *d) == *d);
            if !own_negative && best.as_ref().is_none_or(|(least, ..)| cost < *least) {
                best = Some((cost, shifts, differences));
            }
        }
        let (_, shifts, differences) = best.expect("not every set has a difference that is its own negative");
        take(&mut used, &differences);
        drawn.push(std::array::from_fn(|i| shifts[i] as u16));
    }
    drawn
}

/// Counts the differences as used. Returns the sum of `u² + u` over them, where `u` is how often each was used before.
fn take(used: &mut [u64], differences: &[usize]) -> u64 {
    let mut cost = 0;
    for difference in differences {
        cost += used[*difference] * (used[*difference] + 1);
        used[*difference] += 1;
    }
    cost
}

fn give_back(used: &mut [u64], differences: &[usize]) {
    differences.iter().for_each(|difference| used[*difference] -= 1);
}

#[test]
fn the_shifts_are_those_that_the_search_finds() {
    let drawn = |code: &Code| draw(code.lanes(), code.shifts().len());
    let wrong =
        Code::all().iter().map(|code| (code, drawn(code))).filter(|(code, drawn)| drawn != code.shifts());
    let right: String = wrong.map(|(code, drawn)| text(code, &drawn)).collect();
    assert!(right.is_empty(), "tables.rs differs from:\n{right}");
}

/// The text of the table in `tables.rs`.
fn text(code: &Code, shifts: &[[u16; COLUMN_WEIGHT]]) -> String {
    let (lanes, words) = (code.lanes(), code.shifts().len());
    let rows: String = shifts.iter().map(|row| format!("    {row:?},\n")).collect();
    format!("pub(super) static L{lanes}_W{words}: [Shifts; {words}] = [\n{rows}];\n")
}
