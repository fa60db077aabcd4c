//! From the address of a sector or page to the state that its keystream begins with: an affine function over GF(2).
//!
//! `state = base_state ⊕ Σ values` of the rows that add up to `address ⊕ base`. A map that was learned knows the addresses that its
//! samples span, and says so of others.

use std::fmt;

/// An affine map, known for some addresses or for all; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedMap {
    base: u64,
    base_state: u64,
    rows: Vec<Row>,
}

/// A difference of addresses, whose lowest bit no later row has, and the difference of states it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    address: u64,
    value: u64,
}

/// What a sample told a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// A difference of addresses that no sums of others had made.
    New,
    /// What the map had said itself.
    Known,
    /// Something else: the map is not affine.
    Contradiction,
}

impl SeedMap {
    /// The map that sends address 0 to `constant`, and flips `columns[i]` of the state for bit `i` of the address.
    pub fn new(constant: u64, columns: &[u64; 64]) -> SeedMap {
        let row = |(bit, value): (usize, &u64)| Row { address: 1 << bit, value: *value };
        SeedMap { base: 0, base_state: constant, rows: columns.iter().enumerate().map(row).collect() }
    }

    /// A map without visible structure, of the lowest `address_bits` bits of an address: 64 for LBAs; 6, 7 or 8 for a
    /// drive whose keystreams repeat every 64, 128 or 256 pages.
    pub fn mixed(seed: u64, address_bits: usize) -> SeedMap {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let z = (state ^ state >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^ z >> 31
        };
        let constant = next();
        SeedMap::new(constant, &std::array::from_fn(|bit| if bit < address_bits { next() } else { 0 }))
    }

    /// A map that knows one address.
    pub(super) fn of_one(base: u64, base_state: u64) -> SeedMap {
        SeedMap { base, base_state, rows: Vec::new() }
    }

    /// Takes in an address and its state.
    pub(super) fn tell(&mut self, address: u64, state: u64) -> Told {
        let (address, value) = self.reduced(address);
        let value = value ^ state;
        if address == 0 {
            return if value == 0 { Told::Known } else { Told::Contradiction };
        }
        let at = self.rows.partition_point(|row| row.address.trailing_zeros() < address.trailing_zeros());
        self.rows.insert(at, Row { address, value });
        Told::New
    }

    /// The state for an address.
    #[inline]
    pub fn state(&self, address: u64) -> Result<u64, UnknownAddress> {
        let (rest, state) = self.reduced(address);
        if rest == 0 { Ok(state) } else { Err(UnknownAddress { address }) }
    }

    /// After how many addresses states repeat, if they do within what is known: a power of two.
    pub fn period(&self) -> Option<u64> {
        let last = self.rows.iter().rposition(|row| row.value != 0);
        let has_more = last.map_or(0, |i| i + 1) < self.rows.len();
        let bits = last.map_or(0, |i| self.rows[i].address.trailing_zeros() + 1);
        has_more.then(|| 1 << bits)
    }

    /// The address less the rows it has, and the state that those make.
    fn reduced(&self, address: u64) -> (u64, u64) {
        let (mut rest, mut state) = (address ^ self.base, self.base_state);
        for row in &self.rows {
            if rest == 0 {
                break;
            }
            let lowest = row.address & row.address.wrapping_neg();
            let has = u64::from(rest & lowest != 0).wrapping_neg();
            rest ^= row.address & has;
            state ^= row.value & has;
        }
        (rest, state)
    }
}

/// The samples from which a map was learned do not determine its value for this address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownAddress {
    /// The address.
    pub address: u64,
}

impl fmt::Display for UnknownAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the seed of address {} does not follow from the addresses that were learned", self.address)
    }
}

impl std::error::Error for UnknownAddress {}
