//! The recorder: what is asked of the device is what the trace replays.

use rand::RngCore;
use std::io::Write;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Allocation, BlockDevice, DeviceInfo, Lba, RealEnv, Result, SECTOR_BYTES};
use vellum_codes::pattern::Pattern;
use vellum_trace::generate::Seeded;
use vellum_trace::recorder::Recorder;
use vellum_trace::vtrace::{Header, Reader, is_cut};
use vellum_trace::{Content, Request, RequestKind, content};

/// A disk in memory.
struct RamDisk(Mutex<Vec<u8>>);

impl RamDisk {
    fn new(sectors: usize) -> RamDisk {
        RamDisk(Mutex::new(vec![0; sectors * SECTOR_BYTES]))
    }
}

impl BlockDevice for RamDisk {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { sectors: (self.0.lock().len() / SECTOR_BYTES) as u64, read_only: false, trims: true }
    }
    fn read(&self, lba: Lba, buf: &mut [u8]) -> Result<()> {
        self.info().check_buffer(lba, buf.len())?;
        buf.copy_from_slice(&self.0.lock()[lba.index() * SECTOR_BYTES..][..buf.len()]);
        Ok(())
    }
    fn write(&self, lba: Lba, data: &[u8], _fua: bool) -> Result<()> {
        self.info().check_buffer(lba, data.len())?;
        self.0.lock()[lba.index() * SECTOR_BYTES..][..data.len()].copy_from_slice(data);
        Ok(())
    }
    fn trim(&self, lba: Lba, sectors: u64) -> Result<()> {
        self.write_zeroes(lba, sectors, false)
    }
    fn write_zeroes(&self, lba: Lba, sectors: u64, _fua: bool) -> Result<()> {
        self.info().check_range(lba, sectors)?;
        self.0.lock()[lba.index() * SECTOR_BYTES..][..sectors as usize * SECTOR_BYTES].fill(0);
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn allocation(&self, _lba: Lba, sectors: u64) -> Result<(Allocation, u64)> {
        Ok((Allocation::Data, sectors))
    }
}

fn sector(seed: u8) -> Vec<u8> {
    (0..SECTOR_BYTES).map(|i| (i as u64 * 31 + seed as u64 * 7 + (i as u64 / 64) * 3) as u8 | 1).collect()
}

fn replay(file: &[u8]) -> Vec<Request> {
    Reader::new(file).unwrap().collect::<Result<_>>().unwrap()
}

#[test]
fn everything_asked_is_recorded_and_structure_survives() {
    let recorder = Recorder::new(RamDisk::new(64), RealEnv::new(), Vec::new(), Header::default()).unwrap();
    let mut journal_control = vec![0; SECTOR_BYTES];
    journal_control[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    journal_control[100] = 3;
    let same_head = [&sector(1)[..64], &sector(2)[64..]].concat();
    recorder.write(Lba(0), &[sector(1), journal_control.clone()].concat(), false).unwrap();
    recorder.flush().unwrap();
    recorder.write(Lba(9), &[sector(1), same_head, vec![0; SECTOR_BYTES]].concat(), true).unwrap();
    recorder.trim(Lba(3), 2).unwrap();
    recorder.write_zeroes(Lba(5), 1, true).unwrap();
    recorder.read(Lba(0), &mut vec![0; 2 * SECTOR_BYTES]).unwrap();
    recorder.write(Lba(7), &[], false).unwrap();
    assert!(recorder.write(Lba(u64::MAX), &sector(1), false).is_err(), "and leaves no trace");
    assert!(recorder.trim(Lba(63), 2).is_err());
    let file = recorder.finish().unwrap();
    assert!(recorder.finish().is_err());
    recorder.flush().unwrap();

    assert_eq!(Reader::new(&file[..]).unwrap().header().device_bytes.0, 64 * 4096);
    let requests = replay(&file);
    use RequestKind::*;
    let kinds: Vec<_> = requests.iter().map(|r| (r.kind, r.sectors(), r.fua)).collect();
    let expected = [
        (Write, (Lba(0), 2), false),
        (Flush, (Lba(0), 0), false),
        (Write, (Lba(9), 3), true),
        (Trim, (Lba(3), 2), false),
        (WriteZeroes, (Lba(5), 1), true),
        (Read, (Lba(0), 2), false),
    ];
    assert_eq!(kinds, expected);
    let (first, second) = (&requests[0].contents, &requests[2].contents);
    assert_eq!(first[1], Content::verbatim(&journal_control));
    assert_eq!(first[0], second[0]);
    assert_eq!(second[2], Content::Zero);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    content::fill_all(&second[..1], &mut a);
    content::fill_all(&second[1..2], &mut b);
    assert!(a != b && a[..64] == b[..64], "the same head stays the same head");
}

#[test]
fn what_is_long_is_recorded_in_pieces() {
    let recorder = Recorder::new(RamDisk::new(5000), RealEnv::new(), Vec::new(), Header::default()).unwrap();
    let mut data = vec![0; 5000 * SECTOR_BYTES];
    for (i, to) in data.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        Pattern::unique(i as u64).fill(to);
    }
    recorder.write(Lba(0), &data, false).unwrap();
    recorder.read(Lba(0), &mut data).unwrap();
    let requests = replay(&recorder.finish().unwrap());
    let places: Vec<_> = requests.iter().map(Request::sectors).collect();
    let pieces = [(Lba(0), 2048), (Lba(2048), 2048), (Lba(4096), 904)];
    assert_eq!(places, [pieces, pieces].concat());
    let distinct: std::collections::BTreeSet<_> =
        requests.iter().flat_map(|r| &r.contents).map(|c| format!("{c:?}")).collect();
    assert_eq!(distinct.len(), 5000);
}

/// Told to, a trace has all bytes, and the longest requests still fit its chunks.
#[test]
fn all_bytes_are_kept_and_read_back() {
    let recorder = Recorder::new(RamDisk::new(5000), RealEnv::new(), Vec::new(), Header::default()).unwrap();
    let recorder = recorder.with_all_bytes();
    let mut data = vec![0; 5000 * SECTOR_BYTES];
    for (i, to) in data.chunks_exact_mut(SECTOR_BYTES).enumerate().skip(1) {
        // What zstd cannot shorten, and what a trace would call a pattern.
        match i % 2 {
            0 => Seeded::new(i as u64).fill_bytes(to),
            _ => Pattern::unique(i as u64).fill(to),
        }
    }
    recorder.write(Lba(4000), &sector(1), false).unwrap();
    recorder.write(Lba(0), &data, true).unwrap();
    let requests = replay(&recorder.finish().unwrap());
    assert_eq!(requests.len(), 4);
    assert_eq!(requests[0].contents, [Content::verbatim(&sector(1))]);
    let contents: Vec<_> = requests[1..].iter().flat_map(|r| r.contents.clone()).collect();
    assert!(contents[0] == Content::Zero);
    assert!(contents[1..].iter().all(|content| matches!(content, Content::Verbatim(_))));
    let mut back = Vec::new();
    content::fill_all(&contents, &mut back);
    assert!(back == data, "byte by byte");
}

/// A file that can be looked at while it is written.
#[derive(Clone)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_was_saved_is_there_when_the_recorder_is_killed() {
    let file = Shared(Arc::new(Mutex::new(Vec::new())));
    let out = std::io::BufWriter::new(file.clone());
    let recorder = Recorder::new(RamDisk::new(64), RealEnv::new(), out, Header::default()).unwrap();
    for saved in 0..3u8 {
        let written: Vec<u8> = file.0.lock().clone();
        if saved > 0 {
            let mut read: Vec<_> = Reader::new(&written[..]).unwrap().collect();
            assert!(is_cut(&read.pop().unwrap().unwrap_err()));
            let read: Vec<_> = read.into_iter().map(|request| request.unwrap().sectors().0).collect();
            assert_eq!(read, (0..saved).map(|lba| Lba(u64::from(lba))).collect::<Vec<_>>());
        }
        recorder.write(Lba(u64::from(saved)), &sector(1), false).unwrap();
        recorder.save();
        recorder.save();
    }
    recorder.finish().unwrap();
    let requests = replay(&file.0.lock());
    assert!(
        requests.len() == 3 && requests[0].contents == requests[2].contents,
        "alike across what was saved"
    );
    recorder.save();
}

/// A file that takes `left` bytes.
struct SmallFile(usize);

impl Write for SmallFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::Error::from_raw_os_error(28))?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_trace_file_does_not_break_the_device() {
    let env: Arc<RealEnv> = RealEnv::new();
    let recorder = Recorder::new(RamDisk::new(300), env, SmallFile(5000), Header::default()).unwrap();
    for lba in 0..300 {
        // Verbatim contents that do not compress, so that the first chunk overflows the file.
        let mut data = vec![0; SECTOR_BYTES];
        Pattern::unique(lba).fill(&mut data);
        data[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        recorder.write(Lba(lba), &data, false).unwrap();
        let mut back = vec![0; SECTOR_BYTES];
        recorder.read(Lba(lba), &mut back).unwrap();
        assert!(back == data);
    }
    let error = recorder.finish().err().unwrap();
    assert_eq!(error.kind(), vellum_base::Kind::NoSpace, "{error}");
}
