//! Background tasks: one makes segments into tables, one collects. They sleep until there is work; an idle store writes
//! nothing.

use super::core::Core;
use super::hint::Note;
use super::record::{Item, decode};
use super::segment::{Home, Segment, finish};
use super::writer::{Frozen, table_bytes};
use crate::journal::{Edit, SegmentMeta};
use std::sync::Arc;
use vellum_base::sync::atomic::Ordering::Relaxed;
use vellum_base::{Cause, IoClass, Kind, Result, Task};

/// Starts the tasks.
pub(crate) fn start(core: &Arc<Core>) -> Vec<Task> {
    match core.options.read_only {
        true => Vec::new(),
        false => vec![spawn(core, "kv-seal", seal_loop), spawn(core, "kv-collect", collect_loop)],
    }
}

fn spawn(core: &Arc<Core>, name: &str, body: fn(&Arc<Core>)) -> Task {
    let core_of_task = core.clone();
    core.env.clone().spawn(name, Box::new(move || body(&core_of_task)))
}

/// Tells the tasks to end.
pub(crate) fn stop(core: &Core) {
    let state = core.state.lock();
    core.stopping.store(true, Relaxed);
    drop(state);
    core.work.notify_all();
    core.progress.notify_all();
}

fn seal_loop(core: &Arc<Core>) {
    loop {
        let mut state = core.state.lock();
        let frozen = loop {
            if core.stopping.load(Relaxed) || state.failure.is_some() {
                return;
            }
            match state.frozen.front() {
                Some(frozen) if state.full.is_none() => break frozen.clone(),
                _ => core.work.wait(&mut state),
            }
        };
        drop(state);
        if let Err(error) = seal(core, &frozen).and_then(|()| core.bury()) {
            core.rests_or_poisoned(match error.kind() {
                Kind::PowerLost => error,
                _ => error.context("seal"),
            });
        }
        core.work.notify_all();
        core.progress.notify_all();
    }
}

/// Makes a segment a table.
fn seal(core: &Core, frozen: &Frozen) -> Result<()> {
    let (data_bytes, notes) = {
        let data = frozen.buffer.read();
        (data.len() as u64, newest(frozen.segment.notes(&data, core.seed)?, &data))
    };
    let taken = frozen.table.lock().take();
    let needed = table_bytes(data_bytes, frozen.records);
    let begun = match taken {
        Some(begun) => begun,
        None => core.begin_table(needed, Cause::Flush, IoClass::UrgentCompaction)?,
    };
    let number = begun.number;
    let meta = SegmentMeta {
        number,
        order: frozen.segment.order,
        bytes: 0,
        data_bytes,
        records: frozen.records,
        bubble_bytes: 0,
    };
    let data = frozen.buffer.read().clone();
    let meta = finish(begun.table, data, &notes, meta, core.seed, 0)?;
    let home = Home::Table(core.media.open_table(number)?, meta);
    let Segment { order, slot, account, .. } = &*frozen.segment;
    let table = Arc::new(Segment::new(*order, *slot, home, account.clone(), &core.graves));
    let edit = Edit {
        log_floor: Some(frozen.next_log),
        last_seq: Some(frozen.last_seq),
        segments: vec![meta],
        ..Edit::default()
    };
    core.counts.flushes.fetch_add(1, Relaxed);
    core.install(edit, |_, view| view.put(table)).inspect_err(|error| {
        if error.kind() == Kind::NoSpace {
            // What cannot be erased now is erased when the store is opened again.
            let _ = core.media.erase_table(number);
        }
    })?;
    core.remove_logs(&frozen.logs)?;
    // Only now is there room for another log.
    core.state.lock().frozen.pop_front();
    Ok(())
}

/// Of several records of a key in one segment the last counts, and the hint names no other. Keys whose hashes meet are
/// told apart: what hides the record of one must not be missing.
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

fn collect_loop(core: &Arc<Core>) {
    core.env.give_way();
    loop {
        let mut state = core.state.lock();
        let picked = loop {
            if core.stopping.load(Relaxed) || state.failure.is_some() {
                return;
            }
            // Somebody who was asked to collect does not pick twice.
            if state.full.is_none()
                && !state.is_collecting
                && let Some(picked) = core.pick(state.is_short)
            {
                break picked;
            }
            core.work.wait(&mut state);
        };
        (state.is_short, state.is_collecting) = (false, true);
        drop(state);
        let result = core.collect(picked).and_then(|_| core.bury());
        core.state.lock().is_collecting = false;
        match result {
            Ok(()) => {}
            // The segment says so itself from now on, and whoever reads it is told.
            Err(error) if error.kind() == Kind::Corrupt => {}
            Err(error) => core.rests_or_poisoned(match error.kind() {
                Kind::PowerLost => error,
                _ => error.context("collect"),
            }),
        }
        core.work.notify_all();
        core.progress.notify_all();
    }
}
