//! Background tasks: one writes segments to tables, one collects. They sleep until there is work; an idle store writes
//! nothing.

use super::core::{Core, NewTable, State};
use super::finish::finish;
use super::foot::Origin;
use super::hint::Note;
use super::open_segment::{Frozen, table_bytes};
use super::record::{Item, decode};
use super::segment::{Home, ReadContext, Segment};
use crate::durable::Durable;
use crate::journal::{Edit, SegmentMeta};
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, IoClass, Kind, Result};

/// Starts the tasks.
pub(crate) fn start(core: &Arc<Core>) {
    let spawn = |name, body: fn(&Core)| {
        let core_of_task = core.clone();
        core.env.clone().spawn(name, Box::new(move || body(&core_of_task)))
    };
    if !core.options.read_only {
        core.state.begin(vec![spawn("kv-seal", seal_loop), spawn("kv-collect", collect_loop)]);
    }
}

fn seal_loop(core: &Core) {
    let next = |state: &mut State| {
        let frozen = state.frozen.front().cloned();
        state.is_sealing = frozen.is_some();
        frozen
    };
    while let Some(frozen) = core.state.next_work(next) {
        let rounds = core.obsolete.rounds();
        if let Err(error) = core.erase_after(seal(core, &frozen), rounds) {
            core.rests_or_poisoned(error, rounds);
        }
        core.state.lock().is_sealing = false;
        core.state.wake_all();
    }
}

/// Makes a segment a table.
fn seal(core: &Core, frozen: &Frozen) -> Result<()> {
    let begun = table_for(core, frozen)?;
    frozen.lacks_table.store(false, Relaxed);
    seal_as(core, frozen, begun).inspect_err(|_| frozen.lacks_table.store(true, Relaxed))
}

fn table_for(core: &Core, frozen: &Frozen) -> Result<NewTable> {
    let taken = frozen.table.lock().take();
    let needed = table_bytes(frozen.segment.data_bytes(), frozen.records);
    match taken {
        Some(begun) => Ok(begun),
        None => {
            core.let_collect_first(&mut false, |state| state.is_collecting)?;
            core.begin_table(needed, Cause::Flush, IoClass::UrgentCompaction)
        }
    }
}

fn seal_as(core: &Core, frozen: &Frozen, begun: NewTable) -> Result<()> {
    let number = begun.number;
    let (order, gone) = (frozen.segment.order, core.obsolete.retired());
    let origin = Origin { order, log_floor: frozen.next_log, gone, ..Origin::default() };
    let reading = core.reading(IoClass::UrgentCompaction);
    let meta = write_out(&frozen.segment, reading, begun, origin, core.seed)?;
    // What cannot be erased now is erased when the store is opened again.
    let give_up = || drop(core.media.erase_table(number));
    let opened = core.media.open_table(number).inspect_err(|_| give_up())?;
    let home = Home::Table(opened, meta);
    let Segment { order, slot, account, .. } = &*frozen.segment;
    let table = Arc::new(Segment::new(*order, *slot, home, account.clone(), &core.obsolete));
    let edit = Edit {
        log_floor: Some(frozen.next_log),
        last_seq: Some(frozen.last_seq),
        segments: vec![meta],
        ..Edit::default()
    };
    core.counts.flushes.fetch_add(1, Relaxed);
    core.install(edit, |_, view| view.put(table)).inspect_err(|error| {
        if error.kind() == Kind::NoSpace {
            core.counts.flushes.fetch_sub(1, Relaxed);
            give_up();
        }
    })?;
    core.remove_logs(&frozen.logs)?;
    let closed = core.wal.lock().forget_below(frozen.next_log);
    drop(closed); // the file system may have much to free
    // Only now is there room for another log; and there may be more to collect.
    let mut state = core.state.lock();
    state.frozen.pop_front();
    state.found_no_room = None;
    drop(state);
    Ok(())
}

/// Writes a segment that is in memory to a table.
pub(super) fn write_out(
    segment: &Segment,
    reading: ReadContext<'_>,
    begun: NewTable,
    origin: Origin,
    seed: u64,
) -> Result<SegmentMeta> {
    let data = segment.data(reading)?;
    let (notes, sum) = segment.notes(&data, seed)?;
    let (data_bytes, records) = (data.len() as u64, notes.len() as u64);
    let number = begun.number;
    let meta = SegmentMeta { number, data_bytes, records, sum: Some(sum), ..SegmentMeta::default() };
    let notes = newest(notes, &data);
    finish(begun.table, data, &notes, (meta, origin), seed, 0)
}

/// Of several records of one key in a segment the last counts, and the hint lists only that one. Keys whose hashes
/// collide are compared: the hint must not lack a record that hides another.
fn newest(notes: Vec<Note>, data: &[u8]) -> Vec<Note> {
    let key = |note: &Note| match decode(&data[note.offset as usize..]) {
        Some((Item::Record(record), _)) => record.key,
        _ => unreachable!("it was decoded when it was noted"),
    };
    let is_last =
        |group: &[Note], at: usize| group[at + 1..].iter().all(|later| key(later) != key(&group[at]));
    let groups = notes.chunk_by(|a, b| a.hash == b.hash);
    groups.flat_map(|group| (0..group.len()).filter(|at| is_last(group, *at)).map(|at| group[at])).collect()
}

fn collect_loop(core: &Core) {
    core.env.give_way();
    let pick = |state: &mut State| {
        let picked = if state.may_collect() { core.pick_in(state, state.is_short) } else { None };
        let Some(picked) = picked else {
            // Writes since may have made a collection pointless: those who wait for one must check again.
            core.state.found_nothing();
            return None;
        };
        (state.is_short, state.is_collecting) = (false, true);
        Some((picked, core.prospects()))
    };
    while let Some((picked, prospects)) = core.state.next_work(pick) {
        let rounds = core.obsolete.rounds();
        match core.erase_after(core.collect(picked).map(drop), rounds) {
            // The segment is marked as skipped, and readers of the record get the error.
            Err(error) if error.kind() == Kind::Corrupt => {}
            Ok(()) => {}
            Err(error) if error.kind() == Kind::NoSpace => core.found_no_room(prospects),
            Err(error) => core.state.rests_or_poisoned(error, "collect", |_| true),
        }
        core.has_collected();
        core.env.give_memory_back();
    }
}
