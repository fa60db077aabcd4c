//! What is done for a policy's steps, outside its lock: with a turn at everything that it touches.

use super::slot::{Promise, Slot};
use super::turns::Turn;
use crate::cache::step::PageNo;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::{Cause, Lba};

/// A delta, or where it is.
#[derive(Clone)]
pub(super) enum Delta {
    /// It was staged.
    Here(Arc<[u8]>),
    /// In a page.
    In(Stored),
}

/// A delta in a page of deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The page of deltas.
    pub home: PageNo,
    /// What the home must be: see `delta_page::check_of`.
    pub check: u32,
    /// The page that it changes.
    pub base: PageNo,
    /// Whose sector that is.
    pub lba: Lba,
}

/// What parity lacks of a sector.
pub(super) enum Part {
    /// This delta of what this page holds.
    Delta(Lba, PageNo, Delta),
    /// What two pages differ by.
    Versions(Lba, PageNo, PageNo),
}

impl Part {
    pub fn delta(&self) -> Option<(PageNo, Delta)> {
        match self {
            Part::Delta(_, base, delta) => Some((*base, delta.clone())),
            Part::Versions(..) => None,
        }
    }
}

/// What is done.
pub(super) enum Op {
    /// Write these bytes of the request to the array.
    WriteArray {
        lba: Lba,
        bytes: Range<usize>,
        fua: bool,
        /// Without parity.
        defer: bool,
        promises: Vec<(Promise, Range<usize>)>,
        /// Intents in NVRAM.
        intents: Vec<u64>,
    },
    /// Write what was promised into a page, of the SSD or of the window.
    Fill { page: PageNo, slot: Arc<Slot>, cause: Cause, stamp: u64 },
    /// Write what a page of the window holds into one of the SSD.
    Promote { from: PageNo, to: PageNo },
    /// Apply a delta to a page of the window.
    Refresh { page: PageNo, delta: Delta },
    /// Write a page of deltas.
    Commit { page: PageNo, content: Vec<u8>, stamp: u64 },
    /// Update the parity of a row.
    Parity { row: u64, parts: Vec<Part>, stamp: u64 },
    /// A segment is not needed any more, and will be written again.
    Vacate { first: PageNo, pages: u32 },
    /// Zero sectors of the array.
    Zero { lba: Lba, sectors: u64, fua: bool, stamp: u64 },
}

/// Something to do, and its turn.
pub(super) struct Job {
    pub turn: Turn,
    pub op: Op,
    /// Not before what was appended to the NVRAM up to here is durable.
    pub after: u64,
}

impl Job {
    pub fn new(turn: Turn, op: Op) -> Job {
        Job { turn, op, after: 0 }
    }
}

/// A page that has a sector already when that is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Prior {
    pub page: PageNo,
    /// Of its content.
    pub stamp: u32,
    /// The write wants a delta against it.
    pub is_base: bool,
}

/// A sector of a request.
pub(super) struct Asked {
    pub lba: Lba,
    /// Where it is in the request's bytes.
    pub at: usize,
    pub fua: bool,
    /// Against its base.
    pub delta: Option<Arc<[u8]>>,
    /// Nobody else writes to its row meanwhile.
    pub alone: bool,
}

/// Jobs of a request: those that it waits for, and those behind.
#[derive(Default)]
pub(super) struct Jobs {
    pub now: Vec<Job>,
    pub behind: Vec<Job>,
}

/// Where a sector is read.
pub(super) enum Source {
    Array,
    Page(PageNo),
    Changed(PageNo, Delta),
}
