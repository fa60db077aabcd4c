//! Orders to an array, and their answers: the same whether a server has it open or not.

use super::control;
use super::held::Held;
use super::take::Take;
use super::target::{Shown, Target};
use crate::failure::{Failure, Outcome, Verdict};
use crate::text;
use crate::ui::Ui;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use vellum::array::Repair;
use vellum::serve::Stop;

/// An order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Show,
    Fail { member: String, now: bool },
    Remove { member: String },
    Add { device: PathBuf, take: Take },
    Replace { old: String, new: PathBuf, take: Take },
    Rebuild { give_up: bool },
    Scrub { repair: RepairArg },
    Flush,
    DetachCache { force: bool },
}

/// Result of an order: docs/json/array.md.
#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    Shown(Box<Shown>),
    Scrubbed(Scrubbed),
    Rebuilt(Rebuilt),
}

/// `--repair`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum RepairArg {
    /// Only sectors that could not be read and were computed
    None,
    /// What is known to be wrong (RAID-6)
    Located,
    /// That, and parity where it is not known what is wrong: data are taken to be right
    Parity,
}

/// docs/json/array.md
#[derive(Debug, Serialize, Deserialize)]
pub struct Rebuilt {
    complete: bool,
    lost: Vec<(u64, u64)>,
    /// What remains because replacing, failing or detaching it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stays: Option<String>,
    /// Why it could not continue after giving up sectors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
}

/// docs/json/array.md
#[derive(Debug, Serialize, Deserialize)]
pub struct Scrubbed {
    complete: bool,
    /// Why it could not continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failed: Option<String>,
    rows: u64,
    one_parity_rows: u64,
    stale_rows: u64,
    degraded_rows: u64,
    mismatches: u64,
    corrected: u64,
    parity_made_anew: u64,
    healed_sectors: u64,
    mismatched_rows: Vec<u64>,
    #[serde(default)]
    lost_sectors: u64,
    #[serde(default)]
    lost: Vec<(u64, u64)>,
    wrong_members: Vec<WrongMember>,
}

/// docs/json/array.md
#[derive(Debug, Serialize, Deserialize)]
struct WrongMember {
    role: usize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<PathBuf>,
    sectors: u64,
    rows: Vec<u64>,
}

impl Order {
    /// Has the order carried out by the server of the array, or else opens the array for it; prints the answer.
    pub fn give(&self, target: &Target, ui: &Ui) -> Outcome {
        let stop = Stop::on_signals()?;
        let mut progress = ui.progress(self.name());
        let mut go_on = |done, of| {
            progress(done, of);
            !stop.wait(Some(Duration::ZERO))
        };
        let answer = match control::ask(&target.file, self, &mut go_on)? {
            Some(answer) => answer,
            None => {
                let held = Held::assemble(target, ui, None)?;
                let answer = self.carry_out(&held, &mut go_on);
                held.close()?;
                if let (Order::Add { .. }, Ok(_)) = (self, &answer) {
                    ui.remark(format!("next: vellum array rebuild {} fills it", target.file.display()));
                }
                answer?
            }
        };
        drop(progress);
        Ok(answer.tell(ui))
    }

    /// Carries it out. `go_on` receives how much is done, and the total; it returns false to stop.
    pub fn carry_out(&self, held: &Held, go_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<Answer, Failure> {
        match self {
            Order::Show => {}
            Order::Flush => held.flush(go_on)?,
            Order::DetachCache { force } => {
                if !held.detach_cache(*force, go_on)? {
                    return Ok(Answer::stays("the cache"));
                }
            }
            Order::Fail { member, now } => {
                if !held.fail(member, *now, go_on)? {
                    return Ok(Answer::stays(&format!("member {member}")));
                }
            }
            Order::Remove { member } => held.remove(member)?,
            Order::Add { device, take } => held.add(device, *take)?,
            Order::Replace { old, new, take } => {
                if !held.replace(old, new, *take, |at| go_on(at.rows, at.of))? {
                    return Ok(Answer::stays(old));
                }
            }
            Order::Rebuild { give_up } => {
                let rebuilt = held.rebuild(*give_up, |at| go_on(at.rows, at.of))?;
                let lost = rebuilt.lost.iter().map(|lost| (lost.start, lost.end - lost.start)).collect();
                let vellum::array::Rebuilt { complete, failed, .. } = rebuilt;
                return Ok(Answer::Rebuilt(Rebuilt { complete, lost, stays: None, failed }));
            }
            Order::Scrub { repair } => return scrub(held, *repair, go_on).map(Answer::Scrubbed),
        }
        Ok(Answer::Shown(Box::new(held.shown())))
    }

    fn name(&self) -> &'static str {
        match self {
            Order::Replace { .. } => "replace",
            Order::Rebuild { .. } => "rebuild",
            Order::Scrub { .. } => "scrub",
            Order::Flush | Order::DetachCache { .. } | Order::Fail { .. } => "flush",
            _ => "array",
        }
    }
}

fn scrub(
    held: &Held,
    repair: RepairArg,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Scrubbed, Failure> {
    let repair = match repair {
        RepairArg::None => Repair::None,
        RepairArg::Located => Repair::Located,
        RepairArg::Parity => Repair::Parity,
    };
    let healed_before = held.array().array().status().healed_sectors;
    let report = held.array().scrub(repair, |at| go_on(at.rows, at.of))?;
    let members = held.array().array().status().members;
    let wrong = report.wrong_members.into_iter().map(|(role, wrong)| {
        let device = held.name_of(&members[role].id);
        WrongMember { role, device, sectors: wrong.sectors, rows: wrong.rows }
    });
    Ok(Scrubbed {
        complete: report.complete,
        failed: report.failed,
        rows: report.rows,
        one_parity_rows: report.one_parity_rows,
        stale_rows: report.stale_rows,
        degraded_rows: report.degraded_rows,
        mismatches: report.mismatches,
        corrected: report.corrected,
        parity_made_anew: report.parity_made_anew,
        healed_sectors: held.array().array().status().healed_sectors - healed_before,
        mismatched_rows: report.mismatched_rows,
        lost_sectors: report.lost_sectors,
        lost: report.lost.iter().map(|lost| (lost.start, lost.end - lost.start)).collect(),
        wrong_members: wrong.collect(),
    })
}

impl Answer {
    /// The answer if it was stopped.
    fn stays(what: &str) -> Answer {
        Answer::Rebuilt(Rebuilt {
            complete: false,
            lost: Vec::new(),
            stays: Some(what.to_string()),
            failed: None,
        })
    }

    /// Whether the array is complete, if that was the question.
    pub fn is_whole(&self) -> bool {
        !matches!(self, Answer::Shown(shown) if !shown.is_whole())
    }

    /// Prints the answer.
    pub fn tell(&self, ui: &Ui) -> Verdict {
        ui.result(self, || self.describe());
        self.verdict()
    }

    /// For display.
    pub fn describe(&self) -> String {
        match self {
            Answer::Shown(shown) => shown.describe(),
            Answer::Rebuilt(rebuilt) => rebuilt.describe(),
            Answer::Scrubbed(scrubbed) => scrubbed.describe(),
        }
    }

    fn verdict(&self) -> Verdict {
        let is_fine = match self {
            Answer::Shown(shown) => !shown.has_lost(),
            Answer::Rebuilt(rebuilt) => rebuilt.complete && rebuilt.lost.is_empty(),
            Answer::Scrubbed(scrubbed) => scrubbed.is_whole(),
        };
        if is_fine { Verdict::Fine } else { Verdict::Problems }
    }
}

impl Rebuilt {
    fn describe(&self) -> String {
        if let Some(old) = &self.stays {
            return format!("stopped; {old} stays\n");
        }
        let how = match &self.failed {
            Some(why) => format!("the rebuild has stopped: {why}; the same command goes on"),
            None if self.complete => "rebuilt".to_string(),
            None => "stopped; the same command goes on".to_string(),
        };
        match self.lost.as_slice() {
            [] => format!("{how}\n"),
            lost => format!("{how}; lost sectors: {}\n", text::sector_ranges(lost)),
        }
    }
}

const LOCATED: &str = "puts right what is known to be wrong";

impl Scrubbed {
    /// Whether all rows but stale ones were compared, at least one was, and no mismatch or lost sector is left.
    fn is_whole(&self) -> bool {
        self.complete && self.left() + self.lost_sectors + self.degraded_rows == 0 && self.rows > 0
    }

    fn left(&self) -> u64 {
        self.mismatches - self.corrected - self.parity_made_anew
    }

    fn describe(&self) -> String {
        let how = match &self.failed {
            Some(why) => format!("the scrub has stopped: {why}; "),
            None if self.complete => String::new(),
            None => "stopped; ".to_string(),
        };
        let lacking = match (self.degraded_rows, self.one_parity_rows) {
            (0, 0) => "",
            (0, _) => {
                "a member is missing: rows that lack it were compared by the other parity, which does not tell what is \
                 wrong\n"
            }
            _ => "a member is missing: rows that lack it have nothing to be compared with\n",
        };
        let wrong: String = self.wrong_members.iter().map(WrongMember::describe).collect();
        let lost = match self.lost_sectors {
            0 => String::new(),
            count => format!(
                "{} lost, no member has them and nothing is left to compute them from: {}\n",
                text::counted(count, "sector"),
                text::first_ranges(&self.lost)
            ),
        };
        let stale = match self.stale_rows {
            0 => "",
            _ => {
                "parity of stale rows was put off: `vellum array flush` brings it up to date, a scrub after it compares it\n"
            }
        };
        format!(
            "{how}{} compared, {} stale and {} degraded passed over\n{stale}{lacking}{} did not agree: {} corrected, {} \
             with parity made anew, {} left; {} healed\n{wrong}{}{lost}{}",
            text::counted(self.rows, "row"),
            self.stale_rows,
            self.degraded_rows,
            text::counted(self.mismatches, "sector"),
            self.corrected,
            self.parity_made_anew,
            self.left(),
            self.healed_sectors,
            text::rows_named("rows that did not agree", &self.mismatched_rows),
            self.next()
        )
    }

    /// What to do about remaining mismatches. Nothing is repaired while a member is missing.
    fn next(&self) -> String {
        let known: u64 = self.wrong_members.iter().map(|wrong| wrong.sectors).sum();
        let known = known.saturating_sub(self.corrected);
        let repair =
            |what: &str, does: &str| format!("next: `vellum array scrub FILE --repair {what}` {does}\n");
        match (known, self.left().saturating_sub(known)) {
            _ if self.one_parity_rows > 0 => String::new(),
            (0, 0) => String::new(),
            (0, _) => repair("parity", "takes data to be right, and makes their parity anew"),
            (_, 0) => repair("located", LOCATED),
            _ => {
                let anew = "; `--repair parity` also makes parity anew where it is not known what is, and takes data to be right";
                repair("located", &format!("{LOCATED}{anew}"))
            }
        }
    }
}

impl WrongMember {
    fn describe(&self) -> String {
        let device = self.device.as_ref().map_or(String::new(), |path| format!(", {}", path.display()));
        let what = format!(
            "member {}{device} was wrong, {}; rows",
            self.role,
            text::counted(self.sectors, "sector")
        );
        text::rows_named(&what, &self.rows)
    }
}
