//! Fingerprints at all chunk sizes in one pass over the bytes.
//!
//! Chunk sizes double, and a group of the largest size is whole chunks of every size. Only the smallest chunks are
//! hashed; a larger chunk's fingerprint is the hash of those of its two halves. Zeros have no fingerprint.

use super::{CHUNK_BYTES, SIZES, Tails};
use xxhash_rust::xxh3::xxh3_128_with_seed;

/// Bytes of the largest chunk; pieces of a file that are read separately begin at multiples of it.
pub const GROUP_BYTES: u64 = CHUNK_BYTES[SIZES - 1];

const LEAF_BYTES: usize = CHUNK_BYTES[0] as usize;
const LEAVES: usize = (GROUP_BYTES / CHUNK_BYTES[0]) as usize;

/// Keyed fingerprints: with another key, other contents collide. They have 128 bits internally, so that joining halves
/// adds practically no collisions; 64 bits are emitted.
pub struct Hasher {
    seed: u64,
}

/// A chunk within a group; `None` if it is all zeros.
type Node = Option<u128>;

impl Hasher {
    /// A hasher with this key.
    pub fn new(seed: u64) -> Hasher {
        Hasher { seed }
    }

    /// Passes the chunks of a group to `emit`: the index of the chunk size, and the fingerprint (`None` for zeros).
    /// Only a group at the end of a file may be shorter than [`GROUP_BYTES`].
    pub fn group(&self, bytes: &[u8], tails: Tails, mut emit: impl FnMut(usize, Option<u64>)) {
        debug_assert!(bytes.len() as u64 <= GROUP_BYTES);
        let mut nodes = [None; LEAVES];
        for (node, leaf) in nodes.iter_mut().zip(bytes.chunks(LEAF_BYTES)) {
            *node = self.leaf(leaf);
        }
        for (size, chunk_bytes) in CHUNK_BYTES.into_iter().enumerate() {
            let chunks = tails.chunks(bytes.len() as u64, chunk_bytes) as usize;
            nodes[..chunks].iter().for_each(|node| emit(size, node.map(shortened)));
            for i in 0..LEAVES >> (size + 1) {
                nodes[i] = self.joined(nodes[2 * i], nodes[2 * i + 1]);
            }
        }
    }

    fn leaf(&self, bytes: &[u8]) -> Node {
        if is_zero(bytes) {
            return None;
        }
        if bytes.len() == LEAF_BYTES {
            return Some(xxh3_128_with_seed(bytes, self.seed));
        }
        let mut padded = [0; LEAF_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        Some(xxh3_128_with_seed(&padded, self.seed))
    }

    fn joined(&self, left: Node, right: Node) -> Node {
        if left.is_none() && right.is_none() {
            return None;
        }
        let mut both = [0; 32];
        both[..16].copy_from_slice(&left.unwrap_or(0).to_le_bytes());
        both[16..].copy_from_slice(&right.unwrap_or(0).to_le_bytes());
        Some(xxh3_128_with_seed(&both, self.seed))
    }
}

fn shortened(hash: u128) -> u64 {
    hash as u64
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(128).all(|line| line.iter().fold(0, |any, byte| any | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], tails: Tails) -> Vec<(usize, Option<u64>)> {
        let mut found = Vec::new();
        Hasher::new(1).group(bytes, tails, |size, fingerprint| found.push((size, fingerprint)));
        found
    }

    #[test]
    fn equal_chunks_have_equal_fingerprints_wherever_they_lie() {
        let mut bytes = vec![0; GROUP_BYTES as usize];
        bytes[..2048].fill(1);
        bytes[8192..8192 + 2048].fill(1);
        bytes[16384..16384 + 4096].fill(1);
        let found = all(&bytes, Tails::Padded);
        let of = |size| found.iter().filter(|f| f.0 == size).map(|f| f.1).collect::<Vec<_>>();
        assert_eq!([of(0).len(), of(1).len(), of(2).len(), of(3).len(), of(4).len()], [16, 8, 4, 2, 1]);
        assert_eq!(of(0).iter().flatten().count(), 4);
        assert!(of(0).iter().flatten().all(|f| *f == of(0)[0].unwrap()));
        assert_eq!(of(1)[0], of(1)[2], "the same, four times half a chunk further");
        assert_ne!(of(1)[0], of(1)[4], "one half against two");
        assert_eq!((of(2)[0], of(2)[3]), (of(2)[1], None));
    }

    #[test]
    fn a_tail_is_padded_with_zeros_or_left_out() {
        let mut whole = vec![7; 5000];
        let tail = all(&whole, Tails::Padded);
        assert_eq!(all(&whole, Tails::LeftOut).len(), 2 + 1);
        whole.resize(6144, 0);
        assert_eq!(all(&whole, Tails::Padded), tail);
        assert_eq!(tail.len(), 3 + 2 + 1 + 1 + 1);
    }
}
