//! The tree of a projection's paths.
//!
//! Its depth is at most [`kauri_base::limits::DOCUMENT_DEPTH_MAX`] (checked by `parse_path` and by the parsers), so
//! it may be walked and dropped by recursion.

use crate::places::same_name;
use kauri_base::{Result, bail, work};
use kauri_expr::Expression;
use kauri_matcher::Predicate;
use std::collections::HashMap;

/// Beyond so many names, they are found by hash.
const LINEAR_MAX: usize = 12;

/// What becomes of the fields that a projection does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They go.
    Inclusion,
    /// They stay (exclusion, `$addFields`).
    Exclusion,
}

/// What becomes of a named field.
#[derive(Debug)]
pub(crate) enum Child {
    /// It stays.
    Keep,
    /// It goes.
    Drop,
    /// An array is cut to a range of elements.
    Slice(Slice),
    /// An array is cut to the element that the query matched.
    Positional,
    /// An array is cut to the first element that the predicate matches.
    ElemMatch(Predicate),
    /// It gets a new value.
    Computed(Expression),
    /// Fields within it are named.
    Nested(Node),
}

impl Child {
    /// Whether it makes values rather than passing them on.
    pub(crate) fn computes(&self) -> bool {
        match self {
            Child::ElemMatch(_) | Child::Computed(_) => true,
            Child::Nested(node) => node.computes,
            Child::Keep | Child::Drop | Child::Slice(_) | Child::Positional => false,
        }
    }

    /// Whether the positional `$` stands on it or below.
    pub(crate) fn is_positional(&self) -> bool {
        match self {
            Child::Positional => true,
            Child::Nested(node) => node.positional,
            _ => false,
        }
    }
}

/// The range of find's `$slice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    /// From the start, or from the end if negative. `None` for the form with a limit only.
    pub(crate) skip: Option<i64>,
    /// At most so many; negative, in the form without skip: the last so many.
    pub(crate) limit: i64,
}

impl Slice {
    /// The range of places in an array of this length.
    pub(crate) fn range(self, length: usize) -> std::ops::Range<usize> {
        let clamp = |n: u64| usize::try_from(n).unwrap_or(usize::MAX).min(length);
        let count = clamp(self.limit.unsigned_abs());
        let start = match self.skip {
            None if self.limit < 0 => length - count,
            None => 0,
            Some(skip) if skip < 0 => length - clamp(skip.unsigned_abs()),
            Some(skip) => clamp(skip.unsigned_abs()),
        };
        start..start.saturating_add(count).min(length)
    }
}

/// The named fields of one level, in the order in which the specification names them.
#[derive(Debug, Default)]
pub(crate) struct Node {
    names: Vec<Box<str>>,
    children: Vec<Child>,
    places: HashMap<Box<str>, usize>,
    /// Children that pass values on.
    passing: usize,
    /// Whether a child makes values.
    pub(crate) computes: bool,
    /// Whether the positional `$` is below.
    pub(crate) positional: bool,
}

impl Node {
    /// The place of the child of this name.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.places.is_empty() {
            return self.names.iter().position(|n| same_name(n.as_bytes(), name));
        }
        self.places.get(std::str::from_utf8(name).ok()?).copied()
    }

    pub(crate) fn child(&self, place: usize) -> Option<&Child> {
        self.children.get(place)
    }

    pub(crate) fn len(&self) -> usize {
        self.children.len()
    }

    /// The number of children that pass values on (those within which others do, included).
    pub(crate) fn passing(&self) -> usize {
        self.passing
    }

    /// The children with their names, in the specification's order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Child)> {
        self.names.iter().map(|n| &**n).zip(&self.children)
    }

    fn push(&mut self, name: &str, child: Child) {
        let place = self.names.len();
        self.passing += usize::from(!matches!(child, Child::Computed(_) | Child::ElemMatch(_)));
        self.names.push(name.into());
        self.children.push(child);
        if !self.places.is_empty() {
            self.places.insert(name.into(), place);
        } else if self.names.len() > LINEAR_MAX {
            self.places = self.names.iter().enumerate().map(|(i, n)| (n.clone(), i)).collect();
        }
    }

    /// Adds a child at a path; `collision` makes the error of a path that meets an earlier one,
    /// given how many of its components they share and whether the earlier one ends there.
    pub(crate) fn insert(
        &mut self,
        path: &[String],
        child: Child,
        collision: &dyn Fn(Meeting<'_>) -> kauri_base::Error,
    ) -> Result<()> {
        self.insert_at(path, 0, child, collision)
    }

    fn insert_at(
        &mut self,
        path: &[String],
        depth: usize,
        child: Child,
        collision: &dyn Fn(Meeting<'_>) -> kauri_base::Error,
    ) -> Result<()> {
        work::check_stack()?;
        let Some(name) = path.get(depth) else { return Ok(()) };
        self.computes |= child.computes();
        self.positional |= child.is_positional();
        let last = depth + 1 == path.len();
        let found = self.find(name.as_bytes());
        match found.and_then(|place| self.children.get_mut(place)) {
            None if last => self.push(name, child),
            None => {
                let mut node = Node::default();
                node.insert_at(path, depth + 1, child, collision)?;
                self.push(name, Child::Nested(node));
            }
            Some(Child::Nested(node)) if !last => {
                return node.insert_at(path, depth + 1, child, collision);
            }
            Some(_) => return Err(collision(Meeting { path, shared: depth + 1 })),
        }
        Ok(())
    }

    /// Adds a child of the root unless the name is taken.
    pub(crate) fn insert_default(&mut self, name: &str, child: Child) {
        if self.find(name.as_bytes()).is_none() {
            self.push(name, child);
        }
    }
}

/// A path that meets an earlier one.
#[derive(Clone, Copy)]
pub(crate) struct Meeting<'p> {
    pub(crate) path: &'p [String],
    /// Components up to where they meet.
    pub(crate) shared: usize,
}

/// The error of colliding paths in find's projection and `$project`.
pub(crate) fn collision(meeting: Meeting<'_>) -> kauri_base::Error {
    let path = meeting.path.join(".");
    match meeting.path.get(meeting.shared..) {
        None | Some([]) => kauri_base::Error::location(31250, format!("Path collision at {path}")),
        Some(rest) => kauri_base::Error::location(
            31249,
            format!("Path collision at {path} remaining portion {}", rest.join(".")),
        ),
    }
}

/// Cuts a path into its names and checks them.
pub(crate) fn parse_path(path: &str) -> Result<Vec<String>> {
    let max = kauri_base::limits::DOCUMENT_DEPTH_MAX;
    if path.split('.').count() > max {
        bail!(Overflow, "FieldPath is too long");
    }
    Ok(kauri_expr::FieldPath::parse(path)?.parts().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_ranges() {
        for (skip, limit, expected) in [
            (None, 2, 0..2),
            (None, -2, 3..5),
            (None, 0, 0..0),
            (None, i64::MIN, 0..5),
            (None, i64::MAX, 0..5),
            (Some(1), 2, 1..3),
            (Some(-2), 1, 3..4),
            (Some(-9), 2, 0..2),
            (Some(9), 2, 5..5),
            (Some(i64::MIN), i64::MAX, 0..5),
        ] {
            assert_eq!(Slice { skip, limit }.range(5), expected, "{skip:?} {limit}");
        }
    }

    #[test]
    fn many_names_are_found_by_hash() {
        let mut root = Node::default();
        for i in 0..100 {
            let path = [format!("f{i}")];
            assert!(root.insert(&path, Child::Keep, &collision).is_ok());
        }
        for i in 0..100 {
            assert_eq!(root.find(format!("f{i}").as_bytes()), Some(i));
        }
        assert_eq!(root.find(b"f100"), None);
    }

    #[test]
    fn paths_that_meet() {
        for (first, second, code) in [
            ("a", "a", 31250),
            ("a.b", "a", 31250),
            ("a", "a.b", 31249),
            ("a.b.c", "a.b", 31250),
            ("a.b", "a.b.c", 31249),
        ] {
            let mut root = Node::default();
            let parts = |p: &str| p.split('.').map(str::to_owned).collect::<Vec<_>>();
            assert!(root.insert(&parts(first), Child::Keep, &collision).is_ok());
            let error = root.insert(&parts(second), Child::Keep, &collision).err();
            assert_eq!(error.map(|e| e.code().number()), Some(code), "{first} {second}");
        }
    }
}
