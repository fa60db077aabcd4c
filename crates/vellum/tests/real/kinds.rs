//! Disks of several kinds, each of which has to keep files as the others do.

use crate::support::Home;

/// How a disk is made, and how it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub dedup: &'static str,
    scrambler: &'static str,
    /// The host scrambles, too, with what it has learned.
    host_scrambles: bool,
}

impl Kind {
    /// As disks are if nothing else is said.
    pub const USUAL: Kind = Kind::of("journal");
    /// Dedup by the error-correcting code; the device scrambles, and takes its keystream out of the parity.
    pub const ECC_DEVICE: Kind = Kind { scrambler: "lba", ..Kind::of("ecc") };
    /// The same with a host that undoes the scrambling.
    pub const ECC_HOST: Kind = Kind { host_scrambles: true, ..Kind::ECC_DEVICE };
    /// A device that scrambles must still find the journal, if a host undoes it.
    pub const JOURNAL_HOST: Kind = Kind { dedup: "journal", ..Kind::ECC_HOST };
    /// The kinds of SES-Dedup.
    pub const ECC: [Kind; 2] = [Kind::ECC_DEVICE, Kind::ECC_HOST];

    /// Without a scrambler.
    pub const fn of(dedup: &'static str) -> Kind {
        Kind { dedup, scrambler: "off", host_scrambles: false }
    }

    /// In a few words.
    pub fn name(&self) -> String {
        let side = if self.host_scrambles { "host" } else { "device" };
        format!("dedup {}, scrambler {}, {side}", self.dedup, self.scrambler)
    }

    /// Makes the disk `d`, and learns the scrambler of one of the same make where that is needed. Returns the options
    /// with which it is to be opened.
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
