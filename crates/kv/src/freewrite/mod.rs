//! Writing again what is stored already, without writing it (Freewrite, papers/freewrite.txt; docs/decisions/0021).

mod planner;

pub use planner::Caps;
pub(crate) use planner::{Piece, Planner, Totals, Verdict};
