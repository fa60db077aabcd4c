//! Little-endian fields and varints, read without trust: what does not fit is `None`.

/// Appends `value` as LEB128.
#[inline]
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the length of `bytes`, then `bytes`.
pub(crate) fn put_slice(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// How many bytes `value` takes as LEB128.
pub(crate) fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// A u32 at `offset`, which must lie within `bytes`.
#[inline]
pub(crate) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

/// A u64 at `offset`, which must lie within `bytes`.
#[inline]
pub(crate) fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes[offset..offset + 8].try_into().expect("eight bytes"))
}

/// Reads fields one after another.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    bytes: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Fields<'a> {
        Fields { bytes }
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
    /// Bytes not yet read.
    #[inline]
    pub(crate) fn left(&self) -> usize {
        self.bytes.len()
    }
    #[inline]
    pub(crate) fn u8(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }
    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    #[inline]
    pub(crate) fn varint(&mut self) -> Option<u64> {
        match self.bytes.split_first() {
            Some((first, rest)) if *first < 0x80 => {
                self.bytes = rest;
                Some(*first as u64)
            }
            _ => self.long_varint(),
        }
    }
    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(head)
    }
    /// A length, and so many bytes.
    pub(crate) fn slice(&mut self) -> Option<&'a [u8]> {
        let len = self.varint()?;
        self.take(usize::try_from(len).ok()?)
    }

    #[inline]
    fn long_varint(&mut self) -> Option<u64> {
        if let Some(eight) = self.bytes.first_chunk() {
            let word = u64::from_le_bytes(*eight);
            let ends = !word & 0x8080_8080_8080_8080;
            if ends != 0 {
                let bits = ends.trailing_zeros() + 1;
                self.bytes = &self.bytes[(bits / 8) as usize..];
                return Some(sevens(word & (u64::MAX >> (64 - bits))));
            }
        }
        self.longest_varint()
    }

    /// One of more than eight bytes, or at the end of what there is.
    #[cold]
    fn longest_varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for (index, byte) in self.bytes.iter().take(10).enumerate() {
            if index == 9 && *byte > 1 {
                return None;
            }
            value |= ((byte & 0x7F) as u64) << (7 * index);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[index + 1..];
                return Some(value);
            }
        }
        None
    }
}

/// The low seven bits of each byte, put together.
#[inline]
fn sevens(word: u64) -> u64 {
    let word = word & 0x7F7F_7F7F_7F7F_7F7F;
    let word = word & 0x007F_007F_007F_007F | (word & 0x7F00_7F00_7F00_7F00) >> 1;
    let word = word & 0x0000_3FFF_0000_3FFF | (word & 0x3FFF_0000_3FFF_0000) >> 2;
    word & 0x0FFF_FFFF | (word & 0x0FFF_FFFF_0000_0000) >> 4
}

/// How many bytes two keys have in common at their start.
#[inline]
pub(crate) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let words = a.chunks_exact(8).zip(b.chunks_exact(8));
    let mut same = 0;
    for (x, y) in words {
        let x = u64::from_le_bytes(x.try_into().expect("eight bytes"));
        let y = u64::from_le_bytes(y.try_into().expect("eight bytes"));
        if x != y {
            return same + ((x ^ y).trailing_zeros() / 8) as usize;
        }
        same += 8;
    }
    same + a[same..].iter().zip(&b[same..]).take_while(|(x, y)| x == y).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_round_trip(value in any::<u64>(), shift in 0u32..64) {
            let value = value >> shift;
            let mut out = Vec::new();
            put_varint(&mut out, value);
            prop_assert_eq!(out.len(), varint_len(value));
            let mut fields = Fields::new(&out);
            prop_assert_eq!(fields.varint(), Some(value));
            prop_assert!(fields.is_empty());
            prop_assert_eq!(Fields::new(&out[..out.len() - 1]).varint(), None);
            let length = out.len();
            out.extend([0xFF; 9]);
            let mut fields = Fields::new(&out);
            prop_assert_eq!(fields.varint(), Some(value), "with more behind it");
            prop_assert_eq!(fields.left(), out.len() - length);
        }

        #[test]
        fn shared_len_is_the_obvious_count(a in "[ab]{0,40}", b in "[ab]{0,40}") {
            let slow = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
            prop_assert_eq!(shared_len(a.as_bytes(), b.as_bytes()), slow);
            prop_assert_eq!(shared_len(a.as_bytes(), a.as_bytes()), a.len());
        }
    }

    #[test]
    fn a_varint_that_is_too_long_is_refused() {
        assert_eq!(Fields::new(&[0xFF; 12]).varint(), None);
        assert_eq!(Fields::new(&[0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]).varint(), None);
    }
}
