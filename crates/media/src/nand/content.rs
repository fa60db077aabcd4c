//! The content of a page in transit: one [`Piece`] per slot, in the most compact form known.
//!
//! 1. A piece represents exactly one sector of bytes.
//! 2. Copy-back moves pieces, never bytes, unless the copy is not aligned to slots.

use std::sync::{Arc, LazyLock};
use vellum_base::SECTOR_BYTES;
use vellum_codes::pattern::Pattern;

/// Pages of up to this many slots are assembled without allocation.
const FEW_SLOTS: usize = 4;

static ZEROS: [u8; SECTOR_BYTES] = [0; SECTOR_BYTES];
static ONES: LazyLock<Arc<[u8]>> = LazyLock::new(|| Arc::from([0xFF; SECTOR_BYTES]));

/// The content of one slot.
#[derive(Clone)]
pub(crate) enum Piece<'a> {
    Zero,
    Pattern(Pattern),
    Shared(Arc<[u8]>),
    Borrowed(&'a [u8]),
}

impl<'a> Piece<'a> {
    /// The most compact form of `sector`.
    #[inline]
    pub fn recognise(sector: &'a [u8]) -> Piece<'a> {
        if vellum_codes::is_zero(sector) {
            return Piece::Zero;
        }
        match Pattern::recognise(sector) {
            Some(pattern) => Piece::Pattern(pattern),
            None => Piece::Borrowed(sector),
        }
    }

    /// The same, owning its bytes.
    pub fn owned(sector: &[u8]) -> Piece<'static> {
        match Piece::recognise(sector) {
            Piece::Borrowed(bytes) => Piece::Shared(Arc::from(bytes)),
            Piece::Shared(bytes) => Piece::Shared(bytes),
            Piece::Pattern(p) => Piece::Pattern(p),
            Piece::Zero => Piece::Zero,
        }
    }

    /// The content of an erased slot.
    pub fn erased() -> Piece<'static> {
        Piece::Shared(ONES.clone())
    }

    /// Copies bytes from `offset` of the slot into `out`.
    pub fn read(&self, offset: usize, out: &mut [u8]) {
        match self {
            Piece::Zero => out.fill(0),
            Piece::Pattern(p) if out.len() == SECTOR_BYTES => p.fill(out),
            Piece::Pattern(p) => {
                let mut whole = [0; SECTOR_BYTES];
                p.fill(&mut whole);
                out.copy_from_slice(&whole[offset..offset + out.len()]);
            }
            Piece::Shared(bytes) => out.copy_from_slice(&bytes[offset..offset + out.len()]),
            Piece::Borrowed(bytes) => out.copy_from_slice(&bytes[offset..offset + out.len()]),
        }
    }

    /// The bytes, if they exist in memory.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Piece::Zero => Some(&ZEROS),
            Piece::Pattern(_) => None,
            Piece::Shared(bytes) => Some(bytes),
            Piece::Borrowed(bytes) => Some(bytes),
        }
    }
}

/// The content of one page.
pub(crate) struct PageContent<'a> {
    pieces: Pieces<'a>,
    slots: usize,
    /// Out-of-band bytes; may be shorter than the page's.
    pub oob: &'a [u8],
    /// False for a page whose bytes are lost.
    pub readable: bool,
}

enum Pieces<'a> {
    Few([Piece<'a>; FEW_SLOTS]),
    Many(Vec<Piece<'a>>),
}

impl<'a> PageContent<'a> {
    /// A page of zeros.
    #[inline]
    pub fn zeros(slots: usize, oob: &'a [u8]) -> PageContent<'a> {
        let pieces = match slots <= FEW_SLOTS {
            true => Pieces::Few([const { Piece::Zero }; FEW_SLOTS]),
            false => Pieces::Many(vec![Piece::Zero; slots]),
        };
        PageContent { pieces, slots, oob, readable: true }
    }

    /// A page that holds `bytes`.
    pub fn of_bytes(bytes: &[u8], oob: &'a [u8]) -> PageContent<'a> {
        let mut page = PageContent::zeros(bytes.len() / SECTOR_BYTES, oob);
        page.set_bytes(bytes);
        page
    }

    /// Replaces the content by `bytes`.
    pub fn set_bytes(&mut self, bytes: &[u8]) {
        for (piece, sector) in self.pieces_mut().iter_mut().zip(bytes.chunks_exact(SECTOR_BYTES)) {
            *piece = Piece::owned(sector);
        }
    }

    /// The pieces, one per slot.
    #[inline]
    pub fn pieces(&self) -> &[Piece<'a>] {
        match &self.pieces {
            Pieces::Few(pieces) => &pieces[..self.slots],
            Pieces::Many(pieces) => pieces,
        }
    }

    /// The pieces, one per slot.
    #[inline]
    pub fn pieces_mut(&mut self) -> &mut [Piece<'a>] {
        match &mut self.pieces {
            Pieces::Few(pieces) => &mut pieces[..self.slots],
            Pieces::Many(pieces) => pieces,
        }
    }

    /// All bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![0; self.slots * SECTOR_BYTES];
        for (piece, sector) in self.pieces().iter().zip(out.chunks_exact_mut(SECTOR_BYTES)) {
            piece.read(0, sector);
        }
        out
    }
}
