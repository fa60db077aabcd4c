//! The layout against a slow table, and bands against sectors one by one.

use proptest::prelude::*;
use std::collections::BTreeSet;
use vellum_array::layout::{Level, Shape};
use vellum_base::Lba;

fn shapes() -> impl Strategy<Value = Shape> {
    (any::<bool>(), 2usize..12, 0u32..4, 1u64..40).prop_map(|(six, data, chunk, rows)| {
        let level = if six { Level::Raid6 } else { Level::Raid5 };
        Shape { level, members: data + level.parities(), chunk_sectors: 1 << chunk, rows }
    })
}

/// md's left-symmetric layouts as a table: who has what in a row, drawn out.
#[test]
fn rows_are_laid_out_as_md_does() {
    let drawn = |shape: &Shape, row: u64| -> String {
        let data = shape.data_columns();
        let name = |column: usize| match column {
            c if c == data => "P".to_string(),
            c if c > data => "Q".to_string(),
            c => c.to_string(),
        };
        (0..shape.members).map(|member| name(shape.column_of(row, member))).collect()
    };
    let five = Shape { level: Level::Raid5, members: 5, chunk_sectors: 1, rows: 6 };
    let rows: Vec<String> = (0..6).map(|row| drawn(&five, row)).collect();
    assert_eq!(rows, ["0123P", "123P0", "23P01", "3P012", "P0123", "0123P"]);
    let six = Shape { level: Level::Raid6, members: 5, chunk_sectors: 1, rows: 6 };
    let rows: Vec<String> = (0..6).map(|row| drawn(&six, row)).collect();
    assert_eq!(rows, ["Q012P", "012PQ", "12PQ0", "2PQ01", "PQ012", "Q012P"]);
}

proptest! {
    #[test]
    fn every_sector_has_one_place(shape in shapes()) {
        let mut places = BTreeSet::new();
        for lba in 0..shape.sectors() {
            let pieces: Vec<_> = shape.pieces(Lba(lba), 1).collect();
            prop_assert_eq!(pieces.len(), 1);
            let piece = pieces[0];
            let member = shape.member_of(piece.row, piece.column);
            prop_assert_eq!(shape.column_of(piece.row, member), piece.column);
            prop_assert!(piece.column < shape.data_columns() && piece.row < shape.rows);
            let sector = shape.member_sector(piece.row) + u64::from(piece.offset);
            prop_assert!(places.insert((member, sector)), "two sectors share a place");
        }
        prop_assert_eq!(places.len() as u64, shape.sectors());
    }

    #[test]
    fn stretches_are_the_request_cut_between_rows(shape in shapes(), at in 0.0..1.0, share in 0.0..1.0, rows in 1u64..9) {
        let first = (at * shape.sectors() as f64) as u64;
        let sectors = (share * (shape.sectors() - first) as f64) as u64;
        let mut next = first;
        for (lba, count) in shape.stretches(Lba(first), sectors, rows) {
            prop_assert!(lba.0 == next && count > 0 && shape.rows_of(lba, count).count() as u64 <= rows);
            next += count;
            prop_assert!(next == first + sectors || next.is_multiple_of(shape.row_sectors()));
        }
        prop_assert_eq!(next, first + sectors);
    }

    #[test]
    fn members_and_columns_are_permutations(shape in shapes(), row in 0u64..1000) {
        let members: BTreeSet<_> = (0..shape.members).map(|column| shape.member_of(row, column)).collect();
        prop_assert_eq!(members.len(), shape.members);
        for member in 0..shape.members {
            prop_assert_eq!(shape.member_of(row, shape.column_of(row, member)), member);
        }
    }

    #[test]
    fn bands_name_every_written_sector_once(shape in shapes(), from in any::<u64>(), length in any::<u64>()) {
        let from = from % shape.row_sectors();
        let to = from + 1 + length % (shape.row_sectors() - from);
        let bands = shape.bands(from..to);
        prop_assert!(bands.len() <= 3);
        let mut found = Vec::new();
        for band in &bands {
            for column in band.columns.clone() {
                let first = column as u64 * u64::from(shape.chunk_sectors);
                found.extend(band.offsets.clone().map(|offset| first + u64::from(offset)));
            }
        }
        found.sort_unstable();
        prop_assert_eq!(found, (from..to).collect::<Vec<_>>());
    }

    #[test]
    fn pieces_and_rows_cover_a_request_in_order(shape in shapes(), from in any::<u64>(), length in any::<u64>()) {
        let from = from % shape.sectors();
        let length = length % (shape.sectors() - from + 1);
        let pieces: u64 = shape.pieces(Lba(from), length).map(|piece| u64::from(piece.sectors)).sum();
        prop_assert_eq!(pieces, length);
        let rows: Vec<_> = shape.rows_of(Lba(from), length).collect();
        let sum: u64 = rows.iter().map(|(_, sectors)| sectors.end - sectors.start).sum();
        prop_assert_eq!(sum, length);
        prop_assert!(rows.iter().all(|(row, sectors)| *row < shape.rows && sectors.end <= shape.row_sectors()));
    }
}
