//! Reads: exact keys, and batches of a range in either direction.

use super::Likely;
use super::node::{ByHead, NONE, Probe};
use super::tree::Tree;
use kauri_base::RecordId;
use kauri_storage::{Direction, IndexBatch, IndexScan};

/// A place between two entries: before entry `at` of a leaf (which may be behind its last one).
#[derive(Clone, Copy)]
struct Place {
    leaf: u32,
    at: usize,
}

impl Tree {
    /// The place before the first entry from this one on; behind this one if `past`.
    fn seek(&self, probe: &Probe<'_>, past: bool) -> Place {
        let leaf = self.leaf_for(probe);
        let at = match self.node(leaf).search(probe, &self.overflow) {
            Ok(at) => at + usize::from(past),
            Err(at) => at,
        };
        Place { leaf, at }
    }

    /// The first record with exactly this key; `guess` is which it may be. `likely` hears before, while there is
    /// something to wait for, what can be said of it.
    #[inline]
    pub(super) fn first(
        &self,
        key: &[u8],
        guess: Option<u64>,
        mut likely: impl FnMut(Likely),
    ) -> Option<u64> {
        let probe = Probe::new(key, 0);
        let place = guess.and_then(|record| self.places.look_up(record));
        if let Some(record) = place.and_then(|leaf| self.first_at(leaf, &probe, &mut likely)) {
            return Some(record);
        }
        let leaf = self.leaf_for(&probe);
        let record = self.find_from(leaf, &probe, |_| true, likely)?;
        if guess == Some(record) {
            let (nodes, found) = (self.nodes(), self.node(leaf));
            self.places.learn(record, leaf, nodes, |node| [found.prev, found.next].contains(&node));
        }
        Some(record)
    }

    /// The first record with exactly this key, if this node is a leaf that determines it.
    #[inline]
    fn first_at(&self, node: u32, probe: &Probe<'_>, likely: impl FnMut(Likely)) -> Option<u64> {
        let node = self.node_if_any(node).filter(|node| node.is_leaf())?;
        match node.look_by_head(probe, &self.overflow, likely) {
            // What is before it has a smaller head, so no leaf before this one has the key.
            ByHead::Found(1.., record) => Some(record),
            _ => None,
        }
    }

    /// Whether the leaf of a record's neighbours shows that it is this key's first one.
    #[cfg(test)]
    pub(super) fn is_at_its_place(&self, key: &[u8], record: u64) -> bool {
        let place = self.places.look_up(record);
        place.and_then(|leaf| self.first_at(leaf, &Probe::new(key, 0), |_| {})) == Some(record)
    }

    /// The first record with exactly this key that `wanted` accepts.
    pub(super) fn find_other(&self, key: &[u8], wanted: impl FnMut(u64) -> bool) -> Option<u64> {
        let probe = Probe::new(key, 0);
        self.find_from(self.leaf_for(&probe), &probe, wanted, |_| {})
    }

    /// The first record with exactly this key that `wanted` accepts, from the leaf on that the key belongs to.
    fn find_from(
        &self,
        mut leaf: u32,
        probe: &Probe<'_>,
        mut wanted: impl FnMut(u64) -> bool,
        likely: impl FnMut(Likely),
    ) -> Option<u64> {
        let mut at = match self.node(leaf).look_by_head(probe, &self.overflow, likely) {
            ByHead::Found(_, record) if wanted(record) => return Some(record),
            ByHead::Found(at, _) => at + 1,
            ByHead::Absent => return None,
            ByHead::Unknown => {
                self.node(leaf).search(probe, &self.overflow).unwrap_or_else(|at| at)
            }
        };
        while leaf != NONE {
            let node = self.node(leaf);
            while at < node.count() {
                let record = node.record_of_key(at, probe, &self.overflow)?;
                if wanted(record) {
                    return Some(record);
                }
                at += 1;
            }
            (leaf, at) = (node.next, 0);
        }
        None
    }

    /// The type bits of an entry, if it is there.
    pub(super) fn type_bits(&self, key: &[u8], record: u64) -> Option<Vec<u8>> {
        let probe = Probe::new(key, record);
        let node = self.node(self.leaf_for(&probe));
        let at = node.search(&probe, &self.overflow).ok()?;
        Some(node.entry(at, &self.overflow).payload.to_vec())
    }

    /// Calls `visit` for each entry in order, until it answers false.
    pub(super) fn visit(&self, mut visit: impl FnMut(&[u8], u64, &[u8]) -> bool) {
        let Place { mut leaf, .. } = self.seek(&Probe::new(&[], 0), false);
        let mut buffer = Vec::new();
        while leaf != NONE {
            let node = self.node(leaf);
            for at in 0..node.count() {
                let key = node.key(at, &self.overflow, &mut buffer);
                let entry = node.entry(at, &self.overflow);
                if !visit(key, entry.record, entry.payload) {
                    return;
                }
            }
            leaf = node.next;
        }
    }

    /// Fills a scan's batch.
    pub(super) fn fill(&self, scan: &mut IndexScan) {
        let direction = scan.direction();
        let (low, high) = scan.range();
        let position = scan.position();
        let start = match (direction, position) {
            (Direction::Forward, Some((key, record))) => {
                self.seek(&Probe::new(key, record.0), true)
            }
            (Direction::Forward, None) => self.seek(&Probe::new(low, 0), false),
            (Direction::Backward, Some((key, record))) => {
                self.seek(&Probe::new(key, record.0), false)
            }
            (Direction::Backward, None) if high.is_empty() => {
                let leaf = self.last_leaf();
                Place { leaf, at: self.node(leaf).count() }
            }
            (Direction::Backward, None) => self.seek(&Probe::new(high, 0), false),
        };
        let bound = match direction {
            Direction::Forward => high.to_vec(),
            Direction::Backward => low.to_vec(),
        };
        scan.refill(|batch, _| match direction {
            Direction::Forward => self.forward(start, &bound, batch),
            Direction::Backward => self.backward(start, &bound, batch),
        });
    }

    /// Puts the entries from a place on into the batch, while their keys are below `high` (if it is
    /// not empty) and there is room.
    fn forward(&self, start: Place, high: &[u8], batch: &mut IndexBatch<'_>) {
        let Place { mut leaf, mut at } = start;
        let (mut buffer, mut last) = (Vec::new(), Vec::new());
        while leaf != NONE {
            let node = self.node(leaf);
            let whole = high.is_empty()
                || node.count() == 0
                || node.key(node.count() - 1, &self.overflow, &mut last) < high;
            while at < node.count() {
                let key = node.key(at, &self.overflow, &mut buffer);
                if !whole && key >= high {
                    return;
                }
                let entry = node.entry(at, &self.overflow);
                if !batch.push(key, entry.payload, RecordId(entry.record)) {
                    return;
                }
                at += 1;
            }
            (leaf, at) = (node.next, 0);
        }
    }

    /// Puts the entries before a place into the batch, last one first, while their keys are not
    /// below `low` and there is room.
    fn backward(&self, start: Place, low: &[u8], batch: &mut IndexBatch<'_>) {
        let Place { mut leaf, mut at } = start;
        let (mut buffer, mut first) = (Vec::new(), Vec::new());
        loop {
            let node = self.node(leaf);
            let whole = node.count() == 0 || node.key(0, &self.overflow, &mut first) >= low;
            while at > 0 {
                at -= 1;
                let key = node.key(at, &self.overflow, &mut buffer);
                if !whole && key < low {
                    return;
                }
                let entry = node.entry(at, &self.overflow);
                if !batch.push(key, entry.payload, RecordId(entry.record)) {
                    return;
                }
            }
            leaf = node.prev;
            if leaf == NONE {
                return;
            }
            at = self.node(leaf).count();
        }
    }
}
