//! Applies an update's tree to a raw document, front to back.
//!
//! Fields without an operator are copied in runs; new fields follow the old ones in the tree's order. A subtree
//! without a change leaves the output as it was, so an update without an effect is detected without comparing
//! documents.

use crate::cx::UpdateCx;
use crate::places::PlaceSet;
use crate::raw;
use crate::text;
use crate::update::condition::ArrayFilters;
use crate::update::ops::Leaf;
use crate::update::tree::{Fields, Node, Trail, merge};
use kauri_base::limits::DOCUMENT_DEPTH_STORED_MAX;
use kauri_base::{Result, bail, work};
use kauri_bson::{Doc, Elem, Type};

/// Most nulls that are put before an element beyond an array's end.
const PADDING_MAX: u64 = 1_500_000;

/// What became of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It stays (or stays missing); what may have been written is to be dropped.
    Keep,
    /// It goes.
    Removed,
    /// It was written anew, name and all.
    Written,
}

/// Where an operator writes.
pub(crate) struct Slot<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) in_array: bool,
    /// Levels of documents and arrays around it.
    pub(crate) depth: usize,
}

impl Slot<'_> {
    /// Checks that a value that is itself so deep may stand here.
    #[inline]
    pub(crate) fn check_depth(&self, depth: usize) -> Result<()> {
        if self.depth + depth > DOCUMENT_DEPTH_STORED_MAX {
            bail!(
                Overflow,
                "Document exceeds maximum nesting depth of {DOCUMENT_DEPTH_STORED_MAX}"
            );
        }
        Ok(())
    }
}

/// One application of an update to one document.
pub(crate) struct Applier<'a> {
    pub(crate) leaves: &'a [Leaf],
    pub(crate) filters: &'a ArrayFilters,
    pub(crate) cx: &'a UpdateCx<'a>,
    pub(crate) root: Doc<'a>,
    /// What each `$rename` moves, if it is there.
    pub(crate) renames: Vec<Option<Elem<'a>>>,
    /// Where in the output the new document begins.
    pub(crate) base: usize,
}

impl<'a> Applier<'a> {
    pub(crate) fn renamed(&self, rename: usize) -> Option<Elem<'a>> {
        self.renames.get(rename).copied().flatten()
    }

    /// Appends the document with its fields updated; nothing and false if they all stay.
    pub(crate) fn fields(
        &mut self,
        fields: &Fields,
        doc: Doc<'_>,
        at: &Trail<'_>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = raw::begin(out);
        let bytes = doc.as_bytes();
        work::tick_bytes(bytes.len() + fields.children.len())?;
        let mut seen = PlaceSet::new(fields.children.len());
        let mut left = fields.children.len();
        let (mut copied, mut end_of_elem, mut modified) = (4, 4, false);
        let mut elems = doc.iter();
        while left > 0 {
            // Fields that no operator names are only stepped over.
            let named = elems.find_map(|elem| {
                end_of_elem += raw::elem_size(elem);
                Some((elem, fields.find(elem.key_bytes())?))
            });
            let Some((elem, place)) = named else { break };
            let Some((_, child)) = fields.children.get(place) else { continue };
            work::tick(1)?;
            if !seen.insert(place) {
                continue;
            }
            left -= 1;
            let before = out.len();
            let start_of_elem = end_of_elem - raw::elem_size(elem);
            out.extend_from_slice(bytes.get(copied..start_of_elem).unwrap_or_default());
            let slot = Slot { key: elem.key_bytes(), in_array: false, depth };
            match self.child(child, elem, &slot, at, out)? {
                Change::Keep => out.truncate(before),
                Change::Removed | Change::Written => {
                    modified = true;
                    copied = end_of_elem;
                }
            }
        }
        out.extend_from_slice(bytes.get(copied..bytes.len() - 1).unwrap_or_default());
        if left > 0 {
            for (place, (name, child)) in fields.children.iter().enumerate() {
                if !seen.contains(place) {
                    let slot = Slot { key: name.as_bytes(), in_array: false, depth };
                    modified |= self.create(child, &slot, at, out)?;
                }
            }
        }
        if modified {
            raw::end(out, start);
        } else {
            out.truncate(start);
        }
        Ok(modified)
    }

    /// Applies a node to an element that is there.
    #[inline]
    fn child(
        &mut self,
        node: &Node,
        elem: Elem<'_>,
        slot: &Slot<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change> {
        let doc = match node {
            Node::Leaf(leaf) => return self.leaf(*leaf, Some(elem), slot, at, out),
            _ => elem.as_doc(),
        };
        work::check_stack()?;
        let at = at.to(slot.key);
        let depth = slot.depth + 1;
        let modified = match (node, elem.ty(), doc) {
            (Node::Fields(fields), Type::Document, Some(doc)) => {
                raw::put_header(out, Type::Document, slot.key);
                self.fields(fields, doc, &at, depth, out)?
            }
            (Node::Fields(fields), Type::Array, Some(array)) => {
                self.check_positions(fields, elem, &at)?;
                raw::put_header(out, Type::Array, slot.key);
                self.positions(fields, array, &at, depth, out)?
            }
            (Node::Elements(elements), Type::Array, Some(array)) => {
                raw::put_header(out, Type::Array, slot.key);
                self.elements(elements, array, &at, depth, out)?
            }
            (Node::Elements(_), _, _) => {
                let elem = text::elem(elem);
                bail!(BadValue, "Cannot apply array updates to non-array element {elem}");
            }
            (_, _, _) => {
                self.check_viable(node, None, elem, &at)?;
                false
            }
        };
        Ok(if modified { Change::Written } else { Change::Keep })
    }

    #[inline]
    fn leaf(
        &mut self,
        leaf: usize,
        existing: Option<Elem<'_>>,
        slot: &Slot<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change> {
        let leaves = self.leaves;
        let Some(op) = leaves.get(leaf) else { return Ok(Change::Keep) };
        let change = op.apply(self, existing, slot, out)?;
        if change == Change::Written && !self.cx.is_insert && op.path.starts_with('$') {
            bail!(
                DollarPrefixedFieldName,
                "The dollar ($) prefixed field '{0}' in '{1}' is not allowed in the context of an \
                 update's replacement document. Consider using an aggregation pipeline with \
                 $replaceWith.",
                String::from_utf8_lossy(slot.key),
                at.to(slot.key)
            );
        }
        Ok(change)
    }

    /// Appends what a node makes where nothing is; nothing and false if it makes nothing.
    fn create(
        &mut self,
        node: &Node,
        slot: &Slot<'_>,
        at: &Trail<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        work::check_stack()?;
        work::tick(1)?;
        let before = out.len();
        let created = match node {
            Node::Leaf(leaf) => self.leaf(*leaf, None, slot, at, out)? == Change::Written,
            Node::Elements(_) => bail!(
                BadValue,
                "The path '{}' must exist in the document in order to apply array updates.",
                at.to(slot.key)
            ),
            Node::Fields(fields) => {
                raw::put_header(out, Type::Document, slot.key);
                let start = raw::begin(out);
                let at = at.to(slot.key);
                let mut created = false;
                for (name, child) in &fields.children {
                    let key = name.as_bytes();
                    let slot = Slot { key, in_array: false, depth: slot.depth + 1 };
                    created |= self.create(child, &slot, &at, out)?;
                }
                raw::end(out, start);
                created
            }
        };
        if !created {
            out.truncate(before);
        }
        self.check_room(out)?;
        Ok(created)
    }

    /// Appends the array with elements updated by position; nothing and false if they all stay.
    fn positions(
        &mut self,
        fields: &Fields,
        array: Doc<'_>,
        at: &Trail<'_>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = raw::begin(out);
        let bytes = array.as_bytes();
        let mut children = fields
            .children
            .iter()
            .filter_map(|(name, child)| Some((name.index()?, child)))
            .peekable();
        let (mut copied, mut end_of_elem, mut modified) = (4, 4, false);
        let mut length = 0;
        for elem in array.ticked() {
            let elem = elem?;
            let start_of_elem = end_of_elem;
            end_of_elem += raw::elem_size(elem);
            let index = length;
            length += 1;
            let Some((_, child)) = children.next_if(|(i, _)| *i == index) else { continue };
            let before = out.len();
            out.extend_from_slice(bytes.get(copied..start_of_elem).unwrap_or_default());
            let slot = Slot { key: elem.key_bytes(), in_array: true, depth };
            match self.child(child, elem, &slot, at, out)? {
                Change::Keep => out.truncate(before),
                Change::Removed | Change::Written => {
                    modified = true;
                    copied = end_of_elem;
                }
            }
        }
        out.extend_from_slice(bytes.get(copied..bytes.len() - 1).unwrap_or_default());
        for (index, child) in children {
            if self.create_element(child, index, length, at, depth, out)? {
                modified = true;
                length = index + 1;
            }
        }
        if modified {
            raw::end(out, start);
        } else {
            out.truncate(start);
        }
        Ok(modified)
    }

    /// Appends an element beyond the array's end, and nulls up to it.
    fn create_element(
        &mut self,
        node: &Node,
        index: u64,
        length: u64,
        at: &Trail<'_>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let before = out.len();
        let padding = index.saturating_sub(length);
        if padding <= PADDING_MAX {
            for missing in length..index {
                work::tick(1)?;
                raw::put_raw(out, Type::Null, raw::IndexName::new(missing).as_bytes(), &[]);
            }
        }
        let name = raw::IndexName::new(index);
        let slot = Slot { key: name.as_bytes(), in_array: true, depth };
        if !self.create(node, &slot, at, out)? {
            out.truncate(before);
            return Ok(false);
        }
        if padding > PADDING_MAX {
            bail!(
                CannotBackfillArray,
                "Cannot backfill array with more than {PADDING_MAX} elements"
            );
        }
        Ok(true)
    }

    /// Appends the array with the elements updated that pass the filters; nothing and false if they
    /// all stay.
    fn elements(
        &mut self,
        elements: &[(Box<str>, Node)],
        array: Doc<'_>,
        at: &Trail<'_>,
        depth: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let start = raw::begin(out);
        let mut modified = false;
        let mut matched: Vec<usize> = Vec::new();
        // What neighbouring elements share is merged once.
        let mut merged: Option<(Vec<usize>, Node)> = None;
        for elem in array {
            elem.tick()?;
            let before = out.len();
            let slot = Slot { key: elem.key_bytes(), in_array: true, depth };
            matched.clear();
            for (i, (identifier, _)) in elements.iter().enumerate() {
                work::tick(1)?;
                if self.passes(identifier, elem)? {
                    matched.push(i);
                }
            }
            let mut nodes = matched.iter().filter_map(|i| elements.get(*i)).map(|(_, node)| node);
            let node = match matched.as_slice() {
                [] | [_] => nodes.next(),
                _ => {
                    if merged.as_ref().is_none_or(|(of, _)| *of != matched) {
                        merged = Some((matched.clone(), merge_all(nodes, &at.to(slot.key))?));
                    }
                    merged.as_ref().map(|(_, node)| node)
                }
            };
            let change = match node {
                Some(node) => self.child(node, elem, &slot, at, out)?,
                None => Change::Keep,
            };
            match change {
                Change::Keep => {
                    out.truncate(before);
                    raw::put_elem(out, elem);
                }
                Change::Removed | Change::Written => modified = true,
            }
        }
        if modified {
            raw::end(out, start);
        } else {
            out.truncate(start);
        }
        Ok(modified)
    }

    fn passes(&self, identifier: &str, elem: Elem<'_>) -> Result<bool> {
        if identifier.is_empty() {
            return Ok(true);
        }
        match self.filters.get(identifier) {
            Some(filter) => filter.matches(elem),
            // Parsing has refused identifiers without a filter.
            None => Ok(false),
        }
    }

    /// Checks that each child of fields that meet an array names a position, and each another one
    /// (`a.1` and `a.01` are the same).
    fn check_positions(&self, fields: &Fields, array: Elem<'_>, at: &Trail<'_>) -> Result<()> {
        let mut last = None;
        for (name, child) in &fields.children {
            work::tick(1)?;
            let index = name.index();
            if index.is_none() {
                self.check_viable(child, Some(name.as_str()), array, &at.to(name.as_bytes()))?;
            } else if index == last {
                let path = at.to(name.as_bytes());
                bail!(
                    ConflictingUpdateOperators,
                    "Updating the path '{path}' would create a conflict at '{path}'"
                );
            }
            last = index;
        }
        Ok(())
    }

    /// Fails if any operator below the node minds that its path is blocked by an element. `step` is
    /// the first component beyond that, if the node is not the one at the element itself.
    fn check_viable(
        &self,
        node: &Node,
        step: Option<&str>,
        blocked: Elem<'_>,
        at: &Trail<'_>,
    ) -> Result<()> {
        work::tick(1)?;
        match node {
            Node::Leaf(leaf) => match self.leaves.get(*leaf) {
                Some(leaf) => leaf.check_viable(self, step.unwrap_or_default(), blocked),
                None => Ok(()),
            },
            Node::Fields(fields) => fields.children.iter().try_for_each(|(name, child)| {
                let step = step.unwrap_or(name.as_str());
                self.check_viable(child, Some(step), blocked, &at.to(name.as_bytes()))
            }),
            Node::Elements(_) => bail!(
                BadValue,
                "The path '{at}' must exist in the document in order to apply array updates."
            ),
        }
    }

    /// Stops an update whose output outgrows every document.
    fn check_room(&self, out: &[u8]) -> Result<()> {
        crate::update::check::internal_size(out.len().saturating_sub(self.base), self.root)
    }
}

/// The union of several nodes.
fn merge_all<'n>(mut nodes: impl Iterator<Item = &'n Node>, at: &Trail<'_>) -> Result<Node> {
    let first = nodes.next().cloned().unwrap_or_else(|| Node::Fields(Fields::default()));
    nodes.try_fold(first, |merged, node| merge(&merged, node, at))
}
