//! Tests of journal discovery: real file systems compared with debugfs, committed fixtures of these, hostile disks.

mod fixtures;
mod hostile;
mod image;
mod real;
mod tables;
mod tools;

use crate::discover;
