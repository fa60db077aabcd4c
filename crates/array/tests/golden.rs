//! Devices of every version of the array's formats, kept as fixtures: they are found and read back for ever. What is
//! done to them is done again here, and must write what is in the fixtures, byte for byte.
//!
//! `VELLUM_GOLDEN=write cargo test -p vellum-array golden` makes the fixtures anew. That is right only before a version
//! is released; after that a new version gets fixtures of its own, and is the one that is written again.
//! Fixtures of caches of versions 2 and 3 are read only: what wrote them is no more.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use vellum_array::cache::Scheme;
use vellum_array::cache::engine::{CacheFormat, CacheOptions, CachedArray};
use vellum_array::{Array, Device, Format, Level, LogPlace, Mark, Options, assemble, create, examine_mark};
use vellum_base::{BlockDevice, Env, Lba, Nanos, SECTOR_BYTES};
use vellum_codes::pattern::Pattern;
use vellum_media::RamDisk;
use vellum_media::ramdisk::Power;
use vellum_sim::Sim;

const ROWS: u64 = 24;
/// From this version on a sector differs by so much that its delta is packed.
const LONG: u8 = 100;

/// What is kept of an array.
struct Rig {
    env: Arc<dyn Env>,
    disks: Vec<Arc<RamDisk>>,
    /// The log device, if there is one; the SSD; its NVRAM; a device that is to take a member's place.
    beside: Vec<Arc<RamDisk>>,
}

/// An array, and what happens to it.
struct Story {
    name: &'static str,
    format: Format,
    members: usize,
    /// Sectors of what is beside the members.
    beside: &'static [u64],
    /// Returns what its sectors may be.
    happens: fn(&Rig) -> Versions,
    /// Finds them so.
    is_found: fn(&Rig, &mut Versions),
}

/// Versions that each sector may have, the last flushed one first.
struct Versions(Vec<Vec<u8>>);

impl Versions {
    fn of(device: &dyn BlockDevice) -> Versions {
        Versions(vec![vec![0]; device.info().sectors as usize])
    }

    fn write(&mut self, device: &dyn BlockDevice, lba: u64, id: u8) {
        device.write(Lba(lba), &content(lba, id), false).unwrap();
        self.0[lba as usize].push(id);
    }

    fn flush(&mut self, device: &dyn BlockDevice) {
        device.flush().unwrap();
        self.0.iter_mut().for_each(|ids| drop(ids.drain(..ids.len() - 1)));
    }

    /// From here on each sector is what it is.
    fn settle(&mut self, device: &dyn BlockDevice, context: &str) {
        let mut found = [0; SECTOR_BYTES];
        for (lba, ids) in (0..).zip(&mut self.0) {
            device.read(Lba(lba), &mut found).unwrap();
            let id = ids.iter().copied().find(|id| content(lba, *id) == found);
            *ids = vec![id.unwrap_or_else(|| panic!("{context}: sector {lba} is none of {ids:?}"))];
        }
    }
}

/// What is compressed well, and differs from version to version by a little.
fn content(lba: u64, id: u8) -> [u8; SECTOR_BYTES] {
    if id == 0 {
        return [0; SECTOR_BYTES];
    }
    let mut sector = [lba as u8 | 1; SECTOR_BYTES];
    let mut unlike = [0; SECTOR_BYTES];
    Pattern::unique(id.into()).fill(&mut unlike);
    if id >= LONG {
        sector[500..2000].iter_mut().enumerate().for_each(|(i, byte)| *byte = (i % 97) as u8);
    }
    let at = usize::from(id) * 41 % 3000;
    sector[at..at + 300].copy_from_slice(&unlike[..300]);
    sector
}

impl Rig {
    fn new(story: &Story, env: Arc<dyn Env>) -> Rig {
        let power = Power::new(1);
        let sectors = 256 + ROWS * u64::from(story.format.chunk_sectors) + 1;
        let disks = (0..story.members).map(|_| RamDisk::new(sectors, &power)).collect();
        let beside = story.beside.iter().map(|sectors| RamDisk::new(*sectors, &power)).collect();
        Rig { env, disks, beside }
    }

    fn map(&self, with: impl Fn(&RamDisk) -> Arc<RamDisk>) -> Rig {
        let all = |disks: &[Arc<RamDisk>]| disks.iter().map(|disk| with(disk)).collect();
        Rig { env: self.env.clone(), disks: all(&self.disks), beside: all(&self.beside) }
    }

    fn fork(&self) -> Rig {
        let power = Power::new(2);
        self.map(|disk| disk.fork(&power))
    }

    fn all(&self) -> impl Iterator<Item = &Arc<RamDisk>> {
        self.disks.iter().chain(&self.beside)
    }

    fn log(&self, format: &Format) -> Option<Device> {
        (format.log == LogPlace::Device).then(|| self.beside(0))
    }

    fn beside(&self, at: usize) -> Device {
        self.beside[at].clone()
    }

    fn devices(&self, without: &[usize]) -> Vec<Device> {
        let kept = self.disks.iter().enumerate().filter(|(role, _)| !without.contains(role));
        kept.map(|(_, disk)| disk.clone() as Device).collect()
    }

    fn assemble(&self, log: Option<&Device>, without: &[usize]) -> Array {
        assemble(&self.devices(without), log, self.env.clone(), Options::default()).unwrap()
    }

    /// Whoever is left out, the same is read.
    fn assert_redundant(&self, log: bool, versions: &mut Versions) {
        for role in 0..self.disks.len() {
            let rig = self.fork();
            let log = log.then(|| rig.beside(0));
            versions.settle(&rig.assemble(log.as_ref(), &[role]), &format!("without {role}"));
        }
    }
}

/// Rows of several kinds: written as a whole, in parts, without their parity, zeroed; and more writes since the last
/// flush.
fn live(array: &Array) -> Versions {
    let (mut versions, row_sectors) = (Versions::of(array), array.status().shape.row_sectors());
    (0..8 * row_sectors).for_each(|lba| versions.write(array, lba, 1));
    for row in [1, 5, 20] {
        let lba = row * row_sectors;
        array.write_without_parity_update(Lba(lba), &content(lba, 2), false).unwrap();
        versions.0[lba as usize].push(2);
    }
    versions.flush(array);
    for lba in [0, 1, 2 * row_sectors + 1, 3 * row_sectors, 9 * row_sectors] {
        versions.write(array, lba, 3);
    }
    array.write_zeroes(Lba(6 * row_sectors), row_sectors, false).unwrap();
    (6 * row_sectors..7 * row_sectors).for_each(|lba| versions.0[lba as usize].push(0));
    versions
}

/// A cache with deltas that are long enough to be packed.
fn cached_with_long_deltas(array: &CachedArray) -> Versions {
    cached(array, 4)
}

/// A cache of everything, old pages, deltas in pages and staged, and writes since the last flush. The deltas of
/// so many sectors are long and packed.
fn cached(cached: &CachedArray, long: u64) -> Versions {
    let mut versions = Versions::of(cached);
    (0..cached.info().sectors).for_each(|lba| versions.write(cached, lba, 1));
    for lba in (0..100).chain(0..100) {
        cached.read(Lba(lba), &mut [0; SECTOR_BYTES]).unwrap(); // A second touch lets it in.
    }
    for round in [2, 3, 4] {
        (0..12).for_each(|i| versions.write(cached, i * 17, round));
    }
    (0..long).for_each(|i| versions.write(cached, i * 17, LONG));
    versions.flush(cached);
    (0..3).for_each(|i| versions.write(cached, i * 17, 77));
    // What is done behind requests is done.
    cached.env().sleep_until(cached.env().now() + Nanos(1_000_000));
    versions
}

/// A cache that was closed.
fn cached_without_nvram(rig: &Rig, live: fn(&CachedArray) -> Versions) -> Versions {
    let (array, format) = (rig.assemble(None, &[]), cache_format(Scheme::Kdd, 8));
    let array = CachedArray::attach(array, rig.beside(0), &format, OPTIONS).unwrap();
    let versions = live(&array);
    array.close().unwrap();
    versions
}

/// A cache whose power went.
fn cached_with_nvram(rig: &Rig, live: fn(&CachedArray) -> Versions) -> Versions {
    let (array, format) = (rig.assemble(None, &[]), cache_format(Scheme::KddPaper, 0));
    let nvram = Some(rig.beside(1));
    let array = CachedArray::attach_with_nvram(array, rig.beside(0), nvram, &format, OPTIONS).unwrap();
    live(&array)
}

const OPTIONS: CacheOptions = CacheOptions {
    staging_bytes: Some(4096),
    window: Some(0),
    dirty_high: 0.8,
    dirty_low: 0.5,
    stale_rows_max: 1000,
    idle_after: Nanos(1_000_000_000_000),
    without_cache: false,
};

fn cache_format(scheme: Scheme, segment_pages: u32) -> CacheFormat {
    CacheFormat { ways: 320, segment_pages: Some(segment_pages), ..CacheFormat::new(scheme) }
}

fn stories() -> Vec<Story> {
    let of = |level, log| Format { chunk_sectors: 4, log, log_sectors: 1, ..Format::new(level) };
    vec![
        Story {
            name: "raid6-v1",
            format: of(Level::Raid6, LogPlace::Members),
            members: 5,
            beside: &[400],
            happens: |rig| {
                let array = rig.assemble(None, &[]);
                let versions = live(&array);
                assert_eq!(array.prepare(2, &rig.beside(0), false).unwrap().role, 2);
                versions
            },
            is_found: |rig, versions| {
                assert!(matches!(examine_mark(&rig.beside(0)), Ok(Mark { role: 2, .. })));
                is_live(rig, None, versions);
            },
        },
        Story {
            name: "log-device-v1",
            format: of(Level::Raid5, LogPlace::Device),
            members: 3,
            beside: &[90],
            happens: |rig| live(&rig.assemble(Some(&rig.beside(0)), &[])),
            is_found: |rig, versions| is_live(rig, Some(rig.beside(0)), versions),
        },
        Story {
            name: "no-log-v1",
            format: of(Level::Raid5, LogPlace::None),
            members: 3,
            beside: &[],
            happens: |rig| live(&rig.assemble(None, &[])),
            is_found: |rig, versions| {
                let array = rig.assemble(None, &[]);
                assert!(!array.is_stale(5) && array.is_stale(20), "regions with a bit are made anew");
                versions.settle(&array, "resynced");
                (0..ROWS).filter(|row| array.is_stale(*row)).for_each(|row| array.resync(row).unwrap());
                array.close().unwrap();
                rig.assert_redundant(false, versions);
            },
        },
        Story {
            name: "cache-v4",
            format: of(Level::Raid6, LogPlace::Members),
            members: 5,
            beside: &[256 + 320 + 1],
            happens: |rig| cached_without_nvram(rig, cached_with_long_deltas),
            is_found: |rig, versions| is_cached(rig, None, versions),
        },
        Story {
            name: "cache-v4-nvram-v5",
            format: of(Level::Raid5, LogPlace::Members),
            members: 4,
            beside: &[256 + 320 + 1, 128],
            happens: |rig| cached_with_nvram(rig, cached_with_long_deltas),
            is_found: |rig, versions| is_cached(rig, Some(rig.beside(1)), versions),
        },
    ]
}

/// Records are replayed, rows are stale.
fn is_live(rig: &Rig, log: Option<Device>, versions: &mut Versions) {
    let array = rig.assemble(log.as_ref(), &[]);
    assert!(array.status().replayed_records > 3, "{:?}", array.status());
    assert_eq!(array.stale_rows(0, usize::MAX), [1, 5, 20]);
    versions.settle(&array, "replayed");
    [1, 5, 20].into_iter().for_each(|row| array.resync(row).unwrap());
    array.close().unwrap();
    rig.assert_redundant(log.is_some(), versions);
}

/// Everything is in the cache as it was, with deltas in its pages and, with an NVRAM, staged.
fn is_cached(rig: &Rig, nvram: Option<Device>, versions: &mut Versions) {
    let has_nvram = nvram.is_some();
    let mut page = [0; SECTOR_BYTES];
    rig.beside(0).read(Lba(1), &mut page).unwrap();
    assert!(page.starts_with(b"VLMCLOGP"), "a page of the log was written");
    let cached =
        CachedArray::open_with_nvram(rig.assemble(None, &[]), Some(rig.beside(0)), nvram, OPTIONS).unwrap();
    let status = cached.status();
    assert_eq!((&status.emptied, status.unknown_rows), (&None, 0));
    assert!(status.stale_rows > 5 && status.census.old == 12 && status.census.clean > 80, "{status:?}");
    assert!(status.census.delta > 0 && (status.census.staged_bytes > 0) == has_nvram, "{status:?}");
    versions.settle(&cached, "opened");
    assert!(cached.status().read_hits > 80);
    cached.clean_all(|_| true).unwrap();
    cached.close().unwrap();
    rig.assert_redundant(false, versions);
}

/// Sectors of all devices that are not zeros, compressed.
fn pack(rig: &Rig) -> Vec<u8> {
    let mut out = Vec::new();
    let mut sector = [0; SECTOR_BYTES];
    for disk in rig.all() {
        for lba in 0..disk.info().sectors {
            disk.read(Lba(lba), &mut sector).unwrap();
            if sector != [0; SECTOR_BYTES] {
                out.extend_from_slice(&(lba as u32).to_le_bytes());
                out.extend_from_slice(&sector);
            }
        }
        out.extend_from_slice(&u32::MAX.to_le_bytes());
    }
    zstd::bulk::compress(&out, 19).unwrap()
}

fn unpack(packed: &[u8], rig: &Rig) {
    let all = zstd::bulk::decompress(packed, 16 << 20).unwrap();
    let mut rest = &all[..];
    for disk in rig.all() {
        loop {
            let (head, behind) = rest.split_first_chunk::<4>().unwrap();
            rest = behind;
            if *head == u32::MAX.to_le_bytes() {
                break;
            }
            let (sector, behind) = rest.split_at(SECTOR_BYTES);
            rest = behind;
            disk.write(Lba(u32::from_le_bytes(*head).into()), sector, true).unwrap();
        }
    }
    assert!(rest.is_empty());
}

fn assert_same(written: &Rig, kept: &Rig, name: &str) {
    let (mut found, mut expected) = ([0; SECTOR_BYTES], [0; SECTOR_BYTES]);
    for (device, (written, kept)) in written.all().zip(kept.all()).enumerate() {
        for lba in (0..kept.info().sectors).map(Lba) {
            written.read(lba, &mut found).unwrap();
            kept.read(lba, &mut expected).unwrap();
            assert!(
                found == expected,
                "{name}: sector {lba:?} of device {device} is written otherwise than it was"
            );
        }
    }
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.packed"))
}

/// The devices of a fixture.
fn kept(story: &Story, name: &str, env: &Arc<dyn Env>) -> Rig {
    let kept = std::fs::read(fixture(name)).unwrap();
    assert!(kept.len() < 27 << 10, "{name}: {} bytes", kept.len());
    let rig = Rig::new(story, env.clone());
    unpack(&kept, &rig);
    rig
}

/// What happens to the devices, until the power goes.
fn made(story: &Story, env: &Arc<dyn Env>) -> (Rig, Versions) {
    let rig = Rig::new(story, env.clone());
    create(&rig.devices(&[]), rig.log(&story.format).as_ref(), &**env, &story.format).unwrap();
    let versions = (story.happens)(&rig);
    let power = Power::new(3);
    (rig.map(|disk| disk.after_cut(&power)), versions)
}

#[test]
fn devices_of_every_version_are_found_and_read_back_and_written_the_same() {
    let writes = std::env::var("VELLUM_GOLDEN").is_ok_and(|value| value == "write");
    for story in stories() {
        let sim = Sim::new(1);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let name = story.name;
            let (written, mut versions) = made(&story, &env);
            if writes {
                std::fs::write(fixture(name), pack(&written)).unwrap();
            }
            let rig = kept(&story, name, &env);
            assert_same(&written, &rig, name);
            (story.is_found)(&rig, &mut versions);
        });
    }
}

/// A fixture that nothing writes any more.
struct Before {
    name: &'static str,
    /// What it was made of is what this story is today, but for deltas that were not packed.
    now: &'static str,
    packed: bool,
}

impl Before {
    fn story(&self) -> Story {
        let story = stories().into_iter().find(|story| story.name == self.now).unwrap();
        match (self.packed, self.now) {
            (true, _) => story,
            (false, "cache-v4") => {
                Story { happens: |rig| cached_without_nvram(rig, |array| cached(array, 0)), ..story }
            }
            _ => Story { happens: |rig| cached_with_nvram(rig, |array| cached(array, 0)), ..story },
        }
    }
}

/// The one without a half: its cache does not say how much of the NVRAM it uses, so it is all.
#[test]
fn caches_of_earlier_versions_are_found_and_read_back() {
    let of = |name, now, packed| Before { name, now, packed };
    let fixtures = [
        of("cache-v2", "cache-v4", false),
        of("cache-v2-nvram-v4", "cache-v4-nvram-v5", false),
        of("cache-v2-nvram-v4-no-half", "cache-v4-nvram-v5", false),
        of("cache-v3", "cache-v4", true),
        of("cache-v3-nvram-v4", "cache-v4-nvram-v5", true),
    ];
    for before in fixtures {
        let story = before.story();
        let sim = Sim::new(1);
        let env: Arc<dyn Env> = sim.env();
        sim.run(|| {
            let (_, mut versions) = made(&story, &env);
            (story.is_found)(&kept(&story, before.name, &env), &mut versions);
        });
    }
}
