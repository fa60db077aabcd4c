//! Which keyspace a command is about.

use super::notation::names;
use crate::failure::Failure;
use vellum::base::{Error, Result};
use vellum::kv::{AnyStore, Batch, Keyspace, Store};

/// Which keyspace.
#[derive(clap::Args)]
pub struct Space {
    /// The keyspace; what puts records makes it if it is not there
    #[arg(long, value_name = "NAME", default_value = "default")]
    keyspace: String,
}

/// Where a command's keys are: in a keyspace, or among the plain keys that every store has.
pub struct Scope(Option<Keyspace>);

impl Space {
    /// True for the plain keys.
    pub fn is_default(&self) -> bool {
        self.is("default")
    }

    /// True if this is its name.
    pub fn is(&self, name: &str) -> bool {
        self.keyspace == name
    }

    /// The keyspace, which must exist.
    pub fn of(&self, store: &Store) -> Result<Keyspace, Failure> {
        store
            .keyspace(&self.keyspace)
            .map_err(|e| Failure::with_next(e, format!("one of: {}", names(&store.keyspaces()))))
    }

    /// The keyspace, created if it does not exist.
    pub fn or_new(&self, store: &Store) -> Result<Keyspace> {
        store.keyspace_or_create(&self.keyspace)
    }

    /// The same, for a store that may have no keyspaces.
    pub fn scope(&self, store: &AnyStore) -> Result<Scope, Failure> {
        match store {
            _ if self.is_default() => Ok(Scope(None)),
            AnyStore::Lsm(store) => Ok(Scope(Some(self.of(store)?))),
            AnyStore::Log(_) => Err(self.not_in_a_log()),
        }
    }

    /// The same; a keyspace that does not exist is created.
    pub fn scope_or_new(&self, store: &AnyStore) -> Result<Scope, Failure> {
        match store {
            AnyStore::Lsm(store) if !self.is_default() => Ok(Scope(Some(self.or_new(store)?))),
            _ => self.scope(store),
        }
    }

    /// An error if no keyspace can have this name.
    pub fn check(&self) -> Result<()> {
        Keyspace::check_name(&self.keyspace)
    }

    /// Failure if it is not the default one, and the store is a log store.
    pub fn not_in_a_log(&self) -> Failure {
        Failure::with_next(no_keyspaces(), "leave --keyspace out, or use a store of engine lsm")
    }
}

/// Error if a keyspace is named for a log store.
pub fn no_keyspaces() -> Error {
    Error::invalid("a log store has no keyspaces")
}

impl Scope {
    /// The value of a key.
    pub fn get(&self, store: &AnyStore, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match &self.0 {
            Some(space) => space.get(key),
            None => store.map().get(key),
        }
    }

    /// Moves a batch here that was made for the default keyspace.
    pub fn take(&self, batch: &mut Batch) {
        if let Some(space) = &self.0 {
            batch.move_to(space);
        }
    }

    /// Adds a put to a batch.
    pub fn put(&self, batch: &mut Batch, key: &[u8], value: &[u8]) -> Result<()> {
        match &self.0 {
            Some(space) => batch.put_in(space, key, value),
            None => batch.put(key, value),
        }
    }

    /// Adds a delete to a batch.
    pub fn delete(&self, batch: &mut Batch, key: &[u8]) -> Result<()> {
        match &self.0 {
            Some(space) => batch.delete_in(space, key),
            None => batch.delete(key),
        }
    }
}
