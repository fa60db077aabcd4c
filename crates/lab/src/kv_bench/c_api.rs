//! The C API of LevelDB, which RocksDB copied, from shared libraries of this machine. They are loaded at run time, so
//! no build needs them.
//!
//! This module is the only one with `unsafe`, because it calls foreign functions. Invariants:
//! 1. Functions are called with the types in `leveldb/c.h` and `rocksdb/c.h`. A symbol of the same name with another
//!    type would be undefined behaviour; neither library has ever changed one of these.
//! 2. Libraries stay loaded until the process ends: their threads may outlive a store.
//! 3. Memory allocated by a library is freed by that library, once.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::null_mut;
use vellum_base::{Error, Kind, Result};

type Object = *mut c_void;
type ErrorOut = *mut *mut c_char;

macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident: fn($($arg:ty),*) $(-> $answer:ty)?;)* }) => {
        $(#[$doc])*
        struct $table {
            $($name: unsafe extern "C" fn($($arg),*) $(-> $answer)?,)*
        }

        impl $table {
            fn load(library: &libloading::Library, prefix: &str) -> Result<$table> {
                Ok($table {
                    $($name: {
                        let symbol = format!("{prefix}_{}", stringify!($name));
                        // SAFETY: see the module, 1; by 2 the function stays loaded until the process ends.
                        *unsafe { library.get(symbol.as_bytes()) }.map_err(|e| absent(prefix, &e))?
                    },)*
                })
            }
        }
    };
}

functions! {
    /// Functions of both libraries.
    Functions {
        options_create: fn() -> Object;
        options_destroy: fn(Object);
        options_set_create_if_missing: fn(Object, u8);
        options_set_write_buffer_size: fn(Object, usize);
        options_set_compression: fn(Object, c_int);
        open: fn(Object, *const c_char, ErrorOut) -> Object;
        close: fn(Object);
        put: fn(Object, Object, *const u8, usize, *const u8, usize, ErrorOut);
        get: fn(Object, Object, *const u8, usize, *mut usize, ErrorOut) -> *mut u8;
        create_iterator: fn(Object, Object) -> Object;
        iter_destroy: fn(Object);
        iter_seek: fn(Object, *const u8, usize);
        iter_next: fn(Object);
        iter_valid: fn(Object) -> u8;
        iter_key: fn(Object, *mut usize) -> *const u8;
        iter_value: fn(Object, *mut usize) -> *const u8;
        iter_get_error: fn(Object, ErrorOut);
        readoptions_create: fn() -> Object;
        readoptions_destroy: fn(Object);
        writeoptions_create: fn() -> Object;
        writeoptions_destroy: fn(Object);
        writeoptions_set_sync: fn(Object, u8);
        free: fn(Object);
    }
}

functions! {
    /// Functions of RocksDB only.
    RocksDb {
        get_options_from_string: fn(Object, *const c_char, Object, ErrorOut);
        get_pinned: fn(Object, Object, *const u8, usize, ErrorOut) -> Object;
        pinnableslice_value: fn(Object, *mut usize) -> *const u8;
        pinnableslice_destroy: fn(Object);
    }
}

functions! {
    /// Functions of LevelDB only.
    LevelDb {
        cache_create_lru: fn(usize) -> Object;
        cache_destroy: fn(Object);
        options_set_cache: fn(Object, Object);
        filterpolicy_create_bloom: fn(c_int) -> Object;
        filterpolicy_destroy: fn(Object);
        options_set_filter_policy: fn(Object, Object);
        options_set_max_file_size: fn(Object, usize);
        major_version: fn() -> c_int;
        minor_version: fn() -> c_int;
    }
}

/// A loaded library.
pub struct Library {
    functions: Functions,
    rocksdb: Option<RocksDb>,
    leveldb: Option<LevelDb>,
}

/// Options for opening a LevelDB.
#[derive(Clone, Copy, Debug)]
pub struct LevelDbOptions {
    pub write_buffer_bytes: usize,
    pub cache_bytes: usize,
    pub snappy: bool,
    pub filter_bits: Option<u32>,
    pub file_bytes: Option<usize>,
}

/// An open store.
pub struct Database {
    library: Library,
    database: Object,
    read: Object,
    write: Object,
    options: Object,
    cache: Object,
    filter: Object,
}

// SAFETY: both libraries allow several threads to use a store concurrently; the options are only read.
unsafe impl Send for Database {}
// SAFETY: as above.
unsafe impl Sync for Database {}

impl Library {
    /// Loads RocksDB under the first of the names that is found.
    pub fn rocksdb(names: &[&str]) -> Result<Library> {
        let library = load(names)?;
        let (functions, own) = (Functions::load(library, "rocksdb")?, RocksDb::load(library, "rocksdb")?);
        Ok(Library { functions, rocksdb: Some(own), leveldb: None })
    }

    /// Loads LevelDB under the first of the names that is found.
    pub fn leveldb(names: &[&str]) -> Result<Library> {
        let library = load(names)?;
        let (functions, own) = (Functions::load(library, "leveldb")?, LevelDb::load(library, "leveldb")?);
        Ok(Library { functions, rocksdb: None, leveldb: Some(own) })
    }

    /// Version of LevelDB, if this is one.
    pub fn leveldb_version(&self) -> Option<(i32, i32)> {
        let own = self.leveldb.as_ref()?;
        // SAFETY: these functions take nothing and return a number.
        Some(unsafe { ((own.major_version)(), (own.minor_version)()) })
    }

    /// Opens a store of RocksDB, with options in RocksDB's text form.
    pub fn open_rocksdb(self, dir: &Path, text: &str, sync: bool) -> Result<Database> {
        let text = CString::new(text).map_err(|_| Error::invalid("options have no zero byte"))?;
        let from_string = self.rocksdb.as_ref().ok_or_else(other_library)?.get_options_from_string;
        let mut database = self.closed();
        // SAFETY: the objects were made by this library; base and result may be the same object.
        told("set options", &database.library.functions, |error| unsafe {
            from_string(database.options, text.as_ptr(), database.options, error);
        })?;
        database.open(dir, sync)?;
        Ok(database)
    }

    /// Opens a store of LevelDB.
    pub fn open_leveldb(self, dir: &Path, wanted: LevelDbOptions, sync: bool) -> Result<Database> {
        let mut database = self.closed();
        let Library { functions, leveldb, .. } = &database.library;
        let own = leveldb.as_ref().ok_or_else(other_library)?;
        // SAFETY: the objects are made by this library and passed to it; they live until the store is closed (`Drop`).
        unsafe {
            database.cache = (own.cache_create_lru)(wanted.cache_bytes);
            (own.options_set_cache)(database.options, database.cache);
            if let Some(bits) = wanted.filter_bits {
                database.filter = (own.filterpolicy_create_bloom)(bits as c_int);
                (own.options_set_filter_policy)(database.options, database.filter);
            }
            if let Some(bytes) = wanted.file_bytes {
                (own.options_set_max_file_size)(database.options, bytes);
            }
            (functions.options_set_write_buffer_size)(database.options, wanted.write_buffer_bytes);
            (functions.options_set_compression)(database.options, wanted.snappy as c_int);
        }
        database.open(dir, sync)?;
        Ok(database)
    }

    fn closed(self) -> Database {
        // SAFETY: these functions take nothing and return new objects.
        let (options, read, write) = unsafe {
            let functions = &self.functions;
            (
                (functions.options_create)(),
                (functions.readoptions_create)(),
                (functions.writeoptions_create)(),
            )
        };
        let (database, cache, filter) = (null_mut(), null_mut(), null_mut());
        Database { library: self, database, read, write, options, cache, filter }
    }
}

impl Database {
    fn open(&mut self, dir: &Path, sync: bool) -> Result<()> {
        let name = CString::new(dir.as_os_str().as_encoded_bytes())
            .map_err(|_| Error::invalid("a path has no zero byte"))?;
        let functions = &self.library.functions;
        // SAFETY: the objects are this library's; `name` outlives the call.
        unsafe {
            (functions.options_set_create_if_missing)(self.options, 1);
            (functions.writeoptions_set_sync)(self.write, sync.into());
        }
        // SAFETY: as above.
        self.database =
            told("open", functions, |error| unsafe { (functions.open)(self.options, name.as_ptr(), error) })?;
        Ok(())
    }

    /// Sets a key.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let functions = &self.library.functions;
        // SAFETY: the store is open; key and value outlive the call, which copies them.
        told("put", functions, |error| unsafe {
            (functions.put)(
                self.database,
                self.write,
                key.as_ptr(),
                key.len(),
                value.as_ptr(),
                value.len(),
                error,
            );
        })
    }

    /// Copies the value of a key to `value`; false if there is none.
    pub fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        match &self.library.rocksdb {
            Some(rocksdb) => self.get_pinned(rocksdb, key, value),
            None => self.get_copied(key, value),
        }
    }

    fn get_copied(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let functions = &self.library.functions;
        let mut len = 0;
        // SAFETY: the store is open; `key` and `len` outlive the call.
        let found = told("get", functions, |error| unsafe {
            (functions.get)(self.database, self.read, key.as_ptr(), key.len(), &mut len, error)
        })?;
        if found.is_null() {
            return Ok(false);
        }
        // SAFETY: `len` bytes allocated by the library, freed here once.
        unsafe {
            value.extend_from_slice(std::slice::from_raw_parts(found, len));
            (functions.free)(found.cast());
        }
        Ok(true)
    }

    fn get_pinned(&self, rocksdb: &RocksDb, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        // SAFETY: the store is open; `key` outlives the call.
        let found = told("get", &self.library.functions, |error| unsafe {
            (rocksdb.get_pinned)(self.database, self.read, key.as_ptr(), key.len(), error)
        })?;
        if found.is_null() {
            return Ok(false);
        }
        let mut len = 0;
        // SAFETY: the slice lives until it is destroyed, which happens here once.
        unsafe {
            let bytes = (rocksdb.pinnableslice_value)(found, &mut len);
            if len > 0 {
                value.extend_from_slice(std::slice::from_raw_parts(bytes, len));
            }
            (rocksdb.pinnableslice_destroy)(found);
        }
        Ok(true)
    }

    /// A cursor at the first key that is not less than `key`.
    pub fn seek(&self, key: &[u8]) -> Place<'_> {
        let functions = &self.library.functions;
        // SAFETY: the store is open, and borrowed by the cursor; `key` is copied.
        let iterator = unsafe {
            let iterator = (functions.create_iterator)(self.database, self.read);
            (functions.iter_seek)(iterator, key.as_ptr(), key.len());
            iterator
        };
        Place { functions, iterator, of: PhantomData }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Library { functions, leveldb, .. } = &self.library;
        // SAFETY: each object is destroyed once, by the library that made it; the store before what it uses.
        unsafe {
            if !self.database.is_null() {
                (functions.close)(self.database);
            }
            (functions.readoptions_destroy)(self.read);
            (functions.writeoptions_destroy)(self.write);
            (functions.options_destroy)(self.options);
            if let Some(own) = leveldb {
                if !self.cache.is_null() {
                    (own.cache_destroy)(self.cache);
                }
                if !self.filter.is_null() {
                    (own.filterpolicy_destroy)(self.filter);
                }
            }
        }
    }
}

/// See [`Database::seek`].
pub struct Place<'a> {
    functions: &'a Functions,
    iterator: Object,
    of: PhantomData<&'a Database>,
}

impl Place<'_> {
    /// The key and value at the cursor; `None` after the last.
    pub fn here(&self) -> Result<Option<(&[u8], &[u8])>> {
        // SAFETY: the iterator is open. Key and value live until it moves, which needs a mutable borrow.
        unsafe {
            if (self.functions.iter_valid)(self.iterator) == 0 {
                told("scan", self.functions, |error| (self.functions.iter_get_error)(self.iterator, error))?;
                return Ok(None);
            }
            let part = |get: unsafe extern "C" fn(Object, *mut usize) -> *const u8| {
                let mut len = 0;
                match get(self.iterator, &mut len) {
                    bytes if len > 0 => std::slice::from_raw_parts(bytes, len),
                    _ => &[],
                }
            };
            Ok(Some((part(self.functions.iter_key), part(self.functions.iter_value))))
        }
    }

    /// Moves to the next key. There must be a key at the cursor.
    pub fn next(&mut self) {
        // SAFETY: the iterator is open, and the caller has seen a key at it.
        unsafe { (self.functions.iter_next)(self.iterator) }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // SAFETY: called once, while the store is open.
        unsafe { (self.functions.iter_destroy)(self.iterator) }
    }
}

/// Makes a call, and turns the message that it may return into an error.
fn told<T>(what: &str, functions: &Functions, call: impl FnOnce(ErrorOut) -> T) -> Result<T> {
    let mut error: *mut c_char = null_mut();
    let answer = call(&mut error);
    if error.is_null() {
        return Ok(answer);
    }
    // SAFETY: a zero-terminated message allocated by the library, freed here once.
    let message = unsafe {
        let message = CStr::from_ptr(error).to_string_lossy().into_owned();
        (functions.free)(error.cast());
        message
    };
    Err(Error::new(Kind::Io, format!("{what}: {message}")))
}

/// Loads the first of the libraries that exists. It stays loaded.
fn load(names: &[&str]) -> Result<&'static libloading::Library> {
    let mut why = Error::invalid("no name");
    for name in names {
        // SAFETY: the initialisers of these libraries only set up their own state.
        match unsafe { libloading::Library::new(*name) } {
            Ok(library) => return Ok(Box::leak(Box::new(library))),
            Err(e) => why = absent(name, &e),
        }
    }
    Err(why)
}

fn absent(name: &str, why: &libloading::Error) -> Error {
    Error::new(Kind::Unsupported, format!("{name}: {why}"))
}

fn other_library() -> Error {
    Error::invalid("a store of another library")
}
