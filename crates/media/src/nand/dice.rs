//! Randomness without a stream: every draw is a hash of the seed and of its subject, so it does not depend on the order
//! of threads or operations.

/// A number that depends on `seed` and on all of `about`.
#[inline]
pub(crate) fn roll(seed: u64, about: [u64; 4]) -> u64 {
    about.into_iter().fold(mix(seed), |state, x| mix(state ^ x))
}

/// The value below which a [`roll`] falls with probability `share`.
pub(crate) fn threshold(share: f64) -> u64 {
    (share.clamp(0.0, 1.0) * u64::MAX as f64) as u64
}

/// A roll as a number from 0 (included) to 1 (excluded).
pub(crate) fn fraction(roll: u64) -> f64 {
    (roll >> 11) as f64 / (1u64 << 53) as f64
}

/// Fills `out` with noise.
pub(crate) fn noise(seed: u64, out: &mut [u8]) {
    let mut state = seed;
    for chunk in out.chunks_mut(8) {
        state = mix(state);
        chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
    }
}

/// One step of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
#[inline]
fn mix(state: u64) -> u64 {
    let z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_rolls_falls_below_its_threshold() {
        let limit = threshold(0.1);
        let hits = (0..100_000).filter(|i| roll(7, [1, 2, 3, *i]) < limit).count();
        assert!((9_500..10_500).contains(&hits), "{hits}");
        assert_eq!(threshold(0.0), 0);
    }
}
