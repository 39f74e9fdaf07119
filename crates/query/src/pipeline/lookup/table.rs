//! A join's other side in memory: its documents, and a hash table of the joined field's values.

use super::values;
use crate::exec::QueryEnv;
use crate::pipeline::hash::HashKey;
use kauri_base::{Result, sort, work};
use kauri_bson::keygen::{KeyPattern, Keys};
use kauri_bson::{Doc, KeyStringBuilder, Type, Value, doc};
use kauri_matcher::Matcher;
use std::collections::HashMap;
use std::sync::Arc;

/// Documents, one behind the other.
#[derive(Default)]
pub struct Docs {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Docs {
    /// Adds what `write` puts at the end of the bytes, which is one document.
    pub fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.starts.push(self.bytes.len());
        write(&mut self.bytes);
    }

    /// The document at this place.
    pub fn get(&self, at: usize) -> Option<Doc<'_>> {
        let rest = self.bytes.get(*self.starts.get(at)?..)?;
        Doc::split_prefix(rest).ok().map(|(doc, _)| doc)
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Bytes that it holds.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.starts.len() * size_of::<usize>()
    }
}

/// See the module's head.
pub struct Table {
    /// The documents.
    pub docs: Arc<Docs>,
    path: String,
    /// The documents by the keys that an index on the path would have of them.
    by_key: HashMap<Box<[u8]>, Vec<u32>, HashKey>,
}

impl Table {
    /// The table of these documents, by the values at a path; none if the keys exceed `bytes_max` bytes.
    pub fn new(docs: Docs, path: &str, key: HashKey, bytes_max: usize) -> Result<Option<Table>> {
        let pattern = KeyPattern::parse(doc! { path => 1 }.as_doc())?;
        let mut by_key: HashMap<Box<[u8]>, Vec<u32>, HashKey> = HashMap::with_hasher(key);
        let mut bytes = docs.memory_bytes();
        let mut keys = Keys::default();
        for at in 0..docs.len() {
            let (Some(doc), Ok(number)) = (docs.get(at), u32::try_from(at)) else {
                return Ok(None);
            };
            work::tick_bytes(64 + doc.as_bytes().len())?;
            pattern.generate(doc, false, &mut keys)?;
            for key in keys.iter() {
                bytes += size_of::<u32>();
                match by_key.get_mut(key.bytes) {
                    Some(places) => places.push(number),
                    None => {
                        bytes += key.bytes.len() + 64;
                        by_key.insert(key.bytes.into(), vec![number]);
                    }
                }
            }
            if bytes > bytes_max {
                return Ok(None);
            }
        }
        Ok(Some(Table { docs: Arc::new(docs), path: path.to_owned(), by_key }))
    }

    /// The places of the documents that have one of these values, ascending.
    pub fn find(&self, values: &[Value<'_>], env: &QueryEnv) -> Result<Vec<u32>> {
        let mut places = Vec::new();
        let mut key = KeyStringBuilder::new();
        for value in values {
            work::tick(1)?;
            // What an index alone does not tell: whether a null is one, what is in arrays.
            let ty = value.ty().unwrap_or(Type::Null);
            if matches!(ty, Type::Null | Type::Undefined | Type::Array) {
                self.scan(value, env, &mut places)?;
                continue;
            }
            key.clear();
            key.append(value, false);
            let found = self.by_key.get(key.bytes()).map_or(&[][..], Vec::as_slice);
            work::tick_bytes(found.len())?;
            places.extend(found);
        }
        if values.len() > 1 {
            sort::sort_by(&mut places, u32::cmp)?;
            places.dedup();
        }
        Ok(places)
    }

    fn scan(&self, value: &Value<'_>, env: &QueryEnv, places: &mut Vec<u32>) -> Result<()> {
        let matcher = Matcher::new(values::equality(&self.path, value)?);
        let cx = crate::match_cx(env);
        for at in 0..self.docs.len() {
            work::tick(1)?;
            if let Some(doc) = self.docs.get(at)
                && matcher.matches(doc, &cx)?
            {
                places.push(at as u32);
            }
        }
        Ok(())
    }
}
