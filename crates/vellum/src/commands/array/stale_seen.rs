//! Stale rows (parity update deferred), as recorded by the devices of an array not open, and what happens to them.

use crate::text;
use serde::Serialize;
use vellum::array::cache::engine::{Foreseen, foresee};
use vellum::array::{Device, State, Survey};
use vellum::array_file::Devices;
use vellum::base::Error;

/// See the module.
pub struct StaleSeen {
    /// An error if no device that records them can be read.
    rows: Result<u64, Error>,
    /// Number of these for which the cache has what their parity lacks.
    kept: u64,
    fate: Fate,
    /// Members that do not have all their data.
    lacking: Vec<usize>,
    /// Some of these were present when the array was last used.
    may_come_back: bool,
}

/// What happens to their parity when the array is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    /// It is updated from the cache.
    Updated,
    /// It is recomputed from data.
    #[serde(rename = "made anew")]
    MadeAnew,
    /// What it lacks of a missing member is lost.
    Lost,
}

impl StaleSeen {
    /// For an array with these members.
    pub fn of(survey: &Survey, members: &[Device], found: &Devices) -> StaleSeen {
        let table = &survey.newest.table;
        let absent = survey.absent_roles();
        let is_lacking = |role: &usize| absent.contains(role) || table[*role].state != State::Active;
        let lacking: Vec<usize> = (0..table.len()).filter(is_lacking).collect();
        let may_come_back = lacking.iter().any(|role| table[*role].state == State::Active);
        let stale = survey.stale_rows(members, found.log.as_ref());
        let foreseen = stale.map(|stale| {
            let foreseen = foresee(survey, &stale, found.cache.as_ref(), found.nvram.as_ref());
            foreseen.unwrap_or_else(|_| Foreseen::without_cache(&stale))
        });
        let kept = foreseen.as_ref().map_or(0, |foreseen| foreseen.known_rows);
        let rows = foreseen.map(|foreseen| foreseen.stale_rows);
        let fate = match (&rows, lacking.is_empty()) {
            (Ok(rows), _) if *rows == kept => Fate::Updated,
            (_, true) => Fate::MadeAnew,
            (_, false) => Fate::Lost,
        };
        StaleSeen { rows, kept, fate, lacking, may_come_back }
    }

    /// Number of stale rows, if known.
    pub fn rows(&self) -> Option<u64> {
        self.rows.as_ref().ok().copied()
    }

    /// None if there are no stale rows.
    pub fn fate(&self) -> Option<Fate> {
        (self.rows() != Some(0)).then_some(self.fate)
    }

    /// What opening the array would lose, for display; empty if no data.
    pub fn costs(&self) -> String {
        match (&self.rows, self.fate()) {
            (Ok(rows), Some(Fate::Lost)) => {
                format!(
                    "parity of {} was put off or is in doubt, and what it lacks of them would be lost",
                    text::counted(rows - self.kept, "row")
                )
            }
            (Err(error), Some(Fate::Lost)) => format!(
                "of which rows parity was put off or is in doubt is not known, and what it lacks of them would be lost: {error}"
            ),
            _ => String::new(),
        }
    }

    /// A line for display.
    pub fn describe(&self) -> String {
        let rows = match &self.rows {
            Ok(0) => return "stale rows: none: parity lacks nothing\n".into(),
            Ok(rows) => rows.to_string(),
            Err(error) => format!("not known ({error})"),
        };
        let roles: Vec<String> = self.lacking.iter().map(|role| role.to_string()).collect();
        let put_off = match self.kept {
            0 => "their parity was put off or is in doubt;".into(),
            kept => format!("the cache has what the parity of {kept} lacks; of the others"),
        };
        let fate = match self.fate {
            Fate::Updated => "the cache has what their parity lacks, and brings it up to date".into(),
            Fate::MadeAnew => format!("{put_off} it is made anew from data, and no data are lost"),
            Fate::Lost => {
                let roles = roles.join(", ");
                let unless = match self.may_come_back {
                    true => ", unless the device comes back before the array is used without it",
                    false => "",
                };
                format!("{put_off} what it lacks of role {roles} is lost{unless}")
            }
        };
        format!("stale rows: {rows}: {fate}\n")
    }
}
