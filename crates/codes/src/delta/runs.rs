//! The non-zero runs of the XOR of two versions of a page (docs/formats/array.md).
//!
//! Each pair is the number of zeros, the number of literals, and the literals. Numbers are little endian, 7 bits per
//! byte, with the top bit set on all bytes but the last. The number of literals is never 0.

use super::Malformed;

/// Fewest zeros between two changes that end a run of literals: to encode fewer would cost more than it saves.
const ZEROS_MIN: usize = 4;
const WORD: usize = 8;

/// Appends the pairs of two versions of equal length.
pub(super) fn encode(old: &[u8], new: &[u8], out: &mut Vec<u8>) {
    let mut end = 0;
    while let Some(first) = next_change(old, new, end) {
        let literals = first..end_of_changes(old, new, first);
        push_number(out, first - end);
        push_number(out, literals.len());
        out.extend(old[literals.clone()].iter().zip(&new[literals.clone()]).map(|(old, new)| old ^ new));
        end = literals.end;
    }
}

/// Calls `run` with the position and the bytes of each run of literals, for a page of `bytes` bytes.
pub(super) fn for_each(
    mut delta: &[u8],
    bytes: usize,
    mut run: impl FnMut(usize, &[u8]),
) -> Result<(), Malformed> {
    let mut at = 0usize;
    while !delta.is_empty() {
        let zeros = take_number(&mut delta)?;
        let count = take_number(&mut delta)?;
        at = at.checked_add(zeros).ok_or(Malformed)?;
        let end = at.checked_add(count).filter(|end| *end <= bytes).ok_or(Malformed)?;
        let (literals, rest) = delta.split_at_checked(count).ok_or(Malformed)?;
        if literals.is_empty() {
            return Err(Malformed);
        }
        run(at, literals);
        (at, delta) = (end, rest);
    }
    Ok(())
}

/// Position of the first byte from `at` on that differs.
#[inline]
fn next_change(old: &[u8], new: &[u8], at: usize) -> Option<usize> {
    let (old, new) = (&old[at..], &new[at..]);
    let (old_words, old_rest) = old.as_chunks::<WORD>();
    let (new_words, new_rest) = new.as_chunks::<WORD>();
    for (i, (old, new)) in old_words.iter().zip(new_words).enumerate() {
        let differs = u64::from_le_bytes(*old) ^ u64::from_le_bytes(*new);
        if differs != 0 {
            return Some(at + i * WORD + differs.trailing_zeros() as usize / 8);
        }
    }
    let before = old.len() - old_rest.len();
    old_rest.iter().zip(new_rest).position(|(old, new)| old != new).map(|i| at + before + i)
}

/// End of the literals that begin at `at`: at least [`ZEROS_MIN`] equal bytes follow, or only equal bytes up to the
/// end.
#[inline]
fn end_of_changes(old: &[u8], new: &[u8], at: usize) -> usize {
    let mut end = at + 1;
    let mut next = end;
    while next < old.len() && next - end < ZEROS_MIN {
        if next == end && whole_word_differs(old, new, next) {
            next += WORD;
            end = next;
        } else {
            next += 1;
            if old[next - 1] != new[next - 1] {
                end = next;
            }
        }
    }
    end
}

/// True if a whole word fits at `at` and all its bytes differ.
#[inline]
fn whole_word_differs(old: &[u8], new: &[u8], at: usize) -> bool {
    let word =
        |bytes: &[u8]| bytes.get(at..at + WORD).and_then(|b| b.try_into().ok()).map(u64::from_le_bytes);
    let (Some(old), Some(new)) = (word(old), word(new)) else { return false };
    let differs = old ^ new;
    const LOW: u64 = 0x0101_0101_0101_0101;
    differs.wrapping_sub(LOW) & !differs & (LOW << 7) == 0
}

fn push_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take_number(bytes: &mut &[u8]) -> Result<usize, Malformed> {
    let mut number = 0;
    for shift in (0..28).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(Malformed)?;
        *bytes = rest;
        number |= usize::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed)
}
