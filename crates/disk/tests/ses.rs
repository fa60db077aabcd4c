//! Host-side SES: a host that has learned the device's scrambler gets its data stored plain, and the device all it
//! needs to deduplicate. The scrambler is learned here as an attacker would: from raw bytes of the flash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vellum_base::{
    Avoided, BlockAddr, BlockDevice, Env, Flash, Geometry, IoClass, Kind, Lba, Nanos, RealEnv, SECTOR_BYTES,
    Scrambling, Task,
};
use vellum_codes::scrambler::{BitOrder, Lfsr, Limits, Scrambler, SeedMap, survey};
use vellum_disk::{CpuModel, DedupMode, DedupWhen, Disk, Format, Options, ses};
use vellum_media::nand::{BitErrors, Nand, NandParams};
use vellum_media::{Coded, Coding};

const GEOMETRY: Geometry = Geometry {
    channels: 2,
    dies_per_channel: 1,
    blocks_per_die: 32,
    pages_per_block: 32,
    page_bytes: 8192,
    oob_bytes: 128,
};
const SECTORS: u64 = 2000;

type Flashes = Arc<Coded<Nand>>;

fn flash(scrambling: Scrambling) -> Flashes {
    let coding = Coding { scrambling, ..Coding::PAPER };
    let nand = Nand::ram(coding.geometry_below(&GEOMETRY).unwrap(), NandParams::default()).unwrap();
    Arc::new(Coded::new(nand, GEOMETRY.oob_bytes, coding).unwrap())
}

fn format(flash: &Flashes, dedup: DedupMode) {
    let format = Format { dedup, ..Format::new(SECTORS) };
    Disk::format(flash.clone(), RealEnv::new(), &format).unwrap();
}

fn open(flash: &Flashes, host_scrambles: bool) -> Arc<Disk> {
    // A table with room for all: in a small one a bucket may overflow, depending on the random seed.
    let dedup_table_share = 1.0;
    let options =
        Options { host_scrambles, dedup_when: DedupWhen::Inline, dedup_table_share, ..Options::default() };
    Arc::new(Disk::open(flash.clone(), RealEnv::new(), options).unwrap())
}

fn text(id: u64) -> Vec<u8> {
    let mut state = id + 1;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        b"abcdefghijklmnop"[(state >> 60) as usize]
    };
    (0..SECTOR_BYTES).map(|_| next()).collect()
}

/// The bytes of a sector as stored in the cells.
fn raw(flash: &Flashes, disk: &Disk, lba: u64) -> Vec<u8> {
    let slot = disk.slot_of(Lba(lba)).unwrap().unwrap_or_else(|| panic!("sector {lba} is not on flash"));
    let (page, index) = GEOMETRY.page_of_slot(slot);
    let mut data = vec![0; SECTOR_BYTES];
    flash.inner().read(IoClass::Background, page, index * SECTOR_BYTES as u32, &mut data, &mut []).unwrap();
    data
}

/// Writes known text, reads the cells, and learns the scrambler.
fn learned(flash: &Flashes) -> Scrambler {
    format(flash, DedupMode::None);
    let disk = open(flash, false);
    let powers = (0..11).map(|bit| 1 << bit).filter(|power| *power < SECTORS);
    let lbas: Vec<u64> = [0].into_iter().chain(powers).chain((1..24).map(|i| i * 83)).collect();
    lbas.iter().for_each(|lba| disk.write(Lba(*lba), &text(*lba), false).unwrap());
    disk.flush().unwrap();
    let pieces = lbas.iter().filter(|lba| disk.slot_of(Lba(**lba)).unwrap().is_some()).map(|lba| {
        let mut stored = raw(flash, &disk, *lba);
        stored.iter_mut().zip(text(*lba)).for_each(|(stored, written)| *stored ^= written);
        (*lba, stored)
    });
    let pieces: Vec<(u64, Vec<u8>)> = pieces.collect();
    let views: Vec<(u64, &[u8])> = pieces.iter().map(|(lba, piece)| (*lba, &piece[..])).collect();
    survey(&views, &[], &Limits::default()).unwrap().scrambler
}

fn read(device: &dyn BlockDevice, lba: u64) -> Vec<u8> {
    let mut data = vec![0; SECTOR_BYTES];
    device.read(Lba(lba), &mut data).unwrap();
    data
}

#[test]
fn a_host_that_knows_the_scrambler_gets_plain_data_onto_flash() {
    let flash = flash(Scrambling::BySector);
    let scrambler = learned(&flash);
    for dedup in [DedupMode::None, DedupMode::Strong(vellum_codes::HashKind::Sha1), DedupMode::Ecc] {
        format(&flash, dedup);
        let disk = open(&flash, true);
        let host = ses::host_side(disk.clone(), scrambler.clone()).unwrap();
        (0..400).for_each(|lba| host.write(Lba(lba), &text(lba % 100), false).unwrap());
        host.write(Lba(500), &[0; 3 * SECTOR_BYTES], false).unwrap();
        host.write_zeroes(Lba(510), 3, false).unwrap();
        host.write(Lba(520), &text(1), false).unwrap();
        host.trim(Lba(520), 1).unwrap();
        host.flush().unwrap();
        let written = disk.ledger();
        assert_eq!(written.avoided_by(Avoided::Zero), 6 * 4096, "zeros are seen as such");
        let programmed = written.programmed_by(vellum_base::Cause::HostData);
        assert_eq!(programmed, if dedup == DedupMode::None { 401 } else { 100 } * 4096, "{dedup:?}");
        let on_flash = (0..400).filter(|lba| disk.slot_of(Lba(*lba)).unwrap().is_some());
        for lba in on_flash {
            assert!(raw(&flash, &disk, lba) == text(lba % 100), "sector {lba} is plain");
        }
        drop((host, disk));
        let disk = open(&flash, true);
        let host = ses::host_side(disk.clone(), scrambler.clone()).unwrap();
        let mut many = vec![0; 400 * SECTOR_BYTES];
        host.read(Lba(0), &mut many).unwrap();
        for (lba, sector) in (0..).zip(many.chunks(SECTOR_BYTES)) {
            assert!(sector == text(lba % 100), "sector {lba}");
        }
        for lba in [500, 502, 511, 520, 1999] {
            assert!(read(&*host, lba).iter().all(|byte| *byte == 0), "sector {lba}");
        }
        assert!(host.write(Lba(0), &[0; 100], false).is_err());
        let options = Options { host_scrambles: true, read_only: true, ..Options::default() };
        let reader = Arc::new(Disk::open(flash.clone(), RealEnv::new(), options).unwrap());
        let reader = ses::host_side(reader, scrambler.clone()).unwrap();
        assert!(read(&*reader, 399) == text(99) && reader.info().read_only);
        drop(host);
        assert!(read(&*disk, 7) == text(7), "the disk itself has it plain");
    }
}

#[test]
fn stat_says_who_undoes_the_scrambler_and_where_data_are_not_plain() {
    let flash = flash(Scrambling::BySector);
    let scrambler = learned(&flash);
    format(&flash, DedupMode::None);
    let code = |disk: &Disk| {
        let code = disk.stat().code;
        (code.unscrambled_by, code.sectors_plain, code.sectors_noise)
    };
    let disk = open(&flash, true);
    let host = ses::host_side(disk.clone(), scrambler).unwrap();
    (0..20).for_each(|lba| host.write(Lba(lba), &text(lba), false).unwrap());
    (20..25).for_each(|lba| host.write(Lba(lba), &[lba as u8; SECTOR_BYTES], false).unwrap());
    host.flush().unwrap();
    assert_eq!(code(&disk), (Some("host"), 20, 5));
    drop((host, disk));
    let disk = open(&flash, false);
    disk.write(Lba(30), &text(30), true).unwrap();
    assert_eq!(code(&disk), (Some("device"), 0, 0));
}

#[test]
fn data_stored_in_one_mode_are_read_in_the_other() {
    let flash = flash(Scrambling::BySector);
    let scrambler = learned(&flash);
    format(&flash, DedupMode::Strong(vellum_codes::HashKind::Sha1));
    let disk = open(&flash, false);
    (0..50).for_each(|lba| disk.write(Lba(lba), &text(lba), false).unwrap());
    disk.close().unwrap();
    assert!(raw(&flash, &disk, 9) != text(9), "a device that scrambles stores noise");
    drop(disk);
    let disk = open(&flash, true);
    let host = ses::host_side(disk.clone(), scrambler).unwrap();
    (50..100).for_each(|lba| host.write(Lba(lba), &text(lba - 50), false).unwrap());
    assert_eq!(disk.ledger().avoided_by(Avoided::Duplicate), 50 * 4096, "across the modes");
    (0..100).for_each(|lba| assert!(read(&*host, lba) == text(lba % 50), "sector {lba}"));
    host.flush().unwrap();
    drop((host, disk));
    let disk = open(&flash, false);
    (0..100).for_each(|lba| assert!(read(&*disk, lba) == text(lba % 50), "sector {lba}"));
}

#[test]
fn another_scrambler_is_refused_before_it_does_harm() {
    let by_sector = flash(Scrambling::BySector);
    let scrambler = learned(&by_sector);
    format(&by_sector, DedupMode::None);
    let disk = open(&by_sector, true);
    let refused = |scrambler: Scrambler| ses::host_side(disk.clone(), scrambler).err().unwrap();
    let other = Scrambler::new(Lfsr::X64, BitOrder::LsbFirst, SeedMap::mixed(1, 64));
    let error = refused(other);
    assert!(error.to_string().contains("another keystream for sector 0"), "{error}");
    let facts: Vec<_> = scrambler.map().facts().collect();
    let less = SeedMap::of_facts(facts[..5].iter().copied()).unwrap();
    let error = refused(Scrambler::new(scrambler.lfsr(), scrambler.order(), less));
    assert!(error.to_string().contains("does not follow"), "{error}");
    let slip = facts.iter().map(|(address, state)| (*address, state ^ u64::from(*address > 1000)));
    let slip = SeedMap::of_facts(slip).unwrap();
    assert_eq!(refused(Scrambler::new(scrambler.lfsr(), scrambler.order(), slip)).kind(), Kind::Invalid);

    for (scrambling, why) in [
        (Scrambling::Off, "nothing for a host to undo"),
        (Scrambling::ByPage { period: 64 }, "physical page"),
    ] {
        let flash = flash(scrambling);
        format(&flash, DedupMode::None);
        let error = ses::host_side(open(&flash, true), scrambler.clone()).err().unwrap();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// Counts the time charged to the controller's core.
struct Charged(Arc<RealEnv>, AtomicU64);

impl Env for Charged {
    fn now(&self) -> Nanos {
        self.0.now()
    }
    fn sleep_until(&self, time: Nanos) {
        self.0.sleep_until(time);
    }
    fn charge(&self, cpu: Nanos) {
        self.1.fetch_add(cpu.0, Relaxed);
    }
    fn spawn(self: Arc<Self>, name: &str, run: Box<dyn FnOnce() + Send>) -> Task {
        self.0.clone().spawn(name, run)
    }
    fn random(&self) -> u64 {
        7
    }
}

#[test]
fn the_parity_of_plain_data_costs_the_controller_nothing() {
    let flash = flash(Scrambling::BySector);
    let charged = |dedup: DedupMode, host_scrambles: bool| {
        format(&flash, dedup);
        let env = Arc::new(Charged(RealEnv::new(), AtomicU64::new(0)));
        let cpu = CpuModel { hash: Nanos::from_us(7), request: Nanos::from_us(1) };
        let when = DedupWhen::Inline;
        let options = Options { host_scrambles, cpu, dedup_when: when, ..Options::default() };
        let disk = Disk::open(flash.clone(), env.clone(), options).unwrap();
        env.1.store(0, Relaxed);
        (0..10).for_each(|lba| disk.write(Lba(lba), &text(lba), false).unwrap());
        env.1.load(Relaxed)
    };
    assert_eq!(charged(DedupMode::Ecc, false), 80_000, "undoing the scrambler in the parity takes time");
    assert_eq!(charged(DedupMode::Ecc, true), 10_000, "requests alone");
    let strong = DedupMode::Strong(vellum_codes::HashKind::Sha256);
    assert_eq!(charged(strong, true), 80_000, "a hash is a hash");
}

/// Share of equal neighbouring words, over all written blocks.
fn alikeness(flash: &Flashes) -> f64 {
    let written = |block: &BlockAddr| flash.report(*block).pages_written > 0;
    let blocks = (0..GEOMETRY.blocks()).map(BlockAddr).filter(written);
    let each: Vec<f64> = blocks.map(|block| flash.inner().alikeness(block).unwrap()).collect();
    each.iter().sum::<f64>() / each.len() as f64
}

/// Typical contents of a host: sectors full of one byte, a repeated template, half-empty ones, and text.
fn habits(lba: u64) -> Vec<u8> {
    match lba / 300 {
        0 => vec![0x5A; SECTOR_BYTES],
        1 => text(7),
        2 => [&text(lba)[..2048], &[0; 2048]].concat(),
        3 => vec![lba as u8 | 1; SECTOR_BYTES],
        _ => text(lba),
    }
}

#[test]
fn plain_data_do_not_put_alike_cells_side_by_side() {
    let alike = |scrambling, host: bool| {
        let flash = flash(scrambling);
        let scrambler = host.then(|| learned(&flash));
        format(&flash, DedupMode::None);
        let disk = open(&flash, host);
        let device: Arc<dyn BlockDevice> = match scrambler {
            Some(scrambler) => ses::host_side(disk, scrambler).unwrap(),
            None => disk,
        };
        (0..1900).for_each(|lba| device.write(Lba(lba), &habits(lba), false).unwrap());
        device.flush().unwrap();
        (0..1900).for_each(|lba| assert!(read(&*device, lba) == habits(lba), "sector {lba}"));
        alikeness(&flash)
    };
    let (plain, host, noise) = (
        alike(Scrambling::Off, false),
        alike(Scrambling::BySector, true),
        alike(Scrambling::BySector, false),
    );
    let rate = |alike| BitErrors::default().rate_alike(3000, 3000, alike);
    let [at_plain, at_host, at_noise] = [plain, host, noise].map(rate);
    println!(
        "alike words: plain {plain:.3}, host-side {host:.3}, scrambled {noise:.3}; \
         raw bit error rate at rated wear: {at_plain:.2e}, {at_host:.2e}, {at_noise:.2e}"
    );
    assert!(plain > 0.4, "{plain}");
    // The rest is metadata and padding.
    assert!(noise < 0.03 && host < noise + 0.005, "{host} {noise}");
    assert!(at_plain > 3.0 * at_host && at_host < 1.1 * at_noise);
}
