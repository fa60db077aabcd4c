//! Learns a scrambler from a raw dump of a drive with bit errors: from some pieces, and verifies it on others.
//!
//! 1. Pieces of the same address are combined by a majority vote on each bit.
//! 2. Some pieces are *fresh*: nothing is learned from them, and the learned scrambler must predict all of them. The
//!    caller names them; otherwise they are every second one of the addresses that are sums of others.
//! 3. Each of the other pieces must fit completely as well. One that does not is named, not ignored: it indicates
//!    another written pattern, a page that belongs to something else, or an unknown behaviour of the drive.
//! 4. Parts of the map that no check used are discarded.

use super::denoise::{CLEAN_BYTES, Register, Unfit, all_fit, find_register, polynomial, wrong_bits};
use super::learn::{degree, least_common_multiple};
use super::{BitOrder, Learned, NotLearned, Scrambler, learn};
use std::collections::BTreeMap;
use std::fmt;

/// Minimum length of a piece in bytes.
pub const PIECE_BYTES_MIN: usize = 256;
/// Share of differing bits above which two pieces are unrelated: unrelated ones differ in half of their bits, copies of
/// one piece in few.
const UNRELATED: f64 = 0.25;
/// Number of addresses that are sums of others and are kept as checks, before some become fresh.
const CHECKS_FIRST: usize = 2;
/// A piece that needs a longer register than the others is odd if at most one in this many pieces does.
const ODD_ONE_IN: usize = 20;

/// Pieces that do not fit before the dump is given up.
const UNFIT_MAX: usize = 100;

/// Requirements on a dump.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Maximum share of wrong bits.
    pub error_rate_max: f64,
    /// Minimum number of fresh addresses.
    pub fresh_min: usize,
}

impl Default for Limits {
    /// 1 % wrong bits, 4 fresh addresses.
    fn default() -> Limits {
        Limits { error_rate_max: 0.01, fresh_min: 4 }
    }
}

/// A scrambler, and statistics of the pieces it was learned from.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The scrambler, valid for all addresses that checked pieces span.
    pub scrambler: Scrambler,
    /// Number of addresses from which it was learned.
    pub learned: usize,
    /// Those of them that others predicted.
    pub checks: usize,
    /// Fresh addresses that were predicted.
    pub fresh: usize,
    /// Fresh addresses that the learned map does not cover.
    pub out_of_reach: usize,
    /// Bits of all pieces that were compared.
    pub bits: u64,
    /// Wrong bits among them.
    pub bits_wrong: u64,
    /// Largest number of wrong bits in a piece.
    pub bits_wrong_max: u64,
}

/// Why a dump was rejected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NotSurveyed {
    /// Registers were found, but they do not form one scrambler.
    NotLearned(NotLearned),
    /// A piece is shorter than [`PIECE_BYTES_MIN`], or differs in length from another of its address.
    Length {
        /// Address of the piece.
        address: u64,
    },
    /// Among the first eight addresses, no piece has a part that is the output of a register of up to 64 bits.
    NoRegister {
        /// Share of bits in which copies of a piece differ, if there are copies.
        copies_differ: Option<f64>,
    },
    /// Other pieces fit together, but this one does not.
    Odd {
        /// Address of the piece.
        address: u64,
        /// Number of addresses whose pieces fit.
        fitting: usize,
    },
    /// A keystream ends within a piece, and another begins.
    BeginsAnew {
        /// Address of the piece.
        address: u64,
        /// About where it begins: a multiple of 256 bytes.
        at_byte: usize,
    },
    /// Two pieces of the same address are unrelated.
    CopiesDiffer {
        /// Address of both.
        address: u64,
    },
    /// Too few fresh addresses.
    TooFewFresh {
        /// Number of further ones that are needed.
        more: usize,
    },
    /// A fresh piece differs from the prediction.
    FreshDiffers {
        /// Address of the piece.
        address: u64,
    },
    /// More wrong bits than the limit allows.
    TooNoisy {
        /// Share of wrong bits.
        error_rate: f64,
        /// The limit.
        error_rate_max: f64,
    },
}

/// Pieces by address.
type Groups<'a> = BTreeMap<u64, Vec<&'a [u8]>>;

/// Learns from `pieces`: addresses, and the stored data XOR the written data. An address may have several pieces.
/// Nothing is learned from addresses in `fresh`; if that is empty, some of the other addresses become fresh.
pub fn survey(
    pieces: &[(u64, &[u8])],
    fresh: &[(u64, &[u8])],
    limits: &Limits,
) -> Result<Survey, NotSurveyed> {
    let (mut known, mut fresh) = (grouped(pieces)?, grouped(fresh)?);
    known.retain(|address, _| !fresh.contains_key(address));
    let (_, sums) = independent(known.keys().copied());
    if fresh.is_empty() {
        for address in sums.iter().skip(CHECKS_FIRST).step_by(2) {
            let group = known.remove(address).expect("it is one of them");
            fresh.insert(*address, group);
        }
    }
    let Learned { scrambler, checks } = learn_from(&known)?;
    let sums: Vec<u64> = sums.into_iter().filter(|address| known.contains_key(address)).collect();
    let map = scrambler.map().proven_by(&sums);
    let mut survey = Survey {
        scrambler: scrambler.clone(),
        learned: known.len(),
        checks,
        fresh: 0,
        out_of_reach: 0,
        bits: 0,
        bits_wrong: 0,
        bits_wrong_max: 0,
    };
    for (address, group) in &known {
        if !survey.compare(*address, group) {
            return Err(NotSurveyed::Odd { address: *address, fitting: known.len() - 1 });
        }
    }
    survey.scrambler = scrambler.with_map(map);
    survey.prove(&fresh, limits)?;
    Ok(survey)
}

impl Survey {
    /// Share of wrong bits.
    pub fn error_rate(&self) -> f64 {
        self.bits_wrong as f64 / self.bits.max(1) as f64
    }

    fn prove(&mut self, fresh: &Groups<'_>, limits: &Limits) -> Result<(), NotSurveyed> {
        for (address, group) in fresh {
            if self.scrambler.map().state(*address).is_err() {
                self.out_of_reach += 1;
            } else if self.compare(*address, group) {
                self.fresh += 1;
            } else {
                return Err(NotSurveyed::FreshDiffers { address: *address });
            }
        }
        if self.fresh < limits.fresh_min {
            return Err(NotSurveyed::TooFewFresh { more: limits.fresh_min - self.fresh });
        }
        let (error_rate, error_rate_max) = (self.error_rate(), limits.error_rate_max);
        match error_rate > error_rate_max {
            true => Err(NotSurveyed::TooNoisy { error_rate, error_rate_max }),
            false => Ok(()),
        }
    }

    /// Counts the wrong bits in the pieces of an address. False if a piece is unrelated to the prediction.
    fn compare(&mut self, address: u64, group: &[&[u8]]) -> bool {
        group.iter().all(|piece| {
            let mut noise = piece.to_vec();
            let is_known = self.scrambler.xor_into(address, &mut noise).is_ok();
            let (wrong, bits) = (wrong_bits(&noise), 8 * noise.len() as u64);
            self.bits += bits;
            self.bits_wrong += wrong;
            self.bits_wrong_max = self.bits_wrong_max.max(wrong);
            is_known && all_fit(&noise)
        })
    }
}

fn grouped<'a>(pieces: &[(u64, &'a [u8])]) -> Result<Groups<'a>, NotSurveyed> {
    let mut groups = Groups::new();
    for (address, piece) in pieces {
        let group = groups.entry(*address).or_default();
        if piece.len() < PIECE_BYTES_MIN || group.first().is_some_and(|first| first.len() != piece.len()) {
            return Err(NotSurveyed::Length { address: *address });
        }
        if group.first().is_some_and(|first| differing(first, piece) > UNRELATED) {
            return Err(NotSurveyed::CopiesDiffer { address: *address });
        }
        group.push(piece);
    }
    Ok(groups)
}

/// Addresses that are not sums of earlier ones, and those that are. (Sums are of differences from the first address.)
fn independent(addresses: impl Iterator<Item = u64>) -> (Vec<u64>, Vec<u64>) {
    let (mut new, mut sums, mut basis, mut first) = (Vec::new(), Vec::new(), Vec::<u64>::new(), None);
    for address in addresses {
        let base = *first.get_or_insert(address);
        let rest = basis.iter().fold(address ^ base, |rest, row| rest.min(rest ^ row));
        if rest == 0 && !new.is_empty() {
            sums.push(address);
        } else {
            new.push(address);
            basis.extend((rest != 0).then_some(rest));
        }
    }
    (new, sums)
}

/// Majority of the pieces, bit by bit. The first piece decides ties, and alone if there are fewer than three.
fn voted(group: &[&[u8]]) -> Vec<u8> {
    if group.len() < 3 {
        return group[0].to_vec();
    }
    let bit = |at: usize, bit: u32| {
        let ones = group.iter().filter(|piece| piece[at] >> bit & 1 == 1).count();
        match (2 * ones).cmp(&group.len()) {
            std::cmp::Ordering::Equal => group[0][at] >> bit & 1,
            order => u8::from(order.is_gt()),
        }
    };
    (0..group[0].len()).map(|at| (0..8).fold(0, |byte, i| byte | bit(at, i) << i)).collect()
}

fn learn_from(known: &Groups<'_>) -> Result<Learned, NotSurveyed> {
    let voted: Vec<(u64, Vec<u8>)> = known.iter().map(|(address, group)| (*address, voted(group))).collect();
    let clean = cleaned(&voted).map_err(|why| match why {
        NotSurveyed::NoRegister { .. } => NotSurveyed::NoRegister { copies_differ: copies_differ(known) },
        other => other,
    })?;
    let samples: Vec<(u64, &[u8])> = clean.iter().map(|(address, stream)| (*address, &stream[..])).collect();
    learn(&samples).map_err(NotSurveyed::NotLearned)
}

/// All keystreams, with bit errors removed.
fn cleaned(voted: &[(u64, Vec<u8>)]) -> Result<Vec<(u64, Vec<u8>)>, NotSurveyed> {
    let Some(order) = bit_order(voted) else {
        return Err(NotSurveyed::NoRegister { copies_differ: None });
    };
    let mut register: Option<Register> = None;
    let (mut clean, mut unfit) = (Vec::with_capacity(voted.len()), Vec::new());
    for (address, stream) in voted {
        match clean_one(&mut register, order, stream) {
            Ok(stream) => clean.push((*address, stream)),
            Err(why) => unfit.push((*address, why)),
        }
        if unfit.len() > UNFIT_MAX {
            break;
        }
    }
    match unfit.first() {
        Some((address, Unfit::From(at_byte))) => {
            return Err(NotSurveyed::BeginsAnew { address: *address, at_byte: *at_byte });
        }
        Some((address, Unfit::Nowhere)) => {
            return Err(NotSurveyed::Odd { address: *address, fitting: clean.len() });
        }
        None => {}
    }
    match odd_one(&clean, order) {
        Some(address) => Err(NotSurveyed::Odd { address, fitting: clean.len() - 1 }),
        None => Ok(clean),
    }
}

/// One keystream with bit errors removed, by the known register or by one of more bits.
fn clean_one(register: &mut Option<Register>, order: BitOrder, stream: &[u8]) -> Result<Vec<u8>, Unfit> {
    let unfit = match register.as_ref().map(|register| register.clean(stream)) {
        Some(Ok(clean)) => return Ok(clean),
        Some(Err(unfit)) => unfit,
        None => Unfit::Nowhere,
    };
    let polynomial = find_register(stream, order).ok_or(unfit)?;
    if polynomial == 1 && register.is_none() {
        return Ok(vec![0; CLEAN_BYTES]);
    }
    let longer = match &register {
        Some(register) => register.with(polynomial),
        None => Register::new(polynomial, order),
    };
    let longer = longer.ok_or(unfit)?;
    let clean = longer.clean(stream).map_err(|why| if unfit == Unfit::Nowhere { why } else { unfit })?;
    *register = Some(longer);
    Ok(clean)
}

/// The bit order in which more of the first pieces have a register, or a shorter one.
fn bit_order(voted: &[(u64, Vec<u8>)]) -> Option<BitOrder> {
    /// Pieces looked at. Several, because one may be the piece that does not fit.
    const LOOKED_AT: usize = 8;
    let found = [BitOrder::LsbFirst, BitOrder::MsbFirst].map(|order| {
        let registers = voted.iter().take(LOOKED_AT).filter_map(|(_, stream)| find_register(stream, order));
        let (count, bits) = registers.fold((0, 0), |(count, bits), p| (count + 1, bits.max(degree(p))));
        (order, count, bits)
    });
    let [lsb, msb] = found;
    match (lsb.1, msb.1) {
        (0, 0) => None,
        (a, b) if b > a || a == b && msb.2 < lsb.2 => Some(BitOrder::MsbFirst),
        _ => Some(BitOrder::LsbFirst),
    }
}

/// Finds a piece that needs a longer register than nearly all others: another pattern was written there, or it was not
/// written by the host.
fn odd_one(clean: &[(u64, Vec<u8>)], order: BitOrder) -> Option<u64> {
    let mut kinds: BTreeMap<u128, (usize, u64)> = BTreeMap::new();
    for (address, stream) in clean {
        kinds.entry(polynomial(stream, order)?).or_insert((0, *address)).0 += 1;
    }
    // Least common multiples of all kinds before each one, and after it: a dump may have thousands.
    let before = multiples(kinds.keys());
    let mut behind = multiples(kinds.keys().rev());
    behind.reverse();
    let all = before.last().copied().flatten();
    let without = |at: usize| least_common_multiple(before[at]?, behind[at + 1]?);
    let odd = kinds.iter().enumerate().find(|(at, (kind, (count, _)))| {
        count * ODD_ONE_IN <= clean.len() && **kind != 1 && without(*at) != all
    });
    odd.map(|(_, (_, (_, address)))| *address)
}

/// The least common multiples of the first 0, 1, 2, ... polynomials; `None` beyond 64 bits.
fn multiples<'a>(polynomials: impl Iterator<Item = &'a u128>) -> Vec<Option<u128>> {
    let mut all = vec![Some(1)];
    for polynomial in polynomials {
        let multiple = all.last().copied().flatten().and_then(|all| least_common_multiple(all, *polynomial));
        all.push(multiple);
    }
    all
}

fn differing(a: &[u8], b: &[u8]) -> f64 {
    let bits: u32 = a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum();
    f64::from(bits) / (8 * a.len()) as f64
}

/// Average share of bits in which copies differ from the first one, if there are copies.
fn copies_differ(known: &Groups<'_>) -> Option<f64> {
    let pairs = known.values().flat_map(|group| group[1..].iter().map(|piece| differing(group[0], piece)));
    let (count, sum) = pairs.fold((0, 0.0), |(count, sum), share| (count + 1, sum + share));
    (count > 0).then(|| sum / f64::from(count))
}

impl fmt::Display for NotSurveyed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotSurveyed::NotLearned(why) => why.fmt(f),
            NotSurveyed::Length { address } => {
                write!(f, "the piece of address {address} has fewer than {PIECE_BYTES_MIN} bytes, or not as many as another of it")
            }
            NotSurveyed::NoRegister { copies_differ: None } => f.write_str(
                "no part of any piece is made by a shift register of at most 64 bits: it is none, or more than about 3% of the bits \
                 are wrong (pieces that were dumped several times would tell)",
            ),
            NotSurveyed::NoRegister { copies_differ: Some(share) } => write!(
                f,
                "no part of any piece is made by a shift register of at most 64 bits; copies of a piece differ in {:.2}% of their \
                 bits, so {}",
                100.0 * share,
                if *share > 0.02 { "it may be noise that hides one" } else { "it is no such register" }
            ),
            NotSurveyed::Odd { address, fitting } => write!(
                f,
                "the piece of address {address} does not fit, and {fitting} others do: was another pattern written there, or is the \
                 piece another address's?"
            ),
            NotSurveyed::BeginsAnew { address, at_byte } => write!(
                f,
                "the keystream of address {address} does not go on at byte {at_byte}: pieces are longer than keystreams"
            ),
            NotSurveyed::CopiesDiffer { address } => write!(
                f,
                "two pieces of address {address} have nothing in common: the seed depends on something else than this address"
            ),
            NotSurveyed::TooFewFresh { more } => {
                write!(f, "too few pieces to prove it on: {more} more fresh addresses are needed that are sums of those learned")
            }
            NotSurveyed::FreshDiffers { address } => {
                write!(f, "the fresh piece of address {address} is not what was foretold")
            }
            NotSurveyed::TooNoisy { error_rate, error_rate_max } => write!(
                f,
                "{:.2}% of the bits are wrong, more than {:.2}%",
                100.0 * error_rate,
                100.0 * error_rate_max
            ),
        }
    }
}

impl std::error::Error for NotSurveyed {}
