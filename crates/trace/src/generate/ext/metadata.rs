//! Contents of the model's metadata blocks.
//!
//! A metadata block changes a little at a time, and rarely at its start: the first 64 bytes of bitmaps, inode tables
//! and directories are often the same in successive versions, and the same (zeros, ones) in different blocks. That is
//! why WOJ's 64-byte fingerprint collides on real file systems.

use crate::content::Content;
use crate::generate::ext::layout::Layout;
use vellum_base::hash::FixedMap;
use vellum_codes::pattern::Pattern;

/// The current state of every metadata block touched so far.
#[derive(Default)]
pub struct Metadata {
    blocks: FixedMap<u64, State>,
    seed: u64,
}

#[derive(Clone, Copy, Default)]
struct State {
    head: u64,
    lines: u64,
    version: u64,
}

impl Metadata {
    /// Metadata of a file system without any writes.
    pub fn new(seed: u64) -> Metadata {
        Metadata { blocks: FixedMap::default(), seed }
    }

    /// Changes inode `place` of 16 in the block: four lines, of which the last is empty.
    pub fn inode(&mut self, block: u64, place: u64) -> Content {
        self.change(block, 0b0111 << (4 * place))
    }

    /// Changes descriptor `place` of 64 in the block: one line.
    pub fn descriptor(&mut self, block: u64, place: u64) -> Content {
        self.change(block, 1 << place)
    }

    /// Adds or removes entry number `entry` of a directory block: 40 bytes.
    pub fn directory(&mut self, block: u64, entry: u64) -> Content {
        let line = (24 + entry * 40) / 64 % 64;
        // `.` and `..` fill the head when the block is created; the checksum in the tail always changes.
        let head = if self.blocks.contains_key(&block) { 0 } else { 1 };
        self.change(block, 1 << line & !1 | head | 1 << 63)
    }

    /// Changes pointer `place` of 1024 in an indirect block: 16 per line.
    pub fn map(&mut self, block: u64, place: u64) -> Content {
        self.change(block, 1 << (place / 16 % 64))
    }

    /// A block bitmap, made from the actual bits.
    pub fn block_bitmap(&mut self, layout: &Layout, group: u64) -> Content {
        self.bitmap(layout.block_bitmap(group), layout.block_bitmap_words(group), false)
    }

    /// An inode bitmap; its unused rest is ones.
    pub fn inode_bitmap(&mut self, layout: &Layout, group: u64) -> Content {
        self.bitmap(layout.inode_bitmap(group), layout.inode_bitmap_words(group), true)
    }

    /// Forgets a block that is no longer metadata.
    pub fn forget(&mut self, block: u64) {
        self.blocks.remove(&block);
    }

    /// Changes the lines in `mask`.
    fn change(&mut self, block: u64, mask: u64) -> Content {
        let seed = self.seed;
        let state = self.blocks.entry(block).or_default();
        state.version += 1;
        state.lines |= mask;
        if mask & 1 == 1 {
            state.head = hash([seed, block, state.version, 1]);
        }
        Content::Pattern(Pattern::new(hash([seed, block, state.version, 0]), state.head, state.lines))
    }

    fn bitmap(&mut self, block: u64, words: &[u64], ones_behind: bool) -> Content {
        let mut lines = 0;
        for (i, line) in words.chunks(8).enumerate() {
            lines |= u64::from(line.iter().any(|w| *w != 0)) << i;
        }
        if ones_behind {
            lines |= u64::MAX.checked_shl(words.len() as u32 / 8).unwrap_or(0);
        }
        let head = if lines & 1 == 1 { hash(words[..8].iter().copied()) } else { 0 };
        let state = self.blocks.entry(block).or_default();
        state.version += 1;
        Content::Pattern(Pattern::new(hash([self.seed, block, state.version, 0]), head, lines))
    }
}

/// A non-zero hash of these numbers.
fn hash(parts: impl IntoIterator<Item = u64>) -> u64 {
    let mut hasher = xxhash_rust::xxh3::Xxh3::new();
    for part in parts {
        hasher.update(&part.to_le_bytes());
    }
    hasher.digest().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(content: Content) -> Pattern {
        match content {
            Content::Pattern(pattern) => pattern,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn heads_are_stable_and_shared_while_contents_differ() {
        let mut metadata = Metadata::new(1);
        let a = pattern(metadata.inode(100, 3));
        let b = pattern(metadata.inode(101, 3));
        assert_eq!((a.head, b.head), (0, 0), "a table whose first inode is not in use begins with zeros");
        assert_ne!(a.full, b.full);
        let first = pattern(metadata.directory(7, 0));
        let second = pattern(metadata.directory(7, 5));
        assert!(first.head == second.head && first.head != 0 && first.full != second.full);
        let changed = pattern(metadata.inode(100, 0));
        assert!(changed.head != 0 && changed.lines == 0b0111_0000_0000_0111);
    }

    #[test]
    fn full_bitmaps_of_different_groups_have_the_same_head() {
        let mut layout = Layout::new(4 * 32768, 256, 1).unwrap();
        let mut metadata = Metadata::new(1);
        assert_eq!(pattern(metadata.block_bitmap(&layout, 3)).lines, 0);
        for group in [2, 3] {
            (0..600).for_each(|_| assert!(layout.take_block(group * 32768).is_ok()));
        }
        let (a, b) = (pattern(metadata.block_bitmap(&layout, 2)), pattern(metadata.block_bitmap(&layout, 3)));
        assert!(a.head == b.head && a.full != b.full && a.lines == 0b11);
        assert_eq!(pattern(metadata.inode_bitmap(&layout, 1)).lines, !0 << 16);
    }
}
