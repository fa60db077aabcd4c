//! Plan for reading scattered bytes: each page is read once, from the first wanted byte to the last. Units that were
//! written together often stay in one page after those between them are gone.

use super::queue::{Op, Outcome};
use std::collections::BTreeMap;
use vellum_base::{FlashError, Nanos, PageAddr};

/// See the module.
#[derive(Default)]
pub(super) struct Plan {
    /// One per page, in the order of first need.
    reads: Vec<Read>,
    by_page: BTreeMap<PageAddr, usize>,
    /// The wanted bytes, part by part.
    parts: Vec<Part>,
}

/// The byte range to be read from a page.
struct Read {
    page: PageAddr,
    from: usize,
    to: usize,
}

/// A part of the wanted bytes, and the read that contains it.
struct Part {
    read: usize,
    offset: usize,
    bytes: usize,
}

impl Plan {
    /// Plans reading parts of pages, given as page, offset and bytes.
    pub(super) fn new(wanted: impl Iterator<Item = (PageAddr, usize, usize)>) -> Plan {
        let mut plan = Plan::default();
        wanted.for_each(|(page, offset, bytes)| plan.add(page, offset, bytes));
        plan
    }

    fn add(&mut self, page: PageAddr, offset: usize, bytes: usize) {
        let next = self.reads.len();
        let read = *self.by_page.entry(page).or_insert(next);
        if read == next {
            self.reads.push(Read { page, from: offset, to: offset + bytes });
        }
        let there = &mut self.reads[read];
        (there.from, there.to) = (there.from.min(offset), there.to.max(offset + bytes));
        self.parts.push(Part { read, offset, bytes });
    }

    /// Page and offset, if there is only one part.
    pub(super) fn single(&self) -> Option<(PageAddr, usize)> {
        match &self.parts[..] {
            [part] => Some((self.reads[part.read].page, part.offset)),
            _ => None,
        }
    }

    /// The read operations.
    pub(super) fn ops(&self) -> Vec<Op> {
        let op = |read: &Read| Op::Read { page: read.page, offset: read.from, bytes: read.to - read.from };
        self.reads.iter().map(op).collect()
    }

    /// Puts together what these came to.
    pub(super) fn assemble(&self, outcome: Outcome, out: &mut [u8]) -> Result<Nanos, FlashError> {
        if let Some(error) = outcome.error {
            return Err(error);
        }
        let mut rest = out;
        for Part { read, offset, bytes } in &self.parts {
            let from = offset - self.reads[*read].from;
            let (head, tail) = rest.split_at_mut(*bytes);
            head.copy_from_slice(&outcome.read[*read][from..from + bytes]);
            rest = tail;
        }
        Ok(outcome.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use vellum_base::BlockAddr;

    const PAGE_BYTES: usize = 100;

    fn page(nth: u32) -> PageAddr {
        PageAddr { block: BlockAddr(nth % 3), page: nth / 3 }
    }

    /// No two bytes of a page are the same, and no two pages.
    fn content(page: PageAddr) -> Vec<u8> {
        let (block, nth) = (page.block.0 as usize, page.page as usize);
        (0..PAGE_BYTES).map(|at| (at + 100 * (block % 2) + 7 * (block + 3 * nth)) as u8).collect()
    }

    proptest! {
        #[test]
        fn every_byte_is_what_was_asked_for_and_no_page_is_read_twice(
            wanted in prop::collection::vec((0u32..12, 0..PAGE_BYTES, 1..PAGE_BYTES), 0..40)
        ) {
            let fit = |(nth, at, bytes): (u32, usize, usize)| (page(nth), at, bytes.min(PAGE_BYTES - at));
            let wanted: Vec<_> = wanted.into_iter().map(fit).collect();
            let plan = Plan::new(wanted.iter().copied());
            let (mut pages, mut read, mut bytes_read) = (BTreeSet::new(), Vec::new(), 0);
            for op in plan.ops() {
                let Op::Read { page, offset, bytes } = op else { unreachable!("it reads") };
                prop_assert!(pages.insert(page));
                bytes_read += bytes;
                read.push(content(page)[offset..offset + bytes].to_vec());
            }
            // From the first that is wanted to the last.
            let span = |page: &PageAddr| {
                let of_page = || wanted.iter().filter(|(other, _, _)| other == page);
                let from = of_page().map(|(_, at, _)| *at).min().unwrap();
                of_page().map(|(_, at, bytes)| at + bytes).max().unwrap() - from
            };
            prop_assert_eq!(bytes_read, pages.iter().map(span).sum::<usize>());
            let expected: Vec<u8> =
                wanted.iter().flat_map(|(page, at, bytes)| content(*page)[*at..at + bytes].to_vec()).collect();
            let mut out = vec![0; expected.len()];
            plan.assemble(Outcome { read, ..Outcome::default() }, &mut out).unwrap();
            prop_assert_eq!(out, expected);
            let single = plan.single().map(|(page, at)| content(page)[at]);
            prop_assert_eq!(single, wanted.first().filter(|_| wanted.len() == 1).map(|(p, at, _)| content(*p)[*at]));
        }
    }
}
