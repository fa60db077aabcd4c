//! Compaction: choosing tables (`pick`, `gather`, `leveldb`, `toll`), merging them (`run`, `parts`, `piece`, `sweep`),
//! and laying out and writing the result (`layout`, `output`).

mod gather;
mod layout;
mod leveldb;
mod output;
mod parts;
mod pick;
mod piece;
mod run;
mod sweep;
mod toll;
mod window;
mod work;

pub(crate) use gather::{Gather, Small};
pub(crate) use layout::GRANDPARENTS_MAX;
pub(crate) use leveldb::LevelDb;
pub(crate) use output::{FINE_BYTES, TableSink, longest_of_piece};
pub(crate) use pick::{Claim, Job, Shape, Situation, pick};
pub(crate) use piece::{MergeRange, PartialMerges};
pub(crate) use run::run;
pub(crate) use sweep::Sweep;
pub(crate) use toll::Toll;
pub(crate) use window::Window;
pub(crate) use work::Work;
