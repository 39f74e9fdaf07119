//! In which leaf a record's entry was found last, for records that are guessed from their keys
//! ([`super::course`]): whoever asks for one of their neighbours looks there first, and needs no descent.
//!
//! Hints only. What a leaf says of a key counts, and it is asked under the tree's lock; so a leaf may have been
//! split since, given up, or become another node. A group of records has one place; a few of each teach it,
//! so that what is read by all is written seldom, also where two leaves share a group.

use kauri_base::sync::OnceLock;
use kauri_base::sync::atomic::{AtomicU32, Ordering};

/// Records of a group: a leaf has those of some.
const GROUP: u64 = 32;
/// One record of so many teaches.
const TEACHES_EACH: u64 = 4;
/// Words for each node of the tree, at least, when the table is made. A full leaf of the shortest keys has
/// twelve groups.
const WORDS_PER_NODE: usize = 16;
/// With fewer the table is given up for a larger one.
const WORDS_PER_NODE_MIN: usize = 12;
/// In a tree of fewer nodes a descent is as fast.
const NODES_MIN: usize = 4;
/// Bits of a node's number in a word; those above tell groups from each other that share it. Nodes beyond
/// (16 GB of pages) are no places.
const NODE_BITS: u32 = 22;

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
        let word = word.load(Ordering::Relaxed);
        (word & !NODE_MASK == tag).then_some(word & NODE_MASK)
    }

    /// This record's entry was found in this leaf of a tree of so many nodes.
    #[inline]
    pub(super) fn learn(&self, record: u64, leaf: u32, nodes: usize) {
        if record.is_multiple_of(TEACHES_EACH) && nodes >= NODES_MIN && leaf <= NODE_MASK {
            let words = nodes.saturating_mul(WORDS_PER_NODE).next_power_of_two();
            let table = self.table.get_or_init(|| (0..words).map(|_| AtomicU32::new(0)).collect());
            let (word, tag) = place_of(table, record);
            word.store(tag | leaf, Ordering::Relaxed);
        }
    }

    /// The tree has so many nodes now: forgets all if that is too many.
    pub(super) fn fit(&mut self, nodes: usize) {
        if self.words().is_some_and(|words| words < nodes.saturating_mul(WORDS_PER_NODE_MIN)) {
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

const NODE_MASK: u32 = (1 << NODE_BITS) - 1;

/// The word of a record's group, and what is above a node's number there if it is this group's.
#[inline]
fn place_of(table: &[AtomicU32], record: u64) -> (&AtomicU32, u32) {
    let (group, mask) = (record / GROUP, table.len() as u64 - 1);
    (&table[(group & mask) as usize], ((group >> mask.count_ones()) as u32) << NODE_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_share_a_word_are_told_from_each_other() {
        let places = Places::default();
        assert_eq!(places.look_up(0), None);
        places.learn(8, 3, NODES_MIN - 1);
        assert_eq!(places.look_up(8), None, "too small a tree");
        places.learn(9, 3, 10);
        assert_eq!(places.look_up(9), None, "one that does not teach");
        places.learn(40, 3, 10);
        let words = places.words().expect("a table") as u64;
        assert_eq!((words, places.bytes()), (256, 1024));
        assert_eq!((places.look_up(33), places.look_up(63)), (Some(3), Some(3)));
        for round in 1..1024 {
            let record = 40 + round * words * GROUP;
            assert_eq!(places.look_up(record), None);
            places.learn(record, NODE_MASK - 1, 10);
            assert_eq!((places.look_up(record), places.look_up(40)), (Some(NODE_MASK - 1), None));
            places.learn(40, 3, 10);
        }
        places.learn(40, NODE_MASK + 1, 10);
        assert_eq!(places.look_up(40), Some(3), "no such node can be told of");
    }

    #[test]
    fn a_tree_that_has_grown_gets_a_larger_table() {
        let mut places = Places::default();
        places.learn(4, 1, 16);
        places.fit(21);
        assert_eq!(places.look_up(4), Some(1));
        places.fit(22);
        assert_eq!((places.look_up(4), places.bytes()), (None, 0));
        places.learn(4, 2, 22);
        assert_eq!((places.look_up(4), places.words()), (Some(2), Some(512)));
    }
}
