//! Dotted field paths: their syntax and errors, and their evaluation on a document.
//!
//! In an array, a path continues in each element that is a document (not in nested arrays) and collects the
//! results. A numeric component is a field name, never an index.

use crate::field::{self, Wanted};
use kauri_base::{Error, Result, bail, limits, work};
use kauri_bson::{ArrayWriter, Doc, DocBuf, Elem, Type, Value};

/// A parsed dotted path of at least one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldPath {
    parts: Box<[String]>,
    /// The same names, made ready for the search.
    wanted: Box<[Wanted]>,
}

impl FieldPath {
    /// Parses `a.b.c`.
    pub fn parse(text: &str) -> Result<FieldPath> {
        if text.is_empty() {
            bail!(40352, "FieldPath cannot be constructed with empty string");
        }
        if text.ends_with('.') {
            bail!(40353, "FieldPath must not end with a '.'.");
        }
        let parts: Box<[String]> = text.split('.').map(str::to_owned).collect();
        if parts.len() > limits::DOCUMENT_DEPTH_MAX {
            bail!(5984700, "FieldPath is too long");
        }
        parts.iter().try_for_each(|part| check_field_name(part))?;
        let wanted = parts.iter().map(|part| Wanted::new(part)).collect();
        Ok(FieldPath { parts, wanted })
    }

    /// The names in order.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// The names joined by dots.
    pub fn dotted(&self) -> String {
        self.parts.join(".")
    }

    /// The value of the path in a document.
    #[inline]
    pub fn get<'d>(&self, doc: Doc<'d>) -> Value<'d> {
        walk(doc, &self.wanted)
    }

    /// The value of the path in a value, which may be an array of documents.
    pub fn get_in<'d>(&self, value: &'d Value<'_>) -> Value<'d> {
        match value {
            Value::Document(doc) => walk(doc.as_doc(), &self.wanted),
            Value::Array(items) => walk_array(items.as_doc(), &self.wanted),
            _ => Value::Missing,
        }
    }
}

fn walk<'d>(doc: Doc<'d>, parts: &[Wanted]) -> Value<'d> {
    let mut doc = doc;
    let mut parts = parts;
    loop {
        let Some((name, rest)) = parts.split_first() else { return Value::Missing };
        let Some((ty, bytes)) = field::find(doc, name) else { return Value::Missing };
        if rest.is_empty() {
            return Value::from_raw(ty, bytes);
        }
        match (ty, Doc::from_bytes(bytes)) {
            (Type::Document, Ok(inner)) => doc = inner,
            (Type::Array, Ok(items)) => return walk_array(items, rest),
            _ => return Value::Missing,
        }
        parts = rest;
    }
}

fn walk_array(items: Doc<'_>, parts: &[Wanted]) -> Value<'static> {
    let mut bytes = Vec::with_capacity(64);
    let mut out = ArrayWriter::new(&mut bytes);
    for item in items.iter().filter(|e| e.ty() == Type::Document).filter_map(Elem::as_doc) {
        work::tick_infallible(1);
        // A name alone is the common case: copied without a look inside.
        match parts {
            [name] => {
                if let Some((ty, value)) = field::find(item, name) {
                    out.push_raw(ty, value);
                }
            }
            _ => {
                let found = walk(item, parts);
                if !found.is_missing() {
                    out.push_value(&found);
                }
            }
        }
    }
    drop(out);
    Value::Array(DocBuf::from_vec(bytes).unwrap_or_default().into())
}

/// Checks one name of an object expression.
pub fn check_object_name(name: &str) -> Result<()> {
    check_field_name(name)
}

/// Checks one name of a path.
pub fn check_field_name(name: &str) -> Result<()> {
    if name.is_empty() {
        bail!(15998, "FieldPath field names may not be empty strings.");
    }
    if name.starts_with('$') && !is_allowed_dollar_name(name) {
        return Err(dollar_name(name));
    }
    if name.contains('\0') {
        bail!(16411, "FieldPath field names may not contain '\\0'.");
    }
    if name.contains('.') {
        bail!(
            16412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField."
        );
    }
    Ok(())
}

/// The names of a DBRef, and of metadata, are paths in their own right.
fn is_allowed_dollar_name(name: &str) -> bool {
    matches!(name, "$id" | "$ref" | "$db" | "$textScore" | "$sortKey" | "$randVal" | "$recordId")
}

fn dollar_name(name: &str) -> Error {
    Error::location(
        16410,
        format!(
            "FieldPath field names may not start with '$', given '{name}'. Consider using $getField or $setField."
        ),
    )
}
