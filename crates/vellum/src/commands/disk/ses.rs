//! `--ses`: whether device or host undoes the device's scrambler for deduplication (ses-dedup.txt, section III).

use crate::failure::Failure;
use clap::ValueEnum;
use std::path::PathBuf;
use vellum::base::{Error, Kind, SECTOR_BYTES};
use vellum::codes::scrambler::Scrambler;
use vellum::ses::{AddressKind, ScramblerFile};

/// The side, and what it needs.
#[derive(clap::Args)]
pub struct SesArgs {
    /// Who makes equal sectors equal for the code of a disk that scrambles
    #[arg(long, value_name = "SIDE", default_value = "device")]
    ses: Side,
    /// The disk's scrambler, as `vellum ses learn` wrote it; for --ses host
    #[arg(long, value_name = "FILE")]
    scrambler_file: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Side {
    /// The device takes its own keystream out of the parity
    Device,
    /// The host scrambles, too, so that data are stored plain
    Host,
}

impl SesArgs {
    /// The host's scrambler, if it is to have one.
    pub fn scrambler(&self) -> Result<Option<Scrambler>, Failure> {
        let path = match (self.ses, &self.scrambler_file) {
            (Side::Device, None) => return Ok(None),
            (Side::Host, Some(path)) => path,
            (Side::Host, None) => {
                return Err(Failure::with_next(
                    Error::invalid("--ses host needs to know the disk's scrambler"),
                    "name its file with --scrambler-file; vellum ses learn --help says how to find it out",
                ));
            }
            (Side::Device, Some(_)) => {
                return Err(Error::invalid("--scrambler-file is for the host: say --ses host").into());
            }
        };
        let file = ScramblerFile::read(path).map_err(|e| {
            let next = "vellum ses learn writes such a file; docs/formats/scrambler.md says what it is";
            Failure::with_next(e, next)
        })?;
        if file.address != AddressKind::Lba || file.piece_bytes != SECTOR_BYTES {
            let (address, bytes) = (file.address, file.piece_bytes);
            return Err(Failure::with_next(
                Error::new(
                    Kind::Unsupported,
                    format!("this drive scrambles pieces of {bytes} bytes by {address}, not sectors by lba"),
                ),
                "leave it to the device: --ses device",
            ));
        }
        Ok(Some(file.scrambler))
    }
}
