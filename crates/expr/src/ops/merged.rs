//! Merges documents as `$mergeObjects` does: an existing field keeps its position and takes the later value.
//!
//! Small documents are copied for each merge. A larger one gets an index of its fields by name, so that the time of
//! many merges depends on the added fields, not on the existing ones.

use crate::value;
use kauri_base::{Result, work};
use kauri_bson::{Doc, DocBuf, DocCow, DocWriter, Elem, Type, Value};
use std::collections::HashMap;
use std::ops::Range;

/// Documents up to this size are copied for each overlay.
const SMALL_BYTES: usize = 2048;

/// A document that others are laid over.
#[derive(Clone, Debug)]
pub(crate) enum Merged {
    Small(DocBuf),
    Indexed(Indexed),
}

impl Default for Merged {
    fn default() -> Self {
        Merged::Small(DocBuf::new())
    }
}

impl Merged {
    /// Begins with this document.
    pub fn of(doc: Doc<'_>) -> Merged {
        Merged::Small(doc.to_buf())
    }

    /// Lays a document over what is there.
    pub fn overlay(&mut self, top: Doc<'_>) -> Result<()> {
        if let Merged::Small(base) = self {
            let base = base.as_doc();
            if base.as_bytes().len().max(top.as_bytes().len()) <= SMALL_BYTES {
                *self = Merged::Small(overlay(base, top)?);
                return Ok(());
            }
            let mut indexed = Indexed::default();
            indexed.append_all(base)?;
            *self = Merged::Indexed(indexed);
        }
        match self {
            Merged::Indexed(indexed) => indexed.overlay(top),
            Merged::Small(_) => Ok(()),
        }
    }

    /// Bytes that it holds.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Merged::Small(doc) => doc.as_bytes().len(),
            Merged::Indexed(indexed) => indexed.memory_bytes(),
        }
    }

    /// Writes the fields.
    pub fn write(&self, out: &mut DocWriter<'_>) -> Result<()> {
        match self {
            Merged::Small(doc) => out.put_all(doc.as_doc()),
            Merged::Indexed(indexed) => indexed.write(out)?,
        }
        Ok(())
    }

    /// The document.
    pub fn value(&self) -> Result<Value<'static>> {
        value::document(|out| self.write(out))
    }

    /// The same; a small document is given away.
    pub fn into_doc(self) -> Result<DocCow<'static>> {
        match self {
            Merged::Small(doc) => Ok(doc.into()),
            Merged::Indexed(_) => match self.value()? {
                Value::Document(doc) => Ok(doc),
                _ => Ok(DocBuf::new().into()),
            },
        }
    }
}

/// Puts the fields of one document over those of another, both small.
fn overlay(base: Doc<'_>, top: Doc<'_>) -> Result<DocBuf> {
    let mut bytes = Vec::with_capacity(base.as_bytes().len() + top.as_bytes().len());
    let mut out = DocWriter::new(&mut bytes);
    for elem in base.ticked() {
        let elem = elem?;
        out.put_elem(top.get(elem.key()).unwrap_or(elem));
    }
    for elem in top.ticked() {
        let elem = elem?;
        if base.get(elem.key()).is_none() {
            out.put_elem(elem);
        }
    }
    drop(out);
    DocBuf::from_vec(bytes)
}

/// Fields by place and by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Indexed {
    /// Names and values, superseded values among them.
    bytes: Vec<u8>,
    fields: Vec<Field>,
    /// The last field of a name.
    places: HashMap<Box<[u8]>, usize>,
    /// Bytes of names and values that count.
    live_bytes: usize,
    /// Overlays so far.
    overlays: u64,
}

#[derive(Clone, Debug)]
struct Field {
    name: Range<usize>,
    ty: Type,
    value: Range<usize>,
    /// The field before it of the same name.
    same: Option<usize>,
    /// The overlay that it comes from.
    overlay: u64,
}

impl Indexed {
    /// Adds a field behind all others.
    fn append(&mut self, elem: Elem<'_>) {
        let name = self.add_bytes(elem.key_bytes());
        let value = self.add_bytes(elem.value_bytes());
        self.live_bytes += name.len() + value.len();
        let same = self.places.insert(elem.key_bytes().into(), self.fields.len());
        self.fields.push(Field { name, ty: elem.ty(), value, same, overlay: self.overlays });
    }

    fn add_bytes(&mut self, part: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(part);
        start..self.bytes.len()
    }

    fn append_all(&mut self, doc: Doc<'_>) -> Result<()> {
        for elem in doc.ticked() {
            self.append(elem?);
        }
        Ok(())
    }

    fn overlay(&mut self, top: Doc<'_>) -> Result<()> {
        self.overlays += 1;
        let there = self.fields.len();
        for elem in top.ticked() {
            let elem = elem?;
            match self.places.get(elem.key_bytes()) {
                Some(place) if *place < there => self.replace(*place, elem)?,
                _ => self.append(elem),
            }
        }
        value::check_size(self.live_bytes)?;
        if self.bytes.len() > 2 * self.live_bytes + SMALL_BYTES {
            self.compact()?;
        }
        Ok(())
    }

    /// Replaces the value of all fields of a name. Of a name that a document repeats its first field counts.
    fn replace(&mut self, place: usize, elem: Elem<'_>) -> Result<()> {
        let mut next = Some(place);
        while let Some(field) = next.and_then(|place| self.fields.get_mut(place)) {
            work::tick(1)?;
            if field.overlay == self.overlays {
                return Ok(());
            }
            let start = self.bytes.len();
            self.bytes.extend_from_slice(elem.value_bytes());
            self.live_bytes = self.live_bytes - field.value.len() + elem.value_bytes().len();
            (field.ty, field.value) = (elem.ty(), start..self.bytes.len());
            field.overlay = self.overlays;
            next = field.same;
        }
        Ok(())
    }

    /// Drops values that were replaced.
    fn compact(&mut self) -> Result<()> {
        let mut live = Vec::with_capacity(self.live_bytes);
        for field in &mut self.fields {
            work::tick_bytes(64 + field.value.len())?;
            for part in [&mut field.name, &mut field.value] {
                let start = live.len();
                live.extend_from_slice(self.bytes.get(part.clone()).unwrap_or_default());
                *part = start..live.len();
            }
        }
        self.bytes = live;
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        // A field's name is there twice, the second time with the map's entry.
        let field = size_of::<Field>() + size_of::<(Box<[u8]>, usize)>();
        self.bytes.capacity()
            + self.live_bytes.min(self.fields.len() * 16)
            + self.fields.len() * field
    }

    fn write(&self, out: &mut DocWriter<'_>) -> Result<()> {
        let part = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        for field in &self.fields {
            work::tick_bytes(64 + field.value.len())?;
            out.put_raw(part(&field.name), field.ty, part(&field.value));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::doc;

    /// The same by copies alone.
    fn by_copies(docs: &[DocBuf]) -> DocBuf {
        docs.iter().fold(DocBuf::new(), |base, top| overlay(base.as_doc(), top.as_doc()).unwrap())
    }

    fn merged(docs: &[DocBuf]) -> DocBuf {
        let mut merged = Merged::default();
        docs.iter().for_each(|doc| merged.overlay(doc.as_doc()).unwrap());
        merged.into_doc().unwrap().into_buf()
    }

    /// Documents of fields whose names repeat within and between them.
    fn documents(count: u64, fields: u64, names: u64, value_bytes: usize) -> Vec<DocBuf> {
        let mut state = 7u64;
        let mut next = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let mut document = |_| {
            DocBuf::build(|out| {
                for _ in 0..next(fields + 1) {
                    let name = format!("f{}", next(names));
                    match next(3) {
                        0 => out
                            .put(&name, "x".repeat(next(value_bytes as u64 + 1) as usize).as_str()),
                        1 => out.put(&name, next(100) as i64),
                        _ => out.put(&name, Value::Null),
                    }
                }
            })
        };
        (0..count).map(&mut document).collect()
    }

    #[test]
    fn indexed_documents_merge_as_small_ones_do() {
        for (fields, names, value_bytes) in
            [(3, 4, 5), (10, 8, 900), (200, 150, 30), (400, 4000, 60)]
        {
            let docs = documents(30, fields, names, value_bytes);
            assert_eq!(merged(&docs), by_copies(&docs), "{fields} of {names}, {value_bytes}");
        }
        let large = "x".repeat(3000);
        let docs = [
            doc! { "a" => 1, "b" => 2, "a" => 3 },
            doc! { "c" => large.as_str(), "a" => 4, "a" => 5, "d" => 6, "d" => 7 },
            doc! { "d" => 8, "c" => 9 },
        ];
        let expected = doc! { "a" => 4, "b" => 2, "a" => 4, "c" => 9, "d" => 8, "d" => 8 };
        assert_eq!(merged(&docs), expected);
        assert_eq!(by_copies(&docs), expected);
    }

    #[test]
    fn superseded_values_are_dropped() {
        let large = "x".repeat(3000);
        let mut merged = Merged::default();
        for _ in 0..1000 {
            merged.overlay(doc! { "a" => large.as_str() }.as_doc()).unwrap();
        }
        assert!(merged.memory_bytes() < 20_000, "{}", merged.memory_bytes());
    }
}
