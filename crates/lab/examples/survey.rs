//! Makes the surveys in `fixtures`: `cargo run --release -p vellum-lab --example survey -- OUT MIB ABOUT PATH...`
//!
//! Prints the share of duplicates at each chunk size.

use std::path::PathBuf;
use vellum_base::{Error, Result};
use vellum_lab::contents::{packed, tree};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let (Some(out), Some(mib), Some(about)) = (words.next(), words.next(), words.next()) else {
        return Err(Error::invalid("survey OUT MIB ABOUT PATH..."));
    };
    let mib: u64 = mib.parse().map_err(|_| Error::invalid(format!("'{mib}' is no number of MiB")))?;
    let paths: Vec<PathBuf> = words.map(PathBuf::from).collect();
    let contents = tree::survey(&about, &paths, mib << 20, &())?;
    let bytes = packed::encode(&contents);
    println!(
        "{about}: {} files, {} MiB, {} bytes packed",
        contents.files.len(),
        contents.bytes() >> 20,
        bytes.len()
    );
    for f in contents.figures() {
        let percent =
            [f.duplicate_share, f.zero_share, f.hot_share, f.hot_share_of_duplicates].map(|s| s * 100.0);
        println!(
            "{:3} KiB: duplicate {:.1} %, zeros {:.1} %, hot {:.1} % with {:.1} % of duplicates",
            f.chunk_bytes >> 10,
            percent[0],
            percent[1],
            percent[2],
            percent[3]
        );
    }
    std::fs::write(&out, bytes).map_err(|e| Error::io(format_args!("write {out}"), e))
}
