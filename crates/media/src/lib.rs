//! Things that keep bytes: virtual NAND flash in memory ([`nand`]), and the time it takes ([`timing`]).
pub mod nand;
pub mod timing;
pub use nand::{Nand, NandParams, Wear};
pub use timing::{Timed, Timing};
