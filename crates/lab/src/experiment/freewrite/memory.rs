//! A directory in memory, for the log and manifest of a store on its own device; FlashKV keeps these in NVRAM.

use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::sync::Mutex;
use vellum_base::{Error, Result};
use vellum_kv::media::{Files, Handle};

/// See the module.
#[derive(Default)]
pub(super) struct Memory {
    files: Mutex<BTreeMap<String, Arc<File>>>,
}

#[derive(Default)]
struct File {
    bytes: Mutex<Vec<u8>>,
}

/// An open file.
struct Open(Arc<File>);

impl Memory {
    fn missing(name: &str) -> Error {
        Error::corrupt(format!("{name} is missing"))
    }
}

impl Files for Memory {
    fn names(&self) -> Result<Vec<String>> {
        Ok(self.files.lock().keys().cloned().collect())
    }
    fn create(&self, name: &str) -> Result<Arc<dyn Handle>> {
        let file = Arc::new(File::default());
        self.files.lock().insert(name.into(), file.clone());
        Ok(Arc::new(Open(file)))
    }
    fn open(&self, name: &str) -> Result<Arc<dyn Handle>> {
        let file = self.files.lock().get(name).cloned();
        Ok(Arc::new(Open(file.ok_or_else(|| Memory::missing(name))?)))
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.files.lock().remove(name);
        Ok(())
    }
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut files = self.files.lock();
        let file = files.remove(from).ok_or_else(|| Memory::missing(from))?;
        files.insert(to.into(), file);
        Ok(())
    }
    fn sync_names(&self) -> Result<()> {
        Ok(())
    }
}

impl Handle for Open {
    fn len(&self) -> Result<u64> {
        Ok(self.0.bytes.lock().len() as u64)
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let bytes = self.0.bytes.lock();
        let found = bytes.get(offset as usize..offset as usize + out.len());
        out.copy_from_slice(found.ok_or_else(|| Error::corrupt("a file is shorter than it should be"))?);
        Ok(())
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut all = self.0.bytes.lock();
        let end = offset as usize + bytes.len();
        if all.len() < end {
            all.resize(end, 0);
        }
        all[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
