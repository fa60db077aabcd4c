//! docs/formats/disk.md compared with the code: its tables are parsed here, and used to decode real media.

use crate::harness::{Shape, content};
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{BlockAddr, BlockDevice, Cause, Flash, IoClass, Lba, PageAddr, SECTOR_BYTES};
use vellum_disk::tools::{SlotInspection, inspect, inspect_page};
use vellum_media::nand::Nand;

const DOC: &str = include_str!("../../../docs/formats/disk.md");

type Row = Vec<&'static str>;

/// Rows of the first table below a heading (`after`, a preceding text) with this head row.
fn table(after: &str, head: &str) -> Vec<Row> {
    let from = DOC.find(after).unwrap_or_else(|| panic!("no {after:?} in disk.md"));
    let mut lines = DOC[from..].lines().skip_while(|line| *line != head);
    assert!(lines.next().is_some(), "no table {head:?} after {after:?}");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Field {
    offset: usize,
    /// None if it depends on other fields.
    size: Option<usize>,
}

/// The fields of a structure, which must be contiguous.
fn fields(after: &str) -> BTreeMap<&'static str, Field> {
    let mut next = Some(0);
    let mut found = BTreeMap::new();
    for row in table(after, "| offset | size | field | meaning |") {
        let size =
            row[1].split('×').map(|factor| factor.trim().parse::<usize>()).product::<Result<usize, _>>().ok();
        let offset = row[0].parse::<usize>().ok();
        assert_eq!(offset, next, "{after}: {} is not where the field before it ends", row[2]);
        next = offset.and_then(|offset| Some(offset + size?));
        let name = if row[2] == "reserved" { row[0] } else { row[2] };
        if let Some(offset) = offset {
            assert!(found.insert(name, Field { offset, size }).is_none(), "{after}: {name} comes twice");
        }
    }
    found
}

/// Little-endian number in a field.
fn number(bytes: &[u8], fields: &BTreeMap<&'static str, Field>, name: &str) -> u64 {
    let field = fields.get(name).unwrap_or_else(|| panic!("disk.md has no field {name:?}"));
    let bytes = &bytes[field.offset..][..field.size.unwrap()];
    bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

fn text<'a>(bytes: &'a [u8], fields: &BTreeMap<&'static str, Field>, name: &str) -> &'a [u8] {
    &bytes[fields[name].offset..][..fields[name].size.unwrap()]
}

/// A disk with every kind of slot on it.
fn used_disk(shape: Shape) -> Arc<Nand> {
    let flash = shape.flash(1);
    shape.format(&flash);
    let disk = shape.open(&flash).unwrap();
    for i in 0..700u32 {
        disk.write(Lba(u64::from(i) % 24), &content(i), false).unwrap();
        disk.write(Lba(u64::from(24 + i % 300)), &content(i), false).unwrap();
        if i % 50 == 0 {
            disk.trim(Lba(30), 5).unwrap();
            disk.flush().unwrap();
        }
    }
    disk.flush().unwrap();
    flash
}

fn pages(flash: &Nand) -> Vec<PageAddr> {
    let blocks = (0..flash.geometry().blocks()).map(BlockAddr);
    blocks.flat_map(|b| (0..flash.report(b).pages_written).map(move |p| b.page(p))).collect()
}

fn slots(flash: &Nand) -> Vec<(SlotInspection, Vec<u8>, Vec<u8>)> {
    let geometry = *flash.geometry();
    let mut all = Vec::new();
    for page in pages(flash) {
        let (mut data, mut oob) =
            (vec![0; geometry.page_bytes as usize], vec![0; geometry.oob_bytes as usize]);
        flash.read(IoClass::Metadata, page, 0, &mut data, &mut oob).unwrap();
        let entry_bytes = inspect(flash).unwrap().limits.oob_entry_bytes as usize;
        for (i, slot) in inspect_page(flash, page).unwrap().slots.into_iter().enumerate() {
            let (data, oob) =
                (&data[i * SECTOR_BYTES..][..SECTOR_BYTES], &oob[i * entry_bytes..][..entry_bytes]);
            all.push((slot, data.to_vec(), oob.to_vec()));
        }
    }
    all
}

#[test]
fn out_of_band_entries_are_as_described() {
    let flash = used_disk(Shape::all()[1]);
    let entry = fields("## Out-of-band entry");
    assert_eq!(entry["oob_crc"], Field { offset: 20, size: Some(4) });
    assert_eq!(inspect(&*flash).unwrap().limits.oob_entry_bytes, 24);
    let kinds = table("## Out-of-band entry", "| kind | name | id | contents |");
    let mut seen = BTreeMap::new();
    for (slot, data, oob) in slots(&flash).iter().filter(|(slot, ..)| slot.kind != "nothing") {
        assert_eq!(number(oob, &entry, "seq"), slot.seq);
        assert_eq!(number(oob, &entry, "id"), u64::from(slot.id));
        assert_eq!(number(oob, &entry, "data_crc"), u64::from(vellum_codes::crc32c(data)));
        let covered = [&oob[..20], &slot.slot.to_le_bytes()].concat();
        assert_eq!(number(oob, &entry, "oob_crc"), u64::from(vellum_codes::crc32c(&covered)));
        assert_eq!(Cause::ALL[number(oob, &entry, "cause") as usize].name(), slot.cause);
        let kind = number(oob, &entry, "kind").to_string();
        let named = kinds.iter().find(|row| row[0] == kind).unwrap_or_else(|| panic!("no kind {kind}"));
        assert_eq!(named[1].replace(' ', "_"), slot.kind);
        *seen.entry(slot.kind).or_insert(0) += 1;
    }
    let all = ["data", "log", "map_node", "log_node", "directory", "root"];
    assert!(all.iter().all(|kind| seen.contains_key(kind)), "{seen:?}");
}

#[test]
fn roots_are_as_described() {
    let shape = Shape::all()[2];
    let flash = used_disk(shape);
    let root = fields("## Root:");
    assert_eq!(root["ledger"], Field { offset: 128, size: Some(8 * 40) });
    let directories = table("## Root:", "| offset | size | field | meaning |").pop().unwrap();
    assert_eq!((directories[0], directories[1]), ("448", "4 × directories"));
    let found = inspect(&*flash).unwrap();
    let newest = &found.roots[0];
    let bytes =
        slots(&flash).into_iter().find(|(slot, ..)| slot.kind == "root" && slot.seq == newest.seq).unwrap().1;
    assert_eq!(text(&bytes, &root, "magic"), b"VELLUMD\0");
    assert_eq!(text(&bytes, &root, "uuid"), [1; 16]);
    assert_eq!(number(&bytes, &root, "version"), 1);
    assert_eq!(number(&bytes, &root, "sectors"), shape.sectors());
    assert_eq!(number(&bytes, &root, "checkpoint_seq"), newest.checkpoint_seq);
    assert_eq!(number(&bytes, &root, "durable_seq"), newest.durable_seq);
    assert_eq!(number(&bytes, &root, "log_numbers"), u64::from(newest.log_numbers));
    assert_eq!(number(&bytes, &root, "opened"), newest.opened);
    assert_eq!(number(&bytes, &root, "clean"), u64::from(newest.clean));
    assert_eq!((number(&bytes, &root, "policy"), number(&bytes, &root, "hash")), (1, 2), "strong, sha1");
    // In the ledger, causes follow the two counters of the host.
    let checkpoint = 128 + 16 + 8 * Cause::Checkpoint as usize;
    assert!(u64::from_le_bytes(bytes[checkpoint..checkpoint + 8].try_into().unwrap()) > 0);
    // The first directory lists the map node, and the fan-out is as documented.
    let slot_at = |at: usize, bytes: &[u8]| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let by_slot: BTreeMap<u32, _> =
        slots(&flash).into_iter().map(|(s, data, _)| (s.slot, (s.kind, data))).collect();
    let (kind, directory) = &by_slot[&slot_at(448, &bytes)];
    assert_eq!(*kind, "directory");
    assert_eq!(by_slot[&slot_at(0, directory)].0, "map_node");
    assert!(DOC.contains(&format!("fan-out {}", found.limits.fanout)));
    assert_eq!(found.limits.directories_max, (4096 - 448) / 4);
}

/// Bytes of a record: type, seq_delta, id, and the fields named before the colon.
fn record_bytes(rest: &str, record: &[u8], log: &[u8]) -> usize {
    let mut bytes = 1 + 4 + 4;
    for field in rest.split(':').next().unwrap().split(['·', '`']).map(str::trim).filter(|f| !f.is_empty()) {
        bytes += match field.rsplit(' ').next().unwrap() {
            "u16" => 2,
            "u32" => 4,
            "bytes" => usize::from(u16::from_le_bytes([record[9], record[10]])),
            other => panic!("disk.md: a record field of type {other:?} ({} bytes of log)", log.len()),
        };
    }
    bytes
}

#[test]
fn log_slots_are_as_described() {
    let flash = used_disk(Shape::all()[1]);
    let head = fields("## Log slot");
    let types = table("## Log slot", "| type | name | id | rest |");
    let mut seen = [0; 4];
    for (slot, log, _) in slots(&flash).into_iter().filter(|(slot, ..)| slot.kind == "log") {
        assert_eq!(text(&log, &head, "magic"), b"VLOG");
        let length = number(&log, &head, "length") as usize;
        assert_eq!(number(&log, &head, "crc"), u64::from(vellum_codes::crc32c(&log[8..length])));
        assert_eq!(number(&log, &head, "log"), u64::from(slot.id));
        assert!(number(&log, &head, "base_seq") < slot.seq);
        let mut at = head["base_seq"].offset + 8;
        for _ in 0..number(&log, &head, "records") {
            let row =
                types.iter().find(|row| row[0] == log[at].to_string()).expect("a type that disk.md has");
            seen[log[at] as usize] += 1;
            at += record_bytes(row[3], &log[at..], &log);
        }
        assert_eq!(at, length, "log slot {}: its records end where it ends", slot.id);
    }
    assert!(seen[1..].iter().all(|count| *count > 0), "every type of record is looked at: {seen:?}");
}

#[test]
fn nvram_images_are_as_described() {
    let shape = Shape::all()[10];
    let flash = used_disk(shape);
    let image = fields("## NVRAM image");
    assert_eq!(image["ledger"], Field { offset: 64, size: Some(8 * 40) });
    let info = inspect(&*flash).unwrap().nvram.unwrap();
    assert_eq!(info.area_bytes, 8192 + 4096 * 4);
    let mut area = vec![0; info.area_bytes as usize];
    let offset = (info.generations[0] % 2 * info.area_bytes) as usize;
    flash.nvram().unwrap().read(offset, &mut area).unwrap();
    assert_eq!(text(&area, &image, "magic"), b"VELLUMN\0");
    assert_eq!(text(&area, &image, "uuid"), [1; 16]);
    assert_eq!(number(&area, &image, "generation"), info.generations[0]);
    assert_eq!(number(&area, &image, "durable_seq"), info.durable_seq);
    assert_eq!(
        (number(&area, &image, "staged"), number(&area, &image, "log_length")),
        (info.staged_slots, info.log_bytes)
    );
    let length = number(&area, &image, "length") as usize;
    assert_eq!(image["life"], Field { offset: 384, size: Some(4 * 8) });
    assert_eq!(length as u64, 416 + (24 + 4096) * info.staged_slots + info.log_bytes);
    assert_eq!(number(&area, &image, "crc"), u64::from(vellum_codes::crc32c(&area[12..length])));
}
