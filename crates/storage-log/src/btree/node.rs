//! A node: one page of entries in order.
//!
//! ```text
//! hints    64 B   heads of 16 slots at equal distances, to narrow a search within one cache line
//! prefix          what the keys of all entries begin with
//! slots           6 B each, in order: head (4 B), place of the cell (2 B)
//! …               free
//! cells           in any order, growing downward
//! ```
//!
//! Invariants: entries ascend by key, then record. All keys begin with the prefix, but for entry 0
//! of an inner node, whose key is not kept: its child takes everything below entry 1. Cells, the
//! garbage between them, slots, prefix and hints together are at most the page.

use super::cell::{self, Cell};
use super::items::Items;
use super::overflow::Overflow;
use std::cmp::Ordering;
use std::ops::Range;

/// Bytes of a full-grown page.
pub(super) const PAGE: usize = 4096;
/// Bytes of the smallest page, for indexes that hold next to nothing.
pub(super) const PAGE_MIN: usize = 256;
/// No neighbour.
pub(super) const NONE: u32 = u32::MAX;

const HINTS: usize = 16;
const HINT_BYTES: usize = HINTS * 4;
/// With fewer slots the hints are not used.
const HINTED: usize = 2 * (HINTS + 1);
const SLOT: usize = 6;
/// Longest prefix that is taken out of the keys.
pub(super) const PREFIX_MAX: usize = 512;

pub(super) struct Node {
    /// The leaf that follows.
    pub(super) next: u32,
    /// The leaf before.
    pub(super) prev: u32,
    count: u16,
    prefix_len: u16,
    /// Where the cells begin.
    heap: u16,
    /// Bytes of removed cells.
    garbage: u16,
    leaf: bool,
    page: Box<[u8]>,
}

/// How a range of items would fill a page.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    prefix_len: usize,
    /// Bytes in all.
    pub(super) bytes: usize,
}

impl Layout {
    /// Of these items as a leaf or an inner node.
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
        let cells: usize = range.clone().map(|i| items.cell_len(i, prefix_len)).sum();
        Layout { prefix_len, bytes: Layout::bytes(prefix_len, range.len(), cells) }
    }

    /// Bytes of a node with a prefix of this length and so many entries, whose cells have `cells`.
    pub(super) fn bytes(prefix_len: usize, entries: usize, cells: usize) -> usize {
        HINT_BYTES + prefix_len + entries * SLOT + cells
    }
}

/// Bytes that two keys begin with in common.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// What an entry of a node is, its key aside.
#[derive(Clone, Copy)]
pub(super) struct EntryRef<'n> {
    pub(super) record: u64,
    pub(super) payload: &'n [u8],
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
            page: vec![0; PAGE_MIN].into_boxed_slice(),
        }
    }

    /// What stands in the place of a node that was given up.
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
            node.page[HINT_BYTES..][..layout.prefix_len]
                .copy_from_slice(&last[..layout.prefix_len]);
        }
        for (slot, item) in range.enumerate() {
            let suffix = items.key(item, overflow).get(layout.prefix_len..).unwrap_or(&[]);
            let len = items.cell_len(item, layout.prefix_len);
            let at = usize::from(node.heap) - len;
            let out = &mut node.page[at..at + len];
            match items.place(item) {
                Some(place) => cell::write_overflow(out, place, items.record(item)),
                None => cell::write_inline(
                    out,
                    suffix,
                    items.record(item),
                    items.payload(item, overflow),
                ),
            }
            node.heap = at as u16;
            node.set_slot(slot, cell::head_of(suffix), at);
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
    pub(super) fn garbage(&self) -> usize {
        usize::from(self.garbage)
    }

    pub(super) fn prefix(&self) -> &[u8] {
        &self.page[HINT_BYTES..][..usize::from(self.prefix_len)]
    }

    fn slots_start(&self) -> usize {
        HINT_BYTES + usize::from(self.prefix_len)
    }

    fn slots_end(&self) -> usize {
        self.slots_start() + self.count() * SLOT
    }

    #[inline]
    fn slot(&self, i: usize) -> (u32, usize) {
        let at = self.slots_start() + i * SLOT;
        match self.page[at..].first_chunk::<SLOT>() {
            Some([a, b, c, d, e, f]) => {
                (u32::from_le_bytes([*a, *b, *c, *d]), usize::from(u16::from_le_bytes([*e, *f])))
            }
            None => (0, 0),
        }
    }

    #[inline]
    fn head(&self, i: usize) -> u32 {
        self.slot(i).0
    }

    fn set_slot(&mut self, i: usize, head: u32, cell: usize) {
        let at = self.slots_start() + i * SLOT;
        self.page[at..at + 4].copy_from_slice(&head.to_le_bytes());
        self.page[at + 4..at + SLOT].copy_from_slice(&(cell as u16).to_le_bytes());
    }

    fn cell_bytes(&self, i: usize) -> &[u8] {
        &self.page[self.slot(i).1..]
    }

    pub(super) fn cell(&self, i: usize) -> Cell<'_> {
        cell::read(self.cell_bytes(i))
    }

    /// The first entry that has a key (entry 0 of an inner node has none).
    fn first_keyed(&self) -> usize {
        usize::from(!self.leaf)
    }

    /// Where this entry is (`Ok`), or where it would be inserted.
    #[inline]
    pub(super) fn search(
        &self,
        key: &[u8],
        record: u64,
        overflow: &Overflow,
    ) -> Result<usize, usize> {
        let first = self.first_keyed();
        let prefix = self.prefix();
        let Some(suffix) = key.strip_prefix(prefix) else {
            return Err(if key < prefix { first } else { self.count() });
        };
        let head = cell::head_of(suffix);
        let (mut low, mut high) = self.narrow(head, first);
        while low < high {
            let middle = (low + high) / 2;
            let (found, cell) = self.slot(middle);
            let order = found
                .cmp(&head)
                .then_with(|| self.compare(&self.page[cell..], suffix, record, overflow));
            match order {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// The slots among which the first one with at least this head must be.
    #[inline]
    fn narrow(&self, head: u32, first: usize) -> (usize, usize) {
        let count = self.count();
        if count < HINTED {
            return (first, count);
        }
        let distance = count / (HINTS + 1);
        let (mut less, mut not_greater) = (0, 0);
        let (hints, _) = self.page[..HINT_BYTES].as_chunks::<4>();
        for hint in hints {
            let hint = u32::from_le_bytes(*hint);
            less += usize::from(hint < head);
            not_greater += usize::from(hint <= head);
        }
        let low = if less == 0 { first } else { less * distance + 1 };
        let high = if not_greater == HINTS { count } else { (not_greater + 1) * distance };
        (low, high)
    }

    fn set_hints(&mut self) {
        let count = self.count();
        if count < HINTED {
            return;
        }
        let distance = count / (HINTS + 1);
        for hint in 0..HINTS {
            let head = self.head((hint + 1) * distance);
            self.page[hint * 4..hint * 4 + 4].copy_from_slice(&head.to_le_bytes());
        }
    }

    /// How the entry of this cell compares to one whose suffix has the same head.
    fn compare(&self, cell: &[u8], suffix: &[u8], record: u64, overflow: &Overflow) -> Ordering {
        let (len, rest, found) = match cell::read(cell) {
            Cell::Inline { suffix_len, rest, record, .. } => (suffix_len, rest, record),
            Cell::Overflow { place, record } => {
                let suffix = overflow.key(place).get(self.prefix().len()..).unwrap_or(&[]);
                (suffix.len(), cell::rest_of(suffix), record)
            }
        };
        cell::compare_behind_head((len, rest), (suffix.len(), cell::rest_of(suffix)))
            .then(found.cmp(&record))
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
        match cell::read(&self.page[at..]) {
            Cell::Overflow { place, .. } => overflow.key(place),
            Cell::Inline { suffix_len, rest, .. } => {
                buffer.clear();
                buffer.extend_from_slice(self.prefix());
                buffer.extend_from_slice(&head.to_be_bytes()[..suffix_len.min(cell::HEAD)]);
                buffer.extend_from_slice(rest);
                buffer
            }
        }
    }

    /// Whether the entry's key is this one.
    pub(super) fn has_key(&self, i: usize, key: &[u8], overflow: &Overflow) -> bool {
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return false };
        let (head, at) = self.slot(i);
        head == cell::head_of(suffix)
            && match cell::read(&self.page[at..]) {
                Cell::Overflow { place, .. } => overflow.key(place) == key,
                Cell::Inline { suffix_len, rest, .. } => {
                    suffix_len == suffix.len() && rest == cell::rest_of(suffix)
                }
            }
    }

    /// An inner node's child. An entry 0 without child can't be: none are ever made.
    #[inline]
    pub(super) fn child(&self, i: usize, overflow: &Overflow) -> u32 {
        self.entry(i, overflow).payload.first_chunk().map_or(0, |c| u32::from_le_bytes(*c))
    }

    /// Lets an entry of an inner node point to another child.
    pub(super) fn set_child(&mut self, i: usize, child: u32, overflow: &mut Overflow) {
        match self.cell(i) {
            Cell::Overflow { place, .. } => overflow.set_payload(place, &child.to_le_bytes()),
            Cell::Inline { .. } => {
                let at = self.slot(i).1;
                let at = at + cell::payload_at(&self.page[at..]);
                self.page[at..at + 4].copy_from_slice(&child.to_le_bytes());
            }
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
        let Some(suffix) = key.strip_prefix(self.prefix()) else { return false };
        let len = match place {
            Some(_) => cell::overflow_len(record),
            None => cell::inline_len(suffix.len(), record, payload.len()),
        };
        let (end, heap) = (self.slots_end(), usize::from(self.heap));
        if heap - end < len + SLOT {
            return false;
        }
        let at = heap - len;
        let out = &mut self.page[at..heap];
        match place {
            Some(place) => cell::write_overflow(out, place, record),
            None => cell::write_inline(out, suffix, record, payload),
        }
        let slot = self.slots_start() + i * SLOT;
        self.page.copy_within(slot..end, slot + SLOT);
        self.heap = at as u16;
        self.count += 1;
        self.set_slot(i, cell::head_of(suffix), at);
        self.set_hints();
        true
    }

    /// Removes an entry. What it has in the overflow store is the caller's to give up.
    pub(super) fn remove(&mut self, i: usize) {
        let at = self.slot(i).1;
        let len = cell::len(&self.page[at..]) as u16;
        if at == usize::from(self.heap) {
            self.heap += len;
        } else {
            self.garbage += len;
        }
        let slot = self.slots_start() + i * SLOT;
        let end = self.slots_end();
        self.page.copy_within(slot + SLOT..end, slot);
        self.count -= 1;
        if self.count == 0 {
            (self.heap, self.garbage) = (self.page.len() as u16, 0);
        }
        self.set_hints();
    }
}
