//! The library example in the README.

use vellum::kv::{Batch, Bounds, Durability, Map, Options, Store};

fn main() -> vellum::base::Result<()> {
    let store = Store::open("books", Options::default())?; // in Arc, between threads
    store.put(b"quire/1", b"four sheets")?; // survives the process
    let index = store.keyspace_or_create("index")?;
    let mut batch = Batch::new();
    batch.put(b"quire/2", b"five sheets")?;
    batch.put_in(&index, b"five sheets", b"quire/2")?;
    store.write(&batch, Durability::Sync)?; // both or none, and survives the loss of power
    let before = store.snapshot();
    let mut iter = before.iter(Bounds::prefix(b"quire/"))?;
    iter.seek_to_first()?;
    while iter.is_valid() {
        println!("{:?}: {} bytes", iter.key(), iter.value().len());
        iter.next()?;
    }
    Ok(())
}
