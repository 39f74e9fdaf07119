//! The tree of an update's paths.
//!
//! Invariants: no leaf has a child or a sibling of the same name (that is a conflict, detected here). Children are
//! in processing order. The children of one node are either all fields (and `$`) or all array filters. The depth of
//! the tree is limited by the components of a path (`path`), so it may be cloned and dropped by recursion.

use crate::places::same_name;
use crate::update::path::{Component, Name};
use kauri_base::{Error, ErrorCode, Result, sort, work};
use std::cmp::Ordering;
use std::fmt;

/// The position of a walk over the tree, for error messages: made of stack frames, free until shown.
#[derive(Clone, Copy)]
pub(crate) struct Trail<'t> {
    pub(crate) parent: Option<&'t Trail<'t>>,
    pub(crate) name: &'t [u8],
}

impl Trail<'_> {
    /// The path of the document itself.
    pub(crate) const ROOT: Trail<'static> = Trail { parent: None, name: b"" };

    /// The trail one step further.
    pub(crate) fn to<'t>(&'t self, name: &'t [u8]) -> Trail<'t> {
        Trail { parent: Some(self), name }
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Vec::new();
        let mut at = self;
        while let Some(parent) = at.parent {
            names.push(String::from_utf8_lossy(at.name));
            at = parent;
        }
        names.reverse();
        f.write_str(&names.join("."))
    }
}

/// One node of the tree.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    /// An operator, by its place in the update's list.
    Leaf(usize),
    /// Fields of a document, or elements of an array by position.
    Fields(Fields),
    /// Elements of an array by filter.
    Elements(Vec<(Box<str>, Node)>),
}

/// The children of a node by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// In the order of [`Name`], each name once.
    pub(crate) children: Vec<(Name, Node)>,
    /// The child at the position that the query matched.
    pub(crate) positional: Option<Box<Node>>,
}

impl Fields {
    /// The place of the child of this name.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.children.len() <= 8 {
            return self.children.iter().position(|(n, _)| same_name(n.as_bytes(), name));
        }
        let order = |n: &Name| crate::update::path::compare_names(n.as_bytes(), name);
        self.children.binary_search_by(|(n, _)| order(n)).ok()
    }
}

/// One path with its operator, before the tree is built.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) components: Vec<Component>,
    pub(crate) leaf: usize,
}

/// Builds the tree of these paths, whose order is that of the update; two that meet are a conflict.
pub(crate) fn build(mut entries: Vec<Entry>) -> Result<Fields> {
    if let [entry] = &mut entries[..]
        && let Node::Fields(fields) = chain(std::mem::take(&mut entry.components), entry.leaf)
    {
        return Ok(fields);
    }
    // The sort is stable, so of two equal paths the earlier stands first.
    sort::sort_by(&mut entries, |a, b| a.components.cmp(&b.components))?;
    match build_node(&entries, 0)? {
        Node::Fields(fields) => Ok(fields),
        // Paths begin with a field, so only an empty update has no fields at the root.
        _ => Ok(Fields::default()),
    }
}

/// The node of a path that no other meets.
fn chain(components: Vec<Component>, leaf: usize) -> Node {
    let leaf = Node::Leaf(leaf);
    components.into_iter().rev().fold(leaf, |child, component| match component {
        Component::Field(name) => {
            Node::Fields(Fields { children: vec![(name, child)], positional: None })
        }
        Component::Positional => {
            Node::Fields(Fields { children: Vec::new(), positional: Some(Box::new(child)) })
        }
        Component::Filtered(id) => Node::Elements(vec![(id, child)]),
    })
}

/// The node of entries that share their first `depth` components.
fn build_node(entries: &[Entry], depth: usize) -> Result<Node> {
    work::check_stack()?;
    let Some(first) = entries.first() else { return Ok(Node::Fields(Fields::default())) };
    if first.components.len() == depth {
        // Shorter paths sort first, so all others go through or equal this one.
        return match entries.get(1) {
            Some(other) => Err(conflict(first, other, depth)),
            None => Ok(Node::Leaf(first.leaf)),
        };
    }
    let mut fields = Fields::default();
    let mut elements = Vec::new();
    for group in entries.chunk_by(|a, b| a.components.get(depth) == b.components.get(depth)) {
        work::tick(1)?;
        let Some(entry) = group.first() else { continue };
        let child = build_node(group, depth + 1)?;
        match entry.components.get(depth) {
            Some(Component::Field(name)) => fields.children.push((name.clone(), child)),
            Some(Component::Positional) => fields.positional = Some(Box::new(child)),
            Some(Component::Filtered(id)) => {
                // Fields sort before filters.
                if !matches!(first.components.get(depth), Some(Component::Filtered(_))) {
                    return Err(conflict(first, entry, depth));
                }
                elements.push((id.clone(), child));
            }
            None => {}
        }
    }
    Ok(if elements.is_empty() { Node::Fields(fields) } else { Node::Elements(elements) })
}

/// The conflict of two paths at their shared part, described for the later one.
fn conflict(a: &Entry, b: &Entry, shared: usize) -> Error {
    let (earlier, later) = if a.leaf <= b.leaf { (a, b) } else { (b, a) };
    let at = join(earlier.components.get(..shared).unwrap_or_default());
    let path = join(&later.components);
    let message = format!("Updating the path '{path}' would create a conflict at '{at}'");
    Error::new(ErrorCode::ConflictingUpdateOperators, message)
}

fn join(components: &[Component]) -> String {
    components.iter().map(Component::text).collect::<Vec<_>>().join(".")
}

/// The tree with each `$` replaced by the position that the query matched.
pub(crate) fn resolve(fields: &Fields, position: u32, at: &Trail<'_>) -> Result<Fields> {
    work::check_stack()?;
    let mut children = Vec::with_capacity(fields.children.len() + 1);
    for (name, child) in &fields.children {
        work::tick(1)?;
        children.push((name.clone(), resolve_node(child, position, &at.to(name.as_bytes()))?));
    }
    if let Some(positional) = &fields.positional {
        let name = Name::new(&position.to_string());
        let at = at.to(name.as_bytes());
        let child = resolve_node(positional, position, &at)?;
        match children.binary_search_by(|(n, _)| n.cmp(&name)) {
            Ok(place) => {
                if let Some((_, existing)) = children.get_mut(place) {
                    *existing = merge(existing, &child, &at)?;
                }
            }
            Err(place) => children.insert(place, (name.clone(), child)),
        }
    }
    Ok(Fields { children, positional: None })
}

fn resolve_node(node: &Node, position: u32, at: &Trail<'_>) -> Result<Node> {
    work::check_stack()?;
    Ok(match node {
        Node::Leaf(leaf) => Node::Leaf(*leaf),
        Node::Fields(fields) => Node::Fields(resolve(fields, position, at)?),
        Node::Elements(elements) => {
            let resolved: Result<Vec<_>> = elements
                .iter()
                .map(|(id, child)| Ok((id.clone(), resolve_node(child, position, at)?)))
                .collect();
            Node::Elements(resolved?)
        }
    })
}

/// The union of two nodes that turned out to stand at the same place.
pub(crate) fn merge(a: &Node, b: &Node, at: &Trail<'_>) -> Result<Node> {
    work::check_stack()?;
    match (a, b) {
        (Node::Fields(a), Node::Fields(b)) => {
            let positional = match (&a.positional, &b.positional) {
                (Some(x), Some(y)) => Some(Box::new(merge(x, y, &at.to(b"$"))?)),
                (one, other) => one.clone().or_else(|| other.clone()),
            };
            let children = merge_lists(&a.children, &b.children, at, |n| n.as_str().to_owned())?;
            Ok(Node::Fields(Fields { children, positional }))
        }
        (Node::Elements(a), Node::Elements(b)) => {
            Ok(Node::Elements(merge_lists(a, b, at, |id| format!("$[{id}]"))?))
        }
        _ => Err(Error::new(
            ErrorCode::ConflictingUpdateOperators,
            format!("Update created a conflict at '{at}'"),
        )),
    }
}

/// Merges two lists in the order of their keys.
fn merge_lists<K: Ord + Clone>(
    a: &[(K, Node)],
    b: &[(K, Node)],
    at: &Trail<'_>,
    text: impl Fn(&K) -> String,
) -> Result<Vec<(K, Node)>> {
    let mut merged: Vec<(K, Node)> = Vec::with_capacity(a.len() + b.len());
    let (mut left, mut right) = (a.iter().peekable(), b.iter().peekable());
    loop {
        work::tick(1)?;
        let order = match (left.peek(), right.peek()) {
            (Some((a, _)), Some((b, _))) => a.cmp(b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return Ok(merged),
        };
        match order {
            Ordering::Less => merged.extend(left.next().cloned()),
            Ordering::Greater => merged.extend(right.next().cloned()),
            Ordering::Equal => {
                if let (Some((key, a)), Some((_, b))) = (left.next(), right.next()) {
                    merged.push((key.clone(), merge(a, b, &at.to(text(key).as_bytes()))?));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::update::path::parse_path;

    fn tree(paths: &[&str]) -> Result<Fields> {
        let mut entries = Vec::new();
        for (leaf, path) in paths.iter().enumerate() {
            entries.push(Entry { components: parse_path(path)?, leaf });
        }
        build(entries)
    }

    #[test]
    fn children_stand_in_processing_order() {
        let Ok(fields) = tree(&["b", "a.10", "a.9", "a.$", "c.$[x]"]) else { panic!("a tree") };
        let names: Vec<&str> = fields.children.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let Some((_, Node::Fields(a))) = fields.children.first() else { panic!("fields") };
        let names: Vec<&str> = a.children.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(names, ["9", "10"]);
        assert!(a.positional.is_some());
        assert!(matches!(fields.children.get(2), Some((_, Node::Elements(e))) if e.len() == 1));
    }

    #[test]
    fn conflicts_name_the_later_path() {
        for (paths, message) in [
            (["a", "a"], "Updating the path 'a' would create a conflict at 'a'"),
            (["a", "a.b"], "Updating the path 'a.b' would create a conflict at 'a'"),
            (["a.b", "a"], "Updating the path 'a' would create a conflict at 'a'"),
            (
                ["a.b.c", "a.b.c.d"],
                "Updating the path 'a.b.c.d' would create a conflict at 'a.b.c'",
            ),
            (["a.$[x]", "a.0"], "Updating the path 'a.0' would create a conflict at 'a'"),
            (["a.$", "a.$[]"], "Updating the path 'a.$[]' would create a conflict at 'a'"),
        ] {
            let error = tree(&paths).err();
            assert_eq!(error.as_ref().map(|e| e.message()), Some(message));
            assert_eq!(error.map(|e| e.code()), Some(ErrorCode::ConflictingUpdateOperators));
        }
        assert!(tree(&["a.b", "a.c", "ab", "a.$.x", "a.0.y"]).is_ok());
    }

    #[test]
    fn a_resolved_position_joins_the_field_of_that_name() {
        let Ok(fields) = tree(&["a.$.x", "a.1.y"]) else { panic!("a tree") };
        let Ok(resolved) = resolve(&fields, 1, &Trail::ROOT) else { panic!("no conflict") };
        let Some((_, Node::Fields(a))) = resolved.children.first() else { panic!("fields") };
        assert_eq!(a.children.len(), 1);
        assert!(resolve(&fields, 0, &Trail::ROOT).is_ok_and(|f| matches!(f.children.first(),
            Some((_, Node::Fields(a))) if a.children.len() == 2)));
        let Ok(fields) = tree(&["a.$", "a.1.y"]) else { panic!("a tree") };
        let error = resolve(&fields, 1, &Trail::ROOT).err().map(|e| e.message().to_owned());
        assert_eq!(error.as_deref(), Some("Update created a conflict at 'a.1'"));
    }
}
