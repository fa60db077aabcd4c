//! The field: bytes as polynomials over GF(2), modulo x^8 + x^4 + x^3 + x^2 + 1. The polynomial of the AES field, which
//! web copies of the paper print, would be wrong: 2 does not generate that field.

/// x^8 modulo the polynomial.
const REDUCED: u8 = 0x1d;
/// Number of non-zero elements, which are all powers of 2.
const ORDER: usize = 255;

/// `2^i` for `i < 255`, and the exponent of every element.
struct Tables {
    powers: [u8; ORDER],
    logs: [u8; 256],
}

static TABLES: Tables = tables();

const fn tables() -> Tables {
    let (mut powers, mut logs) = ([0; ORDER], [0; 256]);
    let (mut element, mut i) = (1u8, 0);
    while i < ORDER {
        powers[i] = element;
        logs[element as usize] = i as u8;
        element = double(element);
        i += 1;
    }
    Tables { powers, logs }
}

/// The element times 2.
pub(super) const fn double(element: u8) -> u8 {
    (element << 1) ^ (REDUCED & 0u8.wrapping_sub(element >> 7))
}

/// 2 to the power `exponent`.
pub(super) fn power(exponent: usize) -> u8 {
    TABLES.powers[exponent % ORDER]
}

/// 2 to the power -`exponent`.
pub(super) fn inverse_power(exponent: usize) -> u8 {
    power(ORDER - exponent % ORDER)
}

/// The product of two elements.
pub(super) fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    power(usize::from(TABLES.logs[usize::from(a)]) + usize::from(TABLES.logs[usize::from(b)]))
}

/// The inverse of a non-zero element.
pub(super) fn inverse(element: u8) -> u8 {
    debug_assert_ne!(element, 0, "zero has no inverse");
    inverse_power(usize::from(TABLES.logs[usize::from(element)]))
}

/// Logarithm of `a / b` to base 2; neither may be zero.
pub(super) fn quotient_log(a: u8, b: u8) -> usize {
    let [a, b] = [a, b].map(|element| usize::from(TABLES.logs[usize::from(element)]));
    (ORDER + a - b) % ORDER
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Schoolbook multiplication, bit by bit.
    fn slow(a: u8, b: u8) -> u8 {
        (0..8).rev().fold(0, |sum, bit| double(sum) ^ if b >> bit & 1 == 1 { a } else { 0 })
    }

    #[test]
    fn products_inverses_and_logarithms_agree_with_school_multiplication() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), slow(a, b), "{a} * {b}");
                if a != 0 && b != 0 {
                    assert_eq!(slow(power(quotient_log(a, b)), b), a, "{a} / {b}");
                }
            }
            if a != 0 {
                assert_eq!(slow(a, inverse(a)), 1);
            }
        }
    }

    #[test]
    fn two_generates_every_element_but_zero() {
        let mut seen = [false; 256];
        (0..ORDER).for_each(|i| seen[usize::from(power(i))] = true);
        assert_eq!(seen.iter().filter(|seen| **seen).count(), ORDER);
        assert!(!seen[0]);
        assert_eq!(multiply(power(7), inverse_power(7)), 1);
    }
}
