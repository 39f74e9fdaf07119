//! The address table of one collection: RecordId → [`Slot`], a paged array of 8-byte atomics.
//!
//! Invariants:
//! - A slot that has become 0 again stays 0, because ids are never reused. So a page without words is freed if all
//!   its ids were assigned.
//! - A slot is first set (0 → word) by the holder of the collection's latch or by recovery. Any thread may change
//!   it by compare-and-set.
//! - Pages are accessed only under an entered guard.

use crate::address::Slot;
use crate::chunked::{Chunked, PLACES_MAX};
use kauri_base::sync::Arc;
use kauri_base::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use kauri_medium::{EpochCell, EpochDomain, Guard};
use std::ops::Range;

/// Slots of a page.
pub const PAGE_SLOTS: u64 = 512;

/// Ids from here on are never given out.
pub const RECORDS_MAX: u64 = PLACES_MAX * PAGE_SLOTS;

struct Page {
    slots: [AtomicU64; PAGE_SLOTS as usize],
    /// Slots that are not 0.
    used: AtomicU32,
}

/// See the module's head.
pub struct Slots {
    domain: Arc<EpochDomain>,
    pages: Chunked<EpochCell<Page>>,
    /// The first id that was never given out.
    limit: AtomicU64,
}

/// The result of a compare-and-set.
pub enum Swap {
    /// Done.
    Done,
    /// The slot holds this instead.
    Other(Slot),
}

impl Slots {
    /// An empty table for guards of this domain.
    pub fn new(domain: Arc<EpochDomain>) -> Self {
        Slots { domain, pages: Chunked::new(), limit: AtomicU64::new(1) }
    }

    /// The first id that was never given out.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Acquire)
    }

    /// Says that ids below `limit` have been given out.
    pub fn set_limit(&self, limit: u64) {
        let before = self.limit.fetch_max(limit, Ordering::SeqCst);
        // Pages that became empty while ids were still being given out from them.
        let (first, last) = (before / PAGE_SLOTS, limit / PAGE_SLOTS);
        for page in first..last.min(first + 2) {
            self.free_if_empty(page);
        }
    }

    /// The word of a record.
    #[inline]
    pub fn load(&self, guard: &Guard, record: u64) -> Slot {
        self.page(guard, record / PAGE_SLOTS)
            .map_or(Slot::NONE, |page| Slot(page.at(record).load(Ordering::Acquire)))
    }

    /// Has the processor fetch the words of a few records, of those that lie in the first one's page.
    #[inline]
    pub fn prefetch(&self, guard: &Guard, records: Range<u64>) {
        if records.is_empty() {
            return;
        }
        let number = records.start / PAGE_SLOTS;
        let Some(page) = self.page(guard, number) else { return };
        let first = records.start % PAGE_SLOTS;
        let end = (records.end - number * PAGE_SLOTS).min(PAGE_SLOTS);
        kauri_medium::prefetch(&page.slots[first as usize..end as usize]);
    }

    /// Sets a slot that has never been set. `false` if the id is beyond what can be addressed.
    pub fn set_first(&self, guard: &Guard, record: u64, word: Slot) -> bool {
        let number = record / PAGE_SLOTS;
        let make = || EpochCell::empty(self.domain.clone());
        let Some(cell) = self.pages.get_or_make(number, make) else { return false };
        if cell.is_empty() {
            cell.replace(Some(Box::new(Page::new())));
        }
        let Some(page) = cell.load(guard) else { return false };
        page.used.fetch_add(1, Ordering::SeqCst);
        page.at(record).store(word.0, Ordering::Release);
        true
    }

    /// Sets the slots of a page that has never been used, for recovery.
    pub fn fill_page(&self, guard: &Guard, number: u64, words: &[Slot; PAGE_SLOTS as usize]) {
        let used = words.iter().filter(|word| !word.is_none()).count();
        let make = || EpochCell::empty(self.domain.clone());
        if used == 0 {
            return;
        }
        let Some(cell) = self.pages.get_or_make(number, make) else { return };
        if cell.is_empty() {
            cell.replace(Some(Box::new(Page::new())));
        }
        let Some(page) = cell.load(guard) else { return };
        page.used.store(used as u32, Ordering::SeqCst);
        for (slot, word) in page.slots.iter().zip(words) {
            slot.store(word.0, Ordering::Release);
        }
    }

    /// Changes a slot from `old` to `new`, neither of them 0.
    #[inline]
    pub fn swap(&self, guard: &Guard, record: u64, old: Slot, new: Slot) -> Swap {
        let Some(page) = self.page(guard, record / PAGE_SLOTS) else {
            return Swap::Other(Slot::NONE);
        };
        let slot = page.at(record);
        match slot.compare_exchange(old.0, new.0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Swap::Done,
            Err(other) => Swap::Other(Slot(other)),
        }
    }

    /// Changes a slot to the result of `change`; `None` and 0 leave it unchanged. Returns the former value.
    /// `change` must not return 0.
    #[inline]
    pub fn update(
        &self,
        guard: &Guard,
        record: u64,
        mut change: impl FnMut(Slot) -> Option<Slot>,
    ) -> Slot {
        let mut old = self.load(guard, record);
        loop {
            if old.is_none() {
                return old;
            }
            let Some(new) = change(old) else { return old };
            match self.swap(guard, record, old, new) {
                Swap::Done => return old,
                Swap::Other(other) => old = other,
            }
        }
    }

    /// Empties a slot that holds `old`, for good.
    pub fn clear(&self, guard: &Guard, record: u64, old: Slot) -> bool {
        let number = record / PAGE_SLOTS;
        let Some(page) = self.page(guard, number) else { return false };
        let swapped =
            page.at(record).compare_exchange(old.0, 0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if swapped && page.used.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.free_if_empty(number);
        }
        swapped
    }

    fn free_if_empty(&self, number: u64) {
        if (number + 1) * PAGE_SLOTS > self.limit.load(Ordering::SeqCst) {
            return;
        }
        let Some(cell) = self.pages.get(number) else { return };
        let mut guard = self.domain.register();
        guard.enter();
        if cell.load(&guard).is_some_and(|page| page.used.load(Ordering::SeqCst) == 0) {
            cell.replace(None);
        }
    }

    /// Calls `visit` for each record whose slot is not 0, ascending from `from` or, with `backward`,
    /// descending from it; ends when `visit` answers false.
    pub fn walk(
        &self,
        guard: &Guard,
        from: u64,
        backward: bool,
        mut visit: impl FnMut(u64, Slot) -> bool,
    ) {
        let limit = self.limit();
        if limit <= 1 || (!backward && from >= limit) {
            return;
        }
        let from = from.min(limit - 1);
        let (mut number, last) = (from / PAGE_SLOTS, (limit - 1) / PAGE_SLOTS);
        // Ids may be far apart after deletes and a restart: only what exists is gone through.
        while let Some(found) = self.pages.nearest(number, backward) {
            number = found;
            if !backward && number > last {
                return;
            }
            if let Some(page) = self.page(guard, number) {
                let low = number * PAGE_SLOTS;
                let mut visit = |i: u64| {
                    let word = Slot(page.at(i).load(Ordering::Acquire));
                    word.is_none() || visit(low + i, word)
                };
                let whole = if backward {
                    let high =
                        if number == from / PAGE_SLOTS { from - low } else { PAGE_SLOTS - 1 };
                    (0..=high).rev().all(&mut visit)
                } else {
                    let first = if number == from / PAGE_SLOTS { from - low } else { 0 };
                    (first..PAGE_SLOTS).all(&mut visit)
                };
                if !whole {
                    return;
                }
            }
            match backward {
                true if number == 0 => return,
                true => number -= 1,
                false if number == last => return,
                false => number += 1,
            }
        }
    }

    /// The numbers of the pages that exist.
    pub fn page_numbers(&self) -> Vec<u64> {
        let mut numbers = Vec::new();
        let mut next = self.pages.nearest(0, false);
        while let Some(number) = next.filter(|number| number * PAGE_SLOTS < self.limit()) {
            if self.pages.get(number).is_some_and(|cell| !cell.is_empty()) {
                numbers.push(number);
            }
            next = self.pages.nearest(number + 1, false);
        }
        numbers
    }

    #[inline]
    fn page<'g>(&'g self, guard: &'g Guard, number: u64) -> Option<&'g Page> {
        self.pages.get(number)?.load(guard)
    }
}

impl Page {
    fn new() -> Page {
        Page { slots: [const { AtomicU64::new(0) }; PAGE_SLOTS as usize], used: AtomicU32::new(0) }
    }

    #[inline]
    fn at(&self, record: u64) -> &AtomicU64 {
        &self.slots[(record % PAGE_SLOTS) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;

    impl Slots {
        /// Pages that take memory now.
        fn pages(&self) -> usize {
            let last = self.limit() / PAGE_SLOTS;
            (0..=last).filter(|n| self.pages.get(*n).is_some_and(|cell| !cell.is_empty())).count()
        }
    }

    fn word(n: u32) -> Slot {
        Slot::new(Address { segment: n, offset: 4096 }, 64, false, 1)
    }

    #[test]
    fn empty_pages_are_freed_once_their_ids_are_given_out() {
        let domain = EpochDomain::new();
        let mut guard = domain.register();
        guard.enter();
        let slots = Slots::new(domain.clone());
        for id in 1..=2000 {
            assert!(slots.set_first(&guard, id, word(id as u32)));
            slots.set_limit(id + 1);
        }
        assert_eq!(slots.pages(), 4);
        for id in 1..=1999 {
            assert!(slots.clear(&guard, id, word(id as u32)));
        }
        assert_eq!(slots.pages(), 1);
        assert_eq!(slots.load(&guard, 2000), word(2000));
        assert!(slots.load(&guard, 1).is_none() && slots.load(&guard, 9999).is_none());
        let mut seen = Vec::new();
        slots.walk(&guard, 0, false, |id, _| {
            seen.push(id);
            true
        });
        assert_eq!(seen, [2000]);
        assert!(slots.clear(&guard, 2000, word(2000)));
        assert_eq!(slots.pages(), 1, "ids are still given out from the last page");
        for id in 2001..=2048 {
            slots.set_limit(id + 1);
        }
        assert_eq!(slots.pages(), 0);
    }

    #[test]
    fn words_are_fetched_wherever_they_are() {
        let domain = EpochDomain::new();
        let mut guard = domain.register();
        guard.enter();
        let slots = Slots::new(domain.clone());
        assert!(slots.set_first(&guard, 1000, word(1)));
        for from in [0, 1, 511, 512, 1000, 1023, 1024, RECORDS_MAX, u64::MAX - 1] {
            for len in [0, 1, 30, 5000, u64::MAX] {
                slots.prefetch(&guard, from..from.saturating_add(len));
            }
        }
        assert_eq!(slots.load(&guard, 1000), word(1));
    }

    #[test]
    fn walks_go_both_ways_from_anywhere() {
        let domain = EpochDomain::new();
        let mut guard = domain.register();
        guard.enter();
        let slots = Slots::new(domain.clone());
        let ids: Vec<u64> = (1..3000).step_by(7).collect();
        for id in &ids {
            slots.set_first(&guard, *id, word(1));
        }
        slots.set_limit(3000);
        for from in [0, 1, 2, 511, 512, 513, 1500, 2997, 2998, 2999, 3000, u64::MAX] {
            for backward in [false, true] {
                let mut seen = Vec::new();
                slots.walk(&guard, from, backward, |id, _| {
                    seen.push(id);
                    true
                });
                let mut expected: Vec<u64> = ids
                    .iter()
                    .copied()
                    .filter(|id| if backward { *id <= from } else { *id >= from })
                    .collect();
                if backward {
                    expected.reverse();
                }
                assert_eq!(seen, expected, "from {from}, backward {backward}");
            }
        }
    }

    #[test]
    fn ids_far_apart_take_neither_time_nor_memory() {
        let domain = EpochDomain::new();
        let mut guard = domain.register();
        guard.enter();
        let slots = Slots::new(domain.clone());
        let ids = [1, 70_000, 1 << 33, (1 << 33) + 5, RECORDS_MAX - 1];
        for id in ids {
            assert!(slots.set_first(&guard, id, word(1)));
        }
        slots.set_limit(RECORDS_MAX);
        assert!(!slots.set_first(&guard, RECORDS_MAX, word(1)));
        for backward in [false, true] {
            let mut seen = Vec::new();
            slots.walk(&guard, if backward { u64::MAX } else { 0 }, backward, |id, _| {
                seen.push(id);
                true
            });
            if backward {
                seen.reverse();
            }
            assert_eq!(seen, ids);
        }
    }
}
