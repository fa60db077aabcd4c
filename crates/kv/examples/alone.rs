//! The README's example of the store's own crate.

use vellum_base::RealEnv;
use vellum_kv::{Directory, DirectoryOptions, Map, Options, Store};

fn main() -> vellum_base::Result<()> {
    let media = Directory::open("books".as_ref(), DirectoryOptions::default())?;
    let store = Store::open(media, RealEnv::new(), Options::default())?; // on this machine's clock and threads
    store.put(b"quire/1", b"four sheets")?;
    store.close()
}
