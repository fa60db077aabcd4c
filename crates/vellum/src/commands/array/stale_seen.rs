//! Rows whose parity was put off, as the devices of an array say that nobody has open, and what becomes of them.

use super::cache_seen::has_what_parity_lacks;
use crate::text;
use serde::Serialize;
use vellum::array::{Device, State, Survey};
use vellum::array_file::Devices;
use vellum::base::Error;

/// See the module.
pub struct StaleSeen {
    /// An error if nobody can be read who knows.
    rows: Result<u64, Error>,
    fate: Fate,
    /// Members that do not have all their data.
    lacking: Vec<usize>,
}

/// What becomes of their parity when the array is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It is updated by what the cache has.
    Updated,
    /// It is made anew from data.
    #[serde(rename = "made anew")]
    MadeAnew,
    /// What it lacks of a member that is not there is lost.
    Lost,
}

impl StaleSeen {
    /// Of an array with these members.
    pub fn of(survey: &Survey, members: &[Device], found: &Devices) -> StaleSeen {
        let table = &survey.newest.table;
        let absent = survey.absent_roles();
        let is_lacking = |role: &usize| absent.contains(role) || table[*role].state != State::Active;
        let lacking: Vec<usize> = (0..table.len()).filter(is_lacking).collect();
        let has = |ssd| has_what_parity_lacks(ssd, found.nvram.is_some(), &survey.newest);
        let is_kept = found.cache.as_ref().is_some_and(has);
        let fate = match (is_kept, lacking.is_empty()) {
            (true, _) => Fate::Updated,
            (false, true) => Fate::MadeAnew,
            (false, false) => Fate::Lost,
        };
        StaleSeen { rows: survey.stale_rows(members, found.log.as_ref()), fate, lacking }
    }

    /// How many, if that is known.
    pub fn rows(&self) -> Option<u64> {
        self.rows.as_ref().ok().copied()
    }

    /// None: there are none.
    pub fn fate(&self) -> Option<Fate> {
        (self.rows() != Some(0)).then_some(self.fate)
    }

    /// What opening the array would cost, for people; nothing: it costs no data.
    pub fn costs(&self) -> String {
        match (&self.rows, self.fate()) {
            (Ok(rows), Some(Fate::Lost)) => {
                format!(
                    "parity of {} was put off, and what it lacks of them would be lost",
                    text::counted(*rows, "row")
                )
            }
            (Err(error), Some(Fate::Lost)) => format!(
                "of which rows parity was put off is not known, and what it lacks of them would be lost: {error}"
            ),
            _ => String::new(),
        }
    }

    /// A line for people.
    pub fn describe(&self) -> String {
        let rows = match &self.rows {
            Ok(0) => return "stale rows: none: parity lacks nothing\n".into(),
            Ok(rows) => rows.to_string(),
            Err(error) => format!("not known ({error})"),
        };
        let roles: Vec<String> = self.lacking.iter().map(|role| role.to_string()).collect();
        let fate = match self.fate {
            Fate::Updated => "the cache has what their parity lacks, and brings it up to date".into(),
            Fate::MadeAnew => {
                "their parity was put off; it is made anew from data, and no data are lost".into()
            }
            Fate::Lost => format!(
                "their parity was put off; what it lacks of role {} is lost, unless the device comes back before the \
                 array is used without it",
                roles.join(", ")
            ),
        };
        format!("stale rows: {rows}: {fate}\n")
    }
}
