//! What to do next if an array refuses an order: the command that helps, with the names of this array.

use super::held::Held;
use crate::failure::Failure;
use std::path::Path;
use vellum::array::{MemberStatus, State};
use vellum::base::size::format_size;
use vellum::base::{BlockDevice, Error, Kind, SECTOR_BYTES};

impl Held {
    /// Failure for a role that does not exist.
    pub fn no_role(&self, role: usize) -> Failure {
        let last = self.states().len() - 1;
        let error = Error::invalid(format!("there is no member {role}: the last is {last}"));
        Failure::with_next(error, self.roles_shown())
    }

    /// Failure for a name that is no member's device.
    pub fn no_member(&self, name: &str) -> Failure {
        let error = Error::invalid(format!("{name} is no member of this array"));
        Failure::with_next(error, self.roles_shown())
    }

    /// Failure to take a member out.
    pub fn not_failed(&self, error: Error) -> Failure {
        match error.kind() {
            Kind::Invalid => Failure::with_next(error, self.mending()),
            // From a stale row: it cannot be cleaned, and the member may be the only one with its data.
            Kind::Io => {
                Failure::with_next(error, "with --now it is out all the same, and what only it has is lost")
            }
            _ => error.into(),
        }
    }

    /// Failure to detach the cache, or to erase it afterwards.
    pub fn not_detached(&self, is_let_go: bool, error: Error) -> Failure {
        let file = self.file().display();
        match error.kind() {
            Kind::Io if is_let_go => Failure::with_next(
                error,
                "--erase, where the SSD or the NVRAM is named again, takes it as it is",
            ),
            // From a stale row.
            Kind::Io => {
                let next = format!(
                    "vellum array detach-cache --force {file} lets go of it all the same, and names what is lost"
                );
                Failure::with_next(error, next)
            }
            _ => error.into(),
        }
    }

    /// Failure to release a member's device.
    pub fn not_removed(&self, role: usize, error: Error) -> Failure {
        match error.kind() {
            Kind::Invalid => {
                let file = self.file().display();
                Failure::with_next(error, format!("vellum array fail {file} {role}, then this again"))
            }
            _ => error.into(),
        }
    }

    /// Failure to add an existing device: the device of a member that is out stays locked until it is released.
    pub fn not_opened(&self, device: &Path, failure: Failure) -> Failure {
        let members = self.array().array().status().members;
        let is_held = |member: &MemberStatus| {
            member.state == State::Missing && self.name_of(&member.id).as_deref() == Some(device)
        };
        match failure.error().kind() {
            Kind::Busy if members.iter().any(is_held) => {
                let (file, device) = (self.file().display(), device.display());
                failure.instead_next(format!(
                    "vellum array remove {file} {device} lets go of the member that is out, then this again; or name \
                     another device"
                ))
            }
            _ => failure,
        }
    }

    /// Failure to add a device when no member is lost.
    pub fn none_lost(&self) -> Failure {
        let file = self.file().display();
        let next = format!(
            "vellum array replace {file} MEMBER PATH copies a member to another device; vellum array fail {file} \
             MEMBER takes one out"
        );
        Failure::with_next(Error::invalid("no member is lost"), next)
    }

    /// Failure to copy a member to `new`.
    pub fn not_replaceable(&self, new: &Path, error: Error) -> Failure {
        match error.kind() {
            Kind::Invalid => {
                let next = format!("vellum array add {} {}", self.file().display(), new.display());
                Failure::with_next(error, next)
            }
            _ => error.into(),
        }
    }

    /// Failure to rebuild members.
    pub fn not_rebuilt(&self, error: Error) -> Failure {
        let is_rebuilding = self.states().iter().any(|state| matches!(state, State::Rebuilding { .. }));
        match error.kind() {
            Kind::Invalid => Failure::with_next(error, self.mending()),
            _ if is_rebuilding && self.array().array().status().ended.is_none() => {
                let next = format!(
                    "what cannot be computed is lost: vellum array rebuild {} --give-up makes it zeros, and names it",
                    self.file().display()
                );
                Failure::with_next(error, next)
            }
            _ => error.into(),
        }
    }

    /// Refuses a device that is too small for a member.
    pub fn check_size(&self, path: &Path, device: &dyn BlockDevice) -> Result<(), Failure> {
        let (has, least) = (device.info().sectors, self.array().array().status().member_sectors);
        if has >= least {
            return Ok(());
        }
        let size = |sectors: u64| format_size(sectors.saturating_mul(SECTOR_BYTES as u64));
        let what = format!("{} has {}, members have {}", path.display(), size(has), size(least));
        Err(Failure::with_next(Error::invalid(what), format!("name a device of {} or more", size(least))))
    }

    /// How to restore redundancy.
    fn mending(&self) -> String {
        let (file, states) = (self.file().display(), self.states());
        if states.contains(&State::Missing) {
            format!(
                "vellum array add {file} PATH takes a device in for the lost member, vellum array rebuild {file} fills it"
            )
        } else if states.iter().any(|state| matches!(state, State::Rebuilding { .. })) {
            format!("vellum array rebuild {file} fills the member that was added")
        } else {
            format!("all members are active: vellum array detail {file} shows them")
        }
    }

    fn roles_shown(&self) -> String {
        let file = self.file().display();
        format!("give a role, or a device as {file} names it: vellum array detail {file} shows both")
    }

    fn states(&self) -> Vec<State> {
        self.array().array().status().members.iter().map(|member| member.state).collect()
    }
}
