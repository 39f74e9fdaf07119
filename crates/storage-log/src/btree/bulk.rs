//! Builds a tree from sorted entries: fills pages one after the other, level by level.

use super::items::{Items, is_long};
use super::node::{Layout, Node, PAGE, PREFIX_MAX, common_prefix, head_len};
use super::tree::{Tree, page_for, separator};

/// Fill degree of pages, which leaves a little space for later inserts.
const FILL: usize = PAGE - PAGE / 16;

/// Takes entries, in order for it to be fast.
pub(super) struct Bulk {
    tree: Tree,
    leaves: Level,
    last: Option<(Vec<u8>, u64)>,
    /// Entries that came out of order.
    late: Vec<(Vec<u8>, u64, Vec<u8>)>,
}

/// A level that is being filled from left to right.
struct Level {
    leaf: bool,
    items: Items,
    /// Length of the prefix, and bytes of the cells with it.
    prefix_len: usize,
    cells: usize,
    /// The nodes that are full: their lower bounds and numbers.
    done: Vec<(Vec<u8>, u64, u32)>,
    /// The last key of the last full node.
    last_key: Vec<u8>,
}

impl Bulk {
    pub(super) fn new() -> Self {
        Bulk { tree: Tree::default(), leaves: Level::new(true), last: None, late: Vec::new() }
    }

    pub(super) fn push(&mut self, key: &[u8], record: u64, payload: &[u8]) {
        let (last_key, last_record) = self.last.get_or_insert_default();
        if self.tree.len > 0 && (last_key.as_slice(), *last_record) >= (key, record) {
            self.late.push((key.to_vec(), record, payload.to_vec()));
            return;
        }
        last_key.clear();
        last_key.extend_from_slice(key);
        *last_record = record;
        self.leaves.push(&mut self.tree, key, record, payload);
        self.tree.len += 1;
    }

    pub(super) fn finish(mut self) -> Tree {
        if self.tree.len > 0 {
            let mut level = self.leaves;
            loop {
                level.close(&mut self.tree);
                if let [(_, _, root)] = level.done[..] {
                    self.tree.set_root(root);
                    break;
                }
                let mut above = Level::new(false);
                for (bound, record, child) in &level.done {
                    above.push(&mut self.tree, bound, *record, &child.to_le_bytes());
                }
                level = above;
            }
        }
        for (key, record, payload) in self.late {
            self.tree.insert(&key, record, &payload);
        }
        self.tree
    }
}

impl Level {
    fn new(leaf: bool) -> Self {
        Level {
            leaf,
            items: Items::default(),
            prefix_len: 0,
            cells: 0,
            done: Vec::new(),
            last_key: Vec::new(),
        }
    }

    fn push(&mut self, tree: &mut Tree, key: &[u8], record: u64, payload: &[u8]) {
        let (keyed, head_len) = (usize::from(!self.leaf), head_len(self.leaf));
        let count = self.items.len();
        let prefix_len = match count.saturating_sub(keyed) {
            0 => 0,
            _ => common_prefix(self.items.key(keyed, &tree.overflow), key).min(PREFIX_MAX),
        };
        // The first of an inner node has no key.
        let key_here = if count < keyed { &[][..] } else { key };
        let place = is_long(key_here, payload).then(|| tree.overflow.add(key_here, payload));
        let record_here = if count < keyed { 0 } else { record };
        self.items.push(key_here, record_here, payload, place);
        if prefix_len == self.prefix_len {
            self.cells += self.items.cell_len(count, prefix_len, head_len);
        } else {
            self.prefix_len = prefix_len;
            self.cells = (0..=count).map(|i| self.items.cell_len(i, prefix_len, head_len)).sum();
        }
        let bytes = Layout::bytes(self.leaf, prefix_len, count + 1, self.cells);
        if count == 0 {
            let (bound, bound_record) = match self.leaf {
                true => separator(&self.last_key, (key, record)),
                false => (key, record),
            };
            self.done.push((bound.to_vec(), bound_record, 0));
        } else if bytes > FILL {
            self.items.pop();
            if let Some(place) = place {
                tree.overflow.remove(place);
            }
            self.close(tree);
            self.push(tree, key, record, payload);
        }
    }

    /// Makes a node of the entries that have been gathered.
    fn close(&mut self, tree: &mut Tree) {
        let count = self.items.len();
        let layout = Layout::of(&self.items, 0..count, self.leaf, &tree.overflow);
        let page = if self.done.len() == 1 { page_for(layout.bytes) } else { PAGE };
        let node = Node::build(&self.items, 0..count, self.leaf, layout, page, &tree.overflow);
        let id = tree.add_node(node);
        if self.leaf {
            self.last_key.clear();
            self.last_key.extend_from_slice(self.items.key(count - 1, &tree.overflow));
            if let [.., (_, _, before), _] = self.done[..] {
                tree.link_after(before, id);
            }
        }
        if let Some(done) = self.done.last_mut() {
            done.2 = id;
        }
        self.items.clear();
        (self.prefix_len, self.cells) = (0, 0);
    }
}
