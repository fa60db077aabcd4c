//! A store on the board of FlashKV, in virtual time: `on_board SYSTEM WORKLOAD RECORDS REQUESTS CACHE_MIB CHANNELS PAGES BLOCKS settle|no`.

use vellum_lab::kv_bench::device::{DevicePlan, run};
use vellum_trace::generate::kv::Workload;

fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    let n = |i: usize| a[i].parse::<u64>().unwrap();
    let plan = DevicePlan {
        system: a[0].clone(),
        workload: Workload::named(&a[1]).unwrap(),
        channels: n(5) as u32,
        pages_per_block: n(6) as u32,
        blocks_per_channel: n(7) as u32,
        records: n(2),
        requests: n(3),
        value_bytes: 1000,
        clients: 8,
        cache_bytes: (n(4) << 20) as usize,
        settle: a[8] == "settle",
        seed: 1,
    };
    println!("{}", serde_json::to_string_pretty(&run(&plan).unwrap()).unwrap());
}
