//! How long the flash of a modelled drive is busy when the disk in an image is opened: `modelled_open IMAGE PRESET`.
//! The image is opened read-only and not changed; it has its own geometry, and the timing of the preset. Recovery
//! rarely waits for one read before it issues the next, so, apart from computation, it takes as long as the busiest die
//! or channel is busy. Prints one line of JSON.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{Error, Flash, Result};
use vellum_disk::{Disk, Options};
use vellum_media::{Image, Preset, Timed};
use vellum_sim::{Sim, SimConfig};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(image), Some(preset)) = (arguments.next(), arguments.next()) else {
        return Err(Error::invalid("usage: modelled_open IMAGE PRESET"));
    };
    let preset = Preset::by_name(&preset)?;
    let sim = Sim::with(SimConfig { stack_bytes: 4 << 20, ..SimConfig::new(1) });
    let env = sim.env();
    let (busy_ns, pages_read) = (AtomicU64::new(0), AtomicU64::new(0));
    sim.run(|| {
        let image = Arc::new(Image::open(Path::new(&image), true)?);
        let before = image.counters().pages_read;
        let flash = Arc::new(Timed::new(image.clone(), preset.timing, env.clone()));
        let options = Options { read_only: true, ..Options::default() };
        drop(Disk::open(flash.clone(), env.clone(), options)?);
        let used = flash.utilisation();
        let busiest = used.channels.iter().chain(&used.dies).max();
        busy_ns.store(busiest.map_or(0, |busy| busy.0), Relaxed);
        pages_read.store(image.counters().pages_read - before, Relaxed);
        Ok::<(), Error>(())
    })?;
    println!(
        "{{\"preset\":\"{}\",\"busy_ms\":{:.1},\"pages_read\":{}}}",
        preset.name,
        busy_ns.into_inner() as f64 / 1e6,
        pages_read.into_inner()
    );
    Ok(())
}
