//! State of a cache's NVRAM while the array is not open.

use serde::Serialize;
use std::path::PathBuf;
use vellum::array::cache::engine::{check_left_together, examine_cache};
use vellum::array::{Device, Part, Superblock, owner};
use vellum::base::Error;

/// docs/json/array.md
#[derive(Serialize)]
pub struct NvramSeen {
    /// None: the cache has one, but the file does not name it.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<PathBuf>,
    state: State,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// The array is opened with it only by force.
    #[serde(skip)]
    is_refused: bool,
}

/// Its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ours,
    Foreign,
    /// It does not state one.
    Unknown,
    /// It cannot be opened.
    Away,
}

impl NvramSeen {
    /// State of the named NVRAM, or of the error if it could not be opened, together with the SSD if the array is
    /// opened with that. None if there is no NVRAM, and none is missing.
    pub fn of(
        named: Option<(PathBuf, Result<Device, Error>)>,
        ssd: Option<&Device>,
        array: &Superblock,
    ) -> Option<NvramSeen> {
        let Some((path, device)) = named else {
            let has_one = ssd.and_then(|ssd| examine_cache(ssd).ok()).is_some_and(|found| found.nvram);
            return has_one.then(|| NvramSeen::beside(ssd, array, None, (State::Away, None)));
        };
        let whose = match &device {
            Err(error) => (State::Away, Some(error.to_string())),
            Ok(device) => match owner(device) {
                Some(owner) if owner.part == Part::Nvram && owner.array == Some(array.array) => {
                    (State::Ours, None)
                }
                Some(owner) => (State::Foreign, Some(format!("it is {owner}"))),
                None => (State::Unknown, Some("it does not say whose it is".into())),
            },
        };
        let seen = NvramSeen::beside(ssd, array, device.ok().as_ref(), whose);
        Some(NvramSeen { device: Some(path), ..seen })
    }

    fn beside(
        ssd: Option<&Device>,
        array: &Superblock,
        nvram: Option<&Device>,
        (state, whose): (State, Option<String>),
    ) -> NvramSeen {
        let refused = ssd.and_then(|ssd| check_left_together(array, ssd, nvram).err());
        let is_refused = refused.is_some();
        let problem = whose.or_else(|| refused.map(|error| error.to_string()));
        NvramSeen { device: None, state, problem, is_refused }
    }

    /// Whether the array is opened with it.
    pub fn is_usable(&self) -> bool {
        !self.is_refused
    }

    /// For display.
    pub fn describe(&self) -> String {
        let path = self.device.as_ref().map_or("not named".into(), |path| path.display().to_string());
        let state = match self.state {
            State::Ours => " of this array's cache",
            State::Foreign => " is foreign",
            State::Unknown => "",
            State::Away if self.device.is_none() => "",
            State::Away => " cannot be opened",
        };
        let problem = self.problem.as_ref().map_or(String::new(), |problem| format!(": {problem}"));
        let refused = match self.is_refused {
            true => "\n  `vellum array serve` refuses it; with --force it goes on, and finds the cache empty",
            false => "",
        };
        format!("nvram: {path}{state}{problem}{refused}\n")
    }
}
