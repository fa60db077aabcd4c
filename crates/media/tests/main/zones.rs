//! All kinds of zones enforce the rules and keep their promises.

use std::sync::Arc;
use vellum_base::{Kind, Result, Zones, ZonesShape};
use vellum_media::zones::{RamZones, RamZonesParams, RawDevice, ZonedDevice, open_device};

const SHAPE: ZonesShape = ZonesShape { zones: 5, zone_bytes: 64 << 10, unit_bytes: 4096, open_max: None };

fn double(keeps_pointers: bool, seed: u64) -> RamZones {
    RamZones::new(RamZonesParams { shape: SHAPE, keeps_pointers, seed })
}

fn file_of(bytes: u64) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(bytes).unwrap();
    file
}

fn read(zones: &dyn Zones, zone: u32, offset: u64, bytes: usize) -> Vec<u8> {
    let mut out = vec![0xEE; bytes];
    zones.read(zone, offset, &mut out).unwrap();
    out
}

#[test]
fn rules_hold_on_every_kind() {
    let file = file_of(5 * SHAPE.zone_bytes + 5000);
    let raw = RawDevice::open(file.path(), SHAPE.zone_bytes).unwrap();
    let kinds: [Arc<dyn Zones>; 3] = [Arc::new(double(true, 1)), Arc::new(double(false, 1)), Arc::new(raw)];
    for zones in kinds {
        assert_eq!(zones.shape().zones, 5);
        zones.write(2, 0, &[1; 8192]).unwrap();
        zones.write(2, 8192, &[2; 4096]).unwrap();
        assert_eq!(zones.report(2).written, 12288);
        assert_eq!(read(&*zones, 2, 4096, 8192), [[1; 4096], [2; 4096]].concat());
        let broken = [
            zones.write(2, 8192, &[3; 4096]),
            zones.write(2, 16384, &[3; 4096]),
            zones.write(2, 12288, &[3; 100]),
            zones.write(2, 12288, &[3; 64 << 10]),
            zones.write(2, 12288, &[]),
            zones.write(5, 0, &[3; 4096]),
            zones.read(2, 8192, &mut [0; 8192]),
            zones.read(9, 0, &mut [0; 1]),
            zones.reset(7),
        ];
        for (n, result) in broken.into_iter().enumerate() {
            assert_eq!(result.unwrap_err().kind(), Kind::Invalid, "{n}");
        }
        zones.finish(2).unwrap();
        zones.reset(2).unwrap();
        assert_eq!(zones.report(2).written, 0);
        zones.write(2, 0, &[4; 4096]).unwrap();
        zones.sync().unwrap();
        assert_eq!(read(&*zones, 2, 0, 4096), [4; 4096]);
    }
}

#[test]
fn a_call_of_the_double_fails_once_and_a_write_is_half_done() {
    let zones = double(true, 1);
    zones.fail_at(2);
    zones.write(1, 0, &[1; 8192]).unwrap();
    assert!(zones.is_armed());
    assert_eq!(zones.write(1, 8192, &[2; 8192]).unwrap_err().kind(), Kind::Io);
    assert!(!zones.is_armed() && !zones.is_off());
    assert_eq!(zones.report(1).written, 12288);
    assert_eq!(read(&zones, 1, 4096, 8192), [[1; 4096], [2; 4096]].concat());
    let calls: [fn(&RamZones) -> Result<()>; 3] =
        [|zones| zones.reset(1), |zones| zones.finish(1), |zones| zones.sync()];
    for call in calls {
        zones.fail_at(1);
        assert_eq!(call(&zones).unwrap_err().kind(), Kind::Io);
    }
    assert_eq!(zones.report(1).written, 12288);
    zones.write(1, 12288, &[3; 4096]).unwrap();
}

#[test]
fn a_limit_of_open_zones_is_kept() {
    let shape = ZonesShape { open_max: Some(2), ..SHAPE };
    let zones = RamZones::new(RamZonesParams { shape, keeps_pointers: true, seed: 0 });
    zones.write(0, 0, &[1; 4096]).unwrap();
    zones.write(1, 0, &[1; 4096]).unwrap();
    assert!(zones.write(2, 0, &[1; 4096]).unwrap_err().to_string().contains("open"));
    zones.finish(0).unwrap();
    zones.write(2, 0, &[1; 4096]).unwrap();
    zones.write(1, 4096, &[1; 4096]).unwrap();
    assert!(zones.write(0, 4096, &[1; 4096]).is_err(), "finished");
}

#[test]
fn a_file_is_found_as_it_was_left() {
    let file = file_of(3 * SHAPE.zone_bytes);
    {
        let zones = RawDevice::open(file.path(), SHAPE.zone_bytes).unwrap();
        zones.write(1, 0, &[7; 8192]).unwrap();
        zones.write(2, 0, &[8; 4096]).unwrap();
        zones.reset(2).unwrap();
        zones.sync().unwrap();
        let again = RawDevice::open(file.path(), SHAPE.zone_bytes).map(drop).unwrap_err();
        assert_eq!(again.kind(), Kind::Busy);
        let reader = RawDevice::open_read_only(file.path(), SHAPE.zone_bytes).map(drop).unwrap_err();
        assert_eq!(reader.kind(), Kind::Busy);
    }
    let zones = RawDevice::open_read_only(file.path(), SHAPE.zone_bytes).unwrap();
    let too = open_device(file.path(), SHAPE.zone_bytes, true).unwrap();
    assert_eq!(read(&*too, 1, 0, 8192), [7; 8192]);
    assert_eq!(zones.write(0, 0, &[1; 4096]).unwrap_err().kind(), Kind::Io);
    let written: Vec<u64> = (0..3).map(|zone| zones.report(zone).written).collect();
    assert_eq!(written, [0, SHAPE.zone_bytes, 0], "it keeps no write pointers");
    assert_eq!(read(&zones, 1, 4096, 4096), [7; 4096]);
}

#[test]
fn impossible_zones_and_devices_are_refused() {
    let file = file_of(1 << 20);
    for zone_bytes in [0, 100, 4097] {
        assert_eq!(RawDevice::open(file.path(), zone_bytes).map(drop).unwrap_err().kind(), Kind::Invalid);
    }
    assert_eq!(RawDevice::open(file.path(), 4 << 20).unwrap().shape().zones, 0);
    assert_eq!(ZonedDevice::open(file.path()).map(drop).unwrap_err().kind(), Kind::Unsupported);
    assert_eq!(RawDevice::open("/nowhere/at/all".as_ref(), 4096).map(drop).unwrap_err().kind(), Kind::Io);
}

/// After a cut, all synced data is there; of later data, on a zoned device, a prefix.
#[test]
fn a_power_cut_takes_only_what_was_not_synced() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..60 {
        let zones = double(true, seed);
        zones.write(1, 0, &[1; 8192]).unwrap();
        zones.sync().unwrap();
        zones.write(1, 8192, &[2; 16384]).unwrap();
        zones.write(1, 24576, &[3; 4096]).unwrap();
        zones.power_cut_at(1);
        assert_eq!(zones.write(1, 28672, &[4; 4096]).unwrap_err().kind(), Kind::PowerLost);
        assert_eq!(zones.sync().unwrap_err().kind(), Kind::PowerLost);
        zones.power_on();
        let written = zones.report(1).written;
        assert!((8192..=32768).contains(&written));
        let all: Vec<u8> = [(1, 8192), (2, 16384), (3, 4096), (4, 4096)]
            .into_iter()
            .flat_map(|(byte, count)| vec![byte; count])
            .collect();
        assert_eq!(read(&zones, 1, 0, written as usize), all[..written as usize]);
        lengths.insert(written);
    }
    assert!(lengths.len() > 4, "cuts are all alike: {lengths:?}");
}

/// On a raw device each write and each reset survives independently.
#[test]
fn without_write_pointers_any_part_may_survive() {
    let (mut resets_kept, mut torn) = (0, 0);
    for seed in 0..60 {
        let zones = double(false, seed);
        zones.write(1, 0, &[1; 8192]).unwrap();
        zones.write(3, 0, &[1; 4096]).unwrap();
        zones.sync().unwrap();
        zones.write(1, 8192, &[2; 8192]).unwrap();
        zones.reset(3).unwrap();
        zones.cut_power();
        zones.power_on();
        assert_eq!(read(&zones, 1, 0, 8192), [1; 8192], "synced");
        let later = read(&zones, 1, 8192, 8192);
        assert!(later.chunks(512).all(|sector| sector == [2; 512] || sector == [0; 512]));
        torn += u32::from(later.contains(&2) && later.contains(&0));
        resets_kept += u32::from(zones.report(3).written == 0);
    }
    assert!((10..50).contains(&resets_kept) && torn > 5, "{resets_kept} resets, {torn} torn");
}

/// One bad sector is no reason to refuse a device.
#[test]
fn a_zone_whose_first_unit_cannot_be_read_counts_as_written_until_it_is_reset() {
    // This file of the kernel reports the size of a page, but returns only a few bytes.
    let short = std::path::Path::new("/sys/devices/system/cpu/online");
    match short.exists() {
        true => {
            let zones = RawDevice::open_read_only(short, 4096).unwrap();
            assert_eq!((zones.shape().zones, zones.report(0).written), (1, 4096));
            assert_eq!(zones.read(0, 0, &mut [0; 4096]).unwrap_err().kind(), Kind::Io);
        }
        false => eprintln!("skipped: there is no {}", short.display()),
    }
    for keeps_pointers in [true, false] {
        let zones = double(keeps_pointers, 1);
        zones.write(1, 0, &[1; 12288]).unwrap();
        (0..2).for_each(|unit| zones.spoil(1, unit * 4096));
        zones.spoil(2, 0);
        assert_eq!(zones.report(2).written, if keeps_pointers { 0 } else { SHAPE.zone_bytes });
        for (zone, offset, bytes) in [(1, 0, 4096), (1, 4096, 8192)] {
            let error = zones.read(zone, offset, &mut vec![0; bytes]).unwrap_err();
            assert_eq!(error.kind(), Kind::Io, "{offset}");
        }
        assert_eq!(read(&zones, 1, 8192, 4096), [1; 4096]);
        zones.reset(1).unwrap();
        zones.write(1, 0, &[2; 4096]).unwrap();
        assert_eq!(read(&zones, 1, 0, 4096), [2; 4096]);
        zones.write(1, 4096, &[2; 4096]).unwrap();
        assert_eq!(read(&zones, 1, 0, 8192), [2; 8192], "what was written anew is well");
    }
}
