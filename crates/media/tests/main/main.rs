//! The guarantees of a virtual flash device, in memory and in a file.

mod alike;
mod beside;
mod coded;
mod crash;
mod damage;
mod faults;
mod image;
mod model;
mod presets;
mod rot;
mod rules;
mod support;
mod timing;
mod zones;
