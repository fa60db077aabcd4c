//! Writing again what is stored already, without writing it (Freewrite, papers/freewrite.txt; docs/decisions/0021).

mod options;
mod planner;
mod stat;

pub use options::check_sharing;
pub use options::{Reuse, ReuseOptions};
pub(crate) use options::{UNIT_BYTES_MAX, UnitBounds, in_force};
pub use planner::Caps;
pub(crate) use planner::{IslandPart, Planner, Totals, Verdict};
pub use stat::ReuseStat;
