use crate::support::*;
use std::sync::Arc;
use vellum_base::{Env, Flash, FlashOp, IoClass, Source};
use vellum_media::nand::{Nand, NandParams};
use vellum_media::presets::Preset;
use vellum_media::timing::Timed;

/// Bytes per second when `rows` pages of every die are programmed, then read.
fn sequential_throughput(preset: &Preset) -> (f64, f64) {
    let mut geometry = preset.geometry;
    geometry.blocks_per_die = 1;
    let env = ManualEnv::new();
    let nand = Arc::new(Nand::ram(geometry, NandParams::default()).unwrap());
    let flash = Timed::new(nand, preset.timing, env.clone() as Arc<dyn Env>);
    let rows = 200.min(geometry.pages_per_block);
    let bytes = (rows * geometry.dies()) as f64 * geometry.page_bytes as f64;
    let parts = [Source::Pad(geometry.page_bytes)];
    let all = || (0..rows).flat_map(|row| (0..geometry.dies()).map(move |die| (row, die)));
    let mut ops: Vec<_> = all()
        .map(|(row, die)| FlashOp::Program {
            page: geometry.block_on(die, 0).page(row),
            parts: &parts,
            oob: &[],
            seeds: &[],
        })
        .collect();
    let written = flash.submit(IoClass::Foreground, &mut ops).unwrap().at;
    env.sleep_until(written);
    let mut page = vec![0; geometry.page_bytes as usize];
    let read = all()
        .map(|(row, die)| {
            let page_address = geometry.block_on(die, 0).page(row);
            flash.read(IoClass::Foreground, page_address, 0, &mut page, &mut []).unwrap().at
        })
        .max()
        .unwrap();
    (bytes / (read - written).as_secs_f64(), bytes / written.as_secs_f64())
}

fn is_close(found: f64, want: f64) -> bool {
    (found / want - 1.0).abs() < 0.05
}

#[test]
fn sequential_throughput_is_as_the_papers_say() {
    for (name, read, write) in [
        ("intel-750", 2200e6, 900e6),
        ("intel-520", 550e6, 520e6),
        ("intel-x25m", 250e6, 70e6),
        ("open-channel-34", 34.0 * 94.62e6, 34.0 * 13.4e6),
    ] {
        let preset = Preset::by_name(name).unwrap();
        let found = sequential_throughput(&preset);
        assert!(is_close(found.0, read), "{name} reads {:.1} MB/s", found.0 / 1e6);
        assert!(is_close(found.1, write), "{name} writes {:.1} MB/s", found.1 / 1e6);
        assert!(preset.link_read_bytes_per_second as f64 >= read);
    }
}

#[test]
fn every_preset_is_possible_and_scales() {
    for preset in Preset::all() {
        preset.geometry.validate().unwrap();
        assert_eq!(Preset::by_name(preset.name).unwrap(), *preset);
        for bytes in [1, 4 << 30, 20 << 30] {
            let scaled = preset.with_capacity(bytes).unwrap();
            let row = scaled.geometry.block_bytes() * scaled.geometry.dies() as u64;
            let capacity = scaled.geometry.capacity_bytes();
            assert!(capacity >= bytes && capacity < bytes + row);
        }
        assert!(preset.with_capacity(1 << 60).is_err());
    }
    let error = Preset::by_name("floppy").unwrap_err().to_string();
    assert!(error.contains("tlc-modern"), "{error}");
}

#[test]
fn the_ses_dedup_drives_hold_32_gib() {
    for (name, program_us) in [("slc", 262.6), ("mlc-1", 390.0), ("mlc-2", 1084.4)] {
        let preset = Preset::by_name(name).unwrap();
        assert_eq!(preset.geometry.capacity_bytes(), 32 << 30);
        assert_eq!(preset.timing.program.0 as f64, program_us * 1000.0);
    }
}
