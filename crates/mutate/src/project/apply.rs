//! Applies a projection's tree to a raw document, front to back, copying kept fields in runs.
//!
//! With inclusion, fields keep the document's order and computed fields follow in the specification's order. With
//! exclusion, a computed field takes the position of the field that it replaces.

use crate::cx::ProjectCx;
use crate::places::PlaceSet;
use crate::project::tree::{Child, Mode, Node};
use crate::raw;
use kauri_base::limits::EXPRESSION_VALUE_BYTES_MAX;
use kauri_base::{Result, bail, work};
use kauri_bson::{Doc, Elem, Type, writer::put_value_bytes};
use kauri_matcher::{MatchCx, MatchDetails, Predicate};
use std::cell::OnceCell;

/// Levels into which a path is followed. No stored document is that deep.
const DEPTH_MAX: usize = 500;

/// One application of a projection to one document.
pub(crate) struct Applier<'a> {
    mode: Mode,
    cx: &'a ProjectCx<'a>,
    root: Doc<'a>,
    /// The array position that the filter matched, once it is known.
    position: OnceCell<Option<u32>>,
    /// Where in the output the new document begins.
    base: usize,
}

/// Where in the document a value stands.
#[derive(Clone, Copy)]
struct Place {
    depth: usize,
    /// Whether the positional `$` is still to be applied: it cuts the first array on its path.
    positional: bool,
}

impl Place {
    fn below(self) -> Result<Place> {
        if self.depth >= DEPTH_MAX {
            bail!(Overflow, "Document exceeds maximum nesting depth of {DEPTH_MAX}");
        }
        Ok(Place { depth: self.depth + 1, ..self })
    }
}

/// Neighbouring bytes of a document that stay and are not copied yet.
struct Run<'d> {
    bytes: &'d [u8],
    start: usize,
    end: usize,
}

impl Run<'_> {
    #[inline]
    fn extend(&mut self, start: usize, end: usize, out: &mut Vec<u8>) {
        if start != self.end {
            self.flush(out);
            self.start = start;
        }
        self.end = end;
    }

    #[inline]
    fn flush(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.bytes.get(self.start..self.end).unwrap_or_default());
        self.start = self.end;
    }
}

/// What becomes of an element.
#[derive(PartialEq, Eq)]
enum Fate {
    /// It is copied.
    Stays,
    /// It is left out; what makes values for its name may do so at the end.
    Goes,
    /// What stands for it has been written.
    Done,
}

impl<'a> Applier<'a> {
    /// An application that writes behind `base` bytes.
    pub(crate) fn new(mode: Mode, cx: &'a ProjectCx<'a>, root: Doc<'a>, base: usize) -> Self {
        Applier { mode, cx, root, position: OnceCell::new(), base }
    }

    /// Appends the projected document.
    pub(crate) fn run(&self, node: &Node, out: &mut Vec<u8>) -> Result<()> {
        let place = Place { depth: 1, positional: node.positional };
        self.document(node, self.root, place, out)
    }

    fn document(&self, node: &Node, doc: Doc<'_>, place: Place, out: &mut Vec<u8>) -> Result<()> {
        work::check_stack()?;
        let start = raw::begin(out);
        let inclusion = self.mode == Mode::Inclusion;
        let mut left = if inclusion { node.passing() } else { node.len() };
        let (mut seen, mut done) = (PlaceSet::new(node.len()), PlaceSet::new(node.len()));
        let bytes = doc.as_bytes();
        work::tick_bytes(bytes.len() + node.len())?;
        let mut run = Run { bytes, start: 4, end: 4 };
        let (mut settled, mut end_of_elem) = (4, 4);
        let mut elems = doc.iter();
        while left > 0 {
            // Fields that the specification does not name are only stepped over.
            let named = elems.find_map(|elem| {
                end_of_elem += raw::elem_size(elem);
                let place = node.find(elem.key_bytes())?;
                Some((elem, place, node.child(place)?))
            });
            let Some((elem, i, child)) = named else { break };
            work::tick(1)?;
            let start_of_elem = end_of_elem - raw::elem_size(elem);
            if !inclusion {
                run.extend(settled, start_of_elem, out);
            }
            settled = end_of_elem;
            let fate = match child {
                Child::Keep => Fate::Stays,
                Child::Drop => Fate::Goes,
                Child::Computed(_) | Child::ElemMatch(_) if inclusion => continue,
                _ if done.contains(i) => Fate::Goes,
                _ => {
                    run.flush(out);
                    self.child(child, elem, place, out)?
                }
            };
            match fate {
                Fate::Stays => run.extend(start_of_elem, end_of_elem, out),
                Fate::Goes => {}
                Fate::Done => drop(done.insert(i)),
            }
            left -= usize::from(seen.insert(i));
        }
        if !inclusion {
            run.extend(settled, bytes.len() - 1, out);
        }
        run.flush(out);
        if node.computes {
            for (i, (name, child)) in node.iter().enumerate() {
                work::tick(1)?;
                if !done.contains(i) {
                    self.make(name, child, doc, place, out)?;
                }
            }
        }
        raw::end(out, start);
        Ok(())
    }

    /// Writes what a child makes of an element, unless that just stays or goes.
    fn child(
        &self,
        child: &Child,
        elem: Elem<'_>,
        place: Place,
        out: &mut Vec<u8>,
    ) -> Result<Fate> {
        let array = if elem.ty() == Type::Array { elem.as_doc() } else { None };
        match (child, array) {
            (Child::Keep, _) => Ok(Fate::Stays),
            (Child::Drop, _) => Ok(Fate::Goes),
            (Child::Slice(slice), Some(array)) => {
                let range = slice.range(array.count_ticked()?);
                raw::put_header(out, Type::Array, elem.key_bytes());
                work::tick_bytes(array.as_bytes().len())?;
                let items = array.iter().skip(range.start).take(range.len());
                raw::put_array(out, items.map(|e| (e.ty(), e.value_bytes())))?;
                Ok(Fate::Done)
            }
            (Child::Positional, Some(array)) if place.positional => {
                let item = self.matched(array)?;
                raw::put_header(out, Type::Array, elem.key_bytes());
                raw::put_array(out, std::iter::once((item.ty(), item.value_bytes())))?;
                Ok(Fate::Done)
            }
            (Child::Slice(_) | Child::Positional, _) => Ok(Fate::Stays),
            (Child::ElemMatch(predicate), _) => {
                put_elem_match(predicate, elem, out)?;
                Ok(Fate::Done)
            }
            (Child::Computed(_), _) => {
                self.make(elem.key(), child, Doc::EMPTY, place, out)?;
                Ok(Fate::Done)
            }
            (Child::Nested(node), _) => self.nested(node, elem, place, out),
        }
    }

    fn nested(&self, node: &Node, elem: Elem<'_>, place: Place, out: &mut Vec<u8>) -> Result<Fate> {
        let below = place.below()?;
        match (elem.ty(), elem.as_doc()) {
            (Type::Document, Some(doc)) => {
                raw::put_header(out, Type::Document, elem.key_bytes());
                self.document(node, doc, below, out)?;
                Ok(Fate::Done)
            }
            (Type::Array, Some(array)) if place.positional && node.positional => {
                let item = self.matched(array)?;
                raw::put_header(out, Type::Array, elem.key_bytes());
                let below = Place { positional: false, ..below };
                self.array(node, std::iter::once(item), below, out)?;
                Ok(Fate::Done)
            }
            (Type::Array, Some(array)) => {
                raw::put_header(out, Type::Array, elem.key_bytes());
                self.array(node, array.iter(), below, out)?;
                Ok(Fate::Done)
            }
            _ if self.mode == Mode::Inclusion => Ok(Fate::Goes),
            // A computed field within a scalar replaces it.
            _ if node.computes => {
                raw::put_header(out, Type::Document, elem.key_bytes());
                self.document(node, Doc::EMPTY, below, out)?;
                Ok(Fate::Done)
            }
            _ => Ok(Fate::Stays),
        }
    }

    /// Appends the array of these elements, each projected.
    fn array<'e>(
        &self,
        node: &Node,
        items: impl Iterator<Item = Elem<'e>>,
        place: Place,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        work::check_stack()?;
        let below = place.below()?;
        let start = raw::begin(out);
        let mut next = 0;
        for elem in items {
            elem.tick()?;
            let name = raw::IndexName::new(next);
            next += 1;
            match (elem.ty(), elem.as_doc()) {
                (Type::Document, Some(doc)) => {
                    raw::put_header(out, Type::Document, name.as_bytes());
                    self.document(node, doc, below, out)?;
                }
                (Type::Array, Some(array)) => {
                    raw::put_header(out, Type::Array, name.as_bytes());
                    self.inner_array(node, array, below, out)?;
                }
                _ if node.computes => {
                    raw::put_header(out, Type::Document, name.as_bytes());
                    self.document(node, Doc::EMPTY, below, out)?;
                }
                _ if self.mode == Mode::Inclusion => next -= 1,
                _ => raw::put_raw(out, elem.ty(), name.as_bytes(), elem.value_bytes()),
            }
        }
        raw::end(out, start);
        Ok(())
    }

    /// The same for an array within an array; apart, so that the iterator's type does not recurse.
    fn inner_array(
        &self,
        node: &Node,
        array: Doc<'_>,
        place: Place,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.array(node, array.iter(), place, out)
    }

    /// Appends what a child makes where the document has nothing that it could write in place of.
    /// `doc` is what has the field that `$elemMatch` cuts.
    fn make(
        &self,
        name: &str,
        child: &Child,
        doc: Doc<'_>,
        place: Place,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        match child {
            Child::Computed(expression) => {
                let value = expression.eval(&self.cx.eval, self.root)?;
                if let Some(ty) = value.ty() {
                    raw::put_header(out, ty, name.as_bytes());
                    put_value_bytes(out, &value);
                }
                self.check_room(out)
            }
            Child::ElemMatch(predicate) => match doc.get(name) {
                Some(elem) => put_elem_match(predicate, elem, out),
                None => Ok(()),
            },
            Child::Nested(node) if node.computes => {
                raw::put_header(out, Type::Document, name.as_bytes());
                self.document(node, Doc::EMPTY, place.below()?, out)
            }
            _ => Ok(()),
        }
    }

    /// Stops where a value that is written again and again outgrows what is in between allowed.
    fn check_room(&self, out: &[u8]) -> Result<()> {
        let size = out.len() - self.base.min(out.len());
        if size > EXPRESSION_VALUE_BYTES_MAX {
            bail!(
                BSONObjectTooLarge,
                "BSONObj size: {size} (0x{size:X}) is invalid. Size must be between 0 and \
                 {EXPRESSION_VALUE_BYTES_MAX}"
            );
        }
        Ok(())
    }

    /// The element at the position that the filter matched.
    fn matched<'e>(&self, array: Doc<'e>) -> Result<Elem<'e>> {
        let position = match self.position.get() {
            Some(position) => *position,
            None => {
                let mut details = MatchDetails::new();
                if let Some(filter) = self.cx.filter {
                    let cx = MatchCx::with_eval(self.cx.eval);
                    filter.matches_with_details(self.root, &cx, &mut details)?;
                }
                *self.position.get_or_init(|| details.elem_match_key())
            }
        };
        let Some(position) = position else {
            bail!(51246, "positional operator '.$' couldn't find a matching element in the array");
        };
        match array.ticked().nth(position as usize).transpose()? {
            Some(elem) => Ok(elem),
            None => bail!(51247, "positional operator '.$' element mismatch"),
        }
    }
}

/// Appends the array cut to the first element that matches; nothing if none does.
fn put_elem_match(predicate: &Predicate, elem: Elem<'_>, out: &mut Vec<u8>) -> Result<()> {
    let (Type::Array, Some(array)) = (elem.ty(), elem.as_doc()) else { return Ok(()) };
    let cx = MatchCx::new();
    for item in array.ticked() {
        let item = item?;
        let matches = match predicate {
            Predicate::ElemMatchObject(filter) => match item.as_doc() {
                Some(doc) => filter.matches(doc, &cx)?,
                None => false,
            },
            Predicate::ElemMatchValue(filter) => filter.matches_value(item, &cx)?,
            _ => false,
        };
        if matches {
            raw::put_header(out, Type::Array, elem.key_bytes());
            raw::put_array(out, std::iter::once((item.ty(), item.value_bytes())))?;
            break;
        }
    }
    Ok(())
}
