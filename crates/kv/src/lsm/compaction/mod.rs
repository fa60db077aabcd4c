//! Compaction: a `job`, and the `situation` in which it is chosen (`pick`, `piece`, `gather`, `toll`), merging (`run`,
//! `parts`, `sweep`), and laying out and writing the result (`layout`, `output`).

mod gather;
mod job;
mod layout;
mod output;
mod parts;
mod pick;
mod piece;
mod run;
mod situation;
mod sweep;
mod toll;
mod window;
mod work;

pub(crate) use gather::{Gather, Small};
pub(crate) use job::{Claim, Job, with_sharers};
pub(crate) use layout::GRANDPARENTS_MAX;
pub(crate) use output::{FINE_BYTES, TableSink, longest_of_piece};
pub(crate) use pick::{job_of, next_piece, pick};
pub(crate) use piece::{MergeRange, PartialMerges};
pub(crate) use run::run;
pub(crate) use situation::{Shape, Situation};
pub(crate) use sweep::Sweep;
pub(crate) use toll::Toll;
pub(crate) use window::Window;
pub(crate) use work::Work;
