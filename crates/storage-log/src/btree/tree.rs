//! The tree of nodes: descent, insertion, splits, removal, merges.
//!
//! Invariants:
//! - All leaves have the same depth and are linked in order. An entry is in the leaf to which a descent by its key
//!   and record leads.
//! - Entry `i > 0` of an inner node is a lower bound of child `i` and above everything in child `i - 1`. It may be
//!   shorter than any key.
//! - No node is empty, except a root that is a leaf.

use super::cell::Cell;
use super::items::{Items, is_long};
use super::node::{Layout, NONE, Node, PAGE, PAGE_MIN, PREFIX_MAX, Probe, common_prefix, head_len};
use super::overflow::Overflow;
use super::places::Places;

/// A page is not packed again for a gain below this: it is split, or left alone.
const GAIN_MIN: usize = PAGE / 16;
/// A node that uses less looks for a neighbour to merge with.
const SPARSE: usize = PAGE / 4;
/// Nodes are merged if they use at most this much together.
const MERGED_MAX: usize = PAGE * 3 / 4;

pub(super) struct Tree {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
    /// The last leaf, if the last entry that was added came behind all others: then the next one may,
    /// too, and needs no descent. [`NONE`] else.
    tail: u32,
    /// The first bytes of the key that was last added at the end, or 0.
    tail_start: u128,
    pub(super) len: u64,
    /// Bytes of all pages.
    pages: usize,
    pub(super) overflow: Overflow,
    pub(super) places: Places,
    items: Items,
    path: Vec<Step>,
}

/// A step of a descent: an inner node, and which of its children was taken.
#[derive(Clone, Copy)]
struct Step {
    node: u32,
    child: usize,
}

/// An entry on its way into a node. `place` if it is in the overflow store.
#[derive(Clone, Copy)]
struct NewEntry<'e> {
    key: &'e [u8],
    record: u64,
    payload: &'e [u8],
    place: Option<u32>,
}

/// Bytes of the smallest page that has some room besides these bytes.
pub(super) fn page_for(bytes: usize) -> usize {
    (bytes + bytes / 4).next_power_of_two().clamp(PAGE_MIN, PAGE)
}

/// The shortest lower bound of `right` that is above `left`.
pub(super) fn separator<'k>(left: &[u8], right: (&'k [u8], u64)) -> (&'k [u8], u64) {
    let common = common_prefix(left, right.0);
    match right.0.get(..=common) {
        Some(bound) => (bound, 0),
        None => right,
    }
}

impl Default for Tree {
    fn default() -> Self {
        let mut tree = Tree {
            nodes: Vec::new(),
            free: Vec::new(),
            root: 0,
            tail: NONE,
            tail_start: 0,
            len: 0,
            pages: 0,
            overflow: Overflow::default(),
            places: Places::default(),
            items: Items::default(),
            path: Vec::new(),
        };
        tree.root = tree.add_node(Node::empty_leaf());
        tree
    }
}

impl Tree {
    /// Bytes of memory, the allocator's own for each page included.
    pub(super) fn bytes(&self) -> usize {
        const ALLOCATION: usize = 16;
        self.pages
            + self.nodes.capacity() * size_of::<Node>()
            + (self.nodes.len() - self.free.len()) * ALLOCATION
            + self.free.capacity() * size_of::<u32>()
            + self.overflow.bytes()
            + self.places.bytes()
    }

    /// Number of nodes, including freed ones.
    #[inline]
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// As [`Tree::node`], for a number that may be of a tree that was.
    #[inline]
    pub(super) fn node_if_any(&self, id: u32) -> Option<&Node> {
        self.nodes.get(id as usize)
    }

    #[inline]
    pub(super) fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    pub(super) fn add_node(&mut self, node: Node) -> u32 {
        self.pages += node.page_len();
        match self.free.pop() {
            Some(id) => {
                self.nodes[id as usize] = node;
                id
            }
            None => {
                self.nodes.push(node);
                self.places.fit(self.nodes.len());
                (self.nodes.len() - 1) as u32
            }
        }
    }

    fn free_node(&mut self, id: u32) {
        self.pages -= self.node(id).page_len();
        self.nodes[id as usize] = Node::freed();
        self.free.push(id);
    }

    /// Puts another node in place of one, between the same neighbours.
    fn replace_node(&mut self, id: u32, mut node: Node) {
        let old = self.node(id);
        (node.prev, node.next) = (old.prev, old.next);
        self.pages = self.pages - old.page_len() + node.page_len();
        self.nodes[id as usize] = node;
    }

    /// Makes `right` the leaf behind `left`.
    pub(super) fn link_after(&mut self, left: u32, right: u32) {
        let next = std::mem::replace(&mut self.nodes[left as usize].next, right);
        let node = &mut self.nodes[right as usize];
        (node.prev, node.next) = (left, next);
        if next != NONE {
            self.nodes[next as usize].prev = right;
        }
    }

    fn unlink(&mut self, id: u32) {
        let (prev, next) = (self.node(id).prev, self.node(id).next);
        if prev != NONE {
            self.nodes[prev as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].prev = prev;
        }
    }

    pub(super) fn set_root(&mut self, id: u32) {
        let old = std::mem::replace(&mut self.root, id);
        self.free_node(old);
    }

    /// The leaf that this entry belongs to.
    #[inline]
    pub(super) fn leaf_for(&self, probe: &Probe<'_>) -> u32 {
        let mut id = self.root;
        loop {
            let node = self.node(id);
            if node.is_leaf() {
                return id;
            }
            id = node.child(self.child_for(node, probe), &self.overflow);
        }
    }

    /// The last leaf.
    pub(super) fn last_leaf(&self) -> u32 {
        let mut id = self.root;
        while !self.node(id).is_leaf() {
            let node = self.node(id);
            id = node.child(node.count() - 1, &self.overflow);
        }
        id
    }

    #[inline]
    fn child_for(&self, node: &Node, probe: &Probe<'_>) -> usize {
        match node.search(probe, &self.overflow) {
            Ok(i) => i,
            Err(i) => i - 1,
        }
    }

    /// The leaf that this entry belongs to; the way there goes into `path`.
    fn descend(&self, probe: &Probe<'_>, path: &mut Vec<Step>) -> u32 {
        path.clear();
        let mut id = self.root;
        loop {
            let node = self.node(id);
            if node.is_leaf() {
                return id;
            }
            let child = self.child_for(node, probe);
            path.push(Step { node: id, child });
            id = node.child(child, &self.overflow);
        }
    }

    /// Whether this entry is known to come behind all that there are.
    #[inline]
    pub(super) fn is_behind_all(&self, probe: &Probe<'_>) -> bool {
        if probe.start < self.tail_start {
            return false;
        }
        // A node that was freed since has no entries; a leaf that has some and no neighbour behind it is
        // the last one, whatever has become of the tree.
        let tail = self.nodes.get(self.tail as usize);
        tail.is_some_and(|leaf| {
            leaf.is_leaf() && leaf.next == NONE && leaf.is_behind(probe, &self.overflow)
        })
    }

    /// Adds an entry behind all others, if the last leaf is known and has room.
    fn push_behind(&mut self, probe: &Probe<'_>, payload: &[u8]) -> bool {
        if !self.is_behind_all(probe) || is_long(probe.key, payload) {
            return false;
        }
        let leaf = &mut self.nodes[self.tail as usize];
        let done = leaf.insert(leaf.count(), probe.key, probe.record, payload, None);
        if done {
            self.tail_start = probe.start;
        }
        self.len += u64::from(done);
        done
    }

    /// Adds an entry, or gives the one that is there this payload.
    pub(super) fn insert(&mut self, key: &[u8], record: u64, payload: &[u8]) {
        let probe = Probe::new(key, record);
        if self.push_behind(&probe, payload) {
            return;
        }
        let mut path = std::mem::take(&mut self.path);
        let leaf = self.descend(&probe, &mut path);
        let node = self.node(leaf);
        let found = node.search(&probe, &self.overflow);
        let last = found == Err(node.count()) && node.next == NONE;
        (self.tail, self.tail_start) = if last { (leaf, probe.start) } else { (NONE, 0) };
        let at = match found {
            Err(at) => at,
            Ok(at) if self.node(leaf).entry(at, &self.overflow).payload == payload => {
                self.path = path;
                return;
            }
            Ok(at) => {
                self.remove_entry(leaf, at);
                self.len -= 1;
                at
            }
        };
        let place = is_long(key, payload).then(|| self.overflow.add(key, payload));
        self.insert_at(&path, leaf, at, NewEntry { key, record, payload, place });
        self.len += 1;
        self.path = path;
    }

    /// Puts an entry into a node; `path` leads to the node.
    fn insert_at(&mut self, path: &[Step], id: u32, at: usize, new: NewEntry<'_>) {
        let NewEntry { key, record, payload, place } = new;
        if self.nodes[id as usize].insert(at, key, record, payload, place) {
            return;
        }
        if self.is_at_end(path, id, at) && self.packed(id, key) > PAGE - GAIN_MIN {
            return self.append(path, id, new);
        }
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        let node = self.node(id);
        let (leaf, page) = (node.is_leaf(), node.page_len());
        items.push_node(node, &self.overflow);
        items.insert(at, key, record, payload, place);
        let all = 0..items.len();
        let layout = Layout::of(&items, all.clone(), leaf, &self.overflow);
        if layout.bytes <= PAGE - GAIN_MIN || (page < PAGE && layout.bytes <= PAGE) {
            let page = page_for(layout.bytes);
            let node = Node::build(&items, all, leaf, layout, page, &self.overflow);
            self.replace_node(id, node);
            self.items = items;
            return;
        }
        let point = self.split_point(path, id, at, &items, layout.bytes);
        self.split(path, id, items, point);
    }

    /// Whether entry `at` would be the last one of all.
    fn is_at_end(&self, path: &[Step], id: u32, at: usize) -> bool {
        let last = |step: &Step| step.child + 1 == self.node(step.node).count();
        at == self.node(id).count() && path.iter().all(last)
    }

    /// Approximate bytes of a node after packing it with this key at its end.
    fn packed(&self, id: u32, new_key: &[u8]) -> usize {
        let node = self.node(id);
        let first = usize::from(!node.is_leaf());
        if node.page_len() < PAGE || node.count() <= first {
            return 0;
        }
        let mut buffer = Vec::new();
        let first_key = node.key(first, &self.overflow, &mut buffer);
        let prefix_len = common_prefix(first_key, new_key).min(PREFIX_MAX);
        let keyed = node.count() - first;
        let bytes = node.used() + node.prefix().len() * keyed + new_key.len();
        bytes.saturating_sub(prefix_len * (keyed + 1))
    }

    /// Puts the last entry of all into a new node: earlier nodes stay full.
    fn append(&mut self, path: &[Step], id: u32, new: NewEntry<'_>) {
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        items.push(new.key, new.record, new.payload, new.place);
        let node = self.node(id);
        let leaf = node.is_leaf();
        let mut buffer = Vec::new();
        let (bound, record) = match leaf {
            true => {
                let last = node.key(node.count() - 1, &self.overflow, &mut buffer);
                separator(last, (new.key, new.record))
            }
            false => (new.key, new.record),
        };
        if !leaf {
            items.drop_key(0, &mut self.overflow);
        }
        let layout = Layout::of(&items, 0..1, leaf, &self.overflow);
        let right = Node::build(&items, 0..1, leaf, layout, PAGE, &self.overflow);
        self.items = items;
        self.insert_right(path, id, right, bound, record);
    }

    /// Which entry becomes the first of the right half.
    fn split_point(&self, path: &[Step], id: u32, at: usize, items: &Items, bytes: usize) -> usize {
        let (count, leaf) = (items.len(), self.node(id).is_leaf());
        // What fitted a page need not fit one when it is packed anew: another prefix may be taken out.
        let fits = |i: &usize| {
            [0..*i, *i..count]
                .into_iter()
                .all(|half| Layout::of(items, half, leaf, &self.overflow).bytes <= PAGE)
        };
        // Entries that come in order leave full pages behind.
        if self.is_at_end(path, id, at) && fits(&(count - 1)) {
            return count - 1;
        }
        if at == 0 && leaf && path.iter().all(|step| step.child == 0) && fits(&1) {
            return 1;
        }
        let mut sum = 0;
        let middle = (0..count).position(|i| {
            sum += items.cell_len(i, 0, head_len(leaf));
            sum >= bytes / 2
        });
        let middle = middle.unwrap_or(count / 2).clamp(1, count - 1);
        // About the middle, where the bound between the halves is shortest.
        let window = count / 16;
        let near = middle.saturating_sub(window).max(1)..=(middle + window).min(count - 1);
        let bound_len = |i: usize| match leaf {
            true => common_prefix(items.key(i - 1, &self.overflow), items.key(i, &self.overflow)),
            false => items.key(i, &self.overflow).len(),
        };
        let best = near.min_by_key(|i| (bound_len(*i), i.abs_diff(middle))).unwrap_or(middle);
        if fits(&best) {
            return best;
        }
        // A key that shares nothing with the others may have to stay by itself.
        (1..count).filter(fits).min_by_key(|i| i.abs_diff(middle)).unwrap_or(middle)
    }

    fn split(&mut self, path: &[Step], id: u32, mut items: Items, point: usize) {
        let leaf = self.node(id).is_leaf();
        let right_first = (items.key(point, &self.overflow), items.record(point));
        let (bound, bound_record) = match leaf {
            true => separator(items.key(point - 1, &self.overflow), right_first),
            false => right_first,
        };
        let bound = bound.to_vec();
        if !leaf {
            items.drop_key(point, &mut self.overflow);
        }
        let [left, right] = [0..point, point..items.len()].map(|half| {
            let layout = Layout::of(&items, half.clone(), leaf, &self.overflow);
            Node::build(&items, half, leaf, layout, PAGE, &self.overflow)
        });
        self.items = items;
        self.replace_node(id, left);
        self.insert_right(path, id, right, &bound, bound_record);
    }

    /// Puts a new node, with its lower bound, to the right of one.
    fn insert_right(&mut self, path: &[Step], id: u32, right: Node, bound: &[u8], record: u64) {
        let leaf = right.is_leaf();
        let right = self.add_node(right);
        if leaf {
            self.link_after(id, right);
            self.tail = if self.tail == id { right } else { self.tail };
        }
        let child = right.to_le_bytes();
        let place = is_long(bound, &child).then(|| self.overflow.add(bound, &child));
        let new = NewEntry { key: bound, record, payload: &child, place };
        match path.split_last() {
            Some((step, above)) => self.insert_at(above, step.node, step.child + 1, new),
            None => self.grow_root(new),
        }
    }

    /// Puts an inner node above the root and its new right neighbour.
    fn grow_root(&mut self, right: NewEntry<'_>) {
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        items.push(&[], 0, &self.root.to_le_bytes(), None);
        items.push(right.key, right.record, right.payload, right.place);
        let layout = Layout::of(&items, 0..2, false, &self.overflow);
        let page = page_for(layout.bytes);
        let root = Node::build(&items, 0..2, false, layout, page, &self.overflow);
        self.items = items;
        self.root = self.add_node(root);
    }

    /// Removes an entry from a node, and from the overflow store.
    fn remove_entry(&mut self, id: u32, at: usize) {
        if let Cell::Overflow { place, .. } = self.node(id).cell(at) {
            self.overflow.remove(place);
        }
        self.nodes[id as usize].remove(at);
    }

    /// Removes an entry. False if it is not there.
    pub(super) fn remove(&mut self, key: &[u8], record: u64) -> bool {
        let mut path = std::mem::take(&mut self.path);
        let probe = Probe::new(key, record);
        let leaf = self.descend(&probe, &mut path);
        let found = self.node(leaf).search(&probe, &self.overflow);
        if let Ok(at) = found {
            self.remove_entry(leaf, at);
            self.len -= 1;
            self.settle(&path, leaf);
        }
        self.path = path;
        found.is_ok()
    }

    /// Frees a node that has become empty, merges one that has become sparse.
    fn settle(&mut self, path: &[Step], id: u32) {
        let node = self.node(id);
        let (leaf, count, used) = (node.is_leaf(), node.count(), node.used());
        let Some((step, above)) = path.split_last() else {
            return self.settle_root();
        };
        if count == 0 {
            if leaf {
                self.unlink(id);
            }
            self.free_node(id);
            self.remove_child(step.node, step.child);
        } else if used >= SPARSE || !self.merge(step.node, step.child) {
            return;
        }
        self.settle(above, step.node);
    }

    fn settle_root(&mut self) {
        let root = self.node(self.root);
        match (root.is_leaf(), root.count()) {
            (true, 0) => self.replace_node(self.root, Node::empty_leaf()),
            (false, 0) => {
                let leaf = self.add_node(Node::empty_leaf());
                self.set_root(leaf);
            }
            (false, 1) => {
                let child = root.child(0, &self.overflow);
                self.set_root(child);
                self.settle_root();
            }
            _ => {}
        }
    }

    /// Removes child `at` of an inner node. The range of the first one goes to the second.
    fn remove_child(&mut self, id: u32, at: usize) {
        let node = self.node(id);
        if at > 0 || node.count() == 1 {
            return self.remove_entry(id, at);
        }
        let second = node.child(1, &self.overflow);
        self.nodes[id as usize].set_first_child(second);
        self.remove_entry(id, 1);
    }

    /// Merges child `at` of an inner node with a neighbour. False if it fits into one page with no neighbour.
    fn merge(&mut self, parent: u32, at: usize) -> bool {
        let node = self.node(parent);
        let right_at = if at + 1 < node.count() { at + 1 } else { at };
        if right_at == 0 {
            return false;
        }
        let left = node.child(right_at - 1, &self.overflow);
        let right = node.child(right_at, &self.overflow);
        if self.node(left).used() + self.node(right).used() > MERGED_MAX {
            return false;
        }
        let mut items = std::mem::take(&mut self.items);
        items.clear();
        items.push_node(self.node(left), &self.overflow);
        let middle = items.len();
        items.push_node(self.node(right), &self.overflow);
        let leaf = self.node(left).is_leaf();
        if !leaf {
            let mut buffer = Vec::new();
            let bound = self.node(parent).key(right_at, &self.overflow, &mut buffer).to_vec();
            let record = self.node(parent).entry(right_at, &self.overflow).record;
            items.set_key(middle, &bound, record, &mut self.overflow);
        }
        let all = 0..items.len();
        let layout = Layout::of(&items, all.clone(), leaf, &self.overflow);
        let fits = layout.bytes <= PAGE - GAIN_MIN;
        if fits {
            let node = Node::build(&items, all, leaf, layout, PAGE, &self.overflow);
            self.replace_node(left, node);
            if leaf {
                self.unlink(right);
            }
            self.free_node(right);
            self.remove_entry(parent, right_at);
        } else if let (false, Some(place)) = (leaf, items.place(middle)) {
            self.overflow.remove(place);
        }
        self.items = items;
        fits
    }

    /// Panics unless the invariants hold. For tests.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut leaves = Vec::new();
        let mut long = 0;
        let entries = self.check_node(self.root, None, None, &mut leaves, &mut long);
        assert_eq!(entries, self.len);
        assert_eq!(long, self.overflow.count(), "something in the overflow store is lost");
        let linked: Vec<_> = std::iter::successors(Some(leaves[0].1), |id| {
            Some(self.node(*id).next).filter(|next| *next != NONE)
        })
        .collect();
        assert!(leaves.iter().map(|leaf| leaf.1).eq(linked.iter().copied()));
        assert!(leaves.iter().all(|leaf| leaf.0 == leaves[0].0), "leaves are equally deep");
        let mut prev = NONE;
        for id in linked {
            assert_eq!(std::mem::replace(&mut prev, id), self.node(id).prev);
        }
        let used: usize = self.nodes.iter().map(Node::page_len).sum();
        assert_eq!(used, self.pages);
    }

    #[cfg(test)]
    fn check_node(
        &self,
        id: u32,
        low: Option<(&[u8], u64)>,
        high: Option<(&[u8], u64)>,
        leaves: &mut Vec<(usize, u32)>,
        long: &mut usize,
    ) -> u64 {
        let node = self.node(id);
        assert!(node.count() > 0 || id == self.root);
        assert!(node.used() + node.garbage() <= node.page_len());
        let mut keys = Vec::new();
        for i in 0..node.count() {
            *long += usize::from(matches!(node.cell(i), Cell::Overflow { .. }));
            let mut buffer = Vec::new();
            let key = node.key(i, &self.overflow, &mut buffer).to_vec();
            keys.push((key, node.entry(i, &self.overflow).record));
        }
        let first = usize::from(!node.is_leaf());
        let keyed = &keys[first.min(keys.len())..];
        assert!(keyed.is_sorted_by(|a, b| a < b), "out of order");
        for (key, record) in keyed {
            let at = (key.as_slice(), *record);
            assert!(low.is_none_or(|low| low <= at) && high.is_none_or(|high| at < high));
        }
        if node.is_leaf() {
            leaves.push((0, id));
            return node.count() as u64;
        }
        let start = leaves.len();
        let bound = |i: usize| keys.get(i).map(|(key, record)| (key.as_slice(), *record));
        let sum = (0..node.count())
            .map(|i| {
                let low = if i == 0 { low } else { bound(i) };
                let high = bound(i + 1).or(high);
                self.check_node(node.child(i, &self.overflow), low, high, leaves, long)
            })
            .sum();
        leaves[start..].iter_mut().for_each(|leaf| leaf.0 += 1);
        sum
    }
}
