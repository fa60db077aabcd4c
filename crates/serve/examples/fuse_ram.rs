//! Serves a disk in memory as a file: `fuse_ram FILE SIZE`, until interrupted.

mod double;

use vellum_base::size::parse_size;
use vellum_base::{Error, Result};
use vellum_serve::fuse::FuseOptions;
use vellum_serve::{Stop, fuse};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(file), Some(size)) = (args.next(), args.next()) else {
        return Err(Error::invalid("usage: fuse_ram FILE SIZE"));
    };
    let stop = Stop::on_signals()?;
    let disk = double::RamDisk::new(parse_size(&size)?);
    let mut mount = fuse::mount(disk, file.as_ref(), &FuseOptions::default())?;
    stop.wait(None);
    mount.unmount()
}
