//! The error-correcting code of a device, as far as its parity serves as a fingerprint (ses-dedup.txt, section III).

use crate::flash::{Done, FlashError, IoClass};
use crate::units::PageAddr;
use serde::{Deserialize, Serialize};

/// The seed of data that are to be stored as they are, whatever the device scrambles: a host that has scrambled them
/// itself wants it so (ses-dedup.txt, section III.B).
pub const PLAIN_SEED: u64 = u64::MAX;

/// The parity that a device keeps with its pages anyway. A device that has it says so by [`crate::Flash::parity`].
///
/// Parity here is always that of plain data, whatever the device scrambles: equal sectors have equal parity wherever
/// they are. It is a hint and no more. The code is linear, so anyone can make two contents of one parity; and the
/// parity of a stored page is not checked against its data, so that wrong bits in it go unseen.
pub trait Parity: Send + Sync {
    /// The name of the code: `codes::ecc::Code::by_name` knows it.
    fn code(&self) -> &'static str;

    /// What the data are scrambled with before the parity that is stored is made of them.
    fn scrambling(&self) -> Scrambling;

    /// Bytes of parity for a sector: that of its codewords, one behind the other.
    fn bytes(&self) -> usize;

    /// The parity of a sector that need not be stored: what in-line deduplication looks up.
    ///
    /// # Panics
    /// If `sector` is not a sector, or `parity` not of [`Parity::bytes`].
    fn of_data(&self, sector: &[u8], parity: &mut [u8]);

    /// Scrambles a sector as one that is programmed with `seed`, or descrambles it: the same. Nothing is done if seeds
    /// are not what the scrambler goes by.
    fn scramble(&self, seed: u64, sector: &mut [u8]);

    /// The parity of every slot of a page, one behind the other, from the page's spare area alone: its data are not
    /// read. An erased page has that of sectors of 0xFF.
    ///
    /// # Panics
    /// If `parity` is not of [`Parity::bytes`] a slot.
    fn of_page(&self, class: IoClass, page: PageAddr, parity: &mut [u8]) -> Result<Done, FlashError>;
}

/// What a scrambler's keystream begins from, for each slot anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scrambling {
    /// Data are stored as they are.
    #[default]
    Off,
    /// From the seed that came with the data, a sector's address as a rule. Copies keep it.
    BySector,
    /// From the page's number within its block, modulo `period`, and the slot's within the page.
    ByPage {
        /// After how many pages of a block keystreams repeat.
        period: u32,
    },
}
