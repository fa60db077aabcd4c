//! The lower interface of the stack: what raw flash guarantees.

use crate::error::Reason;
use crate::geometry::Geometry;
use crate::parity::Parity;
use crate::reason;
use crate::units::{BlockAddr, Nanos, PageAddr};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A raw flash device.
///
/// Rules, checked by every implementation (breaking one is [`FlashError::Rule`], a bug of the caller):
/// 1. A page is programmed at most once between two erases of its block.
/// 2. Pages of a block are programmed in ascending order.
/// 3. An erase sets every page of the block to erased; its wear grows by one.
/// 4. A power cut may leave the page being programmed, or the block being erased, unreadable or torn;
///    nothing else changes. On media behind a host's page cache this holds for what [`Flash::sync`] covered.
///
/// `submit` never sleeps: an operation takes effect on the device's state at once, and [`Done::at`] is when
/// it completes on the flash. Callers that depend on completion (to hand data to a host, or for a flush) sleep
/// until then with [`crate::Env::sleep_until`]. So an engine may submit under a lock, can keep all channels busy
/// from one task, and runs unchanged on modelled, paced and plain media (where `at` is zero).
pub trait Flash: Send + Sync {
    /// The shape of the device.
    fn geometry(&self) -> &Geometry;

    /// Runs the operations in order. Stops at the first that fails: those before it are done, those after
    /// it are not begun.
    fn submit(&self, class: IoClass, ops: &mut [FlashOp<'_>]) -> Result<Done, BatchError>;

    /// State of a block as known without reading it (chunk report, zone report).
    fn report(&self, block: BlockAddr) -> BlockReport;

    /// Operation counts since the device was created. They survive restarts.
    fn counters(&self) -> FlashCounters;

    /// Returns when all operations submitted before will survive a crash of the host.
    fn sync(&self) -> Result<(), FlashError>;

    /// Number of wrong bits in a codeword from which a page should be refreshed, that is, moved elsewhere. Fewer are
    /// normal for flash of its age, and moving it would only wear out the device. 1 if the medium has no
    /// natural bit errors.
    fn failing_bits(&self) -> u32 {
        1
    }

    /// The small power-loss-protected memory of the device, if it has one.
    fn nvram(&self) -> Option<&dyn Nvram> {
        None
    }

    /// Access to the ECC parity that the device stores with its pages, if it offers that.
    fn parity(&self) -> Option<&dyn Parity> {
        None
    }

    /// Reads `data.len()` bytes from `offset` of `page`, and the page's out-of-band bytes into `oob`
    /// (all of them, or an empty slice for none).
    fn read(
        &self,
        class: IoClass,
        page: PageAddr,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Done, FlashError> {
        self.submit(class, &mut [FlashOp::Read { page, offset, data, oob }]).map_err(|e| e.error)
    }

    /// Programs one page from `parts`, which together fill it. The device chooses the seeds.
    fn program(
        &self,
        class: IoClass,
        page: PageAddr,
        parts: &[Source<'_>],
        oob: &[u8],
    ) -> Result<Done, FlashError> {
        self.submit(class, &mut [FlashOp::Program { page, parts, oob, seeds: &[] }]).map_err(|e| e.error)
    }

    /// Erases a block, not before `after`.
    fn erase(&self, class: IoClass, block: BlockAddr, after: Nanos) -> Result<Done, FlashError> {
        self.submit(class, &mut [FlashOp::Erase { block, after }]).map_err(|e| e.error)
    }
}

/// One operation of a batch.
pub enum FlashOp<'a> {
    /// Read part of a page. An erased page reads as 0xFF.
    Read {
        /// Where from.
        page: PageAddr,
        /// First byte within the page.
        offset: u32,
        /// Receives the data; may be empty, to read only `oob`.
        data: &'a mut [u8],
        /// Receives all out-of-band bytes; may be empty.
        oob: &'a mut [u8],
    },
    /// Program a whole page.
    Program {
        /// Where to.
        page: PageAddr,
        /// What: the parts follow one another and fill the page.
        parts: &'a [Source<'a>],
        /// Out-of-band bytes, at most `Geometry::oob_bytes`; the rest is zero.
        oob: &'a [u8],
        /// Scrambler seeds by slot: the address of the sector in the slot, if it has one. A copied slot keeps the
        /// seed of its source. The device chooses the seeds of slots beyond the end of this list.
        seeds: &'a [u64],
    },
    /// Erase a block.
    Erase {
        /// The block.
        block: BlockAddr,
        /// The erase starts no earlier than this: when the data that replaces that of the block is durable.
        after: Nanos,
    },
}

/// Where part of a programmed page comes from.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// From memory.
    Bytes(&'a [u8]),
    /// From another page of the device, without passing through the host (copy-back).
    Copy {
        /// Where from.
        page: PageAddr,
        /// First byte within that page.
        offset: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// Filler: zeros that are never read.
    Pad(u32),
}

impl Source<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Source::Bytes(b) => b.len(),
            Source::Copy { bytes, .. } | Source::Pad(bytes) => *bytes as usize,
        }
    }
    /// True if its length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Result of a batch that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// When the last operation is complete on the flash.
    pub at: Nanos,
    /// The most bits corrected in one codeword of what was read.
    pub bits_corrected: u32,
}

/// How urgent the I/O is; schedulers order by it. What was written for what is counted by [`Cause`](crate::Cause).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum IoClass {
    /// A client waits for it.
    Foreground,
    /// Log and map, on the way to a flush.
    Metadata,
    /// Compaction that foreground writes wait for (L0 to L1).
    UrgentCompaction,
    /// Other compaction, garbage collection, wear levelling, scrub.
    Background,
}

/// State of an erase block as the device reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Usable.
    Good,
    /// Retired, at the factory or later: takes no program and no erase. What was programmed may be read.
    Bad,
}

/// What the device knows of a block (compare the chunk report of Open-Channel 2.0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// Usable or not.
    pub state: BlockState,
    /// Pages programmed since the last erase: the next to program. A torn page counts.
    pub pages_written: u32,
    /// Erases so far.
    pub erase_count: u32,
}

/// Operation counts since the device was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlashCounters {
    /// Page reads, copy-back included.
    pub pages_read: u64,
    /// Page programs, failed and torn ones included.
    pub pages_programmed: u64,
    /// Block erases.
    pub blocks_erased: u64,
    /// Programs that failed.
    pub program_failures: u64,
    /// Erases that failed.
    pub erase_failures: u64,
    /// Bits corrected by the error-correcting code.
    pub bits_corrected: u64,
    /// Reads that the code could not correct.
    pub reads_uncorrectable: u64,
    /// Power cuts without a clean shutdown.
    pub power_cuts: u64,
}

/// A small memory that keeps its contents when power is lost (capacitor-backed DRAM).
///
/// A write survives once it returns. A power cut during a write leaves a prefix of it written.
/// On media behind a host's page cache this holds for what [`Flash::sync`] covered. Later writes survive the end of
/// the process, except those after a change to a page that was not synced (see [`Nvram::write_apart`]).
pub trait Nvram: Send + Sync {
    /// Size in bytes.
    fn bytes(&self) -> usize;
    /// Reads from `offset`.
    fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), FlashError>;
    /// Writes at `offset`.
    fn write(&self, offset: usize, data: &[u8]) -> Result<(), FlashError>;
    /// Writes data whose meaning does not depend on pages that are not synced: it survives the end of the process
    /// without waiting for a sync. The order of writes is still preserved.
    fn write_apart(&self, offset: usize, data: &[u8]) -> Result<(), FlashError> {
        self.write(offset, data)
    }
}

/// Why a flash operation failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FlashError {
    /// The page could not be programmed: the block is bad from now on, and its valid data must be moved elsewhere.
    ProgramFailed(PageAddr),
    /// The block could not be erased and is bad from now on.
    EraseFailed(BlockAddr),
    /// More bit errors than the code corrects, or a torn page.
    Uncorrectable(PageAddr),
    /// A rule of [`Flash`] was broken: a bug of the caller.
    Rule(String),
    /// The power is off.
    PowerLost,
    /// The medium behind is full (the host's file system).
    Full(std::io::Error),
    /// The medium behind failed.
    Io(std::io::Error),
}

impl FlashError {
    /// The reason that an [`Error`](crate::Error) made of it has, if any.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            FlashError::Full(e) | FlashError::Io(e) => reason::of_io(e),
            _ => None,
        }
    }
}

impl fmt::Display for FlashError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlashError::ProgramFailed(p) => write!(f, "program of {p} failed"),
            FlashError::EraseFailed(b) => write!(f, "erase of {b} failed"),
            FlashError::Uncorrectable(p) => write!(f, "{p} cannot be read: too many bit errors, or torn"),
            FlashError::Rule(what) => write!(f, "flash rule broken: {what}"),
            FlashError::PowerLost => write!(f, "the power is off"),
            FlashError::Full(e) => {
                write!(f, "no room behind the flash image: {e}; free space, then open it again")
            }
            FlashError::Io(e) => write!(f, "the medium behind the flash failed: {e}"),
        }
    }
}

impl std::error::Error for FlashError {}

impl From<std::io::Error> for FlashError {
    fn from(e: std::io::Error) -> FlashError {
        match e.raw_os_error() {
            Some(28) | Some(122) => FlashError::Full(e),
            _ => FlashError::Io(e),
        }
    }
}

/// The first failure of a batch.
#[derive(Debug)]
pub struct BatchError {
    /// Which operation failed; those before it are done.
    pub index: usize,
    /// Result of the operations before it; its time includes the failed one.
    pub done: Done,
    /// Why.
    pub error: FlashError,
}
