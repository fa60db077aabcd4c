//! Parity of a device's error-correcting code, used as a fingerprint of sectors (ses-dedup.txt, section III).

use crate::flash::{Done, FlashError, IoClass};
use crate::units::PageAddr;
use serde::{Deserialize, Serialize};

/// The seed for data that are not to be scrambled by the device, because the host has scrambled them itself
/// (ses-dedup.txt, section III.B).
pub const PLAIN_SEED: u64 = u64::MAX;

/// Access to the parity that a device stores with its pages anyway; see [`crate::Flash::parity`].
///
/// The parity returned is always that of unscrambled data: equal sectors have equal parity wherever they are. It is
/// only a hint. The code is linear, so collisions are easy to construct; and the parity of a stored page is not checked
/// against its data, so bit errors in it are not detected.
pub trait Parity: Send + Sync {
    /// The name of the code: `codes::ecc::Code::by_name` knows it.
    fn code(&self) -> &'static str;

    /// How data are scrambled before the stored parity is computed.
    fn scrambling(&self) -> Scrambling;

    /// Bytes of parity of a sector: the parities of its codewords, concatenated.
    fn bytes(&self) -> usize;

    /// Computes the parity of a sector that need not be stored, as in-line deduplication does to look it up.
    ///
    /// # Panics
    /// If `sector` is not of the sector size, or `parity` not of [`Parity::bytes`].
    fn of_data(&self, sector: &[u8], parity: &mut [u8]);

    /// Scrambles a sector as if programmed with `seed`; the same call descrambles it. Does nothing if the scrambler
    /// does not depend on seeds.
    fn scramble(&self, seed: u64, sector: &mut [u8]);

    /// Reads the parities of all slots of a page, concatenated, from its spare area; the data are not read. An erased
    /// page has the parity of sectors of 0xFF.
    ///
    /// # Panics
    /// If `parity` is not of [`Parity::bytes`] per slot.
    fn of_page(&self, class: IoClass, page: PageAddr, parity: &mut [u8]) -> Result<Done, FlashError>;
}

/// What the keystream of a scrambler is seeded with; it restarts at each slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scrambling {
    /// Data are stored as they are.
    #[default]
    Off,
    /// The seed passed with the data, normally the sector's address. Copies keep it.
    BySector,
    /// The index of the page in its block modulo `period`, and that of the slot in the page.
    ByPage {
        /// Number of pages of a block after which keystreams repeat.
        period: u32,
    },
}
