//! LEB128 numbers, and a cursor over untrusted bytes.

/// Appends `value`, seven bits per byte, least significant first.
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends `to - from` (wrapping) in a form in which small differences of either sign are short.
pub fn put_step(out: &mut Vec<u8>, from: u64, to: u64) {
    let step = to.wrapping_sub(from) as i64;
    put(out, ((step << 1) ^ (step >> 63)) as u64);
}

/// Reads the output of the functions above. Every method returns `None` at the end of the bytes.
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// One byte.
    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next `count` bytes.
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    /// A fixed little-endian u64.
    pub fn u64(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk::<8>()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*first))
    }

    /// A number written by [`put`]; `None` if it has more than 64 bits.
    pub fn number(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                return None;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A number written by [`put_step`].
    pub fn step(&mut self, from: u64) -> Option<u64> {
        let coded = self.number()?;
        let step = (coded >> 1) as i64 ^ -((coded & 1) as i64);
        Some(from.wrapping_add(step as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_and_steps_round_trip(a: u64, b: u64, small in 0u64..300) {
            let mut bytes = Vec::new();
            put(&mut bytes, a);
            put_step(&mut bytes, a, b);
            put_step(&mut bytes, b, b.wrapping_sub(small));
            let mut cursor = Cursor(&bytes);
            prop_assert_eq!(cursor.number(), Some(a));
            prop_assert_eq!(cursor.step(a), Some(b));
            prop_assert_eq!(cursor.step(b), Some(b.wrapping_sub(small)));
            prop_assert_eq!(cursor.byte(), None);
        }
    }

    #[test]
    fn too_many_bits_are_refused() {
        assert_eq!(Cursor(&[0xFF; 10]).number(), None);
        assert_eq!(Cursor(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2]).number(), None);
        assert_eq!(Cursor(&[0x80]).number(), None);
    }
}
