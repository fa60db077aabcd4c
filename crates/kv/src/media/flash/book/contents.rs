//! The runs of units that lie on a superblock.

use crate::media::flash::list::{Run, push_run};

/// See the module.
#[derive(Default)]
pub(in crate::media::flash) struct Contents {
    /// The table that it was written for; `None` if by collection.
    pub own: Option<u64>,
    /// Tables that an opening finds by it: its own, and those whose lists were moved here.
    pub tables: Vec<u64>,
    runs: Vec<Run>,
    /// By run, the unit after it.
    ends: Vec<u32>,
}

impl Contents {
    pub(in crate::media::flash) fn new(own: Option<u64>, runs: Vec<Run>) -> Contents {
        let mut end = 0;
        let ends = runs.iter().map(|run| {
            end += run.units;
            end
        });
        let ends = ends.collect();
        let listed = runs.iter().filter(|run| run.is_list()).map(|run| run.origin);
        Contents { own, tables: own.into_iter().chain(listed).collect(), runs, ends }
    }

    /// The units at which runs other than the first begin.
    pub(super) fn seams(&self) -> Vec<u32> {
        let last = self.ends.len().saturating_sub(1);
        self.ends[..last].to_vec()
    }

    /// The runs that a range of units consists of.
    pub(super) fn part(&self, start: u32, units: u32) -> Vec<Run> {
        let first = self.ends.partition_point(|end| *end <= start);
        let mut part = Vec::new();
        for (run, end) in self.runs[first..].iter().zip(&self.ends[first..]) {
            let begin = end - run.units;
            if begin >= start + units {
                break;
            }
            let (from, to) = (begin.max(start), (*end).min(start + units));
            push_run(&mut part, Run { start: run.start + from - begin, units: to - from, ..*run });
        }
        part
    }
}
