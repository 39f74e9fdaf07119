//! The part of an index that a query reads: intervals per field, and their byte ranges.

use kauri_bson::DocWriter;
use kauri_storage::Direction;

/// A range of index keys in bytes: `low <= key < high`; an empty `high` means no upper bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// First key that belongs to it.
    pub low: Vec<u8>,
    /// First key behind it.
    pub high: Vec<u8>,
}

/// The bounds of an index scan.
#[derive(Clone, Debug, Default)]
pub struct IndexBounds {
    /// For `explain`: each field's path with its intervals, ascending in the index's direction.
    pub fields: Vec<(String, Vec<String>)>,
    /// The ranges that the scan reads, ascending and disjoint.
    pub ranges: Vec<KeyRange>,
}

impl IndexBounds {
    /// Writes `indexBounds` as `explain` shows them for a scan in this direction.
    pub fn write(&self, out: &mut DocWriter<'_>, direction: Direction) {
        let mut bounds = out.document("indexBounds");
        for (path, intervals) in &self.fields {
            let mut list = bounds.array(path);
            match direction {
                Direction::Forward => intervals.iter().for_each(|i| list.push(i)),
                Direction::Backward => {
                    intervals.iter().rev().for_each(|i| list.push(reversed(i)));
                }
            }
        }
    }
}

/// `[1.0, 5.0)` read from the other end: `(5.0, 1.0]`.
pub(super) fn reversed(interval: &str) -> String {
    let swap = |c: Option<char>| match c {
        Some(']') => '[',
        Some(')') => '(',
        Some('[') => ']',
        _ => ')',
    };
    let (first, last) = (interval.chars().next(), interval.chars().next_back());
    let inner = interval.get(1..interval.len().saturating_sub(1)).unwrap_or_default();
    match inner.split_once(", ") {
        Some((low, high)) => format!("{}{high}, {low}{}", swap(last), swap(first)),
        None => interval.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_turn_round() {
        assert_eq!(reversed("[1.0, 5.0)"), "(5.0, 1.0]");
        assert_eq!(reversed("[MinKey, MaxKey]"), "[MaxKey, MinKey]");
    }
}
