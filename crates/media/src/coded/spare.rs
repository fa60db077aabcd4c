//! The layout of the spare area of a coded page: `docs/formats/coded-page.md`.
//!
//! The *head* holds the user's out-of-band bytes and, for each slot, the seed and the checksum of its data. It is a
//! codeword of its own, padded with zeros that are not stored. Its parity follows, then the parity of the data.
//!
//! Invariants:
//! 1. The spare area of an erased page is all ones, that of a coded page never is.
//! 2. A corrected head is trusted only if its checksum agrees.

use super::Coding;
use vellum_base::{Geometry, SECTOR_BYTES};
use vellum_codes::crc32c;
use vellum_codes::ecc::Code;

pub(super) use vellum_base::PLAIN_SEED as PLAIN;
/// Bytes of the head for each slot: seed, then checksum.
const ENTRY_BYTES: usize = 12;
/// Marks a head, after the slots' entries.
const MAGIC: [u8; 4] = *b"VLMC";
/// The magic, and the checksum of everything before the checksum in the head.
const TAIL_BYTES: usize = MAGIC.len() + 4;
/// Data bytes of a head's codewords.
const HEAD_CODEWORD_BYTES: usize = 1024;

/// Positions in the spare area.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    code: &'static Code,
    head_code: &'static Code,
    oob_bytes: usize,
    slots: usize,
}

/// The head's entry of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The seed of its keystream, or [`PLAIN`].
    pub seed: u64,
    /// CRC-32C of its data before scrambling.
    pub crc: u32,
}

/// The state of a spare area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// Of a page that is not programmed.
    Erased,
    /// Of a coded page; `bits` of the head were wrong and have been corrected.
    Coded { bits: u32 },
    /// Neither, or with too many wrong bits.
    Lost,
}

impl Layout {
    /// The layout for pages of this geometry, with the out-of-band bytes available to the user.
    pub fn new(geometry: &Geometry, coding: &Coding) -> Layout {
        Layout {
            code: coding.code(),
            head_code: Code::new(HEAD_CODEWORD_BYTES, coding.rate).expect("there is one of every rate"),
            oob_bytes: geometry.oob_bytes as usize,
            slots: geometry.slots_per_page() as usize,
        }
    }

    /// Bytes of a spare area.
    pub fn bytes(&self) -> usize {
        self.parity_at() + self.slots * self.parity_bytes()
    }

    /// Parity bytes of a slot.
    pub fn parity_bytes(&self) -> usize {
        self.code.parity_bytes_of(SECTOR_BYTES)
    }

    /// The user's out-of-band bytes.
    pub fn oob<'a>(&self, spare: &'a [u8]) -> &'a [u8] {
        &spare[..self.oob_bytes]
    }

    /// The range of the parity of the data bytes `from` to `to` of the page, which are whole codewords.
    pub fn parity(&self, from: usize, to: usize) -> std::ops::Range<usize> {
        let at = |byte| self.parity_at() + self.code.parity_bytes_of(byte);
        at(from)..at(to)
    }

    /// Reads the head's entry of a slot.
    pub fn entry(&self, spare: &[u8], slot: usize) -> Entry {
        let bytes = &spare[self.oob_bytes + slot * ENTRY_BYTES..][..ENTRY_BYTES];
        let (seed, crc) = bytes.split_first_chunk().expect("an entry is longer than a seed");
        Entry {
            seed: u64::from_le_bytes(*seed),
            crc: u32::from_le_bytes(crc.try_into().expect("what is left of it are four bytes")),
        }
    }

    /// Writes the head's entry of a slot.
    pub fn set_entry(&self, spare: &mut [u8], slot: usize, entry: Entry) {
        let bytes = &mut spare[self.oob_bytes + slot * ENTRY_BYTES..][..ENTRY_BYTES];
        bytes[..8].copy_from_slice(&entry.seed.to_le_bytes());
        bytes[8..].copy_from_slice(&entry.crc.to_le_bytes());
    }

    /// Writes the user's out-of-band bytes, zero-filled, and completes the head.
    pub fn seal(&self, spare: &mut [u8], oob: &[u8]) {
        spare[..oob.len()].copy_from_slice(oob);
        spare[oob.len()..self.oob_bytes].fill(0);
        let (head, parity) = spare[..self.parity_at()].split_at_mut(self.head_bytes());
        let tail = head.len() - TAIL_BYTES;
        head[tail..tail + 4].copy_from_slice(&MAGIC);
        let crc = crc32c(&head[..tail + 4]);
        head[tail + 4..].copy_from_slice(&crc.to_le_bytes());
        self.with_codewords(head, |data| self.head_code.encode(data, parity));
    }

    /// Classifies a spare area, and corrects its head.
    pub fn open(&self, spare: &mut [u8]) -> Head {
        let (head, parity) = spare[..self.parity_at()].split_at_mut(self.head_bytes());
        let magic_at = head.len() - TAIL_BYTES;
        let is_codeword = self.with_codewords(head, |data| self.head_code.check(data, parity));
        if is_codeword && head[magic_at..].starts_with(&MAGIC) {
            return Head::Coded { bits: 0 };
        }
        if spare.iter().all(|byte| *byte == 0xFF) {
            return Head::Erased;
        }
        self.mend(spare).map_or(Head::Lost, |bits| Head::Coded { bits })
    }

    /// Corrects a head; returns the number of wrong bits, or `None` if it cannot be trusted.
    #[cold]
    fn mend(&self, spare: &mut [u8]) -> Option<u32> {
        let (head, parity) = spare[..self.parity_at()].split_at_mut(self.head_bytes());
        let mut data = head.to_vec();
        data.resize(self.head_codewords_bytes(), 0);
        let bits = self.head_code.correct(&mut data, parity).ok()?.bits;
        if data[head.len()..].iter().any(|byte| *byte != 0) {
            return None; // wrong bits in the padding, which is not stored
        }
        head.copy_from_slice(&data[..head.len()]);
        let (covered, crc) = head.split_at(head.len() - 4);
        (covered.ends_with(&MAGIC) && crc == crc32c(covered).to_le_bytes()).then_some(bits)
    }

    fn head_bytes(&self) -> usize {
        self.oob_bytes + self.slots * ENTRY_BYTES + TAIL_BYTES
    }

    fn head_codewords_bytes(&self) -> usize {
        self.head_bytes().next_multiple_of(HEAD_CODEWORD_BYTES)
    }

    /// Where the parity of the data begins.
    fn parity_at(&self) -> usize {
        self.head_bytes() + self.head_code.parity_bytes_of(self.head_codewords_bytes())
    }

    /// Calls `with` with a head padded to whole codewords.
    fn with_codewords<T>(&self, head: &[u8], with: impl FnOnce(&[u8]) -> T) -> T {
        if head.len() <= HEAD_CODEWORD_BYTES {
            let mut one = [0; HEAD_CODEWORD_BYTES];
            one[..head.len()].copy_from_slice(head);
            return with(&one);
        }
        let mut many = head.to_vec();
        many.resize(self.head_codewords_bytes(), 0);
        with(&many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vellum_base::Scrambling;
    use vellum_codes::ecc::Rate;

    const DOCUMENT: &str = include_str!("../../../../docs/formats/coded-page.md");

    fn layout(page_bytes: u32, oob_bytes: u32, coding: &Coding) -> Layout {
        let geometry = Geometry {
            channels: 1,
            dies_per_channel: 1,
            blocks_per_die: 1,
            pages_per_block: 1,
            page_bytes,
            oob_bytes,
        };
        Layout::new(&geometry, coding)
    }

    /// A head with all fields in use.
    fn sample(layout: &Layout) -> Vec<u8> {
        let mut spare = vec![0xA5; layout.bytes()];
        for slot in 0..layout.slots {
            layout.set_entry(&mut spare, slot, Entry { seed: slot as u64 * 77, crc: slot as u32 + 5 });
        }
        layout.seal(&mut spare, &vec![0x3C; layout.oob_bytes / 2]);
        spare
    }

    #[test]
    fn the_documents_example_is_right() {
        let layout = layout(16384, 128, &Coding::PAPER);
        let parity = layout.parity(0, 16384);
        let text = DOCUMENT.replace('\n', " ");
        for words in [
            format!("heads of {} bytes", layout.head_bytes()),
            format!("{} bytes of parity for them", layout.parity_at() - layout.head_bytes()),
            format!("{} for the data", parity.len()),
            format!("spare areas of {} bytes", layout.bytes()),
            format!("mixed({:#X}, 64)", super::super::scramble::MAP_SEED),
        ] {
            assert!(text.contains(&words), "{words}");
        }
        assert_eq!(parity.end, layout.bytes());
    }

    #[test]
    fn up_to_three_wrong_bits_of_a_head_are_put_right_wherever_they_are() {
        for (page_bytes, oob_bytes) in [(4096, 32), (16384, 1200)] {
            let layout = layout(page_bytes, oob_bytes, &Coding::PAPER);
            let good = sample(&layout);
            let bits = layout.parity_at() * 8;
            let flip = |bits: &[usize]| {
                let mut spare = good.clone();
                bits.iter().for_each(|bit| spare[bit / 8] ^= 1 << (bit % 8));
                spare
            };
            for bit in 0..bits {
                let wrong = [bit, (bit * 7 + 11) % bits, (bit * 31 + 401) % bits];
                for wrong in [&wrong[..1], &wrong[..2], &wrong] {
                    let mut spare = flip(wrong);
                    if spare == good {
                        continue; // the same bit twice
                    }
                    assert!(matches!(layout.open(&mut spare), Head::Coded { bits: 1.. }), "{wrong:?}");
                    assert!(spare == good, "{wrong:?}");
                }
            }
        }
    }

    #[test]
    fn nothing_else_passes_for_a_head() {
        let coding = Coding { rate: Rate::R8_9, scrambling: Scrambling::BySector, ..Coding::PAPER };
        for coding in [Coding::PAPER, coding] {
            let layout = layout(8192, 64, &coding);
            let good = sample(&layout);
            assert_eq!(layout.open(&mut good.clone()), Head::Coded { bits: 0 });
            assert_eq!(layout.open(&mut vec![0xFF; layout.bytes()]), Head::Erased);
            assert_eq!(layout.open(&mut vec![0; layout.bytes()]), Head::Lost);
            for seed in 0..2000u64 {
                // Noise from some offset on, or many wrong bits.
                let mut spare = good.clone();
                let noise =
                    |i: usize| (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(i as u32 * 7);
                let from = seed as usize * 13 % layout.parity_at();
                match seed % 2 {
                    0 => spare.iter_mut().enumerate().skip(from).for_each(|(i, b)| *b = noise(i) as u8),
                    _ => (0..4 + seed as usize % 40).for_each(|i| {
                        let bit = noise(i) as usize % (8 * layout.parity_at());
                        spare[bit / 8] ^= 1 << (bit % 8);
                    }),
                }
                let what = layout.open(&mut spare);
                let head = ..layout.parity_at();
                assert!(what == Head::Lost || spare[head] == good[head], "seed {seed}: {what:?}");
            }
        }
    }
}
