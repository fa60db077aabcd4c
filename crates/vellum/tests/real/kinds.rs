//! Disks of several kinds, all of which must preserve files equally.

use crate::support::Home;

/// How a disk is made, and how it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub dedup: &'static str,
    scrambler: &'static str,
    /// The host scrambles as well, with what it has learned.
    host_scrambles: bool,
}

impl Kind {
    /// Default disks.
    pub const USUAL: Kind = Kind::of("journal");
    /// Dedup by the error-correcting code; the device scrambles, and removes its keystream from the parity.
    pub const ECC_DEVICE: Kind = Kind { scrambler: "lba", ..Kind::of("ecc") };
    /// The same with a host that undoes the scrambling.
    pub const ECC_HOST: Kind = Kind { host_scrambles: true, ..Kind::ECC_DEVICE };
    /// If a host undoes the scrambling, a device that scrambles must still find the journal.
    pub const JOURNAL_HOST: Kind = Kind { dedup: "journal", ..Kind::ECC_HOST };
    /// The kinds of SES-Dedup.
    pub const ECC: [Kind; 2] = [Kind::ECC_DEVICE, Kind::ECC_HOST];

    /// Without a scrambler.
    pub const fn of(dedup: &'static str) -> Kind {
        Kind { dedup, scrambler: "off", host_scrambles: false }
    }

    /// A short description.
    pub fn name(&self) -> String {
        let side = if self.host_scrambles { "host" } else { "device" };
        format!("dedup {}, scrambler {}, {side}", self.dedup, self.scrambler)
    }

    /// Makes the disk `d`, and learns the scrambler of a disk of the same make if needed. Returns the options for
    /// opening it.
    pub fn create(&self, home: &Home, size: &str) -> &'static str {
        let options = format!("--size {size} --dedup {} --scrambler {}", self.dedup, self.scrambler);
        home.ok(&format!("disk create d {options}"));
        if !self.host_scrambles {
            return "";
        }
        home.ok(&format!("disk create like {options}"));
        home.ok("ses write like --lba spread");
        home.ok("ses dump like --lba spread --to like.toml");
        home.ok("ses learn like.toml --to learned.toml");
        std::fs::remove_file(home.path("like")).unwrap();
        "--ses host --scrambler-file learned.toml"
    }
}
