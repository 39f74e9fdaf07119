//! A dotted path of a filter, split into components once.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A dotted field path. [`Path::is_self`] marks the path of a predicate on an array's element itself,
/// as value-`$elemMatch` has them; it is not the path of the field named `""`.
#[derive(Clone)]
pub struct Path {
    dotted: Arc<str>,
    parts: Parts,
}

/// The components; most paths have one, which needs no memory of its own.
#[derive(Clone)]
enum Parts {
    None,
    One(Part),
    Many(Arc<[Part]>),
}

#[derive(Clone, Copy)]
struct Part {
    start: u32,
    end: u32,
    /// The array position that the component names, if it is one in its canonical decimal form.
    index: Option<u32>,
}

impl Path {
    /// The path of this dotted name.
    pub fn new(dotted: &str) -> Path {
        let part = |start: usize, end: usize, name: &str| Part {
            start: start as u32,
            end: end as u32,
            index: array_index(name),
        };
        if !dotted.contains('.') {
            let parts = Parts::One(part(0, dotted.len(), dotted));
            return Path { dotted: dotted.into(), parts };
        }
        let mut parts = Vec::new();
        let mut start = 0;
        for name in dotted.split('.') {
            let end = start + name.len();
            parts.push(part(start, end, name));
            start = end + 1;
        }
        Path { dotted: dotted.into(), parts: Parts::Many(parts.into()) }
    }

    /// The path to the value itself.
    pub fn to_self() -> Path {
        Path { dotted: "".into(), parts: Parts::None }
    }

    #[inline]
    fn slice(&self) -> &[Part] {
        match &self.parts {
            Parts::None => &[],
            Parts::One(part) => std::slice::from_ref(part),
            Parts::Many(parts) => parts,
        }
    }

    /// Whether this is the path to the value itself.
    pub fn is_self(&self) -> bool {
        self.slice().is_empty()
    }

    /// The path as the filter wrote it.
    pub fn as_str(&self) -> &str {
        &self.dotted
    }

    /// The number of components.
    pub fn len(&self) -> usize {
        self.slice().len()
    }

    /// Whether it has no components; the same as [`Path::is_self`].
    pub fn is_empty(&self) -> bool {
        self.slice().is_empty()
    }

    /// The component at this position.
    pub fn part(&self, position: usize) -> Option<&str> {
        let part = self.slice().get(position)?;
        self.dotted.get(part.start as usize..part.end as usize)
    }

    /// The components in order.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|i| self.part(i))
    }

    /// The array position that a component names, if it is one.
    pub fn index_at(&self, position: usize) -> Option<u32> {
        self.slice().get(position)?.index
    }

    /// Whether any component could name an array position.
    pub fn has_index(&self) -> bool {
        self.slice().iter().any(|p| p.index.is_some())
    }
}

impl PartialEq for Path {
    fn eq(&self, other: &Path) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Path {}

impl PartialOrd for Path {
    fn partial_cmp(&self, other: &Path) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Path {
    fn cmp(&self, other: &Path) -> Ordering {
        self.dotted.cmp(&other.dotted).then(self.len().cmp(&other.len()))
    }
}

impl Hash for Path {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.dotted.hash(state);
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.dotted)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_self() { f.write_str("<self>") } else { write!(f, "{:?}", self.dotted) }
    }
}

/// The array position written canonically: digits only, no leading zero.
fn array_index(name: &str) -> Option<u32> {
    let canonical = name == "0" || !name.starts_with('0');
    let digits = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
    if canonical && digits { name.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_positions() {
        let path = Path::new("a.0.00.12.");
        let parts: Vec<&str> = path.parts().collect();
        assert_eq!(parts, ["a", "0", "00", "12", ""]);
        let indexes: Vec<Option<u32>> = (0..5).map(|i| path.index_at(i)).collect();
        assert_eq!(indexes, [None, Some(0), None, Some(12), None]);
        assert!(!Path::new("").is_self());
        assert!(Path::to_self().is_self());
        assert_eq!(Path::new("4294967296").index_at(0), None);
    }
}
