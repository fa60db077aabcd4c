//! `array fail` and `array remove`.

use super::order::Order;
use super::target::Target;
use crate::failure::Outcome;
use crate::ui::Ui;

/// Take a member out of an array, as if it had failed
#[derive(clap::Args)]
#[command(after_help = "\
What the member holds does not count any more; `vellum array add` takes another device in its
place. With a cache, parity that was put off is brought up to date before the member is out, so that
a power cut in the next moment costs nothing; Ctrl-C stops that, and the member stays.

Example:
  vellum array fail a.toml 2
  vellum array fail a.toml /dev/sdc

Exit codes: 0 it is out, 1 stopped, the member stays, 2 usage, or the array cannot do without it, 3
I/O, 4 corrupt, 5 in use")]
pub struct Fail {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    member: Member,
    /// Do not bring parity up to date first: for a member that answers slowly, or not at all
    #[arg(long)]
    now: bool,
}

/// Let go of the device of a member that is out, so that it can be unplugged, and name it no more
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  vellum array fail a.toml /dev/sdc
  vellum array remove a.toml /dev/sdc

Exit codes: 0 it is let go, 2 usage, or it is not out, 3 I/O, 4 corrupt, 5 in use")]
pub struct Remove {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    member: Member,
}

/// Which one.
#[derive(clap::Args)]
struct Member {
    /// Its role, or its device as FILE names it: `vellum array detail` shows both
    #[arg(value_name = "MEMBER")]
    member: String,
}

impl Fail {
    pub fn run(self, ui: &Ui) -> Outcome {
        Order::Fail { member: self.member.member, now: self.now }.give(&self.target, ui)
    }
}

impl Remove {
    pub fn run(self, ui: &Ui) -> Outcome {
        Order::Remove { member: self.member.member }.give(&self.target, ui)
    }
}
