//! `array replace`, and how a replacement continues after a server was killed.

use super::held::Held;
use super::order::Order;
use super::take::Take;
use super::target::Target;
use crate::failure::{Failure, Outcome};
use crate::ui::{Ui, say};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vellum::array::{Device, Mark, Progress, examine_mark, hex};
use vellum::array_file::{ArrayFile, Replacing};
use vellum::base::sync::MutexGuard;
use vellum::base::{Env, Error, Kind, RealEnv, Task};

/// Copy a member to another device while it still serves, then let go of its own
#[derive(clap::Args)]
#[command(after_help = "\
Redundancy is never less than before: the old device counts until the new one has everything. Ctrl-C
ends it, and the old one stays. If the server ends, or is killed, whoever next serves the array
begins to copy again, or the same command does: but only to a device that still says it was prepared
for that.

Example:
  vellum array replace a.toml /dev/sdc /dev/sde --erase
  vellum array replace a.toml d1 d5

Exit codes: 0 replaced, 1 it was stopped, 2 usage, 3 I/O, 4 corrupt, 5 in use, or another array has
it")]
pub struct Args {
    #[command(flatten)]
    target: Target,
    /// The member's role, or its device as FILE names it: `vellum array detail` shows both
    #[arg(value_name = "OLD")]
    old: String,
    /// A file or a block device, relative to where FILE is; a file that is not there is made
    #[arg(value_name = "NEW")]
    new: PathBuf,
    #[command(flatten)]
    take: Take,
}

impl Args {
    pub fn run(self, ui: &Ui) -> Outcome {
        Order::Replace { old: self.old, new: self.new, take: self.take }.give(&self.target, ui)
    }
}

/// A copy that runs concurrently with requests, until it is dropped.
pub struct Copying {
    ends: Arc<AtomicBool>,
    task: Option<Task>,
}

impl Copying {
    /// Resumes a replacement that a killed or stopped server had begun.
    pub fn resume(held: &Arc<Held>) -> Result<Option<Copying>, Failure> {
        let Some(Replacing { old, new, .. }) = held.replacing()? else { return Ok(None) };
        let (mark, device) = match held.begun(&new) {
            Ok(Some(begun)) => begun,
            Ok(None) => {
                say(format!(
                    "{} is not what {} was copied to: it is left alone; vellum array replace --erase takes it",
                    new.display(),
                    old.display()
                ));
                held.edit(|named| named.replacing = None)?;
                return Ok(None);
            }
            Err(failure) => {
                say(format!("{} is not copied to {}: {}", old.display(), new.display(), failure.error()));
                return Ok(None);
            }
        };
        say(format!("{} is copied to {} again", old.display(), new.display()));
        let ends = Arc::new(AtomicBool::new(false));
        let (held, told) = (held.clone(), ends.clone());
        let run = move || match held.copy_alone(&mark, &new, device, |_| !told.load(Relaxed)) {
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
    /// Copies a member's device to another, which then becomes the member. False if stopped, or the array is closing.
    pub fn replace(
        &self,
        old: &str,
        new: &Path,
        take: Take,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool, Failure> {
        let role = self.role(old)?;
        let array = self.array().array();
        array.check_replaceable(role).map_err(|error| self.not_replaceable(new, error))?;
        if let Some((mark, device)) = self.begun(new).ok().flatten().filter(|(mark, _)| mark.role == role) {
            return self.copy_alone(&mark, new, device, go_on);
        }
        let Some(alone) = self.copying().try_lock() else { return Err(is_copying()) };
        let opened = self.open(new, take)?;
        let prepared = array.prepare(role, &opened.device, take.erase).map_err(Failure::from);
        let named = prepared.and_then(|mark| self.name_replacing(old, new, &mark).map(|()| mark));
        let mark = named.inspect_err(|_| opened.unmake())?;
        let done = self.copy(&alone, &mark, new, opened.device.clone(), go_on);
        if ArrayFile::load(self.file()).is_ok_and(|named| !named.names(new)) {
            opened.unmake();
        }
        done
    }

    /// The device prepared for the replacement that the file states, if `new` is that device.
    fn begun(&self, new: &Path) -> Result<Option<(Mark, Device)>, Failure> {
        let named = ArrayFile::load(self.file())?.replacing.filter(|replacing| replacing.new == new);
        let Some(named) = named else { return Ok(None) };
        let device = self.open_there(new)?;
        match examine_mark(&device) {
            Ok(mark) if mark.array == self.array().array().status().array && hex(&mark.id) == named.mark => {
                Ok(Some((mark, device)))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == Kind::Invalid => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Copies to a prepared device, if no other copy is running.
    fn copy_alone(
        &self,
        mark: &Mark,
        new: &Path,
        device: Device,
        go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool, Failure> {
        let Some(alone) = self.copying().try_lock() else { return Err(is_copying()) };
        self.copy(&alone, mark, new, device, go_on)
    }

    /// Names the device that the array has in the end. A cancelled replacement is removed from the file; one that ends
    /// with the server is not.
    fn copy(
        &self,
        _alone: &MutexGuard<'_, ()>,
        mark: &Mark,
        new: &Path,
        device: Device,
        mut go_on: impl FnMut(Progress) -> bool,
    ) -> Result<bool, Failure> {
        let id = || self.array().array().status().members[mark.role].id;
        let old = id();
        let done = self.array().replace_marked(mark, device, |at| {
            self.tell_copied(Some(at.rows));
            !self.is_closing() && go_on(at)
        });
        self.tell_copied(None);
        if id() != old {
            self.name(id(), new);
            self.save()?;
        } else if !self.is_closing() {
            self.edit(|named| named.replacing = None)?;
        }
        Ok(done?)
    }

    /// The replacement left to do. If it was complete when the server was killed, only the file is updated.
    fn replacing(&self) -> Result<Option<Replacing>, Failure> {
        let Some(replacing) = ArrayFile::load(self.file())?.replacing else { return Ok(None) };
        let members = self.array().array().status().members;
        let is_done = members.iter().any(|member| self.name_of(&member.id).as_ref() == Some(&replacing.new));
        if is_done {
            self.save()?;
        }
        Ok(Some(replacing).filter(|_| !is_done))
    }

    fn name_replacing(&self, old: &str, new: &Path, mark: &Mark) -> Result<(), Failure> {
        let id = self.array().array().status().members[mark.role].id;
        let old = self.name_of(&id).unwrap_or_else(|| old.into());
        let replacing = Replacing { old, new: new.to_path_buf(), mark: hex(&mark.id) };
        self.edit(|named| named.replacing = Some(replacing))
    }
}

fn is_copying() -> Failure {
    Error::new(Kind::Busy, "another member is being replaced").into()
}
