//! Update paths: their components, the order in which updates process them, the index-key test.

use kauri_base::{Result, bail};
use std::cmp::Ordering;

/// Most components of a path: no stored document nests deeper.
const COMPONENTS_MAX: usize = 200;

/// A field name, or the position of an array's element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    text: Box<str>,
    index: Option<u64>,
}

impl Name {
    pub(crate) fn new(text: &str) -> Name {
        Name { text: text.into(), index: array_index(text.as_bytes()) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.text.as_bytes()
    }

    /// The array position that it names, if it is one in canonical form.
    pub(crate) fn index(&self) -> Option<u64> {
        self.index
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_names(self.as_bytes(), other.as_bytes())
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The order in which updates process names: numbers by value, then the rest by bytes.
pub(crate) fn compare_names(a: &[u8], b: &[u8]) -> Ordering {
    match (is_number(a), is_number(b)) {
        (true, true) => {
            let (short_a, short_b) = (strip_zeros(a), strip_zeros(b));
            short_a.len().cmp(&short_b.len()).then_with(|| short_a.cmp(short_b)).then(a.cmp(b))
        }
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.cmp(b),
    }
}

fn is_number(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(u8::is_ascii_digit)
}

fn strip_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|b| **b == b'0').count();
    digits.get(zeros..).unwrap_or_default()
}

/// The array position that a name stands for: digits only, and leading zeros do not count.
fn array_index(name: &[u8]) -> Option<u64> {
    if is_number(name) { std::str::from_utf8(name).ok()?.parse().ok() } else { None }
}

/// One component of an update path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Component {
    /// A field, or an element by its position.
    Field(Name),
    /// `$`: the element that the query matched.
    Positional,
    /// `$[]` (the empty identifier) or `$[identifier]`.
    Filtered(Box<str>),
}

impl Component {
    fn parse(text: &str) -> Component {
        if text == "$" {
            return Component::Positional;
        }
        match text.strip_prefix("$[").and_then(|t| t.strip_suffix(']')) {
            Some(identifier) => Component::Filtered(identifier.into()),
            None => Component::Field(Name::new(text)),
        }
    }

    /// As the path wrote it.
    pub(crate) fn text(&self) -> String {
        match self {
            Component::Field(name) => name.as_str().to_owned(),
            Component::Positional => "$".to_owned(),
            Component::Filtered(identifier) => format!("$[{identifier}]"),
        }
    }
}

/// Cuts an update path into components and checks its form.
pub(crate) fn parse_path(path: &str) -> Result<Vec<Component>> {
    if path.is_empty() {
        bail!(EmptyFieldName, "An empty update path is not valid.");
    }
    let mut components = Vec::with_capacity(2);
    let mut positional = 0;
    for part in path.split('.') {
        if part.is_empty() {
            bail!(
                EmptyFieldName,
                "The update path '{path}' contains an empty field name, which is not allowed."
            );
        }
        if components.len() >= COMPONENTS_MAX {
            bail!(Overflow, "An update path must have no more than {COMPONENTS_MAX} components");
        }
        let component = Component::parse(part);
        positional += usize::from(component == Component::Positional);
        components.push(component);
    }
    match components.first() {
        Some(Component::Positional) => bail!(
            BadValue,
            "Cannot have positional (i.e. '$') element in the first position in path '{path}'"
        ),
        Some(Component::Filtered(_)) => bail!(
            BadValue,
            "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position \
             in path '{path}'"
        ),
        _ => {}
    }
    if positional > 1 {
        bail!(BadValue, "Too many positional (i.e. '$') elements found in path '{path}'");
    }
    Ok(components)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_order_numbers_by_value() {
        let mut names = ["b", "10", "9", "a", "a1", "09", "0", "", "B", "1a"].map(Name::new);
        names.sort();
        let sorted: Vec<&str> = names.iter().map(Name::as_str).collect();
        assert_eq!(sorted, ["0", "09", "9", "10", "", "1a", "B", "a", "a1", "b"]);
    }

    #[test]
    fn components() {
        let Ok(path) = parse_path("a.0.$.b.$[].$[x].$y.00") else { panic!("a valid path") };
        let kinds: Vec<String> = path.iter().map(Component::text).collect();
        assert_eq!(kinds, ["a", "0", "$", "b", "$[]", "$[x]", "$y", "00"]);
        let Some(Component::Field(zero)) = path.get(1) else { panic!("a field") };
        assert_eq!(zero.index(), Some(0));
        let Some(Component::Field(padded)) = path.get(7) else { panic!("a field") };
        assert_eq!(padded.index(), Some(0));
    }

    #[test]
    fn malformed_paths() {
        let cases =
            [("", 56), ("a..b", 56), (".a", 56), ("a.", 56), ("$", 2), ("$[].a", 2), ("a.$.$", 2)];
        for (path, code) in cases {
            let error = parse_path(path).err().map(|e| e.code().number());
            assert_eq!(error, Some(code), "{path:?}");
        }
        let deep = vec!["a"; 201].join(".");
        assert_eq!(parse_path(&deep).err().map(|e| e.code().number()), Some(15));
    }
}
