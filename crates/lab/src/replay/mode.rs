//! What a replay compares: dedup modes, each with switches of the disk.

use vellum_base::{Error, Result};
use vellum_codes::HashKind;
use vellum_disk::DedupMode;

/// A dedup mode with its switches. By default `journal` is the disk as shipped; `none`, `strong` and `woj-paper` do
/// what their name says and nothing else, so they represent an ordinary SSD, dmdedup, and the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// How duplicates are found.
    pub dedup: DedupMode,
    /// All-zero sectors and rewrites of unchanged content are not programmed.
    pub elide: bool,
    /// Sectors that are mostly zeros are packed.
    pub pack: bool,
    /// Bytes are compared before a fingerprint is trusted. Always off for `woj-paper`.
    pub verify: bool,
    /// Capacitor-backed memory for what a flush has to save; `None`: as in the device.
    pub nvram: Option<bool>,
}

type Set = fn(&mut Mode, bool);

/// Every switch: its name, and how to set it.
const SWITCHES: [(&str, Set); 4] = [
    ("elide", |mode, on| mode.elide = on),
    ("pack", |mode, on| mode.pack = on),
    ("verify", |mode, on| mode.verify = on),
    ("nvram", |mode, on| mode.nvram = Some(on)),
];

impl Mode {
    /// No dedup: every write is programmed.
    pub const NONE: Mode = Mode::bare(DedupMode::None);
    /// Full dedup with SHA-1, compared byte by byte.
    pub const STRONG: Mode = Mode { verify: true, ..Mode::bare(DedupMode::Strong(HashKind::Sha1)) };
    /// Full dedup with SHA-1 without comparing bytes, like dmdedup: the papers' baseline.
    pub const DMDEDUP: Mode = Mode::bare(DedupMode::Strong(HashKind::Sha1));
    /// The disk as shipped.
    pub const JOURNAL: Mode =
        Mode { elide: true, pack: true, verify: true, ..Mode::bare(DedupMode::Journal) };

    const fn bare(dedup: DedupMode) -> Mode {
        Mode { dedup, elide: false, pack: false, verify: false, nvram: None }
    }

    /// The mode with this name: a dedup mode (`none`, `strong`, `strong:sha256`, `ecc`, `ecc-paper`,
    /// `woj-paper`, `woj-paper:md5`, `journal`), then switches `+elide -elide +pack -pack +verify -verify +nvram
    /// -nvram` in any number.
    ///
    /// ```
    /// use vellum_lab::replay::Mode;
    /// assert_eq!(Mode::by_name("journal").unwrap(), Mode::JOURNAL);
    /// assert_eq!(Mode::by_name("strong-verify").unwrap(), Mode::DMDEDUP);
    /// assert_eq!(Mode::by_name("journal-pack+nvram").unwrap().name(), "journal-pack+nvram");
    /// assert!(Mode::by_name("journal+magic").is_err());
    /// ```
    pub fn by_name(text: &str) -> Result<Mode> {
        let unknown = || {
            Error::invalid(format!(
                "no mode '{text}'; there are none, strong[:HASH], ecc, ecc-paper, woj-paper[:HASH] and journal, followed by \
                 switches such as +nvram, -pack, +elide, -verify"
            ))
        };
        let (name, mut rest) = split_name(text);
        let mut mode = match DedupMode::by_name(name).ok_or_else(unknown)? {
            DedupMode::Journal => Mode::JOURNAL,
            verifying @ (DedupMode::Strong(_) | DedupMode::Ecc | DedupMode::EccPaper) => {
                Mode { verify: true, ..Mode::bare(verifying) }
            }
            other => Mode::bare(other),
        };
        while let Some(sign) = rest.chars().next() {
            let (switch, after) = split_switch(&rest[1..]);
            let (_, set) = SWITCHES.iter().find(|(known, _)| *known == switch).ok_or_else(unknown)?;
            set(&mut mode, sign == '+');
            rest = after;
        }
        if matches!(mode.dedup, DedupMode::Ecc | DedupMode::EccPaper) && !mode.verify {
            return Err(Error::invalid(format!("{}: parity never stands for the bytes", mode.dedup.name())));
        }
        if matches!(mode.dedup, DedupMode::WojPaper(_)) && mode.verify {
            return Err(Error::invalid("woj-paper never compares bytes: that is what 'journal' is for"));
        }
        Ok(mode)
    }

    /// Parses a list of modes such as `none,strong,journal`.
    pub fn list(text: &str) -> Result<Vec<Mode>> {
        text.split(',').map(|name| Mode::by_name(name.trim())).collect()
    }

    /// Its name, as [`Mode::by_name`] takes it.
    pub fn name(&self) -> String {
        let hash = match self.dedup {
            DedupMode::Strong(hash) | DedupMode::WojPaper(hash) => format!(":{}", hash.name()),
            _ => String::new(),
        };
        let plain = Mode::by_name(self.dedup.name()).unwrap_or(Mode::NONE);
        let mut name = format!("{}{hash}", self.dedup.name());
        let switches = [
            ("elide", (self.elide != plain.elide).then_some(self.elide)),
            ("pack", (self.pack != plain.pack).then_some(self.pack)),
            ("verify", (self.verify != plain.verify).then_some(self.verify)),
            ("nvram", self.nvram),
        ];
        for (switch, on) in switches {
            if let Some(on) = on {
                name += if on { "+" } else { "-" };
                name += switch;
            }
        }
        name
    }

    /// True if this mode may return other bytes than were written.
    pub fn can_corrupt(&self) -> bool {
        matches!(self.dedup, DedupMode::WojPaper(_))
    }
}

/// Splits off the dedup mode at the front, which may contain a '-' itself.
fn split_name(text: &str) -> (&str, &str) {
    let own =
        ["woj-paper", "ecc-paper"].iter().find(|name| text.starts_with(**name)).map_or(0, |name| name.len());
    let end = text[own..].find(['+', '-']).map_or(text.len(), |at| own + at);
    match text[end..].strip_prefix("-head") {
        Some(rest) => text.split_at(text.len() - rest.len()),
        None => text.split_at(end),
    }
}

fn split_switch(text: &str) -> (&str, &str) {
    text.split_at(text.find(['+', '-']).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in [
            "none",
            "none+elide",
            "strong:sha1",
            "strong:sha256-verify",
            "ecc",
            "ecc+elide",
            "ecc-paper+elide",
            "woj-paper:xxh64-head",
            "woj-paper:xxh64-head+nvram",
            "woj-paper:md5+elide",
            "journal",
            "journal-elide-pack-nvram",
        ] {
            assert_eq!(Mode::by_name(name).unwrap().name(), name);
        }
        assert_eq!(Mode::list("none, strong").unwrap(), [Mode::NONE, Mode::STRONG]);
        for bad in [
            "",
            "none+",
            "journal:sha1",
            "woj-paper+verify",
            "journal+",
            "strong:crc",
            "ecc-verify",
            "ecc-paper-verify",
            "ecc:sha1",
        ] {
            assert!(Mode::by_name(bad).is_err(), "{bad}");
        }
    }
}
