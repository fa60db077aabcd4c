//! Creating, finding and dropping keyspaces.

use super::Keyspace;
use crate::durable::Durable;
use crate::journal::Edit;
use crate::key::{DEFAULT_KEYSPACE, KEYSPACES_MAX};
use crate::lsm::core::Core;
use crate::lsm::store::Store;
use vellum_base::sync::atomic::Ordering;
use vellum_base::{Error, Kind, Result};

impl Store {
    /// Creates a keyspace; it is durable when this returns. Its name must not be in use, and be one that a keyspace can
    /// have ([`Keyspace::check_name`]); a store has at most [`KEYSPACES_MAX`] keyspaces. If all numbers are taken up by
    /// dropped ones, this waits until one of them is merged away.
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        Keyspace::check_name(name)?;
        let core = &self.core;
        core.state.check_writable()?;
        // Another thread that creates a keyspace may take the number that was freed.
        while !self.make_keyspace(name)? {
            if self.version().keyspaces.are_all_live() {
                return Err(Error::invalid(format!("a store has at most {KEYSPACES_MAX} keyspaces")));
            }
            if !core.free_a_number()? {
                let dead = self.version().keyspaces.dead().count();
                let what = format!("there is no room to merge away what {dead} dropped keyspaces held");
                return Err(Error::new(Kind::NoSpace, what));
            }
        }
        self.keyspace(name)
    }

    /// The keyspace of this name; it is created if absent.
    pub fn keyspace_or_create(&self, name: &str) -> Result<Keyspace> {
        // Another thread may make it first.
        let create = |_| self.create_keyspace(name).or_else(|error| self.keyspace(name).map_err(|_| error));
        self.keyspace(name).or_else(create)
    }

    /// False if no number is free.
    fn make_keyspace(&self, name: &str) -> Result<bool> {
        let core = &self.core;
        let writer = core.writer.lock(); // one at a time, and no log gets longer
        if self.version().keyspaces.named(name).is_some() {
            return Err(Error::invalid(format!("there is a keyspace {name:?} already")));
        }
        core.check_manifest_room(name.len())?;
        let (Some(number), _) = core.free_number(&writer)? else { return Ok(false) };
        core.put_in_force(&Edit { created: vec![(number, name.into())], ..Edit::default() })?;
        Ok(true)
    }

    /// The keyspace of this name; an error if there is none. `default` holds the keys that are written without a
    /// keyspace.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        match self.version().keyspaces.named(name) {
            Some(space) => Ok(Keyspace { core: self.core.clone(), space: space.clone() }),
            None => Err(Error::invalid(format!("there is no keyspace {name:?}"))),
        }
    }

    /// Names of all keyspaces.
    pub fn keyspaces(&self) -> Vec<String> {
        self.version().keyspaces.names()
    }

    /// Drops a keyspace and all its entries, durably when this returns. Its handles return errors from then on; open
    /// iterators stay valid. Tables that hold nothing else are erased soon; other entries go when their table is next
    /// rewritten.
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let core = &self.core;
        let space = self.keyspace(name)?.space;
        if space.number == DEFAULT_KEYSPACE {
            return Err(Error::invalid("the default keyspace stays"));
        }
        // What was written before a drop that survives must survive too.
        let writer = core.writer.lock();
        core.state.check_writable()?;
        core.sync_log()?;
        self.version().keyspaces.check(&space)?;
        let newest_log = core.next_number.load(Ordering::Relaxed) - 1;
        core.put_in_force(&Edit { dropped: vec![(space.number, newest_log)], ..Edit::default() })?;
        // Tables that hold nothing else can be erased even if there is no room for merges.
        core.state.try_again(&mut core.state.lock());
        drop(writer);
        Ok(())
    }
}

impl Core {
    /// Puts an edit in force that adds no table. Room is made for it, as far as that takes no merge.
    fn put_in_force(&self, edit: &Edit) -> Result<()> {
        let install = || self.with_room(|| self.install(edit, |_, _| ()));
        match install() {
            Err(error) if error.kind() == Kind::NoSpace && self.finish_log()? => install(),
            installed => installed,
        }
    }
}
