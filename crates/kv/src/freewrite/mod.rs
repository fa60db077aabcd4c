//! Writing again what is stored already, without writing it (Freewrite, papers/freewrite.txt; docs/decisions/0021).

mod asked;
mod planner;
mod stat;

pub use asked::check_sharing;
pub(crate) use asked::{Asked, Extent, UNIT_BYTES_MAX, in_force};
pub use planner::Caps;
pub(crate) use planner::{Piece, Planner, Totals, Verdict};
pub use stat::ReuseStat;
