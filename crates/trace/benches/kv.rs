//! How many requests to a key-value store are made a second, on one core: `cargo bench -p vellum-trace --bench kv`.
//!
//! Each figure is the median of seven rounds of two million requests, over ten million records; with `keys`, each
//! request's key is made, too.

use std::hint::black_box;
use std::time::Instant;
use vellum_trace::generate::kv::{Job, Workload};

const RECORDS: u64 = 10_000_000;
const REQUESTS: u64 = 2_000_000;

#[expect(clippy::disallowed_methods, reason = "a bench measures real time")]
fn rate(workload: Workload, keys: bool) -> f64 {
    let job = Job { workload, records: RECORDS, requests: REQUESTS, tasks: 1, seed: 1 };
    let mut rates: Vec<f64> = (0..7)
        .map(|_| {
            let stream = job.streams().expect("a job").pop().expect("a task");
            let (mut key, start) = (Vec::new(), Instant::now());
            for request in stream {
                if keys {
                    workload.key_form().key(request.record, &mut key);
                }
                black_box((&request, &key));
            }
            REQUESTS as f64 / start.elapsed().as_secs_f64()
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    println!("{:<11} {:>10} {:>10}   million requests a second", "", "", "with keys");
    for workload in Workload::ALL {
        let millions = |keys| rate(workload, keys) / 1e6;
        println!("{:<11} {:>10.1} {:>10.1}", workload.name(), millions(false), millions(true));
    }
}
