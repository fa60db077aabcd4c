//! Jobs: the work for a policy's steps, done outside its lock, with a turn for everything that it touches.

use super::slot::{Promise, Slot};
use super::turns::Turn;
use crate::cache::step::PageNo;
use std::ops::Range;
use std::sync::Arc;
use vellum_base::{Cause, Lba};

/// A delta, or where it is stored.
#[derive(Clone)]
pub(super) enum Delta {
    /// Encoded, from the staging buffer.
    Here(Arc<[u8]>),
    /// In a delta page.
    In(Stored),
}

/// A delta in a page of deltas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The delta page.
    pub home: PageNo,
    /// Identifies that page: see `delta_page::check_of`.
    pub check: u32,
    /// The page that the delta applies to.
    pub base: PageNo,
    /// The sector.
    pub lba: Lba,
}

/// What parity lacks of a sector.
pub(super) enum Part {
    /// This delta to this base.
    Delta(Lba, PageNo, Delta),
    /// The difference between two pages.
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

/// The work of a job.
pub(super) enum Op {
    /// Write these bytes of the request to the array.
    WriteArray {
        lba: Lba,
        bytes: Range<usize>,
        fua: bool,
        /// Without updating parity.
        defer: bool,
        promises: Vec<(Promise, Range<usize>)>,
        /// Stamps of its intents in NVRAM.
        intents: Vec<u64>,
    },
    /// Write promised content to a page, of the SSD or of the window.
    Fill { page: PageNo, slot: Arc<Slot>, cause: Cause, stamp: u64 },
    /// Copy a page of the window to a page of the SSD.
    Promote { from: PageNo, to: PageNo },
    /// Apply a delta to a page of the window.
    Refresh { page: PageNo, delta: Delta },
    /// Write a delta page.
    Commit { page: PageNo, content: Vec<u8>, stamp: u64 },
    /// Update the parity of a row.
    Parity { row: u64, parts: Vec<Part>, stamp: u64 },
    /// Discard a segment that is no longer needed and will be rewritten.
    Vacate { first: PageNo, pages: u32 },
    /// Zero sectors of the array.
    Zero { lba: Lba, sectors: u64, fua: bool, stamp: u64 },
}

/// An operation and its turn.
pub(super) struct Job {
    pub turn: Turn,
    pub op: Op,
    /// It must wait until NVRAM records up to this are durable.
    pub after: u64,
}

impl Job {
    pub fn new(turn: Turn, op: Op) -> Job {
        Job { turn, op, after: 0 }
    }
}

/// The page that a sector has when it is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Prior {
    pub page: PageNo,
    /// Version of its content.
    pub stamp: u32,
    /// The write may use it as the base of a delta.
    pub is_base: bool,
}

/// A sector of a write.
pub(super) struct Asked {
    pub lba: Lba,
    /// Where it is in the request's bytes.
    pub at: usize,
    pub fua: bool,
    /// The delta to its base, if there is one.
    pub delta: Option<Arc<[u8]>>,
    /// The write excludes all others at its row.
    pub alone: bool,
}

/// Jobs of a request: those that it waits for, and the others.
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
