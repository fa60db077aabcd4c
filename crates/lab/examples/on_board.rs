//! A store on the board of FlashKV, in virtual time:
//! `on_board SYSTEM WORKLOAD RECORDS REQUESTS CACHE_MIB CHANNELS PAGES BLOCKS [settle]`.
//! PAGES of an erase block; BLOCKS of a channel, 0 for as many as no garbage collection needs; `settle` waits for
//! compaction between load and requests. Prints what it came to as JSON: all but the wall time is the same every time.

use vellum_base::{Error, Result};
use vellum_lab::kv_bench::device::{DevicePlan, run, systems};
use vellum_trace::generate::kv::Workload;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let plan = plan(&words).ok_or_else(|| {
        let names: Vec<&str> = systems().collect();
        Error::invalid(format!("see the head of this example; systems are {}", names.join(", ")))
    })?;
    let report = run(&plan)?;
    println!("{}", serde_json::to_string_pretty(&report).map_err(|e| Error::invalid(e.to_string()))?);
    Ok(())
}

fn plan(words: &[String]) -> Option<DevicePlan> {
    let number = |at: usize| words.get(at)?.parse::<u32>().ok();
    Some(DevicePlan {
        system: words.first()?.clone(),
        workload: Workload::named(words.get(1)?)?,
        records: number(2)?.into(),
        requests: number(3)?.into(),
        value_bytes: 1000,
        clients: 8,
        cache_bytes: (number(4)? as usize) << 20,
        channels: number(5)?,
        pages_per_block: number(6)?,
        blocks_per_channel: number(7)?,
        settle: words.get(8).is_some_and(|word| word == "settle"),
        seed: 1,
    })
}
