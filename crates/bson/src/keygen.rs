//! Generates the index keys of a document.
//!
//! Rules (manual, "Multikey Indexes"): each field of the pattern contributes the value at its path, or null if
//! there is none. An array on a path, or at its end, is expanded: one key for each element, one level for each
//! component. An empty array at a path's end counts as undefined. Only one array at a time can be expanded; two
//! parallel arrays are an error. A numeric component selects an element of an array and expands nothing. Duplicate
//! keys are generated once.
//!
//! Documents without arrays on the indexed paths use a separate path that allocates nothing after the buffers have
//! grown.

use crate::doc::{Doc, Elem};
use crate::keystring::{self, TypeBits};
use crate::path::{FieldPath, array_position};
use crate::shell;
use crate::types::Type;
use crate::value::Value;
use kauri_base::{Error, ErrorCode, Result, limits, sort, work};
use std::ops::Range;

/// An index's or a sort's key pattern, parsed.
#[derive(Clone, Debug)]
pub struct KeyPattern {
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    path: FieldPath,
    descending: bool,
}

impl KeyPattern {
    /// Parses `{a: 1, "b.c": -1}`: a number below zero is descending, any other ascending.
    pub fn parse(pattern: Doc<'_>) -> Result<KeyPattern> {
        let mut fields = Vec::new();
        for elem in pattern {
            let direction = elem.value().as_f64_lossy().ok_or_else(|| {
                let message =
                    format!("Unsupported index key pattern {}", shell::elem_to_string(elem));
                Error::new(ErrorCode::CannotCreateIndex, message)
            })?;
            fields.push(Field { path: FieldPath::new(elem.key()), descending: direction < 0.0 });
        }
        if fields.is_empty() {
            return Err(Error::new(ErrorCode::CannotCreateIndex, "Index keys cannot be empty."));
        }
        if fields.len() > limits::INDEX_FIELDS_MAX {
            return Err(Error::location(13103, "too many compound keys"));
        }
        Ok(KeyPattern { fields })
    }

    /// The number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Never: a pattern has at least one field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// The path of a field.
    pub fn path(&self, field: usize) -> Option<&FieldPath> {
        self.fields.get(field).map(|f| &f.path)
    }

    /// Whether a field is descending.
    pub fn is_descending(&self, field: usize) -> bool {
        self.fields.get(field).is_some_and(|f| f.descending)
    }

    /// The directions of all fields, true for descending.
    pub fn directions(&self) -> impl Iterator<Item = bool> + '_ {
        self.fields.iter().map(|f| f.descending)
    }

    /// The values of a key of this pattern.
    pub fn decode(&self, key: &[u8], type_bits: &[u8]) -> Result<Vec<Value<'static>>> {
        keystring::decode(key, type_bits, self.directions())
    }

    /// Puts the document's keys into `keys`, whose former content is lost: ascending, each once.
    ///
    /// `sparse`: no key for a document that has none of the fields.
    pub fn generate(&self, doc: Doc<'_>, sparse: bool, keys: &mut Keys) -> Result<()> {
        keys.clear();
        keys.multikey.resize(self.fields.len(), 0);
        if self.generate_single(doc, sparse, keys) {
            return Ok(());
        }
        let mut states: Vec<State<'_>> =
            self.fields.iter().map(|_| State { next: 0, done: false, slot: Slot::Null }).collect();
        let mut expansion = Expansion { pattern: self, sparse, keys };
        expansion.expand(doc, &mut states, &[], 0)?;
        keys.sort()
    }

    /// The only key of a document that has no arrays on the indexed paths. Answers whether it has
    /// none.
    #[inline]
    fn generate_single(&self, doc: Doc<'_>, sparse: bool, keys: &mut Keys) -> bool {
        let mut missing = 0;
        keys.bits.clear();
        for field in &self.fields {
            match field.path.walk_to_array(doc, 0) {
                Some((elem, _)) if elem.ty() == Type::Array => {
                    keys.bytes.clear();
                    keys.bits.clear();
                    return false;
                }
                Some((elem, _)) => keys.append_elem(elem, field.descending),
                None => {
                    missing += 1;
                    keys.append(&Value::Null, field.descending);
                }
            }
        }
        if sparse && missing == self.fields.len() {
            keys.bytes.clear();
        } else {
            keys.finish_key(0);
        }
        true
    }
}

/// How much the keys of one document may come to.
#[derive(Clone, Copy, Debug)]
pub struct KeyBounds {
    /// Keys, equal ones included.
    pub keys: usize,
    /// Bytes of all keys.
    pub bytes: usize,
}

impl KeyBounds {
    /// Of a document that is stored.
    pub const STORED: KeyBounds =
        KeyBounds { keys: usize::MAX, bytes: limits::INDEX_KEYS_BYTES_STORED_MAX };
}

impl Default for KeyBounds {
    fn default() -> Self {
        KeyBounds::STORED
    }
}

/// The keys of one document, and the buffers for the next one's.
#[derive(Clone, Default, Debug)]
pub struct Keys {
    /// Key bytes and type bits of all keys.
    bytes: Vec<u8>,
    spans: Vec<Span>,
    multikey: Vec<u64>,
    bits: TypeBits,
    bounds: KeyBounds,
}

#[derive(Clone, Debug)]
struct Span {
    key: Range<usize>,
    bits_end: usize,
}

/// One key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key<'k> {
    /// Its KeyString, without a record id.
    pub bytes: &'k [u8],
    /// Its type bits.
    pub type_bits: &'k [u8],
}

impl Keys {
    /// Forgets all keys, keeps the buffers.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.multikey.clear();
        self.bits.clear();
    }

    /// How much the keys of the next documents may come to.
    pub fn set_bounds(&mut self, bounds: KeyBounds) {
        self.bounds = bounds;
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Bytes of the keys and their type bits.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The keys, ascending.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Key<'_>> {
        self.spans.iter().map(|span| self.key(span))
    }

    /// The least key.
    pub fn first(&self) -> Option<Key<'_>> {
        self.spans.first().map(|span| self.key(span))
    }

    /// For each field the components of its path that hold an array: bit 0 is the first one.
    /// Components beyond the 63rd share the last bit.
    pub fn multikey(&self) -> &[u64] {
        &self.multikey
    }

    /// Whether there is a key of these bytes.
    pub fn contains(&self, bytes: &[u8]) -> bool {
        self.find(bytes).is_some()
    }

    /// Whether there is a key of these bytes and type bits.
    pub fn contains_exactly(&self, bytes: &[u8], type_bits: &[u8]) -> bool {
        self.find(bytes).is_some_and(|key| key.type_bits == type_bits)
    }

    fn find(&self, bytes: &[u8]) -> Option<Key<'_>> {
        let found = self.spans.binary_search_by(|span| self.key(span).bytes.cmp(bytes));
        found.ok().and_then(|at| self.spans.get(at)).map(|span| self.key(span))
    }

    fn key(&self, span: &Span) -> Key<'_> {
        Key {
            bytes: &self.bytes[span.key.clone()],
            type_bits: &self.bytes[span.key.end..span.bits_end],
        }
    }

    #[inline]
    fn append_elem(&mut self, elem: Elem<'_>, descending: bool) {
        keystring::append_elem(&mut self.bytes, &mut self.bits, elem, descending);
    }

    #[inline]
    fn append(&mut self, value: &Value<'_>, descending: bool) {
        keystring::append_value(&mut self.bytes, &mut self.bits, value, descending);
    }

    /// The bytes from `start` on are a key; its type bits go behind it.
    #[inline]
    fn finish_key(&mut self, start: usize) {
        let end = self.bytes.len();
        self.bytes.extend_from_slice(self.bits.as_bytes());
        self.spans.push(Span { key: start..end, bits_end: self.bytes.len() });
        self.bits.clear();
    }

    /// Orders the keys, and of equal ones keeps the one that the document has first.
    fn sort(&mut self) -> Result<()> {
        let bytes = &self.bytes;
        sort::sort_by(&mut self.spans, |a, b| bytes[a.key.clone()].cmp(&bytes[b.key.clone()]))?;
        self.spans.dedup_by(|later, first| {
            work::tick_infallible(1);
            bytes[later.key.clone()] == bytes[first.key.clone()]
        });
        Ok(())
    }

    fn mark_multikey(&mut self, field: usize, component: usize) {
        if let Some(word) = self.multikey.get_mut(field) {
            *word |= 1 << component.min(63);
        }
    }
}

/// What a field contributes to the key that is being made.
#[derive(Clone, Copy)]
enum Slot<'a> {
    Null,
    Undefined,
    Elem(Elem<'a>),
}

/// How far a field has got.
#[derive(Clone, Copy)]
struct State<'a> {
    /// The component that comes next.
    next: usize,
    /// Whether the path has been followed to its end, or into nothing.
    done: bool,
    slot: Slot<'a>,
}

/// The element of the array being expanded that a field's next component names by its position.
#[derive(Clone, Copy)]
struct Position<'a> {
    array: Doc<'a>,
    elem: Elem<'a>,
    /// What the path leads to from there, and the component after it.
    found: Option<(Elem<'a>, usize)>,
}

/// An array that some fields' paths have come to.
struct ArrayAt<'a> {
    elem: Elem<'a>,
    /// The fields, as bits.
    fields: u64,
    /// Whether it stands in another array, named by its position: then it is a value as a whole.
    whole: bool,
}

struct Expansion<'p, 'k> {
    pattern: &'p KeyPattern,
    sparse: bool,
    keys: &'k mut Keys,
}

impl Expansion<'_, '_> {
    /// Makes the keys that begin with `states` and take the rest from `object`. `positions` has an
    /// entry for each field if `object` is an element of an array that is being expanded.
    fn expand<'a>(
        &mut self,
        object: Doc<'a>,
        states: &mut [State<'a>],
        positions: &[Option<Position<'a>>],
        mut missing: usize,
    ) -> Result<()> {
        work::check_stack()?;
        let mut array: Option<ArrayAt<'a>> = None;
        for (i, state) in states.iter_mut().enumerate().filter(|(_, state)| !state.done) {
            let path = &self.pattern.fields[i].path;
            let position = positions.get(i).copied().flatten();
            let found = match (object.get(path.component(state.next)), position) {
                (Some(_), Some(position)) => {
                    return Err(ambiguous(path.component(state.next), position.array));
                }
                (Some(_), None) => path.walk_to_array(object, state.next),
                (None, Some(position)) => position.found,
                (None, None) => None,
            };
            let Some((elem, next)) = found else {
                *state = State { next: path.len(), done: true, slot: Slot::Null };
                missing += 1;
                continue;
            };
            state.next = next;
            state.done = next == path.len();
            if elem.ty() != Type::Array {
                state.slot = Slot::Elem(elem);
                continue;
            }
            let at = array.get_or_insert(ArrayAt { elem, fields: 0, whole: false });
            if !std::ptr::eq(at.elem.value_bytes(), elem.value_bytes()) {
                return Err(parallel(elem, at.elem));
            }
            at.fields |= 1 << i;
            at.whole |= position.is_some_and(|position| position.elem.ty() == Type::Array);
        }
        match array {
            None => self.add_key(states, missing),
            Some(array) => self.expand_array(&array, states, missing),
        }
    }

    fn expand_array<'a>(
        &mut self,
        array: &ArrayAt<'a>,
        states: &mut [State<'a>],
        missing: usize,
    ) -> Result<()> {
        let content = array.elem.as_doc().unwrap_or(Doc::EMPTY);
        let through = |i: usize| array.fields >> i & 1 == 1;
        let mut positions = vec![None; states.len()];
        for (i, state) in states.iter().enumerate().filter(|(i, _)| through(*i)) {
            let path = &self.pattern.fields[i].path;
            if !state.done {
                positions[i] = position(content, path, state.next);
            }
            let expands = if state.done || content.is_empty() {
                !array.whole
            } else {
                positions[i].is_none()
            };
            if expands {
                self.keys.mark_multikey(i, state.next - 1);
            }
        }
        let mut inner = states.to_vec();
        let mut each = |this: &mut Self, entry: Option<Elem<'a>>| {
            inner.copy_from_slice(states);
            for (i, state) in inner.iter_mut().enumerate() {
                if through(i) && state.done {
                    state.slot = match entry {
                        None => Slot::Undefined,
                        Some(_) if array.whole => Slot::Elem(array.elem),
                        Some(entry) => Slot::Elem(entry),
                    };
                }
            }
            let object = entry.filter(|e| e.ty() == Type::Document).and_then(Elem::as_doc);
            this.expand(object.unwrap_or(Doc::EMPTY), &mut inner, &positions, missing)
        };
        if content.is_empty() {
            return each(self, None);
        }
        content.ticked().try_for_each(|entry| each(self, Some(entry?)))
    }

    fn add_key(&mut self, states: &[State<'_>], missing: usize) -> Result<()> {
        if self.sparse && missing == states.len() {
            return Ok(());
        }
        let start = self.keys.bytes.len();
        for (state, field) in states.iter().zip(&self.pattern.fields) {
            match state.slot {
                Slot::Null => self.keys.append(&Value::Null, field.descending),
                Slot::Undefined => self.keys.append(&Value::Undefined, field.descending),
                Slot::Elem(elem) => self.keys.append_elem(elem, field.descending),
            }
        }
        self.keys.finish_key(start);
        work::tick_bytes(64 + self.keys.bytes.len() - start)?;
        let KeyBounds { keys, bytes } = self.keys.bounds;
        if self.keys.spans.len() > keys || self.keys.bytes.len() > bytes {
            return Err(too_many_keys());
        }
        Ok(())
    }
}

/// The error for a document whose keys exceed the bounds.
pub fn too_many_keys() -> Error {
    Error::new(ErrorCode::CannotBuildIndexKeys, "Maximum number of generated keys exceeded.")
}

/// The element that the component names by its position, and where the path leads from there.
fn position<'a>(array: Doc<'a>, path: &FieldPath, next: usize) -> Option<Position<'a>> {
    let elem = array.iter().nth(array_position(path.component(next))?)?;
    let after = next + 1;
    let found = match elem.ty() {
        _ if after == path.len() => Some((elem, after)),
        Type::Array => Some((elem, after)),
        Type::Document => elem.as_doc().and_then(|doc| path.walk_to_array(doc, after)),
        _ => None,
    };
    Some(Position { array, elem, found })
}

fn parallel(second: Elem<'_>, first: Elem<'_>) -> Error {
    let message = format!("cannot index parallel arrays [{}] [{}]", second.key(), first.key());
    Error::new(ErrorCode::CannotIndexParallelArrays, message)
}

fn ambiguous(field: &str, array: Doc<'_>) -> Error {
    const LENGTH_MAX: usize = 1024;
    let mut text = shell::doc_to_string(array);
    if text.len() >= LENGTH_MAX {
        let third = LENGTH_MAX / 3;
        let head = &text[..text.floor_char_boundary(third)];
        let tail = &text[text.ceil_char_boundary(text.len() - third)..];
        text = format!("{head} .......... {tail}");
    }
    let message = format!(
        "Ambiguous field name found in array (do not use numeric field names in embedded elements \
         in an array), field: '{field}' for array: {text}"
    );
    Error::location(16746, message)
}

#[cfg(test)]
mod tests;
