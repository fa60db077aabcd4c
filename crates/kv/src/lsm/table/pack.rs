//! Compression of leaves. A leaf gets as many entries as compress into its nominal size, or into a small multiple of it
//! if that wastes less.
//!
//! A leaf of a single entry takes as many bytes as it needs.
//!
//! States: trying (entries are collected until they may fill the units), resting (entries did not compress, so the next
//! leaves are stored uncompressed).

use super::leaf_build::LeafBuilder;
use super::object::{Codec, OBJECT_HEAD_BYTES};
use crate::options::Compression;
use lz4_flex::block::CompressTable;
use std::cell::RefCell;
use vellum_base::{Error, Result};
use zstd::bulk::Decompressor;

/// Number of leaves that are stored uncompressed after one that did not compress.
const REST_LEAVES: usize = 7;
/// Most bytes of entries in a leaf, as a multiple of its size: a reader of one entry has to unpack all of them.
const PLAIN_MAX: usize = 4;
/// The limit that follows from both: a leaf of several entries unpacks to at most this multiple of its nominal size.
pub(super) const UNPACKED_TIMES_MAX: usize = PLAIN_MAX * WIDTHS_MAX;
/// Most bytes of a leaf of several entries, as a multiple of the nominal size.
const WIDTHS_MAX: usize = 4;

/// What to do with the entries collected so far.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Collect more.
    More,
    /// The first so many of them form a leaf, which [`Packer::packed`] returns.
    Leaf(usize),
    /// They do not compress: store them uncompressed.
    Plain,
}

/// See the module.
pub(crate) struct Packer {
    compressor: Compressor,
    /// Leaves still to be stored uncompressed.
    rest: usize,
    /// Nominal bytes of a leaf.
    leaf_bytes: usize,
    /// Allowed size of the current leaf, as a multiple of the nominal one.
    widths: usize,
    /// Bytes of entries at which to compress next.
    next_try: usize,
    payload: Vec<u8>,
    packed: Vec<u8>,
    restarts: u16,
}

enum Compressor {
    Lz4(CompressTable),
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Packer {
    /// For leaves of `leaf_bytes`; `None` if nothing is to be compressed.
    pub(crate) fn new(compression: Compression, leaf_bytes: usize) -> Option<Packer> {
        let compressor = match compression {
            Compression::None => return None,
            Compression::Lz4 => Compressor::Lz4(CompressTable::default()),
            // Fails only for lack of memory; tables are not compressed then.
            Compression::Zstd(level) => Compressor::Zstd(zstd::bulk::Compressor::new(level).ok()?),
        };
        let (payload, packed) = (Vec::new(), Vec::new());
        let (rest, widths, next_try) = (0, 1, leaf_bytes);
        Some(Packer { compressor, rest, leaf_bytes, widths, next_try, payload, packed, restarts: 0 })
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.rest > 0
    }
    /// To be called when a leaf was stored uncompressed.
    pub(crate) fn rested(&mut self) {
        self.rest = self.rest.saturating_sub(1);
    }
    /// The leaf of [`Step::Leaf`]: compressed bytes, restarts, uncompressed length, codec.
    pub(crate) fn packed(&self) -> (&[u8], u16, usize, Codec) {
        let codec = match self.compressor {
            Compressor::Lz4(_) => Codec::Lz4,
            Compressor::Zstd(_) => Codec::Zstd,
        };
        (&self.packed, self.restarts, self.payload.len(), codec)
    }

    /// Estimated compressed length of `plain` bytes, by the ratio of the previous payload.
    pub(crate) fn guess(&self, plain: usize) -> usize {
        match self.payload.len() {
            0 => plain,
            before => OBJECT_HEAD_BYTES + plain * self.packed.len() / before,
        }
    }

    /// Decides what to do; `last` if no entry follows.
    pub(crate) fn decide(&mut self, leaf: &LeafBuilder, last: bool) -> Step {
        if leaf.is_empty() || !last && leaf.bytes() < self.next_try {
            return Step::More;
        }
        let all = leaf.count();
        let fits = self.pack(leaf, all);
        let (plain, packed) = (self.payload.len(), self.packed.len().max(1));
        if packed * 8 > plain * 7 {
            self.rest = REST_LEAVES;
            self.begin_leaf(all);
            return Step::Plain;
        }
        if fits {
            let left = self.room() - packed;
            let full = left <= self.waste(packed / all) || plain + plain / all > self.plain_max();
            if last || full {
                return self.leaf(all);
            }
            let more = (left * plain / packed).max(1);
            self.next_try = (leaf.bytes() + more).min(self.plain_max());
            return Step::More;
        }
        match self.most_that_fits(leaf) {
            Some((count, left)) if left <= self.room() / 8 || self.widths >= WIDTHS_MAX => self.leaf(count),
            Some(_) => {
                self.widths += 1; // one would waste much
                self.decide(leaf, last)
            }
            None => {
                self.pack(leaf, 1);
                self.widths =
                    (self.packed.len() + OBJECT_HEAD_BYTES).div_ceil(self.leaf_bytes).max(self.widths + 1);
                self.decide(leaf, last)
            }
        }
    }

    fn leaf(&mut self, count: usize) -> Step {
        self.begin_leaf(count);
        Step::Leaf(count)
    }

    /// Prepares for the next leaf, after `count` entries were packed.
    fn begin_leaf(&mut self, count: usize) {
        let (plain, packed) = (self.payload.len(), self.packed.len().max(1));
        self.widths = 1;
        // Aim for as many entries as should just fit, so that the first try usually suffices.
        let fitting = (self.leaf_bytes - OBJECT_HEAD_BYTES) * plain / packed / 64 * 63;
        let most = self.plain_max();
        self.next_try = fitting.saturating_sub(plain / count.max(1)).clamp(self.leaf_bytes, most);
    }

    /// Bytes that may stay unused, given the compressed size of an entry. Another try costs as much as compressing the
    /// leaf did, so the fast codec does without it if another entry would hardly fit.
    fn waste(&self, entry: usize) -> usize {
        match self.compressor {
            Compressor::Lz4(_) => entry.clamp(self.room() / 16, self.room() / 8),
            Compressor::Zstd(_) => self.room() / 16,
        }
    }

    fn room(&self) -> usize {
        self.widths * self.leaf_bytes - OBJECT_HEAD_BYTES
    }

    /// Most uncompressed bytes in the current leaf.
    fn plain_max(&self) -> usize {
        self.widths * self.leaf_bytes * PLAIN_MAX
    }

    /// Finds how many entries fit, by the ratio seen so far, and leaves them packed. Returns their number, and the room
    /// left.
    fn most_that_fits(&mut self, leaf: &LeafBuilder) -> Option<(usize, usize)> {
        let (mut low, mut high) = (0, leaf.count());
        let mut held = high; // what is packed
        for _ in 0..4 {
            let (plain, packed) = (self.payload.len(), self.packed.len());
            let most = plain.min(self.plain_max()) * self.room() / packed.max(self.room()) / 64 * 63;
            let guess = (1..high).take_while(|count| leaf.bytes_of(*count) <= most).last().unwrap_or(1);
            let at = if guess > low { guess } else { (low + high) / 2 };
            if at == low || at >= high {
                break;
            }
            held = at;
            match self.pack(leaf, at) {
                true if self.room() - self.packed.len() <= self.room() / 16 => return self.left(at),
                true => low = at,
                false => high = at,
            }
        }
        if low == 0 {
            return None;
        }
        if held != low {
            self.pack(leaf, low);
        }
        self.left(low)
    }

    fn left(&self, count: usize) -> Option<(usize, usize)> {
        Some((count, self.room() - self.packed.len()))
    }

    /// Compresses the first `count` entries. True if they fit the units.
    fn pack(&mut self, leaf: &LeafBuilder, count: usize) -> bool {
        self.restarts = leaf.payload(count, &mut self.payload);
        let done = match &mut self.compressor {
            Compressor::Lz4(table) => {
                self.packed.resize(lz4_flex::block::get_maximum_output_size(self.payload.len()), 0);
                lz4_flex::block::compress_into_with_table(&self.payload, &mut self.packed, table).ok()
            }
            Compressor::Zstd(compressor) => {
                self.packed.resize(zstd::zstd_safe::compress_bound(self.payload.len()), 0);
                compressor.compress_to_buffer(&self.payload, &mut self.packed[..]).ok()
            }
        };
        // What cannot be compressed is as long as before.
        self.packed.resize(done.unwrap_or(self.payload.len().max(1)), 0);
        let plain_fits = count == 1 || self.payload.len() <= self.plain_max();
        done.is_some() && plain_fits && self.packed.len() <= self.room()
    }
}

fn unzstd(packed: &[u8], out: &mut [u8]) -> Option<usize> {
    thread_local! {
        // Making one takes longer than a leaf does.
        static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = RefCell::new(Decompressor::new().ok());
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.as_mut()?.decompress_to_buffer(packed, out).ok())
}

/// Decompresses a payload of as many bytes as `plain` has.
pub(crate) fn unpack(codec: Codec, packed: &[u8], plain: &mut [u8]) -> Result<()> {
    let done = match codec {
        Codec::None => return Err(Error::corrupt("leaf: not compressed")),
        Codec::Lz4 => lz4_flex::block::decompress_into(packed, plain).ok(),
        Codec::Zstd => unzstd(packed, plain),
    };
    match done == Some(plain.len()) {
        true => Ok(()),
        false => Err(Error::corrupt("leaf: does not decompress")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::build::TableBuilder;
    use super::super::grain::Grain;
    use super::super::leaf::{Leaf, LeafCursor};
    use super::super::object::{Head, ObjectKind};
    use super::*;
    use crate::key::{EntryKind, Stamp};
    use proptest::prelude::*;

    type Entries = Vec<(Vec<u8>, Vec<u8>)>;

    /// Values of which so many eighths are noise.
    fn entries(count: u32, bytes: usize, noise_eighths: usize) -> Entries {
        let mut state = 1u64;
        let mut noise = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let value = |noise: &mut dyn FnMut() -> u8| {
            (0..bytes).map(|i| if i < bytes * noise_eighths / 8 { noise() } else { b'.' }).collect()
        };
        (0..count).map(|i| ([&[0], &i.to_be_bytes()[..]].concat(), value(&mut noise))).collect()
    }

    const FINE: Grain = Grain::sharing(64);

    /// The bytes of a table.
    fn table(entries: &Entries, compression: Compression, grain: Grain) -> Vec<u8> {
        let mut builder = TableBuilder::new(1, 10, grain).packing(compression);
        for (key, value) in entries {
            let most = builder.bytes_with(key, value);
            builder.add(key, Stamp::new(7, EntryKind::Put), value);
            assert!(builder.bytes() <= most);
        }
        let finished = builder.finish();
        assert_eq!(finished.meta.entries, entries.len() as u64);
        assert_eq!(Some(&finished.meta.largest), entries.last().map(|(key, _)| key));
        finished.tail
    }

    /// What is read of a table from front to back; how many leaves are compressed, and how many not.
    fn read(table: &[u8], grain: Grain) -> (Entries, [usize; 2]) {
        let (mut at, mut found, mut leaves) = (0, Vec::new(), [0, 0]);
        while at < table.len() {
            let head = Head::parse(&table[at..]).unwrap();
            if head.kind == ObjectKind::Data {
                let (leaf, plain) = Leaf::open(&table[at..]).unwrap();
                let bytes = plain.as_deref().unwrap_or(&table[at..]);
                leaves[plain.is_some() as usize] += 1;
                let mut cursor = LeafCursor::default();
                cursor.first(&leaf, bytes).unwrap();
                while cursor.is_valid() {
                    found.push((cursor.key().to_vec(), cursor.value(bytes).to_vec()));
                    cursor.next(&leaf, bytes).unwrap();
                }
            }
            if head.kind == ObjectKind::Foot {
                break;
            }
            at += head.length.next_multiple_of(grain.unit_bytes);
        }
        (found, leaves)
    }

    #[test]
    fn compressed_leaves_fill_their_units() {
        for (bytes, noise, compression, most) in [
            (100, 4, Compression::Lz4, 0.75),
            (100, 4, Compression::Zstd(1), 0.65),
            (1000, 4, Compression::Lz4, 0.60),
            (1000, 4, Compression::Zstd(3), 0.58),
            (1000, 1, Compression::Lz4, 0.30),
            (3000, 4, Compression::Lz4, 0.62),
            (100_000, 4, Compression::Lz4, 0.56),
        ] {
            let all = entries((3_000_000 / bytes) as u32, bytes, noise);
            let grain = Grain::default();
            let (plain, packed) = (table(&all, Compression::None, grain), table(&all, compression, grain));
            let share = packed.len() as f64 / plain.len() as f64;
            let (found, leaves) = read(&packed, grain);
            assert!(found == all && leaves[0] <= 1, "{bytes} bytes, {compression:?}: {leaves:?}");
            assert!(share < most, "{bytes} bytes, {noise}/8 noise, {compression:?}: {share:.3} of the bytes");
        }
    }

    #[test]
    fn noise_is_stored_as_it_is() {
        for bytes in [50, 700, 5000] {
            let all = entries((1_000_000 / bytes) as u32, bytes, 8);
            let grain = Grain::default();
            let (plain, packed) =
                (table(&all, Compression::None, grain), table(&all, Compression::Lz4, grain));
            let (found, leaves) = read(&packed, grain);
            assert!(found == all && leaves[0] > 20 * leaves[1], "{bytes} bytes: {leaves:?}");
            assert!(packed.len() <= plain.len() + plain.len() / 50, "{} for {}", packed.len(), plain.len());
        }
    }

    proptest! {
        #[test]
        fn whatever_is_packed_is_read(
            pieces in prop::collection::vec((0usize..9000, 0usize..9, 1u32..40), 1..8),
            compression in prop::sample::select(vec![Compression::None, Compression::Lz4, Compression::Zstd(1)]),
            grain in prop::sample::select(vec![Grain::default(), FINE, Grain::of(16 << 10)]),
        ) {
            let mut all: Entries = Vec::new();
            for (bytes, noise, count) in pieces {
                for (_, value) in entries(count, bytes, noise) {
                    all.push(([&[0], &(all.len() as u32).to_be_bytes()[..]].concat(), value));
                }
            }
            prop_assert!(read(&table(&all, compression, grain), grain).0 == all);
        }

        #[test]
        fn hostile_packed_bytes_are_errors(packed in prop::collection::vec(any::<u8>(), 0..200), plain in 0usize..5000) {
            for codec in [Codec::Lz4, Codec::Zstd, Codec::None] {
                // Nothing of what was there before is part of the result.
                let [zeros, ones] = [0, 0xFF].map(|before| {
                    let mut out = vec![before; plain];
                    unpack(codec, &packed, &mut out).is_ok().then_some(out)
                });
                prop_assert_eq!(zeros, ones);
            }
        }
    }
}
