//! Values in logs of a table that is written anew.

use crate::journal::LogPart;
use crate::lsm::kept_log::{KeptLog, KeptLogs, Pointer};
use crate::lsm::table::Library;
use crate::media::Media;
use std::collections::BTreeMap;
use std::sync::Arc;
use vellum_base::{Env, Error, Kind, Result};

/// Takes values from logs as far as they are there, and notes those that are not.
pub(super) struct Values<'a> {
    media: &'a dyn Media,
    library: Arc<Library>,
    logs: BTreeMap<u64, Option<Arc<KeptLog>>>,
    value: Vec<u8>,
    /// By log that is gone or damaged: how many values of the table are lost with it, and the first error.
    lost: BTreeMap<u64, (u64, String)>,
    /// A log is perhaps not lost, but could not be opened now.
    refused: Option<Error>,
}

impl<'a> Values<'a> {
    pub(super) fn new(media: &'a dyn Media, env: &Arc<dyn Env>) -> Values<'a> {
        let library = Library::without_cache(env.clone());
        Values {
            media,
            library,
            logs: BTreeMap::new(),
            value: Vec::new(),
            lost: BTreeMap::new(),
            refused: None,
        }
    }

    /// The value that a stored pointer points to; `None` if it is lost.
    pub(super) fn of(&mut self, stored: &[u8]) -> Option<&[u8]> {
        let pointer = Pointer::decode(stored).unwrap_or_default();
        let log = self.logs.entry(pointer.log).or_insert_with(|| {
            let opened = KeptLogs::open(&self.library, self.media, LogPart { number: pointer.log, bytes: 0 });
            match opened {
                Ok(log) => return Some(log),
                Err(e) if e.kind() == Kind::Corrupt => {
                    drop(self.lost.insert(pointer.log, (0, e.to_string())))
                }
                Err(e) => drop(self.refused.get_or_insert(e)),
            }
            None
        });
        let read = log.as_ref().map(|log| log.value(&pointer, &mut self.value));
        match read {
            Some(Ok(())) => Some(&self.value),
            failed => {
                let why = failed.and_then(Result::err).map(|e| e.to_string());
                self.lost.entry(pointer.log).or_insert_with(|| (0, why.unwrap_or_default())).0 += 1;
                None
            }
        }
    }

    /// What is lost, in words. An error if it may be there another time.
    pub(super) fn problems(self) -> Result<impl Iterator<Item = String>> {
        match self.refused {
            Some(error) => Err(error),
            None => Ok(self.lost.into_values().map(|(count, why)| format!("{count} values are lost: {why}"))),
        }
    }
}
