//! Fault injection.
//!
//! The model. A device may, at an operation chosen by its number:
//! 1. fail to program a page or to erase a block; the block is bad from then on (this is reported);
//! 2. lose power: that operation is torn, and nothing works until the power is back;
//! 3. lie: report success for a program that stored nothing, or that hit another page;
//! 4. get an error from the host's file system; until it is reopened it accepts no more writes.
//!
//! At any time, bits of a page may rot, detected by the error-correcting code or not. Probabilities that grow with wear
//! are in [`super::Wear`]. Content is never invented: whatever is read was once written here, or is erased, or is noise
//! that no checksum passes.

use super::content::PageContent;
use super::dice::{noise, roll};
use super::{Nand, Shared};
use crate::one_of::OneOf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum_base::sync::Mutex;
use vellum_base::{Flash, FlashError, IoClass, PageAddr};

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A program fails, which is reported. Counts programs.
    ProgramFails,
    /// An erase fails, which is reported. Counts erases.
    EraseFails,
    /// Power is lost during a program or an erase. Counts both.
    PowerCut,
    /// Power is lost during a write to the NVRAM: a prefix is written. Counts NVRAM writes.
    PowerCutInNvram,
    /// A program is reported as successful but stores nothing. Counts programs.
    ProgramLost,
    /// A program is reported as successful, but its bytes replace those of a page programmed earlier (if that page is
    /// not written, they are lost). Counts programs.
    ProgramMisdirected {
        /// The page whose bytes are replaced.
        to: PageAddr,
    },
    /// The host returns this `errno` (5 is EIO, 28 ENOSPC). Counts every call.
    Host {
        /// The error number.
        errno: i32,
    },
}

/// A call that a fault may hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Program,
    Erase,
    NvramWrite,
    Sync,
}

impl Fault {
    fn counts(self, call: Call) -> bool {
        match self {
            Fault::ProgramFails | Fault::ProgramLost | Fault::ProgramMisdirected { .. } => {
                call == Call::Program
            }
            Fault::EraseFails => call == Call::Erase,
            Fault::PowerCut => matches!(call, Call::Program | Call::Erase),
            Fault::PowerCutInNvram => call == Call::NvramWrite,
            Fault::Host { .. } => true,
        }
    }
}

/// The armed faults.
#[derive(Default)]
pub(crate) struct Plan {
    armed: AtomicBool,
    waiting: Mutex<Vec<(u64, Fault)>>,
}

impl Plan {
    pub fn arm(&self, nth: u64, fault: Fault) {
        self.waiting.lock().push((nth.max(1), fault));
        self.armed.store(true, Relaxed);
    }

    pub fn clear(&self) {
        self.waiting.lock().clear();
        self.armed.store(false, Relaxed);
    }

    /// True if any fault is armed: a single load, so that a device without faults pays almost nothing.
    #[inline]
    pub fn is_armed(&self) -> bool {
        self.armed.load(Relaxed)
    }

    /// Counts a call; returns the fault that hits it.
    #[cold]
    pub fn count(&self, call: Call) -> Option<Fault> {
        let mut waiting = self.waiting.lock();
        let mut hit = None;
        waiting.retain_mut(|(left, fault)| {
            if fault.counts(call) {
                *left -= 1;
            }
            if *left == 0 {
                hit = Some(*fault);
            }
            *left > 0
        });
        self.armed.store(!waiting.is_empty(), Relaxed);
        hit
    }
}

impl Shared {
    /// Counts a call without a page; an error if a fault hits it.
    #[inline]
    pub(crate) fn count(&self, call: Call) -> Result<Option<Fault>, FlashError> {
        if !self.faults.is_armed() {
            return Ok(None);
        }
        match self.faults.count(call) {
            Some(Fault::Host { errno }) => {
                if call != Call::Read {
                    self.health.poison();
                }
                Err(std::io::Error::from_raw_os_error(errno).into())
            }
            other => Ok(other),
        }
    }
}

impl Nand {
    /// Makes the `nth` call from now (1 is the next) that `fault` counts go wrong.
    pub fn arm(&self, nth: u64, fault: Fault) {
        self.shared.faults.arm(nth, fault);
    }

    /// Cancels the faults that have not happened yet.
    pub fn disarm(&self) {
        self.shared.faults.clear();
    }

    /// True while an armed fault has not happened yet.
    pub fn is_armed(&self) -> bool {
        self.shared.faults.is_armed()
    }

    /// Bit rot detected by the error-correcting code: the page is uncorrectable from now on.
    pub fn spoil(&self, page: PageAddr) -> Result<(), FlashError> {
        self.check_page(page)?;
        let (die, block) = self.locate(page.block);
        let mut die = die.lock();
        match page.page < die.blocks[block as usize].pages_written {
            true => die.spoil(block, page.page),
            false => Ok(()),
        }
    }

    /// Bit rot not detected by the error-correcting code: flips one bit of a programmed page's data.
    pub fn flip_bit(&self, page: PageAddr, bit: u64) -> Result<(), FlashError> {
        self.check_page(page)?;
        let mut data = vec![0; self.geometry().page_bytes as usize];
        let mut oob = vec![0; self.geometry().oob_bytes as usize];
        self.read(IoClass::Background, page, 0, &mut data, &mut oob)?;
        let at = (bit / 8) as usize % data.len();
        data[at] ^= 1 << (bit % 8);
        let (die, block) = self.locate(page.block);
        let mut die = die.lock();
        if page.page < die.blocks[block as usize].pages_written {
            die.store.overwrite(block, page.page, &PageContent::of_bytes(&data, &oob))?;
        }
        Ok(())
    }

    /// Programs a page while `fault` happens.
    #[cold]
    pub(crate) fn program_with(
        &self,
        fault: Fault,
        page: PageAddr,
        content: PageContent<'_>,
    ) -> Result<(), FlashError> {
        match fault {
            Fault::ProgramFails => {
                let (die, block) = self.locate(page.block);
                Err(die.lock().fail_program(&self.rules, block, page.page))
            }
            Fault::PowerCut => self.tear_program(page, &content),
            Fault::ProgramMisdirected { to } => {
                self.store_page(&mut OneOf::new(&self.dies), page, &mut erased_page(&content))?;
                let (die, block) = self.locate(to.block);
                let mut die = die.lock();
                if to.page < die.blocks[block as usize].pages_written {
                    die.store.overwrite(block, to.page, &content)?;
                }
                Ok(())
            }
            _ => self.store_page(&mut OneOf::new(&self.dies), page, &mut erased_page(&content)),
        }
    }

    /// Truncated content: the first part as intended, then noise.
    pub(crate) fn garbled(&self, page: PageAddr, content: &PageContent<'_>) -> (Vec<u8>, Vec<u8>) {
        let draw = roll(self.rules.params.seed, [0x6A4B, page.block.0 as u64, page.page as u64, 0]);
        let mut data = content.to_bytes();
        let kept = draw as usize % data.len();
        noise(draw, &mut data[kept..]);
        let mut oob = content.oob.to_vec();
        if draw >> 63 == 0 {
            noise(draw, &mut oob);
        }
        (data, oob)
    }
}

/// The content of a page that was never programmed although the device reported success.
fn erased_page<'a>(like: &PageContent<'_>) -> PageContent<'a> {
    static ONES: [u8; 16 * 1024] = [0xFF; 16 * 1024];
    let mut page = PageContent::zeros(like.pieces().len(), &ONES[..like.oob.len()]);
    page.pieces_mut().fill(super::content::Piece::erased());
    page
}
