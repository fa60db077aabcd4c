//! A checksum over a sequence of objects that begin with a checksum each. Single objects may be valid and yet belong to
//! another store or another time; that changes the sum.

/// Adds the next to the sum of those before it, of which the first is 0.
pub(crate) fn sum_with(sum: u32, next: &[u8]) -> u32 {
    let mut both = [0; 8];
    both[..4].copy_from_slice(&sum.to_le_bytes());
    both[4..].copy_from_slice(&next[..4]);
    vellum_codes::crc32c(&both)
}

#[cfg(test)]
mod tests {
    use super::sum_with;

    #[test]
    fn a_sum_is_of_all_in_their_order() {
        let sum = |all: &[[u8; 4]]| all.iter().fold(0, |sum, next| sum_with(sum, next));
        let [a, b, c] = [[1; 4], [2; 4], [3; 4]];
        let sums =
            [sum(&[]), sum(&[a]), sum(&[b]), sum(&[a, b]), sum(&[b, a]), sum(&[a, c]), sum(&[a, b, c])];
        let different: std::collections::BTreeSet<u32> = sums.into_iter().collect();
        assert_eq!(different.len(), sums.len());
    }
}
