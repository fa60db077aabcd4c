//! Flash with coded pages: each has the parity of an error-correcting code, so that wrong bits are corrected, and may
//! be scrambled. In a drive this is done by the controller, between its mapping and the chips.
//!
//! A [`Coded`] device looks like the one below with fewer out-of-band bytes. The remaining ones hold the parity and the
//! scrambler seeds of each page (`spare`, and `docs/formats/coded-page.md`).
//!
//! Invariants:
//! 1. One program here is one program below: data and spare area of a page are written together or not at all.
//! 2. A read returns what was programmed, or fails. Corrected bits are trusted only if a checksum agrees.
//! 3. Copies are corrected on the way, so that errors do not accumulate. A copy keeps the keystream of its source if
//!    that depends on a sector's address, and gets that of its new place if it depends on the page.
//! 4. For a device that is not coded ([`Coded::plain`]) this layer costs a branch.

mod parity;
mod program;
mod read;
mod scramble;
mod spare;

pub use vellum_codes::ecc::Rate;

use crate::nand::{InFlight, Nand, NandParams, PowerCut};
use scramble::Keystreams;
use spare::Layout;
use vellum_base::flash::BatchError;
use vellum_base::sync::Mutex;
use vellum_base::{
    BlockAddr, BlockReport, Done, Error, Flash, FlashCounters, FlashError, FlashOp, Geometry, IoClass, Nvram,
    Parity, Result, Scrambling,
};
use vellum_codes::ecc::Code;

/// Maximum number of operations passed down in one batch.
const BATCH_MAX: usize = 64;

/// How pages are coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    /// Data bytes of a codeword: 1024, 2048 or 4096.
    pub codeword_bytes: u32,
    /// Data bits per stored bit.
    pub rate: Rate,
    /// How data are scrambled.
    pub scrambling: Scrambling,
}

impl Coding {
    /// The paper's code (ses-dedup.txt, section V.A), without a scrambler.
    pub const PAPER: Coding =
        Coding { codeword_bytes: 1024, rate: Rate::R32_33, scrambling: Scrambling::Off };

    /// Checks that the code and the scrambler exist.
    pub fn validate(&self) -> Result<()> {
        if Code::new(self.codeword_bytes as usize, self.rate).is_none() {
            return Err(Error::invalid(format!(
                "there is no code with codewords of {} bytes, only of 1, 2 and 4 KiB",
                self.codeword_bytes
            )));
        }
        match self.scrambling {
            Scrambling::ByPage { period: 0 } => {
                Err(Error::invalid("keystreams that repeat after 0 pages: choose 64, 128 or 256"))
            }
            _ => Ok(()),
        }
    }

    /// The error-correcting code.
    ///
    /// # Panics
    /// If there is none: see [`Coding::validate`].
    pub fn code(&self) -> &'static Code {
        Code::new(self.codeword_bytes as usize, self.rate).expect("a coding that was validated")
    }

    /// The geometry needed below to offer `geometry` above: the same with a larger spare area.
    pub fn geometry_below(&self, geometry: &Geometry) -> Result<Geometry> {
        self.validate()?;
        geometry.validate()?;
        let oob_bytes = Layout::new(geometry, self).bytes() as u32;
        let below = Geometry { oob_bytes, ..*geometry };
        below.validate()?;
        Ok(below)
    }
}

/// Counts what a code above a device corrected.
pub trait Tally {
    /// Counts corrected bits and uncorrectable reads.
    fn tally(&self, bits_corrected: u64, reads_uncorrectable: u64);
}

/// Flash with coded pages, over uncoded flash.
pub struct Coded<F> {
    inner: F,
    geometry: Geometry,
    coder: Option<Coder>,
}

/// Encodes and decodes pages.
struct Coder {
    geometry: Geometry,
    coding: Coding,
    code: &'static Code,
    layout: Layout,
    keystreams: Option<Keystreams>,
    /// Buffers of batches, for reuse.
    scratch: Mutex<Vec<Scratch>>,
}

/// The buffers of a batch.
#[derive(Default)]
struct Scratch {
    /// Spare areas, concatenated.
    spare: Vec<u8>,
    /// Sectors that are not stored as they were given.
    sectors: Vec<u8>,
    /// The spare area of a page that is copied from.
    source: Vec<u8>,
}

impl<F: Flash + Tally> Coded<F> {
    /// `inner` without coding.
    pub fn plain(inner: F) -> Coded<F> {
        let geometry = *inner.geometry();
        Coded { inner, geometry, coder: None }
    }

    /// `inner` with coded pages, with `oob_bytes` of the spare area available to the user.
    /// [`vellum_base::Kind::Invalid`] unless the spare area is exactly as large as that requires.
    pub fn new(inner: F, oob_bytes: u32, coding: Coding) -> Result<Coded<F>> {
        let geometry = Geometry { oob_bytes, ..*inner.geometry() };
        let (needed, there) = (coding.geometry_below(&geometry)?.oob_bytes, inner.geometry().oob_bytes);
        if needed != there {
            return Err(Error::invalid(format!(
                "a coded page needs a spare area of {needed} bytes, and this flash has {there}"
            )));
        }
        let code = coding.code();
        let keystreams = (coding.scrambling != Scrambling::Off).then(|| Keystreams::new(code));
        let layout = Layout::new(&geometry, &coding);
        let coder = Coder { geometry, coding, code, layout, keystreams, scratch: Mutex::default() };
        Ok(Coded { inner, geometry, coder: Some(coder) })
    }

    /// The device below.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// Returns the device below without this layer.
    pub fn into_inner(self) -> F {
        self.inner
    }

    /// How pages are coded, if at all.
    pub fn coding(&self) -> Option<&Coding> {
        self.coder.as_ref().map(|coder| &coder.coding)
    }

    /// Runs the first operations of `ops` that can go down together. Returns how many.
    fn submit_some(
        &self,
        coder: &Coder,
        class: IoClass,
        ops: &mut [FlashOp<'_>],
    ) -> std::result::Result<(usize, Done), BatchError> {
        let most = ops.len().min(BATCH_MAX);
        match &ops[0] {
            FlashOp::Read { .. } => self.read_some(coder, class, &mut ops[..most]),
            FlashOp::Program { .. } => self.program_some(coder, class, &ops[..most]),
            FlashOp::Erase { .. } => {
                let erases = ops.iter().take_while(|op| matches!(op, FlashOp::Erase { .. })).count();
                self.inner.submit(class, &mut ops[..erases]).map(|done| (erases, done))
            }
        }
    }
}

impl Coded<Nand> {
    /// The parameters the device was created with.
    pub fn params(&self) -> &NandParams {
        self.inner.params()
    }

    /// Syncs and closes an image: see [`Nand::close`].
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }
}

impl<F: Flash + Tally> Flash for Coded<F> {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, class: IoClass, ops: &mut [FlashOp<'_>]) -> std::result::Result<Done, BatchError> {
        let Some(coder) = &self.coder else { return self.inner.submit(class, ops) };
        let (mut begun, mut done) = (0, Done::default());
        while begun < ops.len() {
            match self.submit_some(coder, class, &mut ops[begun..]) {
                Ok((count, some)) => {
                    begun += count;
                    done = both(done, some);
                }
                Err(e) => return Err(BatchError { index: begun + e.index, done: both(done, e.done), ..e }),
            }
        }
        Ok(done)
    }

    fn report(&self, block: BlockAddr) -> BlockReport {
        self.inner.report(block)
    }

    fn counters(&self) -> FlashCounters {
        self.inner.counters()
    }

    fn sync(&self) -> std::result::Result<(), FlashError> {
        self.inner.sync()
    }

    fn failing_bits(&self) -> u32 {
        self.inner.failing_bits()
    }

    fn nvram(&self) -> Option<&dyn Nvram> {
        self.inner.nvram()
    }

    fn parity(&self) -> Option<&dyn Parity> {
        self.coder.as_ref().map(|_| self as &dyn Parity)
    }
}

impl<F: PowerCut> PowerCut for Coded<F> {
    fn power_cut_now(&self, in_flight: &[InFlight]) -> std::result::Result<(), FlashError> {
        self.inner.power_cut_now(in_flight)
    }
}

impl Coder {
    fn take_scratch(&self) -> Scratch {
        self.scratch.lock().pop().unwrap_or_default()
    }

    fn put_back(&self, scratch: Scratch) {
        self.scratch.lock().push(scratch);
    }
}

/// The combined result of two batches.
fn both(a: Done, b: Done) -> Done {
    Done { at: a.at.max(b.at), bits_corrected: a.bits_corrected.max(b.bits_corrected) }
}
