//! A dotted path as filters name it, cut into its components once.

use std::fmt;

/// A dotted field path. [`Path::is_self`] marks the path of a predicate on an array's element itself,
/// as value-`$elemMatch` has them; it is not the path of the field named `""`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    dotted: Box<str>,
    parts: Box<[Part]>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Part {
    start: u32,
    end: u32,
    /// The array position that the component names, if it is one in its canonical decimal form.
    index: Option<u32>,
}

impl Path {
    /// The path of this dotted name.
    pub fn new(dotted: &str) -> Path {
        let mut parts = Vec::with_capacity(1);
        let mut start = 0;
        for name in dotted.split('.') {
            let end = start + name.len();
            parts.push(Part { start: start as u32, end: end as u32, index: array_index(name) });
            start = end + 1;
        }
        Path { dotted: dotted.into(), parts: parts.into() }
    }

    /// The path to the value itself.
    pub fn to_self() -> Path {
        Path { dotted: "".into(), parts: Box::default() }
    }

    /// Whether this is the path to the value itself.
    pub fn is_self(&self) -> bool {
        self.parts.is_empty()
    }

    /// The path as the filter wrote it.
    pub fn as_str(&self) -> &str {
        &self.dotted
    }

    /// The number of components.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether it has no components; the same as [`Path::is_self`].
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The component at this position.
    pub fn part(&self, position: usize) -> Option<&str> {
        let part = self.parts.get(position)?;
        self.dotted.get(part.start as usize..part.end as usize)
    }

    /// The components in order.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|i| self.part(i))
    }

    /// The array position that a component names, if it is one.
    pub fn index_at(&self, position: usize) -> Option<u32> {
        self.parts.get(position)?.index
    }

    /// Whether any component could name an array position.
    pub fn has_index(&self) -> bool {
        self.parts.iter().any(|p| p.index.is_some())
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
