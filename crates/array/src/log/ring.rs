//! Allocation of a ring: each record is contiguous, and space is released in order.

use std::collections::VecDeque;

/// See the module. Sectors are counted from the start of the ring.
pub(super) struct Ring {
    sectors: u32,
    /// Sequence number, first sector and length of the records in use, oldest first.
    used: VecDeque<(u64, u32, u32)>,
}

impl Ring {
    pub fn new(sectors: u32) -> Ring {
        Ring { sectors, used: VecDeque::new() }
    }

    /// Takes `length` contiguous sectors for a record; `None` if there is no room.
    pub fn take(&mut self, sequence: u64, length: u32) -> Option<u32> {
        let at = self.room(length)?;
        self.used.push_back((sequence, at, length));
        Some(at)
    }

    /// Undoes the takes for records from `sequence` on.
    pub fn take_back(&mut self, sequence: u64) {
        while self.used.back().is_some_and(|(last, ..)| *last >= sequence) {
            self.used.pop_back();
        }
    }

    fn room(&self, length: u32) -> Option<u32> {
        let (Some((_, tail, _)), Some((_, start, last))) = (self.used.front(), self.used.back()) else {
            return (length <= self.sectors).then_some(0);
        };
        let head = start + last;
        if start < tail {
            return (head + length <= *tail).then_some(head);
        }
        let to_end = head.checked_add(length).is_some_and(|end| end <= self.sectors);
        if to_end { Some(head) } else { (length <= *tail).then_some(0) }
    }

    /// Releases the space of all records before `oldest`.
    pub fn retire(&mut self, oldest: u64) {
        while self.used.front().is_some_and(|(sequence, ..)| *sequence < oldest) {
            self.used.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_never_overlap_and_the_whole_ring_can_be_used() {
        let mut ring = Ring::new(40);
        let mut owner = [0u64; 40];
        let (mut oldest, mut fullest) = (1, 0);
        for sequence in 1..5000u64 {
            let length = (sequence * 7 % 12 + 1) as u32;
            let start = loop {
                if let Some(start) = ring.take(sequence, length) {
                    break start;
                }
                owner.iter_mut().for_each(|o| *o = if *o == oldest { 0 } else { *o });
                oldest += 1;
                ring.retire(oldest);
            };
            let place = &mut owner[start as usize..][..length as usize];
            assert!(place.iter().all(|o| *o == 0), "record {sequence} at {start} + {length}");
            place.fill(sequence);
            fullest = fullest.max(owner.iter().filter(|o| **o != 0).count());
        }
        assert!(fullest > 35, "only {fullest} of 40 sectors were ever in use");
    }

    #[test]
    fn what_is_taken_back_is_free_again() {
        let mut ring = Ring::new(10);
        assert_eq!([ring.take(1, 4), ring.take(2, 4), ring.take(3, 4)], [Some(0), Some(4), None]);
        ring.take_back(2);
        assert_eq!(ring.take(2, 6), Some(4));
        ring.take_back(1);
        assert_eq!(ring.take(1, 10), Some(0));
    }
}
