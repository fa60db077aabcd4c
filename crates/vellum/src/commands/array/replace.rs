//! `array replace`: and how it goes on where a server was killed.

use super::held::Held;
use super::order::Order;
use super::target::Target;
use crate::failure::{Failure, Outcome};
use crate::ui::{Ui, say};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum::array::Progress;
use vellum::array_file::{ArrayFile, Replacing};
use vellum::base::{Env, Error, Kind, RealEnv, Task};

/// Copy a member to another device while it still serves, then let go of its own
#[derive(clap::Args)]
#[command(after_help = "\
Redundancy is never less than before: the old device counts until the new one has everything. If it is
stopped (Ctrl-C, or the server is killed) the old one stays; the same command, or whoever next serves
the array, begins to copy again.

Example:
  vellum array replace a.toml /dev/sdc /dev/sde --erase
  vellum array replace a.toml d1 d5

Exit codes: 0 replaced, 1 it was stopped, 2 usage, 3 I/O, 4 corrupt, 5 in use, or it holds another array")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The member's role, or its device as FILE names it: `vellum array detail` shows both
    #[arg(value_name = "OLD")]
    old: String,
    /// A file or a block device, relative to where FILE is; a file that is not there is made
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// Take a device that is there already: what it holds is lost
    #[arg(long)]
    erase: bool,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        Order::Replace { old: self.old, new: self.new, erase: self.erase }.give(&self.target, ui)
    }
}

/// A copy that goes on beside requests, until it is dropped.
pub struct Copying {
    ends: Arc<AtomicBool>,
    task: Option<Task>,
}

impl Copying {
    /// Begins again what a server that was killed, or stopped, had begun.
    pub fn resume(held: &Arc<Held>) -> Result<Option<Copying>, Failure> {
        let Some(Replacing { old, new }) = held.replacing()? else { return Ok(None) };
        say(format!("{} is copied to {} again", old.display(), new.display()));
        let ends = Arc::new(AtomicBool::new(false));
        let (held, told) = (held.clone(), ends.clone());
        let run = move || match held.replace(&old.display().to_string(), &new, true, |_| !told.load(Relaxed))
        {
            Ok(true) => say(format!("{} has taken the place of {}", new.display(), old.display())),
            Ok(false) => {}
            Err(failure) => say(format!("{} cannot take its place: {}", new.display(), failure.error())),
        };
        let task = RealEnv::new().spawn("array-replace", Box::new(run));
        Ok(Some(Copying { ends, task: Some(task) }))
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        self.task.take().into_iter().for_each(Task::join);
    }
}

impl Held {
    /// Copies a member's device to another, which then is the member. False if it was ended, or the array closes.
    pub fn replace(
        &self,
        old: &str,
        new: &Path,
        erase: bool,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool, Failure> {
        let Some(_alone) = self.copying().try_lock() else {
            return Err(Error::new(Kind::Busy, "another member is being replaced").into());
        };
        let role = self.role(old)?;
        let status = self.array().array().status();
        let device = self.open(new, erase, status.member_sectors)?;
        let old = self.name_of(&status.members[role].id).unwrap_or_else(|| old.into());
        self.name_replacing(Some(Replacing { old, new: new.to_path_buf() }))?;
        let done = self.array().replace(role, device, erase, go_on);
        match &done {
            Ok(true) => {
                self.name(self.array().array().status().members[role].id, new);
                self.save_with(|named| named.replacing = None)?;
            }
            Ok(false) => {} // Whoever serves it next goes on.
            Err(_) => self.name_replacing(None)?,
        }
        Ok(done?)
    }

    /// What is left to be replaced. What was done when the server was killed is named so.
    fn replacing(&self) -> Result<Option<Replacing>, Failure> {
        let Some(replacing) = ArrayFile::load(self.file())?.replacing else { return Ok(None) };
        let members = self.array().array().status().members;
        let is_done = members.iter().any(|member| self.name_of(&member.id).as_ref() == Some(&replacing.new));
        if is_done {
            self.save_with(|named| named.replacing = None)?;
        }
        Ok(Some(replacing).filter(|_| !is_done))
    }

    fn name_replacing(&self, replacing: Option<Replacing>) -> Result<(), Failure> {
        let named = ArrayFile { replacing, ..ArrayFile::load(self.file())? };
        Ok(named.save(self.file(), true)?)
    }
}
