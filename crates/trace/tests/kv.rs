//! Requests to a key-value store, checked against the definitions of their workloads: by exact frequencies and
//! chi-square.

use std::collections::BTreeMap;
use vellum_trace::generate::Seeded;
use vellum_trace::generate::kv::choice::scatter;
use vellum_trace::generate::kv::{Choice, Chooser, Job, Kind, KvRequest, Population, Workload};

const SKEW: f64 = 0.99;

/// How many standard deviations chi-square lies above what it should be (Wilson and Hilferty); bins in which less than
/// ten are expected are thrown together.
fn surprise(observed: &[u64], expected: &[f64]) -> f64 {
    let (mut bins, mut chi, mut small) = (0, 0.0, (0.0, 0.0));
    let mut add = |observed: f64, expected: f64| {
        chi += (observed - expected).powi(2) / expected;
        bins += 1;
    };
    for (observed, expected) in observed.iter().zip(expected) {
        match *expected < 10.0 {
            true => small = (small.0 + *observed as f64, small.1 + expected),
            false => add(*observed as f64, *expected),
        }
        if small.1 >= 10.0 {
            add(small.0, small.1);
            small = (0.0, 0.0);
        }
    }
    let freedom = f64::from(bins - 1);
    let third = (chi / freedom).powf(1.0 / 3.0);
    (third - (1.0 - 2.0 / (9.0 * freedom))) / (2.0 / (9.0 * freedom)).sqrt()
}

/// Counts of what a chooser draws among `records` that do not change.
fn drawn(choice: Choice, records: u64, draws: u64) -> Vec<u64> {
    let population = Population::new(records, 1);
    let mut chooser = Chooser::new(choice, &population, 0).unwrap();
    let (mut rng, mut counts) = (Seeded::new(7), vec![0; records as usize]);
    (0..draws).for_each(|_| counts[chooser.choose(&mut rng) as usize] += 1);
    counts
}

/// The sum over `1 / k^skew` for k from 1 to n, by Euler and Maclaurin beyond the first million.
fn zeta(n: u64) -> f64 {
    let head = n.min(1_000_000);
    let sum: f64 = (1..=head).map(|k| (k as f64).powf(-SKEW)).sum();
    let (a, b) = (head as f64, n as f64);
    let tail = (b.powf(1.0 - SKEW) - a.powf(1.0 - SKEW)) / (1.0 - SKEW);
    sum + tail + (b.powf(-SKEW) - a.powf(-SKEW)) / 2.0
}

#[test]
fn uniform_is_uniform() {
    let counts = drawn(Choice::Uniform, 1000, 1_000_000);
    assert!(surprise(&counts, &[1000.0; 1000]).abs() < 4.0);
    // The check can fail: one record in ten is expected to be hot by a tenth.
    let skewed: Vec<f64> = (0..1000).map(|i| if i % 10 == 0 { 1100.0 } else { 988.9 }).collect();
    assert!(surprise(&counts, &skewed) > 4.0);
}

#[test]
fn latest_is_zipf_from_the_end() {
    let (records, draws) = (10_000, 3_000_000);
    let counts = drawn(Choice::Latest { skew: SKEW }, records, draws);
    let sum = zeta(records);
    let expected = |skew: f64| -> Vec<f64> {
        let rank = |record: u64| (records - record) as f64;
        (0..records).map(|record| draws as f64 * rank(record).powf(-skew) / sum).collect()
    };
    assert!(surprise(&counts, &expected(SKEW)).abs() < 4.0);
    let scale = |v: Vec<f64>| {
        let total: f64 = v.iter().sum();
        v.into_iter().map(move |e| e * draws as f64 / total).collect::<Vec<_>>()
    };
    assert!(surprise(&counts, &scale(expected(0.98))) > 4.0, "0.98 can be told from 0.99");
}

#[test]
fn zipf_is_ycsbs_scrambled_zipfian() {
    let (records, draws) = (1000_u64, 3_000_000_u64);
    let counts = drawn(Choice::Zipf { skew: SKEW }, records, draws);
    // The heaviest two million ranks fall where they are hashed to, all that is left evenly.
    let (ranks, sum) = (2_000_000_u64, zeta(10_000_000_000));
    assert!((sum - 26.469_028_201_783_02).abs() < 1e-6, "YCSB's own constant; here {sum}");
    let even = (1.0 - zeta(ranks) / sum) / records as f64;
    let mut share = vec![even; records as usize];
    for rank in 0..ranks {
        share[(scatter(rank) % records) as usize] += ((rank + 1) as f64).powf(-SKEW) / sum;
    }
    let expected: Vec<f64> = share.iter().map(|share| share * draws as f64).collect();
    assert!(surprise(&counts, &expected).abs() < 4.0);
    let hottest = share.iter().copied().fold(0.0, f64::max);
    assert!((0.037..0.042).contains(&hottest), "{hottest}");
}

#[test]
fn the_hottest_stay_the_hottest_while_others_are_inserted() {
    let population = Population::new(1000, 1);
    let mut chooser = Chooser::new(Choice::Zipf { skew: SKEW }, &population, 500).unwrap();
    let inserter = population.inserter(0);
    let mut rng = Seeded::new(3);
    let mut hottest = |rng: &mut Seeded| {
        let mut counts = BTreeMap::new();
        for _ in 0..50_000 {
            let record = chooser.choose(rng);
            assert!(record < population.len());
            // Records that come later may be hotter still.
            *counts.entry(record).or_insert(0) += u32::from(record < 1000);
        }
        counts.into_iter().max_by_key(|(_, count)| *count).unwrap().0
    };
    let before = hottest(&mut rng);
    for _ in 0..700 {
        inserter.begin(u64::MAX).unwrap();
        inserter.acknowledge();
    }
    assert_eq!(hottest(&mut rng), before);
}

#[test]
fn hotspot_keeps_its_shares() {
    let counts = drawn(Choice::Hotspot { records: 0.2, requests: 0.8 }, 1000, 1_000_000);
    let expected: Vec<f64> = (0..1000).map(|i| if i < 200 { 4000.0 } else { 250.0 }).collect();
    assert!(surprise(&counts, &expected).abs() < 4.0);
    assert_eq!(drawn(Choice::Hotspot { records: 1.0, requests: 0.8 }, 10, 100).iter().sum::<u64>(), 100);
}

fn requests(workload: Workload, records: u64, requests: u64, tasks: usize) -> Vec<Vec<KvRequest>> {
    let job = Job { workload, records, requests, tasks, seed: 11 };
    job.streams().unwrap().into_iter().map(Iterator::collect).collect()
}

#[test]
fn kinds_have_the_shares_of_their_workloads() {
    // From YCSB's files workloada to workloadf.
    let defined: [(Workload, &[(Kind, f64)]); 6] = [
        (Workload::YcsbA, &[(Kind::Read, 0.5), (Kind::Update, 0.5)]),
        (Workload::YcsbB, &[(Kind::Read, 0.95), (Kind::Update, 0.05)]),
        (Workload::YcsbC, &[(Kind::Read, 1.0)]),
        (Workload::YcsbD, &[(Kind::Read, 0.95), (Kind::Insert, 0.05)]),
        (Workload::YcsbE, &[(Kind::Scan, 0.95), (Kind::Insert, 0.05)]),
        (Workload::YcsbF, &[(Kind::Read, 0.5), (Kind::ReadModifyWrite, 0.5)]),
    ];
    for (workload, shares) in defined {
        let all = requests(workload, 1000, 200_000, 1).remove(0);
        assert_eq!(all.len(), 200_000);
        let count = |kind| all.iter().filter(|request| request.kind == kind).count() as u64;
        let counts: Vec<u64> = shares.iter().map(|(kind, _)| count(*kind)).collect();
        assert_eq!(counts.iter().sum::<u64>(), 200_000, "{}: another kind", workload.name());
        if shares.len() > 1 {
            let expected: Vec<f64> = shares.iter().map(|(_, share)| share * 200_000.0).collect();
            assert!(surprise(&counts, &expected).abs() < 4.0, "{}", workload.name());
        }
    }
}

#[test]
fn scans_are_of_every_length_up_to_a_hundred() {
    let all = requests(Workload::YcsbE, 1000, 200_000, 1).remove(0);
    let mut counts = vec![0; 100];
    for scan in all.iter().filter(|request| request.kind == Kind::Scan) {
        counts[scan.records as usize - 1] += 1;
    }
    let each = counts.iter().sum::<u64>() as f64 / 100.0;
    assert!(surprise(&counts, &[each; 100]).abs() < 4.0);
}

#[test]
fn what_fills_a_store_fills_it() {
    for workload in [Workload::FillSeq, Workload::YcsbLoad] {
        let mut records: Vec<u64> =
            requests(workload, 1000, 1000, 3).concat().iter().map(|r| r.record).collect();
        records.sort_unstable();
        assert!(records.into_iter().eq(0..1000), "{}: each once", workload.name());
        assert_eq!(requests(workload, 1000, 2000, 1)[0].len(), 1000, "no more than there are");
    }
    assert!(requests(Workload::FillSeq, 1000, 1000, 1)[0].is_sorted_by_key(|request| request.record));
    for workload in [Workload::FillRandom, Workload::Overwrite, Workload::ReadRandom] {
        let all = requests(workload, 1000, 300_000, 2).concat();
        let mut counts = vec![0; 1000];
        all.iter().for_each(|request| counts[request.record as usize] += 1);
        assert!(surprise(&counts, &[300.0; 1000]).abs() < 4.0);
    }
}

#[test]
fn inserts_go_on_behind_what_was_loaded_and_reads_find_what_they_ask_for() {
    let job = Job { workload: Workload::YcsbD, records: 100, requests: 4000, tasks: 2, seed: 5 };
    let mut streams = job.streams().unwrap();
    let (mut there, mut under_way) = (100, [None, None]);
    let mut left = [true, true];
    let mut turn = Seeded::new(1);
    while left.contains(&true) {
        let task = turn.below(2) as usize;
        // Asking says that the insert before is done; records count without gaps.
        under_way[task] = None;
        let Some(request) = streams[task].next() else {
            left[task] = false;
            continue;
        };
        match request.kind {
            Kind::Insert => {
                assert_eq!(request.record, there);
                there += 1;
                under_way[task] = Some(request.record);
            }
            _ => {
                let counts = under_way.iter().flatten().fold(there, |least, number| least.min(*number));
                assert!(request.record < counts, "{} of {counts}", request.record);
            }
        }
    }
    assert!((250..350).contains(&there), "{there}");
}

#[test]
fn a_seed_decides_and_tasks_differ() {
    let twice = [requests(Workload::YcsbA, 1000, 1001, 2), requests(Workload::YcsbA, 1000, 1001, 2)];
    assert_eq!(twice[0], twice[1]);
    assert_eq!((twice[0][0].len(), twice[0][1].len()), (501, 500));
    assert_ne!(twice[0][0][..100], twice[0][1][..100]);
}

#[test]
fn jobs_without_records_or_tasks_are_refused() {
    let job = Job { workload: Workload::YcsbA, records: 10, requests: 10, tasks: 1, seed: 1 };
    assert!(Job { records: 0, ..job }.streams().is_err() && Job { tasks: 0, ..job }.streams().is_err());
    for workload in Workload::ALL {
        assert_eq!(Workload::named(workload.name()), Some(workload));
        let total: f64 = workload.mix().shares.iter().map(|(_, share)| share).sum();
        assert!((total - 1.0).abs() < 1e-9);
        assert!(workload.after().is_none_or(|before| before.after().is_none()));
    }
}
