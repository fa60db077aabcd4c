//! Serves a disk in memory over NBD: `nbd_ram SOCKET SIZE`, until interrupted.

mod double;

use vellum_base::size::parse_size;
use vellum_base::{Error, Result};
use vellum_serve::nbd::{Server, ServerOptions};
use vellum_serve::{Endpoint, Stop};

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(socket), Some(size)) = (args.next(), args.next()) else {
        return Err(Error::invalid("usage: nbd_ram SOCKET SIZE"));
    };
    let stop = Stop::on_signals()?;
    let disk = double::RamDisk::new(parse_size(&size)?);
    let server = Server::bind(&Endpoint::Unix(socket.into()), ServerOptions::default(), disk)?;
    server.run(&stop)?;
    println!("{:?}", server.stats());
    Ok(())
}
