//! What lies on a superblock, by origin.

use crate::media::flash::list::{Run, push_run};

/// See the module.
#[derive(Default)]
pub(in crate::media::flash) struct Contents {
    /// The table that it was written for, if not for collection.
    pub own: Option<u64>,
    /// Tables that an opening finds because of it.
    pub tables: Vec<u64>,
    runs: Vec<Run>,
    /// The unit behind each run.
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

    /// Where another run begins than the first.
    pub(super) fn seams(&self) -> Vec<u32> {
        let last = self.ends.len().saturating_sub(1);
        self.ends[..last].to_vec()
    }

    /// What so many units are.
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
