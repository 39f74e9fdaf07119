//! A node: one page of sorted entries.
//!
//! ```text
//! prefix          what the keys of all entries begin with
//! slots           in order: head (4 B in a leaf, else 8 B), place of the cell (2 B)
//! …               free
//! cells           in any order, growing downward
//! ```
//!
//! Counts and hints of all nodes lie together outside the pages, and so mostly in the processor's cache. The hints
//! are the heads of 16 slots at equal distances. They narrow a search to the slots of one or two cache lines.
//!
//! Invariants: entries ascend by key, then record. All keys begin with the prefix, except entry 0 of an inner node,
//! whose key is not stored: its child has everything below entry 1. Cells, garbage between cells, slots and prefix
//! together fit into the page.

use super::Likely;
use super::cell::{self, Cell, INNER_HEAD, LEAF_HEAD};
use super::items::Items;
use super::overflow::Overflow;
use std::cmp::Ordering;
use std::num::{NonZeroU8, NonZeroU64};
use std::ops::Range;

/// Bytes of a full-grown page.
pub(super) const PAGE: usize = 4096;
/// Bytes of the smallest page, for indexes that hold next to nothing.
pub(super) const PAGE_MIN: usize = 256;
/// No neighbour.
pub(super) const NONE: u32 = u32::MAX;

const HINTS: usize = 16;
/// With fewer slots there are no hints.
const HINTED: usize = 2 * (HINTS + 1);
/// Number of changes after which the hints are computed again.
const HINTS_CHANGES: u8 = 8;
/// Maximum deviation of the last record from an ascent by one per key: keys that several clients create at once do
/// not ascend exactly like their records.
const ASCENT_OFF: u64 = 8;
const PREFIX_START: usize = 16;
const LEAF_SLOT: usize = LEAF_HEAD + 2;
const INNER_SLOT: usize = INNER_HEAD + 2;
/// Longest prefix that is taken out of the keys.
pub(super) const PREFIX_MAX: usize = 512;

pub(super) struct Node {
    /// The leaf that follows.
    pub(super) next: u32,
    /// The leaf before.
    pub(super) prev: u32,
    count: u16,
    prefix_len: u16,
    /// The start of the cells.
    heap: u16,
    /// Bytes of removed cells.
    garbage: u16,
    leaf: bool,
    /// In the order of numbers with a sign: only those the processor compares many of at once.
    hints: [i32; HINTS],
    /// Entries inserted and removed since the hints were taken.
    inserted: u8,
    removed: u8,
    /// The entries that there were then, divided by one more than there are hints.
    distance: u16,
    /// The record of entry 0, if from there to the last one records ascended by about one for each key
    /// when the hints were taken.
    first_record: Option<NonZeroU64>,
    /// If records ascend by exactly one per key, and heads by the same power of two: its exponent plus one. Numbers
    /// and an ObjectId's counter ascend like that.
    step: Option<NonZeroU8>,
    /// The first bytes of the prefix, so that the page need not be read for them.
    prefix_start: u128,
    page: Box<[u8]>,
}

/// The layout of a page with a range of items.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    prefix_len: usize,
    /// Bytes in all.
    pub(super) bytes: usize,
}

impl Layout {
    /// The layout of these items as a leaf or an inner node.
    pub(super) fn of(
        items: &Items,
        range: Range<usize>,
        leaf: bool,
        overflow: &Overflow,
    ) -> Layout {
        let keyed = if leaf { range.start } else { range.start + 1 }..range.end;
        let prefix_len = match keyed.len() {
            0 | 1 => 0,
            _ => {
                common_prefix(items.key(keyed.start, overflow), items.key(keyed.end - 1, overflow))
                    .min(PREFIX_MAX)
            }
        };
        let with = |prefix_len| {
            let cell_len = |i| items.cell_len(i, prefix_len, head_len(leaf));
            let cells: usize = range.clone().map(cell_len).sum();
            Layout { prefix_len, bytes: Layout::bytes(leaf, prefix_len, range.len(), cells) }
        };
        let taken_out = with(prefix_len);
        // Keys beside the page gain nothing by a prefix in it.
        if range.clone().any(|i| items.place(i).is_some()) {
            let left_in = with(0);
            return if left_in.bytes < taken_out.bytes { left_in } else { taken_out };
        }
        taken_out
    }

    /// Bytes of a node with a prefix of this length and this number of entries, whose cells have `cells` bytes.
    pub(super) fn bytes(leaf: bool, prefix_len: usize, entries: usize, cells: usize) -> usize {
        prefix_len + entries * (head_len(leaf) + 2) + cells
    }
}

/// Bytes of the heads in a leaf or an inner node.
#[inline]
pub(super) fn head_len(leaf: bool) -> usize {
    if leaf { LEAF_HEAD } else { INNER_HEAD }
}

/// Bytes that two keys begin with in common.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The target of a search: a key and a record.
#[derive(Clone, Copy)]
pub(super) struct Probe<'k> {
    pub(super) key: &'k [u8],
    pub(super) record: u64,
    /// The first bytes of the key.
    pub(super) start: u128,
}

impl<'k> Probe<'k> {
    #[inline]
    pub(super) fn new(key: &'k [u8], record: u64) -> Self {
        Probe { key, record, start: cell::start_16(key) }
    }
}

/// An entry of a node, without its key.
#[derive(Clone, Copy)]
pub(super) struct EntryRef<'n> {
    pub(super) record: u64,
    pub(super) payload: &'n [u8],
}

/// The result for a key from the first of a leaf's entries with at least the key's head.
pub(super) enum ByHead {
    /// The key exists: its first entry and that entry's record.
    Found(usize, u64),
    /// The key does not exist.
    Absent,
    /// Nothing.
    Unknown,
}

impl Node {
    /// An empty leaf in a small page.
    pub(super) fn empty_leaf() -> Node {
        Node {
            next: NONE,
            prev: NONE,
            count: 0,
            prefix_len: 0,
            heap: PAGE_MIN as u16,
            garbage: 0,
            leaf: true,
            hints: [0; HINTS],
            inserted: 0,
            removed: 0,
            distance: 0,
            first_record: None,
            step: None,
            prefix_start: 0,
            page: vec![0; PAGE_MIN].into_boxed_slice(),
        }
    }

    /// The placeholder of a freed node.
    pub(super) fn freed() -> Node {
        Node { heap: 0, page: Box::default(), ..Node::empty_leaf() }
    }

    /// A node of these items, without neighbours.
    pub(super) fn build(
        items: &Items,
        range: Range<usize>,
        leaf: bool,
        layout: Layout,
        page: usize,
        overflow: &Overflow,
    ) -> Node {
        debug_assert!(layout.bytes <= page, "the layout does not fit the page");
        let mut node = Node {
            count: range.len() as u16,
            prefix_len: layout.prefix_len as u16,
            heap: page as u16,
            leaf,
            page: vec![0; page].into_boxed_slice(),
            ..Node::empty_leaf()
        };
        if layout.prefix_len > 0 {
            let last = items.key(range.end - 1, overflow);
            node.page[..layout.prefix_len].copy_from_slice(&last[..layout.prefix_len]);
            node.prefix_start = cell::start_16(&last[..layout.prefix_len]);
        }
        for (slot, item) in range.enumerate() {
            let suffix = items.key(item, overflow).get(layout.prefix_len..).unwrap_or(&[]);
            let len = items.cell_len(item, layout.prefix_len, node.head_len());
            let at = usize::from(node.heap) - len;
            let out = &mut node.page[at..at + len];
            match items.place(item) {
                Some(place) => cell::write_overflow(out, place, items.record(item)),
                None => cell::write_inline(
                    out,
                    suffix,
                    head_len(leaf),
                    items.record(item),
                    items.payload(item, overflow),
                ),
            }
            node.heap = at as u16;
            node.set_slot(slot, cell::head_of(suffix, head_len(leaf)), at);
        }
        node.set_hints();
        node
    }

    pub(super) fn is_leaf(&self) -> bool {
        self.leaf
    }

    pub(super) fn count(&self) -> usize {
        usize::from(self.count)
    }

    /// Bytes of its page.
    pub(super) fn page_len(&self) -> usize {
        self.page.len()
    }

    /// Bytes that are in use, garbage not counted.
    pub(super) fn used(&self) -> usize {
        let cells = self.page.len() - usize::from(self.heap) - usize::from(self.garbage);
        self.slots_end() + cells
    }

    /// Bytes of removed cells.
    #[cfg(test)]
    pub(super) fn garbage(&self) -> usize {
        usize::from(self.garbage)
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.page[..usize::from(self.prefix_len)]
    }

    /// The key without the prefix, if it begins with it.
    #[inline]
    fn suffix<'k>(&self, probe: &Probe<'k>) -> Option<&'k [u8]> {
        let prefix_len = usize::from(self.prefix_len);
        let suffix = probe.key.get(prefix_len..)?;
        let differs = (probe.start ^ self.prefix_start).leading_zeros() as usize / 8;
        let same = if prefix_len <= PREFIX_START {
            differs >= prefix_len
        } else {
            differs >= PREFIX_START && probe.key.starts_with(self.prefix())
        };
        same.then_some(suffix)
    }

    fn slots_start(&self) -> usize {
        usize::from(self.prefix_len)
    }

    fn slots_end(&self) -> usize {
        self.slots_start() + self.count() * self.slot_len()
    }

    #[inline]
    fn head_len(&self) -> usize {
        head_len(self.leaf)
    }

    #[inline]
    fn slot_len(&self) -> usize {
        self.head_len() + 2
    }

    /// A slot's head, and where its cell is.
    #[inline]
    fn slot(&self, i: usize) -> (u64, usize) {
        let slots = &self.page[self.slots_start()..];
        if self.leaf { leaf_slot(slots, i) } else { inner_slot(slots, i) }
    }

    fn set_slot(&mut self, i: usize, head: u64, cell: usize) {
        let (head_len, slot_len) = (self.head_len(), self.slot_len());
        let at = self.slots_start() + i * slot_len;
        let slot = &mut self.page[at..at + slot_len];
        slot[..head_len].copy_from_slice(&head.to_le_bytes()[..head_len]);
        slot[head_len..].copy_from_slice(&(cell as u16).to_le_bytes());
    }

    fn cell_bytes(&self, i: usize) -> &[u8] {
        &self.page[self.slot(i).1..]
    }

    pub(super) fn cell(&self, i: usize) -> Cell<'_> {
        cell::read(self.cell_bytes(i), self.head_len())
    }

    /// The first entry that has a key (entry 0 of an inner node has none).
    fn first_keyed(&self) -> usize {
        usize::from(!self.leaf)
    }

    /// The position of this entry (`Ok`), or the position to insert it.
    #[inline]
    pub(super) fn search(&self, probe: &Probe<'_>, overflow: &Overflow) -> Result<usize, usize> {
        let first = self.first_keyed();
        let Some(suffix) = self.suffix(probe) else {
            return Err(if probe.key < self.prefix() { first } else { self.count() });
        };
        let slots = &self.page[self.slots_start()..];
        let (head, mut low, mut high);
        if self.leaf {
            head = cell::head_of(suffix, LEAF_HEAD);
            (low, high) = self.narrow(head);
            self.fetch_ahead(low, high);
            low = lower_bound(low, high, head, |i| leaf_slot(slots, i).0);
        } else {
            head = cell::head_of(suffix, INNER_HEAD);
            high = self.count();
            low = lower_bound(first, high, head, |i| inner_slot(slots, i).0);
        }
        // Among equal heads the rest decides. Mostly there is but one.
        let mut middle = low;
        while low < high {
            let (found, cell) = self.slot(middle);
            let order = found
                .cmp(&head)
                .then_with(|| self.compare(&self.page[cell..], suffix, probe.record, overflow));
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
            middle = low + (high - low) / 2;
        }
        Err(low)
    }

    /// Whether this entry comes behind all of a leaf, which has some.
    pub(super) fn is_behind(&self, probe: &Probe<'_>, overflow: &Overflow) -> bool {
        let (Some(last), Some(suffix)) = (self.count().checked_sub(1), self.suffix(probe)) else {
            return false;
        };
        let ((found, cell), head) = (self.slot(last), cell::head_of(suffix, self.head_len()));
        let compare = || self.compare(&self.page[cell..], suffix, probe.record, overflow);
        found.cmp(&head).then_with(compare).is_lt()
    }

    /// The slots of a leaf among which the first one with at least this head must be.
    #[inline]
    fn narrow(&self, head: u64) -> (usize, usize) {
        let (count, distance) = (self.count(), usize::from(self.distance));
        if distance == 0 {
            return (0, count);
        }
        let head = hint_of(head);
        let less = self.hints.iter().filter(|hint| **hint < head).count();
        let mut not_greater = less;
        while self.hints.get(not_greater) == Some(&head) {
            not_greater += 1;
        }
        // Where a hint was taken, but for what has come and gone since.
        let low = match less {
            0 => 0,
            _ => (less * distance + 1).saturating_sub(usize::from(self.removed)),
        };
        let high = match not_greater {
            HINTS => count,
            _ => (not_greater + 1) * distance + usize::from(self.inserted),
        };
        (low, high.min(count))
    }

    /// Prefetches some of a leaf's slots together with their cells, so that a search waits for memory once and not
    /// twice. The slot has the place of its cell; but in a leaf that was built of items, or filled with ascending
    /// keys, the cells are in order.
    #[inline]
    fn fetch_ahead(&self, low: usize, high: usize) {
        let (start, len) = (self.slots_start(), self.page.len());
        let cells = len as u32 - u32::from(self.heap);
        let behind = |i: usize| (cells * i as u32 / u32::from(self.count.max(1))) as usize;
        for (from, to) in [
            (start + low * LEAF_SLOT, start + high * LEAF_SLOT),
            (len.saturating_sub(behind(high)), len.saturating_sub(behind(low))),
        ] {
            kauri_medium::prefetch(self.page.get(from..to).unwrap_or(&[]));
        }
    }

    fn set_hints(&mut self) {
        let count = self.count();
        (self.inserted, self.removed, self.distance) = (0, 0, 0);
        (self.first_record, self.step) = (None, None);
        if count < HINTED || !self.leaf {
            return;
        }
        let distance = count / (HINTS + 1);
        self.distance = distance as u16;
        let slots = &self.page[usize::from(self.prefix_len)..];
        for (hint, at) in self.hints.iter_mut().zip(1..) {
            *hint = hint_of(leaf_slot(slots, at * distance).0);
        }
        let last = count - 1;
        let record = |i| match self.cell(i) {
            Cell::Inline { record, .. } | Cell::Overflow { record, .. } => record,
        };
        let first = record(0);
        let off = record(last).wrapping_sub(first).abs_diff(last as u64);
        self.first_record = NonZeroU64::new(first).filter(|_| off <= ASCENT_OFF);
        self.step = self.step_of_heads().filter(|_| off == 0);
    }

    /// The mean step of heads from one entry to the next, if that is a power of two: its exponent plus one.
    fn step_of_heads(&self) -> Option<NonZeroU8> {
        let heads = self.hints[HINTS - 1].abs_diff(self.hints[0]);
        let step = heads / ((HINTS - 1) as u32 * u32::from(self.distance));
        let power = step.is_power_of_two();
        NonZeroU8::new(step.trailing_zeros() as u8 + 1).filter(|_| power)
    }

    /// The records that some of a leaf's entries likely have; none if that can't be said.
    #[inline]
    fn likely_records(&self, low: usize, high: usize) -> Range<u64> {
        self.first_record.map_or(0..0, |first| {
            let first = first.get();
            first.saturating_add(low as u64)..first.saturating_add(high as u64)
        })
    }

    /// The position and the record of the entry with this head, if heads ascend evenly.
    #[inline]
    fn expected(&self, head: u64) -> Option<(usize, u64)> {
        let (first, step) = (self.first_record?, self.step?);
        let above = i64::from(hint_of(head)) - i64::from(self.hints[0]);
        let at = i64::from(self.distance) + (above >> (step.get() - 1));
        let at = usize::try_from(at).ok().filter(|at| *at < self.count())?;
        Some((at, first.get().saturating_add(at as u64)))
    }

    /// Compares the entry of this cell with one whose suffix has the same head.
    fn compare(&self, cell: &[u8], suffix: &[u8], record: u64, overflow: &Overflow) -> Ordering {
        let head_len = self.head_len();
        let (len, rest, found) = match cell::read(cell, head_len) {
            Cell::Inline { suffix_len, rest, record, .. } => (suffix_len, rest, record),
            Cell::Overflow { place, record } => {
                let suffix = overflow.key(place).get(self.prefix().len()..).unwrap_or(&[]);
                (suffix.len(), cell::rest_of(suffix, head_len), record)
            }
        };
        let suffix = (suffix.len(), cell::rest_of(suffix, head_len));
        cell::compare_behind_head((len, rest), suffix, head_len).then(found.cmp(&record))
    }

    /// The entry's record and payload.
    pub(super) fn entry<'a>(&'a self, i: usize, overflow: &'a Overflow) -> EntryRef<'a> {
        match self.cell(i) {
            Cell::Inline { record, payload, .. } => EntryRef { record, payload },
            Cell::Overflow { place, record } => {
                EntryRef { record, payload: overflow.payload(place) }
            }
        }
    }

    /// The entry's key, put together in `buffer` unless it is whole somewhere.
    pub(super) fn key<'a>(
        &self,
        i: usize,
        overflow: &'a Overflow,
        buffer: &'a mut Vec<u8>,
    ) -> &'a [u8] {
        let (head, at) = self.slot(i);
        match cell::read(&self.page[at..], self.head_len()) {
            Cell::Overflow { place, .. } => overflow.key(place),
            Cell::Inline { suffix_len, rest, .. } => {
                let head_len = self.head_len();
                let head_bytes = &head.to_be_bytes()[8 - head_len..][..suffix_len.min(head_len)];
                buffer.clear();
                buffer.extend_from_slice(self.prefix());
                buffer.extend_from_slice(head_bytes);
                buffer.extend_from_slice(rest);
                buffer
            }
        }
    }

    /// The entry's record, if its key is this one.
    #[inline]
    pub(super) fn record_of_key(
        &self,
        i: usize,
        probe: &Probe<'_>,
        overflow: &Overflow,
    ) -> Option<u64> {
        let suffix = self.suffix(probe)?;
        let (head, at) = self.slot(i);
        if head != cell::head_of(suffix, self.head_len()) {
            return None;
        }
        self.record_behind_head(at, probe, suffix, overflow)
    }

    /// The record of the entry with this cell, whose head is the suffix's, if its key is the probe's.
    #[inline]
    fn record_behind_head(
        &self,
        cell: usize,
        probe: &Probe<'_>,
        suffix: &[u8],
        overflow: &Overflow,
    ) -> Option<u64> {
        let head_len = self.head_len();
        match cell::read(&self.page[cell..], head_len) {
            Cell::Overflow { place, record } => {
                (overflow.key(place) == probe.key).then_some(record)
            }
            Cell::Inline { suffix_len, rest, record, .. } => {
                let suffix = (suffix.len(), cell::rest_of(suffix, head_len));
                let order = cell::compare_behind_head((suffix_len, rest), suffix, head_len);
                order.is_eq().then_some(record)
            }
        }
    }

    /// Searches a leaf's first entry with this key at its most common position: the first entry with its head.
    /// Before it waits for memory, it passes the predicted records of the entry to `likely`.
    #[inline]
    pub(super) fn look_by_head(
        &self,
        probe: &Probe<'_>,
        overflow: &Overflow,
        mut likely: impl FnMut(Likely),
    ) -> ByHead {
        let Some(suffix) = self.suffix(probe) else { return ByHead::Unknown };
        let slots = &self.page[self.slots_start()..];
        let head = cell::head_of(suffix, LEAF_HEAD);
        let expected = self.expected(head).and_then(|(at, record)| {
            self.fetch_ahead(at, at + 1);
            likely(Likely::One(record));
            let is_behind_less = at == 0 || leaf_slot(slots, at - 1).0 < head;
            (is_behind_less && leaf_slot(slots, at).0 >= head).then_some(at)
        });
        let at = expected.unwrap_or_else(|| {
            let (low, high) = self.narrow(head);
            self.fetch_ahead(low, high);
            likely(Likely::Among(self.likely_records(low, high)));
            lower_bound(low, high, head, |i| leaf_slot(slots, i).0)
        });
        if at == self.count() {
            return ByHead::Unknown;
        }
        let (found, cell) = leaf_slot(slots, at);
        if found != head {
            return ByHead::Absent;
        }
        let record = cell::record_of_direct(&self.page[cell..], suffix, LEAF_HEAD)
            .or_else(|| self.record_behind_head(cell, probe, suffix, overflow));
        record.map_or(ByHead::Unknown, |record| ByHead::Found(at, record))
    }

    /// An inner node's child. An entry 0 without child can't be: none are ever made.
    #[inline]
    pub(super) fn child(&self, i: usize, overflow: &Overflow) -> u32 {
        let cell = &self.page[inner_slot(&self.page[self.slots_start()..], i).1..];
        let child = match cell::payload_start(cell, INNER_HEAD) {
            Some(at) => cell[at..].first_chunk(),
            None => self.entry(i, overflow).payload.first_chunk(),
        };
        child.map_or(0, |child| u32::from_le_bytes(*child))
    }

    /// Lets entry 0 of an inner node, whose key is not kept and thus never in the overflow store, point to another
    /// child.
    pub(super) fn set_first_child(&mut self, child: u32) {
        let cell = self.slot(0).1;
        let start = cell::payload_start(&self.page[cell..], INNER_HEAD);
        debug_assert!(start.is_some(), "entry 0 has a key");
        if let Some(start) = start {
            self.page[cell + start..][..4].copy_from_slice(&child.to_le_bytes());
        }
    }

    /// Inserts an entry before entry `i`; `place` if it is in the overflow store. False if there is
    /// no room, or if the key does not begin with the prefix: then nothing has changed.
    pub(super) fn insert(
        &mut self,
        i: usize,
        key: &[u8],
        record: u64,
        payload: &[u8],
        place: Option<u32>,
    ) -> bool {
        let Some(suffix) = self.suffix(&Probe::new(key, record)) else { return false };
        let (head_len, slot_len) = (self.head_len(), self.slot_len());
        let len = match place {
            Some(_) => cell::overflow_len(record),
            None => cell::inline_len(suffix.len(), head_len, record, payload.len()),
        };
        let (end, heap) = (self.slots_end(), usize::from(self.heap));
        if heap - end < len + slot_len {
            return false;
        }
        let at = heap - len;
        let out = &mut self.page[at..heap];
        match place {
            Some(place) => cell::write_overflow(out, place, record),
            None => cell::write_inline(out, suffix, head_len, record, payload),
        }
        let slot = self.slots_start() + i * slot_len;
        self.page.copy_within(slot..end, slot + slot_len);
        self.heap = at as u16;
        self.count += 1;
        self.set_slot(i, cell::head_of(suffix, head_len), at);
        self.inserted += 1;
        if self.inserted + self.removed >= HINTS_CHANGES {
            self.set_hints();
        }
        true
    }

    /// Removes an entry. The caller frees its part in the overflow store.
    pub(super) fn remove(&mut self, i: usize) {
        let at = self.slot(i).1;
        let slot_len = self.slot_len();
        let len = cell::len(&self.page[at..], self.head_len()) as u16;
        if at == usize::from(self.heap) {
            self.heap += len;
        } else {
            self.garbage += len;
        }
        let slot = self.slots_start() + i * slot_len;
        let end = self.slots_end();
        self.page.copy_within(slot + slot_len..end, slot);
        self.count -= 1;
        if self.count == 0 {
            (self.heap, self.garbage) = (self.page.len() as u16, 0);
        }
        self.removed += 1;
        if self.inserted + self.removed >= HINTS_CHANGES {
            self.set_hints();
        }
    }
}

/// A leaf's head as a hint.
#[inline]
fn hint_of(head: u64) -> i32 {
    (head as u32 ^ 1 << 31) as i32
}

#[inline]
fn leaf_slot(slots: &[u8], i: usize) -> (u64, usize) {
    match slots[i * LEAF_SLOT..].first_chunk::<LEAF_SLOT>() {
        Some([a, b, c, d, cell @ ..]) => {
            (u32::from_le_bytes([*a, *b, *c, *d]).into(), u16::from_le_bytes(*cell).into())
        }
        None => (0, 0),
    }
}

#[inline]
fn inner_slot(slots: &[u8], i: usize) -> (u64, usize) {
    match slots[i * INNER_SLOT..].first_chunk::<INNER_SLOT>() {
        Some([a, b, c, d, e, f, g, h, cell @ ..]) => {
            (u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]), u16::from_le_bytes(*cell).into())
        }
        None => (0, 0),
    }
}

/// The first of `low..high` whose head is not below this one.
#[inline]
fn lower_bound(mut low: usize, high: usize, head: u64, head_at: impl Fn(usize) -> u64) -> usize {
    // Which way a step goes can't be predicted, so it must not be a branch.
    let mut size = high - low;
    while size > 1 {
        let half = size / 2;
        low = if head_at(low + half - 1) < head { low + half } else { low };
        size -= half;
    }
    low + usize::from(size == 1 && head_at(low) < head)
}
