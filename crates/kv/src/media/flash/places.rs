//! Where units are, by origin, as found when the flash is opened. Of a unit that is found twice, the first copy is
//! used; both are equally good.

use super::layout::{Extent, push};
use super::list::Run;
use super::superblock::Home;
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub(super) struct Places {
    /// Disjoint runs, by origin and first unit.
    runs: BTreeMap<(u64, u32), Extent>,
}

impl Places {
    /// Adds the runs of a superblock, which are adjacent and begin at its first unit.
    pub(super) fn add(&mut self, home: &Arc<Home>, runs: &[Run]) {
        let mut start = 0;
        for run in runs {
            self.add_run(run, Extent { home: home.clone(), start, units: run.units });
            start += run.units;
        }
    }

    /// Adds those parts of a run that are not known yet.
    fn add_run(&mut self, run: &Run, extent: Extent) {
        let mut at = run.start;
        while at < run.end() {
            if let Some((_, end)) = self.at(run.origin, at) {
                at = end;
                continue;
            }
            let next = self.runs.range((run.origin, at)..(run.origin, run.end())).next();
            let end = next.map_or(run.end(), |((_, start), _)| *start);
            self.runs.insert((run.origin, at), extent.part(at - run.start, end - at));
            at = end;
        }
    }

    /// The extent that begins with a unit, and the number of the unit after it.
    fn at(&self, origin: u64, unit: u32) -> Option<(Extent, u32)> {
        let ((_, start), extent) = self.runs.range((origin, 0)..=(origin, unit)).next_back()?;
        let skipped = unit - start;
        (skipped < extent.units).then(|| (extent.part(skipped, extent.units - skipped), start + extent.units))
    }

    /// Appends the extents of a run; units that were not found are lost extents.
    pub(super) fn find(&self, run: &Run, extents: &mut Vec<Extent>) {
        let mut at = run.start;
        while at < run.end() {
            let (extent, end) = self.at(run.origin, at).unwrap_or_else(|| {
                let next = self.runs.range((run.origin, at)..(run.origin, run.end())).next();
                let end = next.map_or(run.end(), |((_, start), _)| *start);
                (Extent::lost(end - at), end)
            });
            let end = end.min(run.end());
            push(extents, extent.part(0, end - at));
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_unit_is_where_it_was_found_first(found in prop::collection::vec((0u64..2, 0u32..40, 1u32..12), 1..25), asked in (0u64..2, 0u32..40, 1u32..20)) {
            let (mut places, mut model) = (Places::default(), BTreeMap::new());
            for (index, (origin, start, units)) in (0u32..).zip(found) {
                let home = Arc::new(Home { index, blocks: Vec::new() });
                // Something else lies before it.
                let other = Run { origin: 9, start: index, units: 1 };
                places.add(&home, &[other, Run { origin, start, units }]);
                for unit in 0..units {
                    model.entry((origin, start + unit)).or_insert((index, 1 + unit));
                }
            }
            let (origin, start, units) = asked;
            let mut extents = Vec::new();
            let expected: Vec<Option<(u32, u32)>> =
                (start..start + units).map(|unit| model.get(&(origin, unit)).copied()).collect();
            places.find(&Run { origin, start, units }, &mut extents);
            {
                let units = |e: &Extent| (e.start..e.start + e.units).map(|unit| (!e.is_lost()).then_some((e.index(), unit))).collect::<Vec<_>>();
                prop_assert_eq!(extents.iter().flat_map(units).collect::<Vec<_>>(), expected);
            }
        }
    }
}
