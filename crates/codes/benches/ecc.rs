//! Parity and fingerprint of 4 KiB sectors compared with SHA-256, on one core; correction of bit errors; the scrambler.
//!
//! Each round times all of them one after the other on the same sectors (in cache, like a sector just received), so
//! that a disturbance affects neighbours alike; ratios are computed within a round. Environment:
//!
//! * `VELLUM_BENCH`: milliseconds per measurement, number of rounds (default `50 11`).
//! * `VELLUM_BENCH_JSON`: a file of rows for `RESULTS.md` (docs/json/lab.md), from the crate's directory
//!   `../../docs/results/ecc.json`; rows with the same claim are replaced.

use serde_json::{Value, json};
use vellum_codes::HashKind;
use vellum_codes::ecc::{CORRECTED_SURELY, Code, Fold, Simd};
use vellum_codes::scrambler::{BitOrder, Lfsr, Scrambler, SeedMap};

const ENCODE: &str = "ECC, 1 KiB codewords of rate 32/33, encode and fingerprint of 4 KiB sectors";
const SECTORS: usize = 64;
const PATTERNS: usize = 200;
const TARGET_GB_PER_S: f64 = 5.0;
const TARGET_PORTABLE_GB_PER_S: f64 = 1.0;
const TARGET_RATIO: f64 = 2.5;

/// Processes all sectors.
type Run = Box<dyn FnMut(&[[u8; 4096]])>;

/// A measured operation, and its rate in GB/s in each round.
struct Contender {
    name: String,
    run: Run,
    rates: Vec<f64>,
}

fn main() {
    let text = std::env::var("VELLUM_BENCH").unwrap_or_default();
    let numbers: Vec<u64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
    let (millis, rounds) =
        (numbers.first().copied().unwrap_or(50), numbers.get(1).copied().unwrap_or(11).max(1));
    let sectors: Vec<[u8; 4096]> = (0..SECTORS as u64).map(noise).collect();
    let mut contenders = contenders();
    for _ in 0..rounds {
        for contender in &mut contenders {
            let rate = rate(millis as f64 / 1e3, &mut contender.run, &sectors);
            contender.rates.push(rate);
        }
    }
    for contender in &contenders {
        println!("{}: {}", contender.name, shown(&contender.rates, "GB/s"));
    }
    let mut rows = rows(&contenders, &format!("{millis} {rounds}"));
    rows.extend(Code::all().iter().map(|code| row_of_wrong_bits(code, &format!("{millis} {rounds}"))));
    rows.extend(
        [("one bit", true), ("one byte", false)]
            .map(|(what, is_bit)| row_of_false_candidates(what, is_bit, &format!("{millis} {rounds}"))),
    );
    if let Ok(path) = std::env::var("VELLUM_BENCH_JSON") {
        write_rows(&path, rows);
    }
}

/// SHA-256; encode and fingerprint in the paper's code with each instruction set of this processor, then in the other
/// codes; the scrambler; and a check of a read.
fn contenders() -> Vec<Contender> {
    let of = |name: String, run: Run| Contender { name, run, rates: Vec::new() };
    let mut all = vec![of(
        "SHA-256".into(),
        Box::new(|sectors| {
            for sector in sectors {
                std::hint::black_box(HashKind::Sha256.digest(sector));
            }
        }),
    )];
    let paper = Code::paper();
    for simd in Simd::ALL.into_iter().filter(|simd| simd.is_available()) {
        all.push(of(format!("{} {simd:?}", paper.name()), encode(paper, simd)));
    }
    for code in Code::all().iter().filter(|code| code.name() != paper.name()) {
        all.push(of(format!("{} {:?}", code.name(), Simd::best()), encode(code, Simd::best())));
    }
    for (name, lfsr) in [("X64", Lfsr::X64), ("X32", Lfsr::X32)] {
        let scrambler = Scrambler::new(lfsr, BitOrder::LsbFirst, SeedMap::mixed(1, 64));
        let mut data = [0; 4096];
        let scramble = move |sectors: &[[u8; 4096]]| {
            for address in 0..sectors.len() as u64 {
                scrambler
                    .xor_into(address, std::hint::black_box(&mut data))
                    .expect("every address has a seed");
            }
        };
        all.push(of(format!("scramble {name}"), Box::new(scramble)));
    }
    let mut parity = [0; 128 * SECTORS];
    all.push(of(
        "check of a read, no error".into(),
        Box::new(move |sectors| {
            for (sector, parity) in sectors.iter().zip(parity.chunks_exact_mut(128)) {
                if !paper.check(sector, parity) {
                    paper.encode(sector, parity);
                }
            }
        }),
    ));
    all
}

fn encode(code: &'static Code, simd: Simd) -> Run {
    let mut parity = vec![0; code.parity_bytes_of(4096)];
    Box::new(move |sectors| {
        for sector in sectors {
            code.encode_with(simd, sector, &mut parity);
            std::hint::black_box(Fold::Mix { seed: 1 }.digest(code, &parity));
        }
    })
}

/// Rate in GB/s of CPU time of this thread.
fn rate(seconds: f64, run: &mut dyn FnMut(&[[u8; 4096]]), sectors: &[[u8; 4096]]) -> f64 {
    run(sectors);
    let (begun, mut bytes, mut passed) = (cpu_seconds(), 0, 0.0);
    while passed < seconds {
        (0..16).for_each(|_| run(std::hint::black_box(sectors)));
        bytes += 16 * size_of_val(sectors);
        passed = cpu_seconds() - begun;
    }
    bytes as f64 / passed / 1e9
}

/// Results for patterns with a given number of wrong bits.
struct Patterns {
    wrong_bits: usize,
    right: usize,
    wrongly: usize,
    micros: f64,
}

/// Flips more and more bits of codewords, until none is corrected any more.
fn wrong_bits(code: &Code) -> Vec<Patterns> {
    let mut state = 1;
    let mut random = move |below: usize| {
        state = xorshift(state);
        state as usize % below
    };
    let mut all: Vec<Patterns> = Vec::new();
    for wrong_bits in [1, 2, 3, 4, 6, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192] {
        let (mut right, mut wrongly, mut micros) = (0, 0, Vec::new());
        for _ in 0..PATTERNS {
            let (mut data, mut parity) = (vec![0; code.data_bytes()], vec![0; code.parity_bytes()]);
            (0..wrong_bits).for_each(|_| flip_another(&mut data, &mut parity, &mut random));
            let begun = cpu_seconds();
            let corrected = code.correct(&mut data, &mut parity).is_ok();
            micros.push((cpu_seconds() - begun) * 1e6);
            let is_right = data.iter().chain(&parity).all(|byte| *byte == 0);
            right += usize::from(corrected && is_right);
            wrongly += usize::from(corrected && !is_right);
        }
        all.push(Patterns { wrong_bits, right, wrongly, micros: median(&micros) });
        if right == 0 {
            break;
        }
    }
    all
}

fn row_of_wrong_bits(code: &Code, arguments: &str) -> Value {
    let all = wrong_bits(code);
    let shown = |p: &Patterns| {
        let share = 100.0 * p.right as f64 / PATTERNS as f64;
        format!("{}: {share:.1} % in {:.0} µs", p.wrong_bits, p.micros)
    };
    let ours = all.iter().map(shown).collect::<Vec<_>>().join(", ");
    let wrongly: usize = all.iter().map(|p| p.wrongly).sum();
    println!("{}, wrong bits: {ours}; {wrongly} corrected wrongly", code.name());
    let sure = all.iter().filter(|p| p.wrong_bits <= CORRECTED_SURELY).all(|p| p.right == PATTERNS);
    json!({
        "claim": format!("ECC, code {}: random wrong bits in a codeword, data and parity alike, put right", code.name()),
        "target": "all of 1 to 3 bits, none wrongly",
        "ours": ours,
        "command": format!("VELLUM_BENCH='{arguments}' cargo bench -p vellum-codes --bench ecc"),
        "holds": sure && wrongly == 0,
        "why": format!("{PATTERNS} patterns for each number of bits, {wrongly} of them corrected wrongly; a page's checksum comes on top"),
    })
}

/// Tries all changes of one bit or of one byte, and counts those that the fingerprints of a codeword miss: in a dedup
/// index, each is a candidate that is read in vain.
fn row_of_false_candidates(what: &str, is_bit: bool, arguments: &str) -> Value {
    let (code, folds) = (Code::paper(), [Fold::Truncate, Fold::Mix { seed: 1 }]);
    let (mut data, mut parity) = (noise(0)[..code.data_bytes()].to_vec(), vec![0; code.parity_bytes()]);
    code.encode(&data, &mut parity);
    let before = folds.map(|fold| fold.fingerprint(&parity));
    let (mut changes, mut unseen) = (0u32, [0u32; 2]);
    for byte in 0..data.len() {
        for change in (1..=255u8).filter(|change| !is_bit || change.is_power_of_two()) {
            data[byte] ^= change;
            code.encode(&data, &mut parity);
            data[byte] ^= change;
            changes += 1;
            for ((unseen, fold), before) in unseen.iter_mut().zip(folds).zip(before) {
                *unseen += u32::from(fold.fingerprint(&parity) == before);
            }
        }
    }
    let [truncated, mixed] = unseen.map(|unseen| 100.0 * f64::from(unseen) / f64::from(changes));
    let ours = format!("{mixed:.3} % (the paper's truncation: {truncated:.1} %)");
    println!("changes of {what} unseen: {ours}");
    json!({
        "claim": format!("ECC fingerprint of 4 bytes a codeword, code {}: changes of {what} not seen", code.name()),
        "target": "under 0.1 %",
        "ours": ours,
        "command": format!("VELLUM_BENCH='{arguments}' cargo bench -p vellum-codes --bench ecc"),
        "holds": mixed < 0.1,
        "why": format!("all {changes} changes of a codeword of noise; each unseen one is a sector read and compared in vain"),
    })
}

/// Flips a bit that is still zero, in a codeword that was all zeros.
fn flip_another(data: &mut [u8], parity: &mut [u8], random: &mut impl FnMut(usize) -> usize) {
    loop {
        let bit = random(8 * (data.len() + parity.len()));
        let byte = if bit < 8 * data.len() { &mut data[bit / 8] } else { &mut parity[bit / 8 - data.len()] };
        if *byte >> (bit % 8) & 1 == 0 {
            return *byte |= 1 << (bit % 8);
        }
    }
}

/// The rows for `RESULTS.md`.
fn rows(contenders: &[Contender], arguments: &str) -> Vec<Value> {
    let row = |claim: &str, target: String, rates: &[f64], unit: &str, least: f64| {
        json!({
            "claim": claim,
            "target": target,
            "ours": shown(rates, unit),
            "command": format!("VELLUM_BENCH='{arguments}' cargo bench -p vellum-codes --bench ecc"),
            "holds": median(rates) >= least,
            "why": format!("sectors in cache; core time; {} processes wanted the machine's {} cores", load(),
                std::thread::available_parallelism().map_or(1, usize::from)),
        })
    };
    let named = |name: &str| contenders.iter().find(|c| c.name.starts_with(name)).expect("it ran");
    let rates = |simd: Simd| &named(&format!("{} {simd:?}", Code::paper().name())).rates;
    let best = rates(Simd::best());
    let ratios: Vec<f64> = best.iter().zip(&named("SHA-256").rates).map(|(ours, sha)| ours / sha).collect();
    vec![
        row(
            &format!("{ENCODE}: one core, {:?}", Simd::best()),
            format!("at least {TARGET_GB_PER_S} GB/s"),
            best,
            "GB/s",
            TARGET_GB_PER_S,
        ),
        row(
            &format!("{ENCODE}: times as fast as SHA-256 (sha2, SHA-NI) in the same run"),
            format!("at least {TARGET_RATIO}"),
            &ratios,
            "times",
            TARGET_RATIO,
        ),
        row(
            &format!("{ENCODE}: one core, portable"),
            format!("at least {TARGET_PORTABLE_GB_PER_S} GB/s"),
            rates(Simd::Portable),
            "GB/s",
            TARGET_PORTABLE_GB_PER_S,
        ),
        row(
            "scrambler of 64 bits seeded by LBA, 4 KiB sectors: one core",
            format!("at least {TARGET_GB_PER_S} GB/s"),
            &named("scramble X64").rates,
            "GB/s",
            TARGET_GB_PER_S,
        ),
    ]
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn shown(values: &[f64], unit: &str) -> String {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(0.0, f64::max);
    format!("{:.2} {unit} ({lowest:.2} to {highest:.2})", median(values))
}

/// Writes the rows to the file, replacing those with the same claim.
fn write_rows(path: &str, rows: Vec<Value>) {
    let old = std::fs::read_to_string(path)
        .map_or(Vec::new(), |text| serde_json::from_str::<Vec<Value>>(&text).expect("the file holds rows"));
    let mut all: Vec<Value> =
        old.into_iter().filter(|o| rows.iter().all(|r| r["claim"] != o["claim"])).collect();
    all.extend(rows);
    let text = serde_json::to_string_pretty(&all).expect("rows are JSON") + "\n";
    std::fs::write(path, text).expect("the file can be written");
}

/// Average number of runnable processes during the last minute.
fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|load| !load.is_empty()).unwrap_or("unknown").into()
}

/// CPU time of this thread: on an idle machine the same as elapsed time.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn noise(seed: u64) -> [u8; 4096] {
    let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    std::array::from_fn(|_| {
        state = xorshift(state);
        state as u8
    })
}

fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}
