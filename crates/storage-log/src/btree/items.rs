//! Entries that were taken out of nodes and will be put into other nodes, for splits, merges and rebuilds.

use super::cell::{self, Cell, INLINE_MAX};
use super::node::Node;
use super::overflow::Overflow;

/// Entries in order, with whole keys. Kept and used again, since it owns its memory.
#[derive(Default)]
pub(super) struct Items {
    bytes: Vec<u8>,
    list: Vec<Item>,
}

#[derive(Clone, Copy)]
struct Item {
    /// The key, and behind it the payload, in `bytes`; unused if `place` is set.
    start: usize,
    key_len: usize,
    payload_len: usize,
    record: u64,
    place: Option<u32>,
}

/// Whether an entry is too long for a node.
pub(super) fn is_long(key: &[u8], payload: &[u8]) -> bool {
    key.len() + payload.len() > INLINE_MAX
}

impl Items {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.list.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    fn item(&mut self, key: &[u8], record: u64, payload: &[u8], place: Option<u32>) -> Item {
        let start = self.bytes.len();
        if place.is_none() {
            self.bytes.extend_from_slice(key);
            self.bytes.extend_from_slice(payload);
        }
        Item { start, key_len: key.len(), payload_len: payload.len(), record, place }
    }

    /// Adds an entry at the end; `place` if it is in the overflow store.
    pub(super) fn push(&mut self, key: &[u8], record: u64, payload: &[u8], place: Option<u32>) {
        let item = self.item(key, record, payload, place);
        self.list.push(item);
    }

    /// Takes the last entry away.
    pub(super) fn pop(&mut self) {
        if let Some(item) = self.list.pop() {
            self.bytes.truncate(item.start);
        }
    }

    /// Puts an entry before entry `i`.
    pub(super) fn insert(
        &mut self,
        i: usize,
        key: &[u8],
        record: u64,
        payload: &[u8],
        place: Option<u32>,
    ) {
        let item = self.item(key, record, payload, place);
        self.list.insert(i, item);
    }

    /// Adds all entries of a node.
    pub(super) fn push_node(&mut self, node: &Node, overflow: &Overflow) {
        let mut buffer = Vec::new();
        for i in 0..node.count() {
            match node.cell(i) {
                Cell::Overflow { place, record } => self.push(&[], record, &[], Some(place)),
                Cell::Inline { record, payload, .. } => {
                    self.push(node.key(i, overflow, &mut buffer), record, payload, None);
                }
            }
        }
    }

    /// Replaces the key of entry `i`, which must not be in the overflow store.
    pub(super) fn set_key(&mut self, i: usize, key: &[u8], record: u64, overflow: &mut Overflow) {
        let payload = self.payload(i, overflow).to_vec();
        let place = is_long(key, &payload).then(|| overflow.add(key, &payload));
        self.list[i] = self.item(key, record, &payload, place);
    }

    /// Takes the key from entry `i`, which becomes the first of an inner node.
    pub(super) fn drop_key(&mut self, i: usize, overflow: &mut Overflow) {
        let payload = self.payload(i, overflow).to_vec();
        if let Some(place) = self.list[i].place {
            overflow.remove(place);
        }
        self.list[i] = self.item(&[], 0, &payload, None);
    }

    pub(super) fn key<'a>(&'a self, i: usize, overflow: &'a Overflow) -> &'a [u8] {
        let item = &self.list[i];
        match item.place {
            Some(place) => overflow.key(place),
            None => &self.bytes[item.start..item.start + item.key_len],
        }
    }

    pub(super) fn payload<'a>(&'a self, i: usize, overflow: &'a Overflow) -> &'a [u8] {
        let item = &self.list[i];
        let start = item.start + item.key_len;
        match item.place {
            Some(place) => overflow.payload(place),
            None => &self.bytes[start..start + item.payload_len],
        }
    }

    pub(super) fn record(&self, i: usize) -> u64 {
        self.list[i].record
    }

    pub(super) fn place(&self, i: usize) -> Option<u32> {
        self.list[i].place
    }

    /// Bytes of the entry's cell in a node with a prefix of this length.
    pub(super) fn cell_len(&self, i: usize, prefix_len: usize, head_len: usize) -> usize {
        let item = &self.list[i];
        match item.place {
            Some(_) => cell::overflow_len(item.record),
            None => cell::inline_len(
                item.key_len.saturating_sub(prefix_len),
                head_len,
                item.record,
                item.payload_len,
            ),
        }
    }
}
