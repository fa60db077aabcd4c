//! Carries steps out on version numbers, slowly, and finds everything that they could do wrong.

use std::collections::{BTreeMap, BTreeSet};
use vellum_array::Shape;
use vellum_array::cache::{
    Census, DELTA_HEAD_BYTES, DELTA_PAGE_HEAD_BYTES, DeltaPlace, LogEntry, Newest, PageNo, ParityPart,
    Policy, Recipe, Restored, Scheme, Staged, Step, Steps, log_pages_min,
};
use vellum_base::Lba;

/// From the version of the base to a newer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub lba: Lba,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Debug, Default)]
enum Page {
    #[default]
    Empty,
    Data(Lba, u64),
    Deltas(Vec<(Staged, Change)>),
}

/// What is on the devices and in NVRAM.
#[derive(Default)]
pub struct World {
    /// The newest version of each sector.
    array: BTreeMap<u64, u64>,
    /// Sectors of which parity knows another version.
    parity: BTreeMap<u64, u64>,
    pages: BTreeMap<u32, Page>,
    staged: Vec<(Staged, Change)>,
    buffer: BTreeMap<u32, LogEntry>,
    log: BTreeMap<u64, Vec<LogEntry>>,
    head: u64,
    /// Pages of the log that there is room for.
    ring: u64,
    pub commits: u64,
    pub cleanings: u64,
    pub whole: u64,
    pub vacated: u64,
    clock: u64,
    flash: Option<Flash>,
}

/// Pages of the SSD as it sees them, if they are written in segments.
struct Flash {
    segment_pages: u32,
    pages: u32,
    /// Written since their segment was given up.
    written: BTreeSet<u32>,
    /// The page that was written last; None after a restart.
    last: Option<u32>,
    is_restarted: bool,
}

impl Flash {
    fn of(recipe: &Recipe) -> Option<Flash> {
        let Recipe { scheme, segment_pages, pages, .. } = *recipe;
        let flash = Flash { segment_pages, pages, written: BTreeSet::new(), last: None, is_restarted: false };
        (scheme == Scheme::Kdd && segment_pages > 0).then_some(flash)
    }

    /// In order, and nothing a second time: but after a restart it is not known what was given up.
    fn write(&mut self, page: u32) {
        match self.last.replace(page) {
            Some(last) => assert_eq!(page, (last + 1) % self.pages, "pages are written in order"),
            None => assert!(page.is_multiple_of(self.segment_pages), "from the beginning of a segment on"),
        }
        let is_new = self.written.insert(page);
        assert!(is_new || self.is_restarted, "page {page} is written again without having been given up");
    }

    fn vacate(&mut self, first: u32, pages: u32) {
        assert!(first.is_multiple_of(self.segment_pages) && pages == self.segment_pages);
        self.written.retain(|page| !(first..first + pages).contains(page));
        let is_open = |last: u32| (first..first + pages).contains(&last);
        assert!(!self.last.is_some_and(is_open), "the open segment is given up");
    }
}

/// A policy and its world.
pub struct Rig {
    pub world: World,
    pub policy: Box<dyn Policy>,
    recipe: Recipe,
    shape: Shape,
    steps: Steps,
}

impl Rig {
    pub fn new(recipe: Recipe, shape: Shape) -> Rig {
        let policy = recipe.build(&shape).unwrap();
        let ring = recipe.log_pages.max(log_pages_min(recipe.pages)).into();
        let world = World { flash: Flash::of(&recipe), ring, ..World::default() };
        Rig { world, policy, recipe, shape, steps: Steps::default() }
    }

    pub fn read(&mut self, lba: Lba) {
        self.steps.clear();
        let before = self.policy.newest(lba);
        let newest = self.policy.read(lba, &mut self.steps);
        assert_eq!(newest, before, "a read does not move what it reads");
        self.world.check_newest(lba, newest);
        self.carry_out();
    }

    /// A write whose delta, if one is wanted, has this length.
    pub fn write(&mut self, lba: Lba, delta_bytes: usize) {
        self.steps.clear();
        if let Some(base) = self.policy.base(lba) {
            assert!(
                matches!(self.world.page(base), Page::Data(of, _) if *of == lba),
                "a base of another sector"
            );
        }
        let delta = self.policy.base(lba).map(|_| delta_bytes);
        self.world.clock += 1;
        let version = self.world.clock;
        self.policy.write(lba, delta, &mut self.steps);
        self.world.write(lba, version, &self.steps, &self.shape);
        self.check();
    }

    pub fn forget(&mut self, lba: Lba) {
        self.steps.clear();
        self.policy.forget(lba, &mut self.steps);
        self.carry_out();
        assert_eq!(self.policy.newest(lba), Newest::Array);
        assert!(!self.world.parity.contains_key(&lba.0), "parity of a sector that is to go is right");
    }

    pub fn clean_row(&mut self, row: u64) {
        self.steps.clear();
        self.policy.clean_row(row, &mut self.steps);
        self.carry_out();
        assert!(!self.world.is_stale(row, &self.shape));
    }

    pub fn idle(&mut self) -> bool {
        self.steps.clear();
        let worked = self.policy.idle(&mut self.steps);
        self.carry_out();
        assert!(worked || self.world.parity.is_empty(), "nothing to do while parity lacks something");
        worked
    }

    /// The power goes; the cache is restored from log and NVRAM.
    pub fn restart(&mut self) {
        let is_kept = self.recipe.scheme == Scheme::KddPaper || self.recipe.window == 0;
        if !is_kept || !matches!(self.recipe.scheme, Scheme::KddPaper | Scheme::Kdd) {
            return;
        }
        let restored = self.world.left();
        let next = self.recipe.restore(&self.shape, &restored).unwrap();
        for lba in (0..self.shape.sectors()).map(Lba) {
            assert_eq!(next.newest(lba), self.policy.newest(lba), "{lba:?}");
        }
        let (was, is) = (self.policy.census(), next.census());
        assert_eq!(Census { log_pages: was.log_pages, ..is }, was);
        self.policy = next;
        if let Some(flash) = &mut self.world.flash {
            (flash.last, flash.is_restarted) = (None, true);
        }
    }

    fn carry_out(&mut self) {
        self.world.carry_out(&self.steps, &self.shape);
        self.check();
    }

    fn check(&self) {
        assert!(self.steps.answered <= self.steps.list.len());
        let census = self.policy.census();
        if self.recipe.scheme == Scheme::NoSsd {
            return;
        }
        let all = census.free + census.clean + census.old + census.new + census.delta;
        assert_eq!(all, u64::from(self.recipe.pages) + census.window, "{census:?}");
        let lacks = self.world.parity.len() as u64;
        assert_eq!(census.old, lacks, "a page is old while parity lacks its delta");
        let staged: usize =
            self.world.staged.iter().map(|(s, _)| DELTA_HEAD_BYTES + usize::from(s.bytes)).sum();
        assert_eq!(census.staged_bytes, staged as u64);
        assert!(staged <= self.recipe.staging_bytes.max(4096));
    }
}

impl World {
    fn page(&self, page: PageNo) -> &Page {
        self.pages.get(&page.0).unwrap_or(&Page::Empty)
    }

    fn version(&self, lba: Lba) -> u64 {
        self.array.get(&lba.0).copied().unwrap_or(0)
    }

    fn is_stale(&self, row: u64, shape: &Shape) -> bool {
        self.parity.keys().any(|lba| lba / shape.row_sectors() == row)
    }

    fn base(&self, base: PageNo) -> (Lba, u64) {
        match self.page(base) {
            Page::Data(lba, version) => (*lba, *version),
            other => panic!("{base:?} is not a page of data but {other:?}"),
        }
    }

    fn change(&self, base: PageNo, place: DeltaPlace) -> Change {
        match place {
            DeltaPlace::Staged => {
                self.staged.iter().find(|(staged, _)| staged.base == base).expect("staged").1
            }
            DeltaPlace::In { page, offset, bytes } => {
                let Page::Deltas(deltas) = self.page(page) else { panic!("{page:?} has no deltas") };
                let of =
                    |staged: &Staged| staged.base == base && (staged.offset, staged.bytes) == (offset, bytes);
                deltas.iter().find(|(staged, _)| of(staged)).expect("the delta is in its page").1
            }
        }
    }

    fn check_newest(&self, lba: Lba, newest: Newest) {
        let version = match newest {
            Newest::Array => return,
            Newest::Page(page) => self.base(page),
            Newest::Changed(base, place) => {
                let change = self.change(base, place);
                assert_eq!(self.base(base), (change.lba, change.from), "a delta on another base");
                (change.lba, change.to)
            }
        };
        assert_eq!(version, (lba, self.version(lba)), "a read must give the newest version");
    }

    fn write(&mut self, lba: Lba, version: u64, steps: &Steps, shape: &Shape) {
        let on_array =
            |step: &&Step| matches!(step, Step::WriteArray(of) | Step::WriteWithoutParity(of) if *of == lba);
        assert_eq!(steps.list.iter().filter(on_array).count(), 1, "a write goes to the array once");
        assert!(steps.list[..steps.answered].iter().any(|step| on_array(&step)), "before it is answered");
        for step in &steps.list {
            match step {
                Step::WriteArray(_) => {
                    assert!(!self.parity.contains_key(&lba.0), "parity lacks a delta of it")
                }
                Step::WriteWithoutParity(_) => {
                    let was = self.version(lba);
                    self.parity.entry(lba.0).or_insert(was);
                }
                step => self.step(step, steps, shape),
            }
            if on_array(&step) {
                self.array.insert(lba.0, version);
            }
        }
    }

    fn carry_out(&mut self, steps: &Steps, shape: &Shape) {
        steps.list.iter().for_each(|step| self.step(step, steps, shape));
    }

    fn step(&mut self, step: &Step, steps: &Steps, shape: &Shape) {
        match *step {
            Step::ReadPage(page) => {
                self.base(page);
            }
            Step::ReadDeltas(page) => assert!(matches!(self.page(page), Page::Deltas(_))),
            Step::ReadArray(_) => {}
            Step::WriteArray(_) | Step::WriteWithoutParity(_) => panic!("a write without a write"),
            Step::WritePage { page, lba, .. } => {
                self.write_flash(page);
                self.pages.insert(page.0, Page::Data(lba, self.version(lba)));
            }
            Step::Hold { page, lba } => {
                self.pages.insert(page.0, Page::Data(lba, self.version(lba)));
            }
            Step::Promote { from, to, lba } => {
                let held = self.base(from);
                assert_eq!(held, (lba, self.version(lba)), "what is promoted is the newest version");
                self.write_flash(to);
                self.pages.insert(to.0, Page::Data(held.0, held.1));
            }
            Step::Refresh(page) => {
                let (lba, from) = self.base(page);
                let mut of = self.staged.iter().map(|(_, change)| *change).collect::<Vec<_>>();
                let packed = self.pages.values().flat_map(|page| match page {
                    Page::Deltas(deltas) => deltas.as_slice(),
                    _ => &[],
                });
                of.extend(packed.map(|(_, change)| *change));
                let change = Change { lba, from, to: self.version(lba) };
                assert!(of.contains(&change), "the delta is there");
                self.pages.insert(page.0, Page::Data(lba, change.to));
            }
            Step::Stage(staged) => {
                let (lba, from) = self.base(staged.base);
                assert_eq!(lba, staged.lba);
                assert!(self.staged.iter().all(|(other, _)| other.base != staged.base), "one delta a base");
                self.staged.push((staged, Change { lba, from, to: self.version(lba) }));
            }
            Step::Unstage(base) => {
                let at = self.staged.iter().position(|(staged, _)| staged.base == base).expect("staged");
                self.staged.remove(at);
            }
            Step::CommitDeltas { page, from, count } => {
                self.commit_deltas(page, steps.staged_of(from, count))
            }
            Step::UpdateParity { row, from, count, whole } => {
                self.update_parity(row, steps.parts_of(from, count), whole, shape);
            }
            Step::Note(entry) => {
                self.buffer.insert(entry.page.0, entry);
            }
            Step::CommitLog { sequence, head, from, count } => {
                let entries = steps.entries_of(from, count);
                let written: BTreeMap<u32, LogEntry> = entries.iter().map(|e| (e.page.0, *e)).collect();
                let buffered = written.iter().all(|(page, entry)| self.buffer.remove(page) == Some(*entry));
                assert!(
                    buffered && written.len() == entries.len(),
                    "what is written was in the buffer, once"
                );
                assert!(self.log.last_key_value().is_none_or(|(last, _)| last + 1 == sequence));
                assert!(
                    sequence < self.head + self.ring,
                    "a page that counts until this one is there is spared"
                );
                self.log.insert(sequence, entries.to_vec());
                self.head = head;
                self.log.retain(|sequence, _| *sequence >= head);
                self.commits += 1;
            }
            Step::Discard(page) => {
                self.pages.remove(&page.0);
            }
            Step::Vacate { first, pages } => {
                // What it held is gone: whoever uses it from now on finds nothing.
                (first.0..first.0 + pages).for_each(|page| drop(self.pages.remove(&page)));
                self.flash.as_mut().expect("there are segments").vacate(first.0, pages);
                self.vacated += 1;
            }
        }
    }

    fn write_flash(&mut self, page: PageNo) {
        if let Some(flash) = &mut self.flash {
            flash.write(page.0);
        }
    }

    fn commit_deltas(&mut self, page: PageNo, deltas: &[Staged]) {
        assert!(!deltas.is_empty());
        let mut at = DELTA_PAGE_HEAD_BYTES + DELTA_HEAD_BYTES * deltas.len();
        let mut packed = Vec::new();
        for delta in deltas {
            assert_eq!(usize::from(delta.offset), at, "deltas lie one behind the other");
            at += usize::from(delta.bytes);
            let of = |(staged, _): &(Staged, Change)| staged.base == delta.base;
            let from = self.staged.iter().position(of).expect("what is committed is staged");
            assert_eq!(from, 0, "first in, first out");
            let (staged, change) = self.staged.remove(from);
            assert_eq!((staged.lba, staged.bytes), (delta.lba, delta.bytes));
            packed.push((*delta, change));
        }
        assert!(at <= 4096, "{at} bytes in a page");
        self.write_flash(page);
        self.pages.insert(page.0, Page::Deltas(packed));
    }

    fn update_parity(&mut self, row: u64, parts: &[ParityPart], whole: bool, shape: &Shape) {
        let mut known: BTreeMap<u64, u64> = BTreeMap::new();
        for part in parts {
            let (lba, from) = match *part {
                ParityPart::Delta(lba, base, place) => {
                    let change = self.change(base, place);
                    assert_eq!(
                        (change.lba, change.to),
                        (lba, self.version(lba)),
                        "up to what the array holds"
                    );
                    (lba, change.from)
                }
                ParityPart::Versions { lba, old, new } => {
                    assert_eq!(self.base(new), (lba, self.version(lba)));
                    assert_eq!(self.base(old).0, lba);
                    (lba, self.base(old).1)
                }
                ParityPart::Same(lba, page) => {
                    assert_eq!(self.base(page), (lba, self.version(lba)));
                    assert!(whole);
                    continue;
                }
            };
            assert!(known.insert(lba.0, from).is_none(), "each once");
        }
        let of_row = |lba: &u64| lba / shape.row_sectors() == row;
        let lacks: BTreeMap<u64, u64> =
            self.parity.iter().filter(|(lba, _)| of_row(lba)).map(|(l, v)| (*l, *v)).collect();
        assert_eq!(known, lacks, "parity is given exactly what it lacks");
        self.parity.retain(|lba, _| !of_row(lba));
        self.cleanings += 1;
        self.whole += u64::from(whole);
    }

    fn left(&self) -> Restored {
        let of_log = self.log.iter().flat_map(|(at, entries)| entries.iter().map(|e| (*e, Some(*at))));
        let buffered = self.buffer.values().map(|entry| (*entry, None));
        let tail = self.log.last_key_value().map_or(0, |(last, _)| last + 1);
        Restored {
            entries: of_log.chain(buffered).collect(),
            log: (self.head, tail),
            staged: self.staged.iter().map(|(staged, _)| *staged).collect(),
        }
    }
}
