//! A disk whose image rots while closed: all of it is read back correctly, and a scrub heals it.

use crate::support::Home;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use vellum::base::{BlockDevice, Flash, Lba};
use vellum::media::Image;
use vellum::{OpenMode, Stack};

const SECTORS: u64 = 4096;

/// What is written: whole sectors of data, copies of them as made by a journal, nearly empty and empty ones.
struct Written {
    sectors: Vec<[u8; 4096]>,
}

impl Written {
    /// Fills a new disk repeatedly, so that collection and checkpoints take part.
    fn to(image: &Path, rounds: u64) -> Written {
        let mut written = Written { sectors: vec![[0; 4096]; SECTORS as usize] };
        let mut rng = SmallRng::seed_from_u64(8);
        for _ in 0..2 {
            let stack = Stack::open(image, OpenMode::default()).unwrap();
            for round in 0..rounds {
                written.some(stack.disk().as_ref(), &mut rng);
                if round % 16 == 0 {
                    stack.disk().flush().unwrap();
                }
            }
            stack.close().unwrap();
        }
        written
    }

    fn some(&mut self, disk: &dyn BlockDevice, rng: &mut SmallRng) {
        let (first, count) = (rng.random_range(0..SECTORS - 32), rng.random_range(1..32));
        for lba in first..first + count {
            let mut sector = [0; 4096];
            match rng.random_range(0..8) {
                0 => {}
                1 => sector[rng.random_range(0..4096usize)] = 7,
                2 => sector = self.sectors[rng.random_range(0..SECTORS) as usize],
                _ => rng.fill_bytes(&mut sector),
            }
            self.sectors[lba as usize] = sector;
        }
        let bytes: Vec<u8> = self.sectors[first as usize..][..count as usize].concat();
        disk.write(Lba(first), &bytes, false).unwrap();
    }

    /// Compares every sector; returns how many wrong bits were corrected.
    fn compare(&self, image: &Path) -> u64 {
        let stack = Stack::open(image, OpenMode { read_only: true, ..OpenMode::default() }).unwrap();
        let before = stack.flash().counters();
        for (lba, sector) in (0..).zip(&self.sectors) {
            let mut found = [1; 4096];
            stack.disk().read(Lba(lba), &mut found).unwrap_or_else(|e| panic!("sector {lba}: {e}"));
            assert!(found == *sector, "sector {lba} is wrong");
        }
        let now = stack.flash().counters();
        assert_eq!(now.reads_uncorrectable, before.reads_uncorrectable);
        now.bits_corrected - before.bits_corrected
    }
}

/// Flips one random bit in each `stretch` bytes of the block table's first copy and of all pages.
fn rot(image: &Path, stretch: u64, seed: u64) {
    let info = Image::inspect(image).unwrap();
    let table = 16384 + info.nvram_bytes.next_multiple_of(4096);
    let table_bytes = (u64::from(info.geometry.blocks()) * 16).next_multiple_of(4096);
    let file = OpenOptions::new().read(true).write(true).open(image).unwrap();
    let end = file.metadata().unwrap().len();
    let mut rng = SmallRng::seed_from_u64(seed);
    for (from, to) in [(table, table + table_bytes), (table + 2 * table_bytes, end)] {
        for at in (from..to).step_by(stretch as usize) {
            let mut bytes = vec![0; stretch.min(to - at) as usize];
            file.read_exact_at(&mut bytes, at).unwrap();
            if bytes.iter().all(|byte| *byte == 0) {
                continue; // usually a hole
            }
            let bit = rng.random_range(0..8 * bytes.len());
            file.write_all_at(&[bytes[bit / 8] ^ 1 << (bit % 8)], at + bit as u64 / 8).unwrap();
        }
    }
}

fn rots_and_heals(options: &str) {
    let home = Home::new();
    let image = home.path("d");
    home.ok(&format!("disk create d --size 16MiB {options}"));
    let written = Written::to(&image, 150);
    assert_eq!(written.compare(&image), 0);
    // One wrong bit per codeword, sometimes another in its parity or header; then the same again.
    for seed in 0..2 {
        rot(&image, 1024, seed);
    }
    let put_right = written.compare(&image);
    assert!(put_right > 1000, "{options}: {put_right} bits");
    let found = home.json("disk check d");
    assert_eq!((&found["clean"], &found["reads_uncorrectable"]), (&true.into(), &0.into()), "{found}");
    assert!(found["bits_corrected"].as_u64().unwrap() > 1000, "{found}");
    let scrubbed = home.json("disk scrub d");
    assert!(scrubbed["refreshed"].as_u64().unwrap() > 500, "{scrubbed}");
    assert_eq!(written.compare(&image), 0, "{options}: healed");
    let healed = home.json("disk check d");
    assert_eq!((&healed["clean"], &healed["bits_corrected"]), (&true.into(), &0.into()), "{healed}");
    let again = home.json("disk scrub d");
    assert_eq!((&again["refreshed"], &again["bits_corrected"]), (&0.into(), &0.into()), "{again}");
    let stat = home.json("disk stat d");
    assert!(stat["code"]["bits_corrected"].as_u64().unwrap() > 1000, "counters survive: {}", stat["code"]);
    assert_eq!(stat["code"]["reads_uncorrectable"], 0);
}

#[test]
fn wrong_bits_in_every_codeword_cost_nothing_and_a_scrub_heals_them() {
    for options in
        ["", "--page 16KiB --scrambler lba", "--ecc 16/17 --codeword 4KiB --scrambler page:64 --nvram none"]
    {
        rots_and_heals(options);
    }
}

#[test]
fn without_a_code_rot_is_seen_and_lost() {
    let home = Home::new();
    let image = home.path("d");
    home.ok("disk create d --size 16MiB --ecc none");
    let written = Written::to(&image, 150);
    assert_eq!(written.compare(&image), 0);
    assert_eq!(home.json("disk stat d")["code"]["name"], serde_json::Value::Null);
    let info = Image::inspect(&image).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(&image).unwrap();
    let stripes = file.metadata().unwrap().len() / 2;
    let mut bytes = vec![0; 1 << 20];
    file.read_exact_at(&mut bytes, stripes).unwrap();
    bytes.iter_mut().step_by(4096).filter(|byte| **byte != 0).for_each(|byte| *byte ^= 1);
    file.write_all_at(&bytes, stripes).unwrap();
    assert!(info.coding.is_none());
    let found = home.run("disk check d --json");
    assert_eq!(found.code, 1, "{}", found.out);
}
