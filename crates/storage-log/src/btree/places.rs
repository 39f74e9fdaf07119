//! The leaf in which a record's entry was last found, for records that are predicted from their keys
//! ([`super::course`]). A lookup of a nearby record tries that leaf first and saves the descent.
//!
//! These are hints. The content of the leaf decides, and it is read under the tree's lock; the leaf may have been
//! split, freed or reused. A group of records shares one hint. Only some lookups update it, so that data that all
//! threads read is written rarely. A group whose entries are in different leaves has no hint and is tried again
//! from time to time.

use kauri_base::sync::OnceLock;
use kauri_base::sync::atomic::{AtomicU32, Ordering};

/// Records of a group: a leaf has those of some.
const GROUP: u64 = 32;
/// One record in this many updates the table.
const TEACHES_EACH: u64 = 4;
/// Words for each node of the tree, at least, when the table is made. A full leaf of the shortest keys has
/// twelve groups.
const WORDS_PER_NODE: usize = 16;
/// With fewer words per node the table is replaced by a larger one.
const WORDS_PER_NODE_MIN: usize = 12;
/// Words at most: 16 MB, for 128 Mi records at a time.
const WORDS_MAX: usize = 1 << 22;
/// In a tree of fewer nodes a descent is as fast.
const NODES_MIN: usize = 4;
/// Bits of a word for a node's number plus one. The bits above distinguish groups that share the word. Nodes beyond
/// (16 GB of pages) are not recorded.
const NODE_BITS: u32 = 22;
const NODE_MASK: u32 = (1 << NODE_BITS) - 1;
/// Instead of a node's number and one: nothing is known.
const UNKNOWN: u32 = 0;
/// The group's entries lie apart.
const APART: u32 = NODE_MASK;

/// See the module's head.
#[derive(Default)]
pub(super) struct Places {
    /// A power of two of words.
    table: OnceLock<Box<[AtomicU32]>>,
}

impl Places {
    /// The node in which to look for this record's entry first.
    #[inline]
    pub(super) fn look_up(&self, record: u64) -> Option<u32> {
        let (word, tag) = place_of(self.table.get()?, record);
        let seen = word.load(Ordering::Relaxed);
        match seen & NODE_MASK {
            UNKNOWN | APART => None,
            node => (seen & !NODE_MASK == tag).then_some(node - 1),
        }
    }

    /// Records that this record's entry was found in this leaf of a tree of `nodes` nodes. `is_near` returns
    /// whether another node is a neighbour of the leaf.
    #[inline]
    pub(super) fn learn(
        &self,
        record: u64,
        leaf: u32,
        nodes: usize,
        is_near: impl FnOnce(u32) -> bool,
    ) {
        if !record.is_multiple_of(TEACHES_EACH) || nodes < NODES_MIN || leaf + 1 >= APART {
            return;
        }
        let words = words_for(nodes, WORDS_PER_NODE).next_power_of_two();
        let table = self.table.get_or_init(|| (0..words).map(|_| AtomicU32::new(0)).collect());
        let (word, tag) = place_of(table, record);
        let (seen, here) = (word.load(Ordering::Relaxed), leaf + 1);
        let place = match seen & NODE_MASK {
            UNKNOWN => here,
            _ if seen & !NODE_MASK != tag => here,
            APART if !record.is_multiple_of(GROUP) => APART,
            APART => here,
            other if other == here || is_near(other - 1) => here,
            _ => APART,
        };
        if seen != tag | place {
            word.store(tag | place, Ordering::Relaxed);
        }
    }

    /// The tree has this many nodes now: clears the table if that is too many.
    pub(super) fn fit(&mut self, nodes: usize) {
        if self.words().is_some_and(|words| words < words_for(nodes, WORDS_PER_NODE_MIN)) {
            self.table.take();
        }
    }

    fn words(&self) -> Option<usize> {
        self.table.get().map(|table| table.len())
    }

    /// Bytes of memory.
    pub(super) fn bytes(&self) -> usize {
        self.words().unwrap_or(0) * size_of::<AtomicU32>()
    }
}

fn words_for(nodes: usize, per_node: usize) -> usize {
    nodes.saturating_mul(per_node).min(WORDS_MAX)
}

/// The word of a record's group, and the bits above the node's number if the word belongs to this group.
#[inline]
fn place_of(table: &[AtomicU32], record: u64) -> (&AtomicU32, u32) {
    let (group, mask) = (record / GROUP, table.len() as u64 - 1);
    (&table[(group & mask) as usize], ((group >> mask.count_ones()) as u32) << NODE_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Places {
        fn learned(&self, record: u64, leaf: u32, nodes: usize) {
            self.learn(record, leaf, nodes, |_| false);
        }
    }

    #[test]
    fn groups_that_share_a_word_are_told_from_each_other() {
        let places = Places::default();
        assert_eq!(places.look_up(0), None);
        places.learned(8, 3, NODES_MIN - 1);
        assert_eq!(places.look_up(8), None, "too small a tree");
        places.learned(9, 3, 10);
        assert_eq!(places.look_up(9), None, "one that does not teach");
        places.learned(40, 3, 10);
        let words = places.words().expect("a table") as u64;
        assert_eq!((words, places.bytes()), (256, 1024));
        assert_eq!((places.look_up(33), places.look_up(63)), (Some(3), Some(3)));
        assert_eq!(places.look_up(0), None, "not taught yet");
        for round in 1..1024 {
            let record = 40 + round * words * GROUP;
            assert_eq!(places.look_up(record), None);
            places.learned(record, APART - 2, 10);
            assert_eq!((places.look_up(record), places.look_up(40)), (Some(APART - 2), None));
            places.learned(40, 3, 10);
        }
        places.learned(72, APART - 1, 10);
        places.learned(72, NODE_MASK + 3, 10);
        assert_eq!(places.look_up(72), None, "no such nodes can be told of");
    }

    #[test]
    fn groups_that_lie_apart_have_no_place() {
        let places = Places::default();
        let (near, far) = (|node: u32| node == 3, |_: u32| false);
        places.learn(36, 3, 10, far);
        places.learn(40, 4, 10, near);
        assert_eq!(places.look_up(36), Some(4), "the leaf beside it");
        places.learn(44, 9, 10, near);
        assert_eq!(places.look_up(36), None);
        places.learn(48, 9, 10, near);
        assert_eq!(places.look_up(36), None, "still");
        // The group's first record tries again.
        places.learn(32, 3, 10, far);
        assert_eq!(places.look_up(36), Some(3));
        places.learn(40, 3, 10, far);
        assert_eq!(places.look_up(36), Some(3));
        places.learn(40, 9, 10, far);
        assert_eq!(places.look_up(36), None);
    }

    #[test]
    fn a_tree_that_has_grown_gets_a_larger_table() {
        let mut places = Places::default();
        places.learned(4, 1, 16);
        places.fit(21);
        assert_eq!(places.look_up(4), Some(1));
        places.fit(22);
        assert_eq!((places.look_up(4), places.bytes()), (None, 0));
        places.learned(4, 2, 22);
        assert_eq!((places.look_up(4), places.words()), (Some(2), Some(512)));
    }

    #[test]
    fn a_table_has_a_largest_size() {
        let mut places = Places::default();
        places.learned(4, 1, 1 << 30);
        assert_eq!(places.bytes(), 16 << 20);
        places.fit(usize::MAX);
        assert_eq!(places.look_up(4), Some(1));
    }
}
