//! Raw dumps with bit errors: what is learned predicts other pages; what does not fit is rejected and named.
//!
//! The drives here shift their registers bit by bit, in code that shares nothing with the tested code.

use vellum_codes::scrambler::{BitOrder, Limits, NotSurveyed, SeedMap, Survey, survey};

/// A drive with a register in Galois form, seeded by XORs of shifts of the address.
struct Drive {
    taps: u64,
    bits: u32,
    seed: u64,
    /// One bit in this many is wrong; 0: none.
    wrong_one_in: u64,
}

const DRIVE: Drive = Drive { taps: 0x8020_0003, bits: 32, seed: 0x1D_EA10_C2B7_0F35, wrong_one_in: 0 };

impl Drive {
    fn keystream(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mask = u64::MAX >> (64 - self.bits);
        let mut register = (self.seed ^ address ^ address << 7 ^ address << 19) & mask;
        let mut bit = || {
            let out = register & 1;
            register >>= 1;
            register ^= out * self.taps;
            out as u8
        };
        (0..bytes).map(|_| (0..8).fold(0, |byte, _| byte << 1 | bit())).collect()
    }

    /// The raw data XOR the written data; each `read` has other wrong bits.
    fn piece(&self, address: u64, bytes: usize, read: u64) -> Vec<u8> {
        let mut stream = self.keystream(address, bytes);
        if self.wrong_one_in > 0 {
            let mut chance = Chance(address * 77 + read * 1_000_003 + 1);
            for bit in 0..8 * bytes {
                if chance.next().is_multiple_of(self.wrong_one_in) {
                    stream[bit / 8] ^= 1 << (bit % 8);
                }
            }
        }
        stream
    }

    fn dump(&self, addresses: impl IntoIterator<Item = u64>) -> Vec<(u64, Vec<u8>)> {
        addresses.into_iter().map(|address| (address, self.piece(address, 4096, 0))).collect()
    }
}

/// A dump: addresses and pieces.
type Pieces = Vec<(u64, Vec<u8>)>;

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        self.0 >> 33
    }
}

/// Zero, the powers of two below 2^24, and sums that together use all of them.
fn spread() -> Vec<u64> {
    let sums = (1..13).map(|i| (1 << 24) - 1 - i * 1_398_101);
    [0].into_iter().chain((0..24).map(|bit| 1 << bit)).chain(sums).collect()
}

fn views(pieces: &[(u64, Vec<u8>)]) -> Vec<(u64, &[u8])> {
    pieces.iter().map(|(address, piece)| (*address, &piece[..])).collect()
}

fn surveyed(pieces: &[(u64, Vec<u8>)]) -> Result<Survey, NotSurveyed> {
    survey(&views(pieces), &[], &Limits::default())
}

#[track_caller]
fn assert_foretells(survey: &Survey, drive: &Drive, addresses: impl IntoIterator<Item = u64>) {
    for address in addresses {
        let mut stream = drive.keystream(address, 5000);
        survey.scrambler.xor_into(address, &mut stream).unwrap();
        assert!(stream.iter().all(|byte| *byte == 0), "address {address}");
    }
}

#[test]
fn wrong_bits_do_not_matter_up_to_the_limit() {
    for (wrong_one_in, rate) in [(0, 0.0), (10_000, 1e-4), (1000, 1e-3), (125, 8e-3)] {
        for (taps, bits) in [(0x8020_0003, 32), (0xD800_0000_0000_0000, 64), (0b10_0100, 6)] {
            let drive = Drive { taps, bits, wrong_one_in, ..DRIVE };
            let found = surveyed(&drive.dump(spread())).unwrap();
            assert!(found.scrambler.lfsr().degree() <= bits);
            assert_eq!(found.scrambler.order(), BitOrder::MsbFirst);
            assert!((found.error_rate() - rate).abs() <= 0.1 * rate, "{}", found.error_rate());
            assert_eq!(found.fresh, 5);
            assert_eq!(found.learned + found.fresh, spread().len());
            assert_foretells(&found, &drive, (0..100).map(|i| i * 167_772));
        }
    }
}

#[test]
fn copies_vote() {
    let drive = Drive { wrong_one_in: 30, ..DRIVE };
    let limits = Limits { error_rate_max: 0.05, ..Limits::default() };
    let pieces: Vec<_> =
        spread().into_iter().flat_map(|a| (0..7).map(move |read| (a, drive_piece(30, a, read)))).collect();
    let found = survey(&views(&pieces), &[], &limits).unwrap();
    assert_foretells(&found, &drive, 0..50);
    assert!((found.error_rate() - 1.0 / 30.0).abs() < 0.002, "{}", found.error_rate());
    assert_eq!(found.bits, 8 * 4096 * 7 * spread().len() as u64);
}

fn drive_piece(wrong_one_in: u64, address: u64, read: u64) -> Vec<u8> {
    Drive { wrong_one_in, ..DRIVE }.piece(address, 4096, read)
}

#[test]
fn what_no_check_used_is_forgotten() {
    let mut addresses: Vec<u64> = (0..32).collect();
    addresses.push(1 << 20);
    let found = surveyed(&DRIVE.dump(addresses)).unwrap();
    assert_foretells(&found, &DRIVE, 0..32);
    assert_eq!(found.scrambler.map().first_unknown(32), None);
    assert_eq!(found.scrambler.map().first_unknown(33), Some(32));
    assert!(found.scrambler.map().state(1 << 20).is_err(), "one piece alone proves nothing");
}

#[test]
fn named_fresh_pieces_are_not_learned_from() {
    let fresh = DRIVE.dump([100, 5000, 70_000, 1 << 30]);
    let pieces = DRIVE.dump(spread());
    let limits = Limits { fresh_min: 3, ..Limits::default() };
    let found = survey(&views(&pieces), &views(&fresh), &limits).unwrap();
    assert_eq!((found.fresh, found.out_of_reach, found.learned), (3, 1, pieces.len()));

    let other = Drive { seed: 1, ..DRIVE };
    let wrong = survey(&views(&pieces), &views(&other.dump([100, 5000, 70_000])), &limits);
    assert_eq!(wrong.unwrap_err(), NotSurveyed::FreshDiffers { address: 100 });
    let few = survey(&views(&pieces), &views(&fresh), &Limits::default());
    assert_eq!(few.unwrap_err(), NotSurveyed::TooFewFresh { more: 1 });
}

#[test]
fn facts_make_the_same_map_again() {
    let found = surveyed(&DRIVE.dump(spread())).unwrap();
    let map = found.scrambler.map();
    assert_eq!(SeedMap::of_facts(map.facts()).as_ref(), Some(map));
    let mut facts: Vec<_> = map.facts().collect();
    facts.push((3, map.state(3).unwrap() ^ 1));
    assert_eq!(SeedMap::of_facts(facts), None);
    assert_eq!(SeedMap::of_facts([]), None);
}

#[test]
fn what_does_not_fit_is_named() {
    let pieces = DRIVE.dump(0..64);
    let refused = |change: &dyn Fn(&mut Pieces)| {
        let mut pieces = pieces.clone();
        change(&mut pieces);
        surveyed(&pieces).unwrap_err()
    };
    // Another pattern was written than assumed: constant or text.
    let found = refused(&|pieces| pieces[17].1.iter_mut().for_each(|byte| *byte ^= 0xFF));
    assert!(matches!(found, NotSurveyed::Odd { address: 17, .. }), "{found}");
    let text = b"not what was to be there; ".repeat(200);
    let found = refused(&|pieces| pieces[17].1.iter_mut().zip(&text).for_each(|(byte, t)| *byte ^= t));
    assert!(matches!(found, NotSurveyed::Odd { address: 17, .. }), "{found}");
    // Noise throughout, from a page that could not be read: the first page and another.
    let noise = |at: usize| {
        move |pieces: &mut Pieces| {
            let mut chance = Chance(5);
            pieces[at].1.iter_mut().for_each(|byte| *byte = chance.next() as u8);
        }
    };
    for at in [17, 0] {
        let address = at as u64;
        let found = refused(&noise(at));
        // Fresh pieces are not checked while other pieces do not fit.
        assert!(matches!(found, NotSurveyed::Odd { address: a, fitting: 35.. } if a == address), "{found}");
    }
    // The piece of another page: its keystream is one of the drive's, but not the one of this address.
    let found = refused(&|pieces| pieces[17].1 = DRIVE.piece(18, 4096, 0));
    assert!(matches!(found, NotSurveyed::NotLearned(_) | NotSurveyed::FreshDiffers { .. }), "{found}");
    // Several sectors in one piece.
    let found = refused(&|pieces| {
        pieces.iter_mut().for_each(|(address, piece)| {
            let next = DRIVE.keystream(*address + 1000, 4096);
            piece[1024..].copy_from_slice(&next[1024..]);
        });
    });
    assert!(matches!(found, NotSurveyed::BeginsAnew { address: 0, at_byte: 1024 }), "{found}");
    let found = refused(&|pieces| pieces.push((17, DRIVE.piece(99, 4096, 0))));
    assert_eq!(found, NotSurveyed::CopiesDiffer { address: 17 });
    let found = refused(&|pieces| pieces[17].1.truncate(100));
    assert_eq!(found, NotSurveyed::Length { address: 17 });
    assert!(found.to_string().contains("address 17"), "{found}");
}

#[test]
fn drives_that_are_no_register_are_refused() {
    let random = |address: u64| {
        let mut chance = Chance(address);
        (0..4096).map(|_| chance.next() as u8).collect::<Vec<u8>>()
    };
    let pieces: Vec<_> = (0..64).map(|address| (address, random(address))).collect();
    assert_eq!(surveyed(&pieces).unwrap_err(), NotSurveyed::NoRegister { copies_differ: None });
    let twice: Vec<_> = pieces.iter().chain(&pieces).cloned().collect();
    let found = surveyed(&twice).unwrap_err();
    assert!(found.to_string().contains("it is no such register"), "{found}");

    let drowned = Drive { wrong_one_in: 8, ..DRIVE };
    let reads = |read| (0..64).map(move |address| (address, drive_piece(8, address, read)));
    let pieces: Vec<_> = reads(0).chain(reads(1)).collect();
    let found = surveyed(&pieces).unwrap_err();
    assert!(found.to_string().contains("noise"), "{found}");
    assert!(surveyed(&drowned.dump(0..64)).is_err());
    let noisy = Drive { wrong_one_in: 70, ..DRIVE };
    let found = surveyed(&noisy.dump(0..64)).unwrap_err();
    assert!(matches!(found, NotSurveyed::TooNoisy { .. }), "{found}");

    let plain: Vec<_> = (0..64).map(|address| (address, vec![0; 4096])).collect();
    let found = surveyed(&plain).unwrap_err();
    assert!(found.to_string().contains("nothing is scrambled"), "{found}");
    let found = surveyed(&DRIVE.dump([0, 1, 2, 4, 8])).unwrap_err();
    assert!(found.to_string().contains("too few samples"), "{found}");
    let found = surveyed(&DRIVE.dump(0..8)).unwrap_err();
    assert!(matches!(found, NotSurveyed::TooFewFresh { .. }), "{found}");
}
