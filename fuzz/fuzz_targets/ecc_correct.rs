//! Codewords with any wrong bits: no panic, bounded time, success results in a codeword, failure leaves the bytes
//! unchanged. Up to three wrong bits are corrected, and four are at least detected.
//!
//! The first byte selects the code. If the second is even, the rest is the data and parity; otherwise pairs of bytes
//! are the numbers of the wrong bits of a codeword.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vellum_codes::ecc::{CORRECTED_SURELY, Code};

fuzz_target!(|bytes: &[u8]| {
    let [which, kind, rest @ ..] = bytes else { return };
    let code = &Code::all()[usize::from(*which) % Code::all().len()];
    let (mut data, mut parity) = (vec![0; code.data_bytes()], vec![0; code.parity_bytes()]);
    let mut wrong = std::collections::BTreeSet::new();
    if kind % 2 == 0 {
        let stored = data.iter_mut().chain(&mut parity);
        stored.zip(rest).for_each(|(to, from)| *to = *from);
    } else {
        data.fill(*kind);
        code.encode(&data.clone(), &mut parity);
        let bits = 8 * (data.len() + parity.len());
        let pairs = rest.as_chunks::<2>().0.iter().map(|pair| usize::from(u16::from_le_bytes(*pair)) % bits);
        wrong.extend(pairs);
        for bit in &wrong {
            let byte = bit / 8;
            let byte = if byte < data.len() { &mut data[byte] } else { &mut parity[byte - data.len()] };
            *byte ^= 1 << (bit % 8);
        }
    }
    let read = (data.clone(), parity.clone());
    match code.correct(&mut data, &mut parity) {
        Ok(_) => assert!(code.check(&data, &parity)),
        Err(_) => assert!(read == (data.clone(), parity.clone())),
    }
    if kind % 2 == 1 && wrong.len() <= CORRECTED_SURELY + 1 {
        let is_right = data.iter().all(|byte| byte == kind) && code.check(&data, &parity);
        assert!(is_right || wrong.len() > CORRECTED_SURELY && read == (data, parity));
    }
});
