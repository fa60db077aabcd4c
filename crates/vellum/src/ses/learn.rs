//! Learns a scrambler from dumps: which address it depends on, and whether that is certain.

use super::{Evidence, Piece, Pieces, ScramblerFile};
use serde::{Deserialize, Serialize};
use std::fmt;
use vellum_base::{Error, Result};
use vellum_codes::scrambler::{Limits, NotSurveyed, Survey, survey};

/// What keystreams depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressKind {
    /// The host's logical sector address.
    Lba,
    /// The number of the page in the device.
    Page,
    /// The number of the page in its erase block.
    PageInBlock,
}

/// Options for learning.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LearnOptions {
    /// Try only this kind of address.
    pub by: Option<AddressKind>,
    /// Limits on wrong bits and on evidence.
    pub limits: Limits,
}

/// Result of learning.
#[derive(Clone, Debug)]
pub struct Learned {
    /// Ready to be written to a file.
    pub file: ScramblerFile,
    /// How it was learned.
    pub survey: Survey,
}

impl AddressKind {
    /// All, in the order in which they are tried.
    pub const ALL: [AddressKind; 3] = [AddressKind::Lba, AddressKind::Page, AddressKind::PageInBlock];

    /// Its name in files and options.
    pub const fn name(self) -> &'static str {
        match self {
            AddressKind::Lba => "lba",
            AddressKind::Page => "page",
            AddressKind::PageInBlock => "page-in-block",
        }
    }

    fn of(self, piece: &Piece, pieces_per_block: Option<u64>) -> Option<u64> {
        match self {
            AddressKind::Lba => piece.lba,
            AddressKind::Page => piece.page,
            AddressKind::PageInBlock => Some(piece.page? % pieces_per_block?),
        }
    }
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Learns the scrambler of the drive that the pieces are from. Fails with [`vellum_base::Kind::Corrupt`] if no
/// scrambler known to us produced them, with a reason for each kind of address.
pub fn learn(pieces: &Pieces, options: &LearnOptions) -> Result<Learned> {
    if pieces.pieces.is_empty() {
        return Err(Error::invalid("the dumps have no pieces"));
    }
    let (mut found, mut reasons) = (None::<Learned>, Vec::new());
    for kind in AddressKind::ALL.into_iter().filter(|kind| options.by.is_none_or(|by| by == *kind)) {
        let Some(addresses) = addresses(pieces, kind) else { continue };
        match survey_by(pieces, &addresses, &options.limits) {
            Ok(survey) if survey.scrambler.map().period() == Some(1) => return Err(constant(kind)),
            Ok(survey) => match &found {
                Some(other) if other.file.address == AddressKind::Lba => return Err(ambiguous(kind)),
                // What depends on the page in its block also depends on the page.
                Some(_) => {}
                None => found = Some(learned(pieces, kind, survey)),
            },
            Err(why) => reasons.push((kind, why)),
        }
    }
    found.ok_or_else(|| refusal(&reasons, options.by))
}

/// The addresses of all pieces, if all have one of this kind.
fn addresses(pieces: &Pieces, kind: AddressKind) -> Option<Vec<u64>> {
    pieces.pieces.iter().map(|piece| kind.of(piece, pieces.pieces_per_block)).collect()
}

fn survey_by(pieces: &Pieces, addresses: &[u64], limits: &Limits) -> Result<Survey, NotSurveyed> {
    let of = |fresh: bool| -> Vec<(u64, &[u8])> {
        let pairs = addresses.iter().zip(&pieces.pieces).filter(|(_, piece)| piece.fresh == fresh);
        pairs.map(|(address, piece)| (*address, &piece.keystream[..])).collect()
    };
    survey(&of(false), &of(true), limits)
}

fn learned(pieces: &Pieces, address: AddressKind, survey: Survey) -> Learned {
    let evidence = Evidence {
        learned: survey.learned,
        checks: survey.checks,
        fresh: survey.fresh,
        patterns: pieces.patterns.len(),
        bits: survey.bits,
        bits_wrong: survey.bits_wrong,
    };
    let file = ScramblerFile {
        address,
        piece_bytes: pieces.piece_bytes,
        scrambler: survey.scrambler.clone(),
        evidence: Some(evidence),
    };
    Learned { file, survey }
}

/// The keystream is constant: there is nothing to undo; or copies were stored once, with the keystream of the first.
fn constant(kind: AddressKind) -> Error {
    Error::corrupt(format!(
        "the keystream is the same whatever the {kind}: equal sectors are stored equal, and there is nothing to undo; or the \
         drive stored copies only once, which the pattern lba has none of"
    ))
}

/// Consecutive sectors on consecutive pages do not show which address keystreams depend on.
fn ambiguous(kind: AddressKind) -> Error {
    Error::invalid(format!(
        "keystreams may go by lba or by {kind}: both fit, as sectors lie on pages in order; dump others, or say --by"
    ))
}

fn refusal(reasons: &[(AddressKind, NotSurveyed)], by: Option<AddressKind>) -> Error {
    match reasons {
        [] => Error::invalid(match by {
            Some(kind) => format!("not every piece has a {kind}"),
            None => "some pieces have only an lba and others only a page".into(),
        }),
        // What the pieces are does not depend on the kind of address.
        [(_, why @ NotSurveyed::NoRegister { .. }), ..] => Error::corrupt(why.to_string()),
        [(_, only)] => Error::corrupt(only.to_string()),
        all => {
            let each = all.iter().map(|(kind, why)| format!("by {kind}: {why}"));
            Error::corrupt(each.collect::<Vec<_>>().join("; "))
        }
    }
}
