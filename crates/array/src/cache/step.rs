//! What a policy wants done.
//!
//! 1. Steps are in the order in which the policy's state changes. Those that name the same page, sector or row must
//!    happen in that order.
//! 2. The requester waits for the first [`Steps::answered`] steps, which run side by side except where bytes flow from
//!    one to the next. The rest runs behind the answer.

use vellum_base::Lba;

/// A page of the cache, counted from 0. Behind those of the SSD are those of the window, in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageNo(pub u32);

/// Where a delta is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaPlace {
    /// In the staging buffer, under its base's page.
    Staged,
    /// In a delta page.
    In {
        /// The page.
        page: PageNo,
        /// First byte of it.
        offset: u16,
        /// How many.
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
    /// In this page, and a delta on it.
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

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Read a page of data. For a write this is its base, which the driver has read before it asked.
    ReadPage(PageNo),
    /// Read a page of deltas.
    ReadDeltas(PageNo),
    /// Read a sector from the array.
    ReadArray(Lba),
    /// Write a sector to the array, with its parity.
    WriteArray(Lba),
    /// Write a sector to the array, not its parity.
    WriteWithoutParity(Lba),
    /// Write the sector's newest version into a page.
    WritePage {
        /// Where to.
        page: PageNo,
        /// Of what.
        lba: Lba,
        /// What for.
        why: Why,
    },
    /// Keep the sector's newest version in a page of the window.
    Hold {
        /// Where.
        page: PageNo,
        /// Of what.
        lba: Lba,
    },
    /// Write what a page of the window holds into a page of the SSD.
    Promote {
        /// In memory.
        from: PageNo,
        /// On the SSD.
        to: PageNo,
        /// Whose version it is.
        lba: Lba,
    },
    /// Apply the delta of a page of the window to it: it is the newest version then.
    Refresh(PageNo),
    /// Put the delta of this sector into the staging buffer, in place of the one that it had anywhere.
    Stage(Staged),
    /// Take the delta of this base out of the staging buffer.
    Unstage(PageNo),
    /// Pack staged deltas into a delta page: `count` of [`Steps::staged`] from `from` on. They leave the buffer.
    CommitDeltas {
        /// Where to.
        page: PageNo,
        /// First of the list.
        from: u32,
        /// How many.
        count: u32,
    },
    /// Bring the parity of a row up to date from `count` of [`Steps::parts`] from `from` on: these are all that it
    /// lacks.
    UpdateParity {
        /// The row.
        row: u64,
        /// First of the list.
        from: u32,
        /// How many.
        count: u32,
        /// All data at these offsets are in the cache, and in the list: old parity need not be read.
        whole: bool,
    },
    /// Put an entry into the metadata buffer, in place of the one of the same page.
    Note(LogEntry),
    /// Write the metadata buffer into page `sequence` of the log: `count` of [`Steps::entries`] from `from` on. The
    /// buffer is empty then.
    CommitLog {
        /// Of the page.
        sequence: u64,
        /// The oldest page that counts.
        head: u64,
        /// First of the list.
        from: u32,
        /// How many.
        count: u32,
    },
    /// The page holds nothing any more.
    Discard(PageNo),
    /// No page of a segment holds anything, and all will be written again, in order: its flash may be erased.
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
    /// The page that it changes.
    pub base: PageNo,
    /// Whose sector that is.
    pub lba: Lba,
    /// Its length.
    pub bytes: u16,
    /// Where it is put in a delta page. 0 for [`Step::Stage`].
    pub offset: u16,
}

/// What parity lacks of one sector, or one sector of a whole row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParityPart {
    /// This delta.
    Delta(Lba, PageNo, DeltaPlace),
    /// The XOR of two versions.
    Versions {
        /// Whose.
        lba: Lba,
        /// What parity knows.
        old: PageNo,
        /// What the array holds.
        new: PageNo,
    },
    /// Nothing: the page is what both know.
    Same(Lba, PageNo),
}

/// An entry of the metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// Whose state this is.
    pub page: PageNo,
    /// Its state; never that of a delta page. A page whose delta is staged is clean here.
    pub state: super::PageState,
    /// Its sector, if it has one.
    pub lba: Lba,
    /// The delta of an old page.
    pub delta: Option<(PageNo, u16, u16)>,
    /// The checksum of what the page holds. Policies do not know it; the engine does.
    pub sum: Option<u32>,
}

/// What a policy wants done, in order. Kept by the driver from request to request.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// In order.
    pub list: Vec<Step>,
    /// The requester waits for so many.
    pub answered: usize,
    /// See [`Step::CommitDeltas`].
    pub staged: Vec<Staged>,
    /// See [`Step::UpdateParity`].
    pub parts: Vec<ParityPart>,
    /// See [`Step::CommitLog`].
    pub entries: Vec<LogEntry>,
}

impl Steps {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.list.clear();
        self.answered = 0;
        self.staged.clear();
        self.parts.clear();
        self.entries.clear();
    }

    /// One more.
    #[inline]
    pub fn push(&mut self, step: Step) {
        self.list.push(step);
    }

    /// The requester waits for what there is, and for nothing that follows.
    #[inline]
    pub fn answer(&mut self) {
        self.answered = self.list.len();
    }

    /// The deltas of a commit.
    pub fn staged_of(&self, from: u32, count: u32) -> &[Staged] {
        &self.staged[from as usize..][..count as usize]
    }

    /// What a parity lacks.
    pub fn parts_of(&self, from: u32, count: u32) -> &[ParityPart] {
        &self.parts[from as usize..][..count as usize]
    }

    /// The entries of a page of the log.
    pub fn entries_of(&self, from: u32, count: u32) -> &[LogEntry] {
        &self.entries[from as usize..][..count as usize]
    }
}
