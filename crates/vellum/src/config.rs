//! What a stack is made of, as a value that can be written in TOML.
//!
//! ```toml
//! size = "16GiB"
//! image = "d.vellum"      # left out: in memory
//!
//! [flash]
//! over_provisioning = "12%"
//! channels = 4
//! dies_per_channel = 2
//! nvram = "64KiB"
//! ecc = "32/33"           # left out: this, and none in memory
//! scrambler = "off"
//!
//! [disk]
//! dedup = "journal"
//! journals = ["4GiB+1GiB"] # left out: the disk finds them itself
//! ```
//!
//! This has only what a new stack needs; how a stack is opened is [`crate::OpenMode`]. An image stores everything
//! except the journals, which are named at each opening.

use crate::as_text::as_text;
use crate::coding::{Ecc, Scrambler};
use crate::journal_range::JournalRange;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use vellum_base::size::{format_size, parse_share, parse_size};
use vellum_base::{Error, Result};
use vellum_disk::DedupMode;

/// A disk on flash, and where the flash is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Logical size, as seen by a host.
    pub size: Size,
    /// The flash image; without one the flash is in memory and lost when it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<PathBuf>,
    /// The flash below.
    #[serde(default)]
    pub flash: FlashConfig,
    /// The disk on it.
    #[serde(default)]
    pub disk: DiskConfig,
}

/// Shape and rating of the flash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlashConfig {
    /// Flash beyond the logical size, as a share of it.
    pub over_provisioning: Share,
    /// Number of independent channels.
    pub channels: u32,
    /// Dies on each channel.
    pub dies_per_channel: u32,
    /// Pages per erase block; `None` chooses by size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages_per_block: Option<u32>,
    /// Bytes in a page.
    pub page: Size,
    /// Power-loss-protected memory, 0 for none; `None` chooses as much as a flush can use, at least 64 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nvram: Option<Size>,
    /// Number of erases for which a block is rated.
    pub endurance: u32,
    /// The code of the pages; `None` chooses 32/33 in an image and none in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecc: Option<Ecc>,
    /// Data bytes of its codewords: 1, 2 or 4 KiB; `None` chooses 1 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codeword: Option<Size>,
    /// How data are scrambled.
    pub scrambler: Scrambler,
}

/// Options of the disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DiskConfig {
    /// How duplicate writes are found.
    #[serde(serialize_with = "write_dedup", deserialize_with = "read_dedup")]
    pub dedup: DedupMode,
    /// Never share sectors of which ext file systems keep copies on purpose.
    pub keep_copies: bool,
    /// Rated endurance in bytes written by the host; 0: lifetime is counted in erases, relative to
    /// [`FlashConfig::endurance`].
    pub tbw_bytes: u64,
    /// Journals named by the host, instead of those that the disk finds in its file systems.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub journals: Vec<JournalRange>,
}

impl Config {
    /// A disk of `bytes` in memory, with defaults otherwise.
    pub fn ram(bytes: u64) -> Config {
        Config { size: Size(bytes), image: None, flash: FlashConfig::default(), disk: DiskConfig::default() }
    }

    /// A disk of `bytes` in an image file, with defaults otherwise.
    pub fn image(path: impl Into<PathBuf>, bytes: u64) -> Config {
        Config { image: Some(path.into()), ..Config::ram(bytes) }
    }
}

impl FlashConfig {
    /// Power-loss-protected memory in bytes. A disk stores its open page and open log there, twice.
    pub fn nvram_bytes(&self) -> u64 {
        self.nvram.map_or_else(|| (self.page.0 * 4).max(64 << 10), |size| size.0)
    }
}

impl Default for FlashConfig {
    fn default() -> FlashConfig {
        FlashConfig {
            over_provisioning: Share(0.12),
            channels: 4,
            dies_per_channel: 2,
            pages_per_block: None,
            page: Size(4096),
            nvram: None,
            endurance: 3000,
            ecc: None,
            codeword: None,
            scrambler: Scrambler::default(),
        }
    }
}

/// A number of bytes, written like `4GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

impl Size {
    /// Exactly, so that [`Size`] reads the same value: a rounded "1.50GiB" would differ.
    pub fn exact(&self) -> String {
        let text = self.to_string();
        if text.contains('.') { format!("{}B", self.0) } else { text }
    }
}

impl FromStr for Size {
    type Err = Error;
    fn from_str(text: &str) -> Result<Size> {
        parse_size(text).map(Size)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_size(self.0))
    }
}

/// A share of a whole, written like `12%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share(pub f64);

impl FromStr for Share {
    type Err = Error;
    fn from_str(text: &str) -> Result<Share> {
        parse_share(text).map(Share)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", (self.0 * 1e10).round() / 1e8)
    }
}

/// Formats a dedup mode as it is parsed: `journal`, `strong:sha1`.
pub fn dedup_text(mode: DedupMode) -> String {
    match mode {
        DedupMode::Strong(hash) | DedupMode::WojPaper(hash) => format!("{}:{}", mode.name(), hash.name()),
        DedupMode::None | DedupMode::Journal | DedupMode::Ecc | DedupMode::EccPaper => {
            mode.name().to_string()
        }
    }
}

/// Parses a dedup mode; the error lists the valid ones.
pub fn parse_dedup(text: &str) -> Result<DedupMode> {
    DedupMode::by_name(text).ok_or_else(|| {
        Error::invalid(format!(
            "no dedup mode '{text}': journal, ecc, none, strong[:sha1|md5|sha256|blake3], woj-paper or ecc-paper"
        ))
    })
}

fn write_dedup<S: Serializer>(mode: &DedupMode, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&dedup_text(*mode))
}

fn read_dedup<'de, D: Deserializer<'de>>(from: D) -> Result<DedupMode, D::Error> {
    parse_dedup(&String::deserialize(from)?).map_err(de::Error::custom)
}

as_text!(Size: Size::exact, Share: ToString::to_string);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_round_trips_through_toml() {
        let mut config = Config::image("d.vellum", (16 << 30) + 12345 * 4096);
        config.disk.dedup = parse_dedup("strong:blake3").unwrap();
        config.flash.pages_per_block = Some(64);
        config.flash.ecc = Some("16/17".parse().unwrap());
        config.flash.codeword = Some(Size(2048));
        config.flash.scrambler = "page:64".parse().unwrap();
        config.disk.journals = vec!["4GiB+1GiB".parse().unwrap(), "12KiB+12345344".parse().unwrap()];
        let text = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), config, "{text}");
    }

    #[test]
    fn a_size_is_enough_and_a_misspelt_key_is_told() {
        let config: Config = toml::from_str("size = '1GiB'").unwrap();
        assert_eq!(config, Config::ram(1 << 30));
        let wrong = toml::from_str::<Config>("size = '1GiB'\n[flash]\nchanels = 8").unwrap_err();
        assert!(wrong.to_string().contains("chanels"), "{wrong}");
        assert!(toml::from_str::<Config>("size = '1GiB'\n[disk]\ndedup = 'magic'").is_err());
    }
}
