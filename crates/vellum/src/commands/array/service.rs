//! How an array is served, for any door.

use vellum::array::Device;
use vellum::base::{Error, RealEnv, Result};
use vellum::media::{Hdd, HddModel};

/// Concurrent requests through FUSE: threads wait for disks, not for cores.
pub const FUSE_THREADS: usize = 16;

/// What `serve` and `mount` share.
#[derive(clap::Args, Clone, Copy, Default)]
pub struct Service {
    /// Make each member as slow as a modelled hard disk, to see what a cache does for disks without having any:
    /// sata-1tb, or sata-1tb-plain without look-ahead
    #[arg(long, value_name = "DRIVE", value_parser = parse_drive)]
    pace: Option<HddModel>,
}

fn parse_drive(name: &str) -> Result<HddModel> {
    HddModel::by_name(name)
        .ok_or_else(|| Error::invalid(format!("no drive '{name}': sata-1tb or sata-1tb-plain")))
}

impl Service {
    /// A member's device, paced if requested.
    pub fn member(&self, device: Device) -> Result<Device> {
        match self.pace {
            None => Ok(device),
            Some(model) => Ok(std::sync::Arc::new(Hdd::new(device, RealEnv::new(), model)?)),
        }
    }
}
