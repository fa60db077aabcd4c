//! Keys and values of records.

use super::choice::scatter;
use crate::generate::Seeded;
use vellum_base::{Error, Result};

/// Bytes that values are cut from.
const POOL_BYTES: usize = 1 << 20;
/// `db_bench` composes values of pieces of this length, each compressible by itself.
const PIECE_BYTES: usize = 100;

/// Mapping of numbers to keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// 16 bytes: the number, big endian, then `0`s. Keys are in the order of numbers.
    DbBench,
    /// `user` and a hash of the number in decimal digits, about 23 bytes. The order of keys is unrelated to that of
    /// numbers.
    Ycsb,
}

impl KeyForm {
    /// Sets `key` to the key of a record.
    pub fn key(self, record: u64, key: &mut Vec<u8>) {
        key.clear();
        match self {
            KeyForm::DbBench => {
                key.extend_from_slice(&record.to_be_bytes());
                key.extend_from_slice(&[b'0'; 8]);
            }
            KeyForm::Ycsb => {
                key.extend_from_slice(b"user");
                key.extend_from_slice(itoa::Buffer::new().format(scatter(record)).as_bytes());
            }
        }
    }
}

/// Values of a fixed length and compressibility, each of which includes its record's number.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    bytes: usize,
    at: usize,
}

impl Values {
    /// Values of `bytes` bytes that compress to about `share` of their size (above 0, at most 1), as in `db_bench`.
    pub fn new(bytes: usize, share: f64, seed: u64) -> Result<Values> {
        if bytes > POOL_BYTES / 2 || !(share > 0.0 && share <= 1.0) {
            return Err(Error::invalid(format!("no values of {bytes} bytes that compress to {share}")));
        }
        let mut rng = Seeded::new(seed);
        let noise = ((PIECE_BYTES as f64 * share) as usize).clamp(1, PIECE_BYTES);
        let mut pool = Vec::with_capacity(POOL_BYTES + PIECE_BYTES);
        while pool.len() < POOL_BYTES {
            let piece: Vec<u8> = (0..noise).map(|_| b' ' + rng.below(95) as u8).collect();
            pool.extend(piece.iter().cycle().take(PIECE_BYTES));
        }
        let at = rng.below(POOL_BYTES as u64 / 2) as usize;
        Ok(Values { pool, bytes, at })
    }

    /// Length of every value.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets `value` to a new value for a record.
    pub fn value(&mut self, record: u64, value: &mut Vec<u8>) {
        if self.at + self.bytes > self.pool.len() {
            self.at = 0;
        }
        value.clear();
        value.extend_from_slice(&self.pool[self.at..self.at + self.bytes]);
        self.at += self.bytes.max(1);
        let tag = self.bytes.min(8);
        value[..tag].copy_from_slice(&record.to_le_bytes()[..tag]);
    }

    /// True if `value` can be a value of that record.
    pub fn is_of(&self, record: u64, value: &[u8]) -> bool {
        let tag = self.bytes.min(8);
        value.len() == self.bytes && value[..tag] == record.to_le_bytes()[..tag]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_as_the_benches_make_them() {
        let key = |form: KeyForm, record| {
            let mut key = Vec::new();
            form.key(record, &mut key);
            key
        };
        assert_eq!(key(KeyForm::DbBench, 0x0102), b"\0\0\0\0\0\0\x01\x0200000000");
        // As YCSB's `-P workloads/workloada load basic` prints them first.
        assert_eq!(key(KeyForm::Ycsb, 0), b"user6284781860667377211");
        assert_eq!(key(KeyForm::Ycsb, 1), b"user8517097267634966620");
    }

    #[test]
    fn values_name_their_record_and_compress_as_told() {
        for (share, least, most) in [(0.5, 0.4, 0.6), (1.0, 0.8, 1.01), (0.1, 0.05, 0.2)] {
            let mut values = Values::new(1000, share, 3).unwrap();
            let (mut value, mut all) = (Vec::new(), Vec::new());
            for record in 0..500 {
                values.value(record, &mut value);
                assert!(values.is_of(record, &value) && !values.is_of(record + 1, &value));
                all.extend_from_slice(&value);
            }
            let packed = zstd::bulk::compress(&all[..20_000], 1).unwrap().len() as f64 / 20_000.0;
            assert!((least..most).contains(&packed), "{share}: {packed}");
        }
        let mut tiny = Values::new(3, 0.5, 3).unwrap();
        let mut value = Vec::new();
        tiny.value(7, &mut value);
        assert!(value.len() == 3 && tiny.is_of(7, &value) && !tiny.is_of(8, &value));
        assert!(Values::new(0, 0.5, 3).is_ok_and(|values| values.is_of(9, b"")));
        assert!(Values::new(1 << 20, 0.5, 3).is_err() && Values::new(10, 0.0, 3).is_err());
    }
}
