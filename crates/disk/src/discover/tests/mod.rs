//! Tests of journal discovery: real file systems against debugfs, committed fixtures of the same, hostile disks.

mod fixtures;
mod hostile;
mod image;
mod real;
mod tables;
mod tools;

use crate::discover;
