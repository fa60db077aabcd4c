//! Steps: what a policy wants to have done.
//!
//! 1. Steps are in the order in which the policy's state changes. Steps that name the same page, sector or row must be
//!    carried out in that order.
//! 2. The requester waits for the first [`Steps::answered`] steps, which run concurrently unless data flow from one to
//!    the next. The rest runs after the answer.

use vellum_base::Lba;

/// A page of the cache, counted from 0. Numbers beyond the SSD's pages are those of the window, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(pub u32);

/// Where a delta is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaPlace {
    /// In the staging buffer, by its base.
    Staged,
    /// In a delta page.
    In {
        /// The delta page.
        page: PageNo,
        /// Offset in that page.
        offset: u16,
        /// Length.
        bytes: u16,
    },
}

/// Where the newest version of a sector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Newest {
    /// On the array.
    Array,
    /// In this page.
    Page(PageNo),
    /// In this page, with a delta to apply.
    Changed(PageNo, DeltaPlace),
}

/// Why a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A read missed.
    Fill,
    /// A write missed.
    Allocate,
    /// A write hit.
    Update,
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read a data page. For a write this is its base, which the driver has read before asking.
    ReadPage(PageNo),
    /// Read a delta page.
    ReadDeltas(PageNo),
    /// Read a sector from the array.
    ReadArray(Lba),
    /// Write a sector to the array, with its parity.
    WriteArray(Lba),
    /// Write a sector to the array, without its parity.
    WriteWithoutParity(Lba),
    /// Write the sector's newest version to a page.
    WritePage {
        /// The page.
        page: PageNo,
        /// The sector.
        lba: Lba,
        /// The reason.
        why: Why,
    },
    /// Keep the sector's newest version in a page of the window.
    Hold {
        /// The page.
        page: PageNo,
        /// The sector.
        lba: Lba,
    },
    /// Copy a page of the window to a page of the SSD.
    Promote {
        /// The page in memory.
        from: PageNo,
        /// The page on the SSD.
        to: PageNo,
        /// The sector.
        lba: Lba,
    },
    /// Apply the delta of a page in the window to that page, which then has the newest version.
    Refresh(PageNo),
    /// Put the delta of this sector into the staging buffer; it replaces any earlier delta of the sector.
    Stage(Staged),
    /// Remove the delta of this base from the staging buffer.
    Unstage(PageNo),
    /// Move staged deltas to a delta page: `count` of [`Steps::staged`] from `from` on.
    CommitDeltas {
        /// The delta page.
        page: PageNo,
        /// First of the list.
        from: u32,
        /// How many.
        count: u32,
    },
    /// Update the parity of a row by `count` of [`Steps::parts`] from `from` on: these are all that it lacks.
    UpdateParity {
        /// The row.
        row: u64,
        /// First of the list.
        from: u32,
        /// How many.
        count: u32,
        /// The cache, and the list, have all data at these offsets: old parity need not be read.
        whole: bool,
    },
    /// Put an entry into the metadata buffer, in place of an earlier one of the same page.
    Note(LogEntry),
    /// Write the metadata buffer to page `sequence` of the log: `count` of [`Steps::entries`] from `from` on. These
    /// leave the buffer.
    CommitLog {
        /// Sequence number of the log page.
        sequence: u64,
        /// Sequence number of the oldest valid page.
        head: u64,
        /// First of the list.
        from: u32,
        /// How many.
        count: u32,
    },
    /// The page has no content any more.
    Discard(PageNo),
    /// No page of a segment has content any more, and all will be rewritten in order: its flash may be erased.
    Vacate {
        /// The first of its pages.
        first: PageNo,
        /// How many.
        pages: u32,
    },
}

/// A delta in the staging buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staged {
    /// The page that the delta applies to.
    pub base: PageNo,
    /// The delta's sector.
    pub lba: Lba,
    /// Length of the delta.
    pub bytes: u16,
    /// Its offset in a delta page; 0 for [`Step::Stage`].
    pub offset: u16,
}

/// What parity lacks of one sector, or a sector of a row that is listed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParityPart {
    /// A delta to a page.
    Delta(Lba, PageNo, DeltaPlace),
    /// The XOR of two versions.
    Versions {
        /// The sector.
        lba: Lba,
        /// The version that parity covers.
        old: PageNo,
        /// The version on the array.
        new: PageNo,
    },
    /// Nothing: parity and array have the version in this page.
    Same(Lba, PageNo),
}

/// An entry of the metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The page.
    pub page: PageNo,
    /// Its state; never `Delta`. A page whose delta is staged is clean here.
    pub state: super::PageState,
    /// Its sector, if it has one.
    pub lba: Lba,
    /// For an old page: page, offset and length of its delta.
    pub delta: Option<(PageNo, u16, u16)>,
    /// Checksum of the page's content; filled in by the engine, not by policies.
    pub sum: Option<u32>,
}

/// The steps of an answer, in order. The driver reuses this from request to request.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// The steps.
    pub list: Vec<Step>,
    /// Number of steps that the requester waits for.
    pub answered: usize,
    /// See [`Step::CommitDeltas`].
    pub staged: Vec<Staged>,
    /// See [`Step::UpdateParity`].
    pub parts: Vec<ParityPart>,
    /// See [`Step::CommitLog`].
    pub entries: Vec<LogEntry>,
}

impl Steps {
    /// Empties all lists.
    pub fn clear(&mut self) {
        self.list.clear();
        self.answered = 0;
        self.staged.clear();
        self.parts.clear();
        self.entries.clear();
    }

    /// Adds a step.
    #[inline]
    pub fn push(&mut self, step: Step) {
        self.list.push(step);
    }

    /// Makes the requester wait for the steps so far, and for none that follow.
    #[inline]
    pub fn answer(&mut self) {
        self.answered = self.list.len();
    }

    /// The deltas of a [`Step::CommitDeltas`].
    pub fn staged_of(&self, from: u32, count: u32) -> &[Staged] {
        &self.staged[from as usize..][..count as usize]
    }

    /// The parts of a [`Step::UpdateParity`].
    pub fn parts_of(&self, from: u32, count: u32) -> &[ParityPart] {
        &self.parts[from as usize..][..count as usize]
    }

    /// The entries of a [`Step::CommitLog`].
    pub fn entries_of(&self, from: u32, count: u32) -> &[LogEntry] {
        &self.entries[from as usize..][..count as usize]
    }
}
