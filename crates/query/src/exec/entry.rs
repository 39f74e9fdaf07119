//! An index entry, and the documents that show its key.

use kauri_base::Result;
use kauri_bson::{DocBuf, DocWriter, Value};
use kauri_catalog::Index;
use std::sync::Arc;

/// An index entry that travels with its row.
#[derive(Clone)]
pub struct Entry {
    /// The index that it is of.
    pub index: Arc<Index>,
    /// Key bytes, without record id.
    pub key: Vec<u8>,
    /// The type information that the key does not have.
    pub type_bits: Vec<u8>,
}

impl Entry {
    /// The key's values, in the order of the index's fields.
    pub fn values(&self) -> Result<Vec<Value<'static>>> {
        self.index.definition().pattern.decode(&self.key, &self.type_bits)
    }

    /// The key as a document with full paths as field names, for `returnKey`.
    pub fn flat(&self) -> Result<DocBuf> {
        let values = self.values()?;
        Ok(DocBuf::build(|w| {
            for (field, value) in self.index.definition().key.as_doc().iter().zip(&values) {
                w.put_value(field.key(), value);
            }
        }))
    }
}

/// The document of a key, as far as the key determines it; `_id` comes first.
pub fn nested(index: &Index, values: &[Value<'static>]) -> DocBuf {
    let key = index.definition().key.as_doc();
    let fields: Vec<(&str, &Value<'static>)> = key.iter().map(|e| e.key()).zip(values).collect();
    DocBuf::build(|w| {
        let (id, others): (Vec<_>, Vec<_>) =
            fields.into_iter().partition(|(path, _)| *path == "_id");
        write(w, &id);
        write(w, &others);
    })
}

fn write(out: &mut DocWriter<'_>, fields: &[(&str, &Value<'static>)]) {
    let name_of = |path: &str| path.split_once('.').map_or(path.len(), |(name, _)| name.len());
    for (position, (path, value)) in fields.iter().enumerate() {
        let name = &path[..name_of(path)];
        let same = |(other, _): &&(&str, &Value<'static>)| &other[..name_of(other)] == name;
        if fields[..position].iter().any(|field| same(&field)) {
            continue;
        }
        let all: Vec<&(&str, &Value<'static>)> = fields.iter().filter(same).collect();
        match all.iter().find(|(path, _)| path.len() == name.len()) {
            Some((_, value)) => out.put_value(name, value),
            None if all.is_empty() => out.put_value(name, value),
            None => {
                let below: Vec<(&str, &Value<'static>)> =
                    all.iter().map(|(path, value)| (&path[name.len() + 1..], *value)).collect();
                write(&mut out.document(name), &below);
            }
        }
    }
}
