//! The definition of a code: the parity bits that each data bit enters.

use vellum_codes::ecc::Code;

/// SplitMix64: the tables were drawn with it, so it must not change with the version of a crate.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        bytes.chunks_mut(8).for_each(|c| c.copy_from_slice(&self.next().to_le_bytes()[..c.len()]));
    }

    /// `count` different numbers below `n`.
    pub fn distinct(&mut self, count: usize, n: usize) -> Vec<usize> {
        let mut all = Vec::new();
        while all.len() < count {
            let one = self.below(n);
            if !all.contains(&one) {
                all.push(one);
            }
        }
        all
    }
}

/// The parity bits that data bit `bit` enters.
pub fn column(code: &Code, bit: usize) -> Vec<usize> {
    let word_bits = 64 * code.lanes();
    let (word, lane, place) = (bit / word_bits, bit % word_bits / 64, bit % 64);
    let of = |shift: &u16| {
        let (moved, rotated) = (usize::from(*shift) / 64, usize::from(*shift) % 64);
        (lane + moved) % code.lanes() * 64 + (place + rotated) % 64
    };
    code.shifts()[word].iter().map(of).collect()
}

/// The parity of one codeword, bit by bit.
pub fn parity(code: &Code, data: &[u8]) -> Vec<u8> {
    let mut parity = vec![0; code.parity_bytes()];
    for bit in (0..8 * data.len()).filter(|bit| data[bit / 8] >> (bit % 8) & 1 == 1) {
        column(code, bit).into_iter().for_each(|row| flip(&mut parity, row));
    }
    parity
}

pub fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Flips a bit of the codeword, data bits first.
pub fn flip_in(data: &mut [u8], parity: &mut [u8], bit: usize) {
    match bit.checked_sub(8 * data.len()) {
        Some(row) => flip(parity, row),
        None => flip(data, bit),
    }
}

/// A codeword with random data.
pub fn random(code: &Code, random: &mut Random) -> (Vec<u8>, Vec<u8>) {
    let (mut data, mut parity) = (vec![0; code.data_bytes()], vec![0; code.parity_bytes()]);
    random.fill(&mut data);
    code.encode(&data, &mut parity);
    (data, parity)
}

/// Number of bits of a codeword.
pub fn bits(code: &Code) -> usize {
    8 * (code.data_bytes() + code.parity_bytes())
}
