//! What a virtual flash device promises, in memory and in a file.

mod crash;
mod damage;
mod faults;
mod image;
mod model;
mod presets;
mod rules;
mod support;
mod timing;
