//! Room on the medium: how it is counted (`count`), what of it is kept for whom (`budget`), what is smaller where it is
//! short (`sizes`), and who waits for it (`wait`).

mod budget;
mod count;
mod sizes;
mod wait;

pub(crate) use budget::Budget;
pub(crate) use count::{Room, RoomTaken, tables_of_merge};
pub(crate) use sizes::Short;
