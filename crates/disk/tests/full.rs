//! Disks as large as their flash allows, full, overwritten indefinitely: on healthy flash they never lock up.

use crate::harness::{Steady, assert_sound, content, read};
use std::sync::Arc;
use vellum_base::{BlockDevice, Flash, Geometry, Lba};
use vellum_disk::{DedupMode, Disk, Format, Options, sectors_max};
use vellum_media::nand::{Nand, NandParams};

/// Without protected memory every flush fills pages with padding: the smaller the blocks and the larger the pages, the
/// less is gained by emptying one. 2 dies, or 1 where given.
const SHAPES: [(u32, u32, u32, u32); 7] = [
    // dies, blocks per die, pages per block, bytes per page
    (2, 20, 16, 4096),
    (2, 40, 16, 16384),
    (2, 100, 8, 16384),
    (2, 24, 16, 65536),
    (2, 150, 16, 4096),
    (1, 60, 32, 8192),
    (4, 30, 8, 8192),
];

fn overwrite_for_ever(shape: (u32, u32, u32, u32), dedup: DedupMode, nvram_bytes: usize, writes: u32) {
    let (dies, blocks_per_die, pages_per_block, page_bytes) = shape;
    let (dies_per_channel, oob_bytes) = (1, 32 * page_bytes / 4096);
    let geometry =
        Geometry { channels: dies, dies_per_channel, blocks_per_die, pages_per_block, page_bytes, oob_bytes };
    let flash = Arc::new(Nand::ram(geometry, NandParams { nvram_bytes, ..NandParams::default() }).unwrap());
    let sectors = sectors_max(&geometry, 0);
    let format = Format { dedup, uuid: [1; 16], ..Format::new(sectors) };
    Disk::format(flash.clone(), Steady::new(1), &format).unwrap();
    let open = || Disk::open(flash.clone(), Steady::new(1), Options::default()).unwrap();
    let mut disk = open();
    (0..sectors).for_each(|l| disk.write(Lba(l), &content(l as u32 * 8 + 5), false).unwrap());
    let mut holds: Vec<u32> = (0..sectors as u32).map(|l| l * 8 + 5).collect();
    let mut x = 1u64;
    for n in 0..writes {
        x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let lba = (x >> 33) % sectors;
        // One write in sixteen is packed into the log. The first sectors sometimes have equal contents: so few that the
        // disk is still full.
        let id = match (x >> 20) % 16 {
            0 => (n + 1_000_000) * 8 + 1,
            1..8 if lba < sectors / 32 => 13,
            _ => (n + 1_000_000) * 8 + 5,
        };
        disk.write(Lba(lba), &content(id), false).unwrap_or_else(|e| panic!("{shape:?}, write {n}: {e}"));
        holds[lba as usize] = id;
        if n % 64 == 0 {
            disk.flush().unwrap_or_else(|e| panic!("{shape:?}, flush at {n}: {e}"));
        }
        if n % 256 == 0 {
            let report = disk.check(false, |_, _| {}).unwrap();
            assert!(report.is_clean(), "{shape:?}, write {n}: {report:?}");
        }
        if n % (writes / 3) == 0 {
            drop(disk); // without closing: what was not flushed is written again
            disk = open();
            holds.iter().zip(0..).for_each(|(id, l)| disk.write(Lba(l), &content(*id), false).unwrap());
        }
    }
    holds.iter().zip(0..).for_each(|(id, lba)| assert!(read(&disk, lba) == content(*id), "sector {lba}"));
    assert_sound(&disk);
    let erased_per_write = flash.counters().blocks_erased as f64 / f64::from(writes);
    assert!(erased_per_write < 4.0, "{shape:?}: nothing is won by wearing flash out: {erased_per_write}");
}

#[test]
fn a_full_disk_never_runs_out_of_room() {
    for shape in SHAPES {
        overwrite_for_ever(shape, DedupMode::Journal, 0, 20_000);
    }
    overwrite_for_ever(SHAPES[1], DedupMode::Journal, 1 << 20, 20_000);
}

/// A slot shared by many sectors needs a record for each when it is moved.
#[test]
fn a_full_disk_with_shared_slots_never_runs_out_of_room() {
    for shape in [SHAPES[0], SHAPES[2], SHAPES[5]] {
        overwrite_for_ever(shape, DedupMode::Strong(vellum_codes::HashKind::Sha1), 0, 20_000);
    }
}
