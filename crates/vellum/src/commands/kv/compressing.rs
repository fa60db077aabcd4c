//! How commands that write tables compress them.

use std::str::FromStr;
use vellum::base::{Error, Result};
use vellum::kv::{Compression, LEVELS, Options};

/// See the module.
#[derive(Clone, Copy, clap::Args)]
pub struct Compressing {
    /// Compression of tables that are written: none, lz4, zstd or zstd:EFFORT (1 to 22); several are for levels 0, 1
    /// and so on, and the last for all below, as in none,lz4,zstd; to be said with each command that writes
    #[arg(long, value_name = "HOW", default_value = "lz4")]
    compression: PerLevel,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct PerLevel([Compression; LEVELS]);

impl Compressing {
    /// Sets it in the options of a store.
    pub fn put_into(self, options: Options) -> Options {
        Options { compression: self.compression.0, ..options }
    }
}

impl FromStr for PerLevel {
    type Err = Error;

    fn from_str(text: &str) -> Result<PerLevel> {
        let named = text.split(',').map(of_name).collect::<Result<Vec<Compression>>>()?;
        match named.last() {
            Some(last) if named.len() <= LEVELS => {
                Ok(PerLevel(std::array::from_fn(|level| *named.get(level).unwrap_or(last))))
            }
            _ => Err(Error::invalid(format!("{} levels, and a store has {LEVELS}", named.len()))),
        }
    }
}

fn of_name(name: &str) -> Result<Compression> {
    match name.split_once(':') {
        None if name == "none" => Ok(Compression::None),
        None if name == "lz4" => Ok(Compression::Lz4),
        None if name == "zstd" => Ok(Compression::Zstd(0)),
        Some(("zstd", effort)) if effort.parse().is_ok_and(|effort: i32| (1..=22).contains(&effort)) => {
            Ok(Compression::Zstd(effort.parse().unwrap_or_default()))
        }
        _ => Err(Error::invalid(format!("'{name}' is none of none, lz4, zstd and zstd:1 to zstd:22"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_that_is_named_is_for_all_levels_below() {
        use Compression::{Lz4, None, Zstd};
        let parsed = |text: &str| text.parse::<PerLevel>().map(|PerLevel(levels)| levels);
        assert_eq!(parsed("none").unwrap(), [None; LEVELS]);
        let levels = parsed("none,lz4,zstd:3").unwrap();
        assert_eq!((&levels[..2], &levels[2..]), (&[None, Lz4][..], &[Zstd(3); LEVELS - 2][..]));
        for wrong in ["", "lz4,", "gzip", "zstd:0", "zstd:23", "zstd:x", "lz4:1", &"lz4,".repeat(LEVELS)] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
