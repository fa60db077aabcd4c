//! Options for commands that write: how compaction reuses leaves that it need not change.

use clap::ValueEnum;
use vellum::base::{Error, Result};
use vellum::kv::{Caps, Options, Reuse, ReuseOptions};
use vellum::{Share, Size};

/// See the module.
#[derive(Clone, Copy, clap::Args)]
pub struct Reusing {
    /// What compaction does with leaves that it need not change
    #[arg(long, value_name = "HOW", default_value = "off")]
    reuse: How,
    /// Padding before unmodified leaves, at most this share of them
    #[arg(long, value_name = "SHARE", default_value = "12.5%", value_parser = cap)]
    bubble_cap: Share,
    /// All padding of a table, at most this share of it
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = cap)]
    global_cap: Share,
    /// Leaves are whole units of this size, a power of two up to 64KiB: the block of the file system, where that is
    /// larger than 4KiB; to be said with each command that writes [default: 4KiB, on flash less]
    #[arg(long, value_name = "SIZE")]
    unit: Option<Size>,
    /// Unmodified bytes in a row that are worth sharing: more favours time, less favours wear [default: 32KiB where the
    /// file system clones, else 0]
    #[arg(long, value_name = "SIZE")]
    island_min: Option<Size>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum How {
    /// Writes them anew
    Off,
    /// Keeps them as they are, for a device below that deduplicates; an error on flash of its own, and zones
    Bubbles,
    /// Keeps them, and has flash or file system have them in both tables; an error where neither can
    Relink,
    /// relink where that is possible, else off
    Auto,
}

/// Parses a share between 0 and 1.
fn cap(text: &str) -> Result<Share> {
    let share: Share = text.parse()?;
    match share.0 > 1.0 {
        true => Err(Error::invalid(format!("a cap of {text} is more than the whole: say 100% for no cap"))),
        false => Ok(share),
    }
}

impl Reusing {
    /// Sets these in the options of a store.
    pub fn put_into(self, options: Options) -> Options {
        Options { reuse: self.options(), ..options }
    }

    pub fn options(self) -> ReuseOptions {
        let mode = match self.reuse {
            How::Off => Reuse::Off,
            How::Bubbles => Reuse::Bubbles,
            How::Relink => Reuse::Relink,
            How::Auto => Reuse::Auto,
        };
        ReuseOptions {
            mode,
            caps: Caps { bubble: self.bubble_cap.0, global: self.global_cap.0 },
            unit_bytes: self.unit.map(|size| size.0),
            island_bytes_min: self.island_min.map(|size| size.0),
        }
    }
}
