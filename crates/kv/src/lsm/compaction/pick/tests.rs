//! Merges in pieces, and what must not happen between two of them.

use super::*;
use crate::journal::Edit;
use crate::key::{EntryKind, Stamp};
use crate::lsm::compaction::TableSink;
use crate::lsm::compaction::gather::{Gather, Small};
use crate::lsm::compaction::piece::{MergedPart, PartialMerges};
use crate::lsm::manual::Request;
use crate::lsm::room::Room;
use crate::lsm::table::Library;
use crate::media::{Directory, DirectoryOptions, Intent, Media};
use crate::options::{Compression, Options};
use vellum_base::RealEnv;
use vellum_base::sync::atomic::AtomicU64;

const TABLE_BYTES: u64 = 64 << 10;

fn key(letter: u8) -> Vec<u8> {
    vec![0, letter]
}

/// Tables of two keys, from the first of two letters to the second, in levels.
fn version(tables: &[(u8, &[u8; 2])]) -> Version {
    version_of(tables, |_| EntryKind::Put)
}

/// The same; those of level 1 hold deletes.
fn version_with_deletes(tables: &[(u8, &[u8; 2])]) -> Version {
    let kind = |level| if level == 1 { EntryKind::Delete } else { EntryKind::Put };
    version_of(tables, kind)
}

fn version_of(tables: &[(u8, &[u8; 2])], kind: impl Fn(u8) -> EntryKind) -> Version {
    let (dir, env) = (tempfile::tempdir().unwrap(), RealEnv::new());
    let media = Directory::open(dir.path(), DirectoryOptions::default()).unwrap();
    let (numbers, mut edit) = (AtomicU64::new(1), Edit::default());
    let options = Options { compression: [Compression::None; _], ..Options::default() };
    for (level, letters) in tables {
        let sink = TableSink::on(&*media, &numbers, &options, Intent::COPY);
        let mut sink = sink.for_level(usize::from(*level));
        letters.iter().for_each(|letter| sink.add(&key(*letter), Stamp::new(1, kind(*level)), b"").unwrap());
        edit.added.extend(sink.finish().unwrap().into_iter().map(|meta| (*level, meta)));
    }
    let media: Arc<dyn Media> = media;
    Version::default().apply(&edit, &Library::without_cache(env), &*media).unwrap()
}

/// Of nothing that is due.
fn shape() -> Shape {
    let small =
        Small { count: 3, in_steps: false, each: TABLE_BYTES, all: TABLE_BYTES, table_bytes: TABLE_BYTES };
    Shape { level0_compact: 4, level1_bytes: 1 << 30, level_factor: 10, small }
}

/// For four tables besides those of flushes.
fn room() -> Room {
    Room { tables: 6, listed: u64::MAX, table_bytes: TABLE_BYTES, whole_tables: true, is_tight: false }
}

/// The first table of level 1 has been merged up to d.
fn begun(version: &Version) -> PartialMerges {
    begun_at(version, &[(1, b'd')])
}

/// The first tables of these levels have been merged up to these letters, one after the other.
fn begun_at(version: &Version, pieces: &[(usize, u8)]) -> PartialMerges {
    let mut begun = PartialMerges::default();
    for (level, letter) in pieces {
        let upper = vec![version.levels[*level][0].meta.number];
        let piece = MergeRange { after: None, until: Some(key(*letter)) };
        begun.note(MergedPart { level: *level, upper, piece, made: 0 }, version);
    }
    begun
}

fn smallest(tables: &[Arc<Table>]) -> Vec<u8> {
    tables.iter().map(|table| table.meta.smallest[1]).collect()
}

#[test]
fn a_piece_goes_on_behind_the_last() {
    let version = version(&[(1, b"ah"), (2, b"ab"), (2, b"cd"), (2, b"ef"), (2, b"gh")]);
    let begun = begun(&version);
    // Where it takes a superblock, however short it is, the last table of the piece before is filled.
    let job = pick(&version, &shape(), &Situation::new(&[], &[], &begun, room())).unwrap();
    assert_eq!((job.piece.after, job.piece.until), (Some(key(b'd')), Some(key(b'f'))));
    assert_eq!(smallest(&job.lower), b"ce");
}

/// The last table of the piece before shares a key with the one before it: what is left is more than it looks.
#[test]
fn a_piece_that_takes_along_what_shares_a_key_ends_before_the_rest() {
    let version = version(&[(1, b"ai"), (2, b"ab"), (2, b"bd"), (2, b"ef"), (2, b"gh")]);
    let begun = begun(&version);
    let wide = Room { tables: 8, ..room() };
    let job = pick(&version, &shape(), &Situation::new(&[], &[], &begun, wide)).unwrap();
    assert_eq!((job.piece.after, job.piece.until), (Some(key(b'd')), Some(key(b'f'))));
    assert_eq!(smallest(&job.lower), b"abe");
}

/// A merge of puts may be left without the room that the deletes free.
#[test]
fn deletes_do_not_wait_for_an_unfinished_merge_of_puts() {
    let tables: &[(u8, &[u8; 2])] =
        &[(1, b"ah"), (2, b"ab"), (2, b"cd"), (2, b"ef"), (2, b"gh"), (3, b"ab"), (3, b"cd")];
    let requested = [Request::whole(1)];
    let picked = |version: Version, level: usize, is_watched: bool| {
        let begun = begun_at(&version, &[(level, b'b')]);
        let tight = Room { is_tight: true, tables: 4, ..room() };
        let oldest = is_watched.then_some(0);
        let situation = Situation { reserve: 9, oldest, ..Situation::new(&[], &requested, &begun, tight) };
        let job = pick(&version, &shape(), &situation).filter(|job| !job.upper.is_empty())?;
        Some((job.piece.after, smallest(&job.lower)))
    };
    assert_eq!(picked(version_with_deletes(tables), 2, false), Some((None, b"a".to_vec())));
    let goes_on = Some((Some(key(b'b')), b"c".to_vec()));
    assert_eq!(picked(version_with_deletes(tables), 1, false), goes_on);
    assert_eq!(picked(version_with_deletes(tables), 2, true), None, "a snapshot still sees the puts");
    assert_eq!(picked(version(tables), 2, false), None);
}

/// A merge of puts goes on where it was when that of deletes in its midst is complete, or cannot go on.
#[test]
fn an_unfinished_merge_of_puts_goes_on_after_the_deletes() {
    let tables: &[(u8, &[u8; 2])] =
        &[(1, b"aj"), (2, b"ad"), (2, b"ef"), (2, b"fj"), (3, b"ab"), (3, b"cd"), (3, b"kl")];
    let picked = |version: &Version, begun: &PartialMerges, tables| {
        let job = pick(version, &shape(), &Situation::new(&[], &[], begun, Room { tables, ..room() }));
        job.map(|job| (job.claim.level, job.piece))
    };
    let version = version_with_deletes(tables);
    let both = || begun_at(&version, &[(2, b'b'), (1, b'd')]);
    let piece = |after, until| MergeRange { after: Some(key(after)), until };
    let [deletes, puts] = [(1, piece(b'd', None)), (2, piece(b'b', None))];
    assert_eq!(picked(&version, &both(), 6), Some(deletes));
    // The deletes have to take two tables along, which share a key.
    assert_eq!(picked(&version, &both(), 5), Some(puts.clone()));
    let note = |piece: MergeRange, level: usize| {
        let mut begun = both();
        let upper = vec![version.levels[level][0].meta.number];
        begun.note(MergedPart { level, upper, piece, made: 0 }, &version);
        begun
    };
    let complete = note(piece(b'd', None), 1);
    assert_eq!(picked(&version, &complete, 5), Some(puts));
    // Whose merge began later begins anew.
    let advanced = note(piece(b'b', Some(key(b'c'))), 2);
    let all: Vec<usize> = advanced.unfinished(&version).map(|(begun, _)| begun.level).collect();
    assert_eq!(all, [2]);
}

/// The first may have dropped a delete of the newer table, and what it hid, which the second writes again.
#[test]
fn a_merge_does_not_go_on_after_another_of_some_of_its_tables() {
    let version = version(&[(0, b"ah"), (0, b"ah"), (1, b"ad"), (1, b"eh")]);
    let all: Vec<u64> = version.levels[0].iter().map(|table| table.meta.number).collect();
    let mut begun = PartialMerges::default();
    for upper in [&all[..], &all[1..]] {
        let piece = MergeRange { after: None, until: Some(key(b'd')) };
        begun.note(MergedPart { level: 0, upper: upper.to_vec(), piece, made: 0 }, &version);
        let tables: Vec<usize> = begun.unfinished(&version).map(|(_, tables)| tables.len()).collect();
        assert_eq!(tables, [upper.len()]);
    }
}

/// Level 0 is always due beside writers who overwrite the same keys, and other tables of the level may overlap less.
#[test]
fn what_is_asked_for_has_its_turn_after_level_0() {
    let tables: &[(u8, &[u8; 2])] =
        &[(0, b"ah"), (0, b"ah"), (0, b"ah"), (0, b"ah"), (1, b"ad"), (1, b"eh"), (2, b"eh")];
    let (version, none) = (version(tables), PartialMerges::default());
    let range = crate::lsm::iter::Bounds::from(b"e").within(0);
    let requested = [Request { level: 1, range, upto: u64::MAX }];
    let picked = |level1_bytes, asked_first| {
        let wide = Room { tables: 100, ..room() };
        let situation = Situation { asked_first, ..Situation::new(&[], &requested, &none, wide) };
        let job = pick(&version, &Shape { level1_bytes, ..shape() }, &situation).unwrap();
        assert_eq!(job.is_asked_for(&requested), asked_first);
        (job.claim.level, smallest(&job.upper))
    };
    assert_eq!(picked(1 << 30, false).0, 0);
    assert_eq!(picked(1, false), (1, b"a".to_vec()));
    assert_eq!([1, 1 << 30].map(|bytes| picked(bytes, true)), [(1, b"e".to_vec()), (1, b"e".to_vec())]);
}

/// What merges of deeper levels may take for good is not what deletes need.
#[test]
fn jobs_of_deeper_levels_leave_what_is_kept_for_deletes() {
    let version = version(&[(1, b"ah"), (2, b"ab"), (2, b"cd")]);
    let requested = [Request::whole(1)];
    let wide = Room { tables: 20, ..room() };
    let picked = |reserve| {
        let none = PartialMerges::default();
        let situation = Situation { reserve, ..Situation::new(&[], &requested, &none, wide) };
        pick(&version, &shape(), &situation).is_some()
    };
    assert_eq!([0, 10, 20].map(picked), [true, true, false]);
}

/// A manifest does not list what a merge reads beside what it writes; the medium holds both.
#[test]
fn a_merge_replaces_tables_in_a_full_manifest() {
    let version = version(&[(1, b"ah"), (2, b"ab"), (2, b"cd"), (2, b"ef"), (2, b"gh")]);
    let requested = [Request::whole(1)];
    let none = PartialMerges::default();
    let picked = |tables, listed| {
        let room = Room { tables, listed, ..room() };
        let situation = Situation::new(&[], &requested, &none, room);
        pick(&version, &shape(), &situation).map(|job| smallest(&job.lower))
    };
    // Two tables are kept for flushes; and merging five may make seven.
    assert_eq!(picked(9, 4), Some(b"aceg".to_vec()));
    assert_eq!(picked(8, 100), Some(b"ace".to_vec()), "in pieces");
    assert_eq!(picked(100, 2), None, "but not more than those that it replaces");
}

/// The piece would replace it, and leave out what it has before.
#[test]
fn a_merge_begins_anew_where_a_table_lies_across_the_end_of_its_last_piece() {
    let version = version(&[(1, b"ai"), (2, b"ab"), (2, b"cf"), (2, b"gh"), (2, b"ij")]);
    let begun = begun(&version);
    let job = pick(&version, &shape(), &Situation::new(&[], &[], &begun, room())).unwrap();
    assert_eq!(job.piece.after, None);
    assert_eq!((&smallest(&job.lower)[..], job.piece.until), (&b"ac"[..], Some(key(b'f'))));
}

#[test]
fn two_small_neighbours_become_one_where_nothing_else_fits() {
    let whole = version(&[(1, b"ab"), (1, b"cd"), (2, b"af")]);
    let (none, begun) = (PartialMerges::default(), begun(&whole));
    let gathered_in = |version: &Version, tables, in_steps, begun: &PartialMerges| {
        let room = Room { tables, ..room() }.in_the_end();
        let shape = Shape { small: Small { in_steps, ..shape().small }, ..shape() };
        let job = pick(version, &shape, &Situation::new(&[], &[], begun, room))?;
        assert!(job.upper.is_empty() && job.is_tight && job.claim.tables == 1);
        Some((job.output_level(), smallest(&job.lower)))
    };
    let gathered = |tables, in_steps, begun: &PartialMerges| gathered_in(&whole, tables, in_steps, begun);
    let level1 = Some((1, b"ac".to_vec()));
    assert_eq!(gathered(1, false, &none), level1);
    assert_eq!(gathered(1, false, &begun), level1, "its merge in pieces begins anew");
    assert_eq!(gathered(0, false, &none), None, "without room for the one");
    assert_eq!(gathered(1, true, &none), None, "in a store that has room");
    let below = version(&[(1, b"ad"), (2, b"ab"), (2, b"cd")]);
    let begun = begun_at(&below, &[(1, b'd')]);
    assert_eq!(gathered_in(&below, 1, false, &none), Some((2, b"ac".to_vec())));
    assert_eq!(gathered_in(&below, 1, false, &begun), None, "the pieces end where these do");
}

#[test]
fn nothing_is_gathered_in_the_levels_of_a_merge_in_pieces() {
    let version = version(&[
        (1, b"ah"),
        (1, b"ij"),
        (1, b"kl"),
        (2, b"ab"),
        (2, b"cd"),
        (2, b"ef"),
        (2, b"gh"),
        (4, b"ab"),
        (4, b"cd"),
        (4, b"ef"),
    ]);
    let begun = begun(&version);
    // While something else is under way no piece is begun.
    let running = [Claim::of(LEVELS - 1, key(b'x'), key(b'z'))];
    let gathered = |begun: &PartialMerges| {
        let job = pick(&version, &shape(), &Situation::new(&running, &[], begun, room()))?;
        assert!(job.upper.is_empty() && !job.is_move());
        Some(job.output_level())
    };
    assert_eq!((gathered(&PartialMerges::default()), gathered(&begun)), (Some(1), Some(4)));
}

/// Not what its tables take decides, but what is left of them.
#[test]
fn what_nobody_sees_any_more_is_gathered_by_what_is_left() {
    let mut whole = version(&[(1, b"ab"), (1, b"cd"), (1, b"ef"), (1, b"gh")]);
    for table in &mut whole.levels[1] {
        // Three of four entries are older.
        let meta = &mut Arc::get_mut(table).unwrap().meta;
        (meta.older, meta.entries, meta.bytes) = (6, 8, TABLE_BYTES);
    }
    let gathers = [Gather { level: 1, tables: whole.levels[1].iter().map(|t| t.meta.number).collect() }];
    let none = PartialMerges::default();
    let gathered = |tables, oldest| {
        let room = Room { tables, ..room() }.in_the_end();
        let asked = Situation { gathers: &gathers, oldest, ..Situation::new(&[], &[], &none, room) };
        pick(&whole, &shape(), &asked).map(|job| (smallest(&job.lower), job.claim.tables))
    };
    // Leaves leave some space unused.
    let all = Some((b"aceg".to_vec(), 2));
    assert_eq!(gathered(2, None), all);
    assert_eq!(gathered(2, Some(1)), all, "a snapshot of what is newest");
    assert_eq!(gathered(2, Some(0)), None, "it sees what is older");
    let first = Some((b"a".to_vec(), 1));
    assert_eq!(gathered(1, None), first, "alone, where there is room for one");
    assert_eq!(gathered(0, None), None, "without room");
}
