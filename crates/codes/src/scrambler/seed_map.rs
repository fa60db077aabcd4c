//! Maps the address of a sector or page to the state that its keystream begins with: an affine function over GF(2).
//!
//! `state = base_state ⊕ Σ values` of the rows that add up to `address ⊕ base`. A learned map covers only the addresses
//! that its samples span, and returns an error for others.

use std::fmt;

/// An affine map, known for some or for all addresses; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedMap {
    base: u64,
    base_state: u64,
    rows: Vec<Row>,
}

/// A difference of addresses, whose lowest set bit is clear in all later rows, and the resulting difference of states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Row {
    address: u64,
    value: u64,
}

/// Effect of a sample on a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The difference of addresses was not a sum of earlier ones.
    New,
    /// The map had predicted this state.
    Known,
    /// The map had predicted another state: it is not affine.
    Contradiction,
}

impl SeedMap {
    /// The map of address 0 to `constant` in which bit `i` of the address flips the bits `columns[i]` of the state.
    pub fn new(constant: u64, columns: &[u64; 64]) -> SeedMap {
        let row = |(bit, value): (usize, &u64)| Row { address: 1 << bit, value: *value };
        SeedMap { base: 0, base_state: constant, rows: columns.iter().enumerate().map(row).collect() }
    }

    /// A pseudo-random map of the lowest `address_bits` bits of an address: 64 for LBAs; 6, 7 or 8 for a drive whose
    /// keystreams repeat every 64, 128 or 256 pages.
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

    /// A map known for one address only.
    pub(super) fn of_one(base: u64, base_state: u64) -> SeedMap {
        SeedMap { base, base_state, rows: Vec::new() }
    }

    /// Adds an address and its state.
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

    /// Addresses with their states, from which [`SeedMap::of_facts`] reconstructs this map.
    pub fn facts(&self) -> impl Iterator<Item = (u64, u64)> {
        let rows = self.rows.iter().map(|row| (self.base ^ row.address, self.base_state ^ row.value));
        std::iter::once((self.base, self.base_state)).chain(rows)
    }

    /// The map with these states at these addresses, known for all addresses that they span. `None` if there are none,
    /// or if no affine map has these states.
    pub fn of_facts(facts: impl IntoIterator<Item = (u64, u64)>) -> Option<SeedMap> {
        let mut facts = facts.into_iter();
        let (base, base_state) = facts.next()?;
        let mut map = SeedMap::of_one(base, base_state);
        let fits = facts.all(|(address, state)| map.tell(address, state) != Told::Contradiction);
        fits.then_some(map)
    }

    /// The first unknown address among the first `count`, if there is one.
    pub fn first_unknown(&self, count: u64) -> Option<u64> {
        // An address is a sum of powers of two that are not larger.
        let powers = (0..64).map(|bit| 1 << bit);
        [0].into_iter().chain(powers).take_while(|a| *a < count).find(|a| self.state(*a).is_err())
    }

    /// The map without the rows that none of the addresses `checked` used.
    pub(super) fn proven_by(&self, checked: &[u64]) -> SeedMap {
        let mut used = vec![false; self.rows.len()];
        for address in checked {
            let mut rest = address ^ self.base;
            for (row, used) in self.rows.iter().zip(&mut used) {
                if rest & row.address & row.address.wrapping_neg() != 0 {
                    rest ^= row.address;
                    *used = true;
                }
            }
        }
        let rows = self.rows.iter().zip(used).filter(|(_, used)| *used).map(|(row, _)| *row).collect();
        SeedMap { rows, ..*self }
    }

    /// The state for an address.
    #[inline]
    pub fn state(&self, address: u64) -> Result<u64, UnknownAddress> {
        let (rest, state) = self.reduced(address);
        if rest == 0 { Ok(state) } else { Err(UnknownAddress { address }) }
    }

    /// The number of addresses after which states repeat, if they are known to: a power of two.
    pub fn period(&self) -> Option<u64> {
        let last = self.rows.iter().rev().find(|row| row.value != 0);
        let bits = last.map_or(0, |row| u64::BITS - row.address.leading_zeros());
        let next = self.base ^ 1u64.checked_shl(bits)?;
        (self.state(next) == Ok(self.base_state)).then_some(1 << bits)
    }

    /// What remains of `address ⊕ base` after subtracting rows, and the state from those rows.
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
