//! Orders for an array that a server has open, through the socket beside its file: `a.toml.sock` for `a.toml`. They are
//! lines of JSON: an [`Order`] in; progress, and an answer or a failure, out.

use super::held::Held;
use super::order::{Answer, Order};
use crate::failure::{Failure, kind_by_name, kind_name};
use crate::live::socket;
use crate::ui::{Ui, json_line, say};
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::sync::Arc;
use vellum::base::{Env, Error, Kind, Nanos, RealEnv, Task};
use vellum::serve::Stop;
use vellum::serve::orders::{self, Orders, Tell};

/// Interval between progress reports.
const PROGRESS_EVERY: Nanos = Nanos::from_ms(100);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Progress { done: u64, of: u64 },
    Answer(Answer),
    Failure { error: String, kind: String, next: Option<String> },
}

/// Accepts orders until it is dropped.
pub struct Control {
    stop: Stop,
    task: Option<Task>,
}

impl Control {
    /// Accepts orders for `held`, which `file` names.
    pub fn start(held: &Arc<Held>, file: &Path, ui: &Ui) -> Result<Control, Error> {
        let stop = Stop::new()?;
        let orders = match Orders::bind(&socket(file)) {
            Ok(orders) => orders,
            // The array works without: that a directory cannot be written is no reason to stop.
            Err(error) => {
                ui.remark(format!(
                    "note: other commands on this array will not work while this runs: {error}"
                ));
                return Ok(Control { stop, task: None });
            }
        };
        let (held, stopped) = (held.clone(), stop.clone());
        let run = move || {
            if let Err(error) = orders.run(&stopped, |order, tell| take(&held, order, tell)) {
                say(format!("note: no more orders are taken: {error}"));
            }
        };
        let task = RealEnv::new().spawn("orders", Box::new(run));
        Ok(Control { stop, task: Some(task) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.stop();
        self.task.take().into_iter().for_each(Task::join);
    }
}

fn take(held: &Held, order: &str, tell: Tell) {
    let env = RealEnv::new();
    let mut told = env.now();
    let mut go_on = |done, of| {
        if env.now().saturating_sub(told) < PROGRESS_EVERY {
            return true;
        }
        told = env.now();
        tell(json_line(&Line::Progress { done, of }).trim_end())
    };
    let parsed = serde_json::from_str::<Order>(order);
    let parsed = parsed.map_err(|e| Failure::from(Error::invalid(format!("not an order: {e}"))));
    let line = match parsed.and_then(|order| order.carry_out(held, &mut go_on)) {
        Ok(answer) => Line::Answer(answer),
        Err(failure) => Line::Failure {
            error: failure.error().to_string(),
            kind: kind_name(failure.error().kind()).into(),
            next: failure.advice().map(String::from),
        },
    };
    tell(json_line(&line).trim_end());
}

/// Gives an order to the server that has the array open. None if there is no server.
pub fn ask(
    file: &Path,
    order: &Order,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Option<Answer>, Failure> {
    let mut answer = None;
    let hear = |line: &str| match serde_json::from_str(line) {
        Ok(Line::Progress { done, of }) => go_on(done, of),
        Ok(Line::Answer(said)) => {
            answer = Some(Ok(said));
            true
        }
        Ok(Line::Failure { error, kind, next }) => {
            let error = Error::new(kind_by_name(&kind), error);
            answer = Some(Err(match next {
                Some(next) => Failure::with_next(error, next),
                None => error.into(),
            }));
            true
        }
        Err(e) => {
            answer = Some(Err(Error::corrupt(format!("what the server says is no answer: {e}")).into()));
            false
        }
    };
    if !orders::give(&socket(file), json_line(order).trim_end(), hear)? {
        return Ok(None);
    }
    answer.unwrap_or_else(|| Err(server_ended(file))).map(Some)
}

/// Failure if the server ended before it answered.
fn server_ended(file: &Path) -> Failure {
    let file = file.display();
    let next = format!(
        "start it again; vellum array detail {file} then shows how far it came: a rebuild or a copy goes on by itself, \
         anything else is asked for again"
    );
    Failure::with_next(Error::new(Kind::Io, format!("the server of {file} ended before it answered")), next)
}
