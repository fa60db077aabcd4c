//! Fingerprints of sectors. Except in paper mode, a match is only a hint until the bytes have been compared.

use md5::Digest as _;

/// A fingerprint of up to 128 bits: shorter hashes fill the low bits, longer ones are truncated.
///
/// 128 bits of SHA-1 or SHA-256 keep the probability of an accidental collision among 2^40 sectors below 2^-49. A
/// deliberate collision does no harm, because the bytes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

/// Hash function of a [`Digest`], and the part of the sector that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HashKind {
    /// xxh64 of the first 64 bytes: the paper's WOJ_xxh64 (woj.txt, section 3.1). Forgeable, collides often.
    Head64,
    /// MD5 of the whole sector (WOJ_md5).
    Md5,
    /// SHA-1 of the whole sector (WOJ_sha1 and Dmdedup_sha1).
    Sha1,
    /// SHA-256 of the whole sector.
    Sha256,
    /// BLAKE3 of the whole sector.
    Blake3,
}

impl HashKind {
    /// Every kind.
    pub const ALL: [HashKind; 5] =
        [HashKind::Head64, HashKind::Md5, HashKind::Sha1, HashKind::Sha256, HashKind::Blake3];

    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            HashKind::Head64 => "xxh64-head",
            HashKind::Md5 => "md5",
            HashKind::Sha1 => "sha1",
            HashKind::Sha256 => "sha256",
            HashKind::Blake3 => "blake3",
        }
    }

    /// The kind with this name.
    pub fn by_name(name: &str) -> Option<HashKind> {
        HashKind::ALL.into_iter().find(|k| k.name() == name)
    }

    /// Fingerprints a sector.
    pub fn digest(self, sector: &[u8]) -> Digest {
        Digest(match self {
            HashKind::Head64 => xxhash_rust::xxh64::xxh64(&sector[..sector.len().min(64)], 0) as u128,
            HashKind::Md5 => low128(&md5::Md5::digest(sector)),
            HashKind::Sha1 => low128(&sha1::Sha1::digest(sector)),
            HashKind::Sha256 => low128(&sha2::Sha256::digest(sector)),
            HashKind::Blake3 => low128(blake3::hash(sector).as_bytes()),
        })
    }
}

fn low128(bytes: &[u8]) -> u128 {
    let mut out = [0; 16];
    out.copy_from_slice(&bytes[..16]);
    u128::from_le_bytes(out)
}

/// Seeded 64-bit hash of a whole sector (xxh3, about 50 GB/s from cache). Without knowledge of the seed nobody can
/// prepare two contents that collide; matches are compared byte by byte nevertheless.
#[inline]
pub fn seeded64(seed: u64, sector: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64_with_seed(sector, seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        let hex = |kind: HashKind, data: &[u8]| {
            kind.digest(data).0.to_le_bytes().map(|b| format!("{b:02x}")).concat()
        };
        assert_eq!(hex(HashKind::Md5, b"abc"), "900150983cd24fb0d6963f7d28e17f72");
        assert_eq!(hex(HashKind::Sha1, b"abc"), "a9993e364706816aba3e25717850c26c");
        assert_eq!(hex(HashKind::Sha256, b"abc"), "ba7816bf8f01cfea414140de5dae2223");
        assert_eq!(hex(HashKind::Blake3, b"abc"), "6437b3ac38465133ffb63b75273a8db5");
        assert_eq!(HashKind::Head64.digest(b"").0, 0xef46_db37_51d8_e999);
    }

    #[test]
    fn the_papers_fingerprint_is_blind_behind_64_bytes() {
        let (a, mut b) = ([7u8; 4096], [7u8; 4096]);
        b[64] = 8;
        assert_eq!(HashKind::Head64.digest(&a), HashKind::Head64.digest(&b));
        for kind in [HashKind::Md5, HashKind::Sha1, HashKind::Sha256, HashKind::Blake3] {
            assert_ne!(kind.digest(&a), kind.digest(&b), "{}", kind.name());
        }
        assert_ne!(seeded64(1, &a), seeded64(1, &b));
        assert_ne!(seeded64(1, &a), seeded64(2, &a));
        assert!(HashKind::ALL.into_iter().all(|k| HashKind::by_name(k.name()) == Some(k)));
    }
}
