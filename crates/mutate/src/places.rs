//! Finds the children of a tree's node: compares names, and records which children have met their field.

/// Places below some count, without an allocation for the first 64.
pub(crate) struct PlaceSet {
    few: u64,
    many: Vec<bool>,
}

impl PlaceSet {
    /// The empty set of places below `count`.
    #[inline]
    pub(crate) fn new(count: usize) -> PlaceSet {
        PlaceSet { few: 0, many: if count > 64 { vec![false; count] } else { Vec::new() } }
    }

    /// Adds a place; false if it was there.
    #[inline]
    pub(crate) fn insert(&mut self, place: usize) -> bool {
        match self.many.get_mut(place) {
            Some(seen) => !std::mem::replace(seen, true),
            None => {
                let bit = 1u64 << (place & 63);
                let new = self.few & bit == 0;
                self.few |= bit;
                new
            }
        }
    }

    #[inline]
    pub(crate) fn contains(&self, place: usize) -> bool {
        self.many.get(place).copied().unwrap_or(self.few & (1 << (place & 63)) != 0)
    }
}

/// Whether two names are the same. Names of one document often share their length and their
/// beginning (`field0`, `field1`), so the last byte is looked at first.
#[inline]
pub(crate) fn same_name(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.last() == b.last() && a == b
}

#[cfg(test)]
mod tests {
    use super::{PlaceSet, same_name};

    #[test]
    fn names() {
        assert!(same_name(b"", b"") && same_name(b"ab", b"ab"));
        assert!(!same_name(b"ab", b"cb") && !same_name(b"ab", b"b") && !same_name(b"a", b"b"));
    }

    #[test]
    fn few_and_many() {
        for count in [1, 64, 65, 1000] {
            let mut set = PlaceSet::new(count);
            for place in (0..count).step_by(3) {
                assert!(set.insert(place));
                assert!(!set.insert(place));
            }
            for place in 0..count {
                assert_eq!(set.contains(place), place % 3 == 0, "{place} of {count}");
            }
        }
    }
}
