//! The collecting accumulators: `$push`, `$addToSet`, `$setUnion` and `$concatArrays`.

use super::saved::{array, int};
use crate::value::array_of;
use kauri_base::{Result, sort, work};
use kauri_bson::writer::put_value_bytes;
use kauri_bson::{Doc, DocBuf, DocWriter, Value, equal, hash_value};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};

/// The elements of a growing array as BSON.
#[derive(Clone, Debug, Default)]
pub(crate) struct Elements {
    bytes: Vec<u8>,
    count: u64,
}

impl Elements {
    /// Adds a value that is there.
    pub fn push(&mut self, value: &Value<'_>) {
        let Some(ty) = value.ty() else { return };
        self.bytes.push(ty as u8);
        // Digits, the lowest last.
        let mut digits = [0u8; 20];
        let (mut at, mut rest) = (digits.len(), self.count);
        loop {
            at -= 1;
            if let Some(digit) = digits.get_mut(at) {
                *digit = b'0' + (rest % 10) as u8;
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.bytes.extend_from_slice(digits.get(at..).unwrap_or_default());
        self.bytes.push(0);
        put_value_bytes(&mut self.bytes, value);
        self.count += 1;
    }

    pub fn extend(&mut self, items: Doc<'_>) -> Result<()> {
        for elem in items.ticked() {
            self.push(&elem?.value());
        }
        Ok(())
    }

    /// See `saved`.
    pub fn save(&self, out: &mut DocWriter<'_>) -> Result<()> {
        out.put("count", self.count as i64);
        out.put("capacity", self.bytes.capacity() as i64);
        out.put_value("elements", &self.value()?);
        Ok(())
    }

    pub fn restore(doc: Doc<'_>) -> Result<Elements> {
        let framed = array(doc, "elements")?.as_bytes();
        // Without the length and the end.
        let framed = framed.get(4..framed.len().saturating_sub(1)).unwrap_or_default();
        // With as much room as there was, so that it goes on to take what it would have taken.
        let capacity = usize::try_from(int(doc, "capacity")?).unwrap_or(0);
        let mut bytes = Vec::with_capacity(capacity.max(framed.len()));
        bytes.extend_from_slice(framed);
        Ok(Elements { bytes, count: int(doc, "count")? as u64 })
    }

    pub fn merge(&mut self, other: &Elements) -> Result<()> {
        let array = other.value()?;
        array.as_array().map_or(Ok(()), |items| self.extend(items))
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    pub fn value(&self) -> Result<Value<'static>> {
        let length = self.bytes.len() + 5;
        work::reserve(length)?;
        work::tick_bytes(length)?;
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&(length as i32).to_le_bytes());
        bytes.extend_from_slice(&self.bytes);
        bytes.push(0);
        Ok(Value::Array(DocBuf::from_vec(bytes).unwrap_or_default().into()))
    }
}

/// A value as a key of the hash table: equal as expressions see it.
#[derive(Clone, Debug)]
struct Key(Value<'static>);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        equal(&self.0, &other.0)
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_value(&self.0, state);
    }
}

/// Distinct values in the order of their first appearance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Distinct {
    places: HashMap<Key, usize>,
    bytes: usize,
}

impl Distinct {
    pub fn insert(&mut self, value: Value<'static>) {
        let place = self.places.len();
        let bytes = super::value_bytes(&value);
        if let Entry::Vacant(entry) = self.places.entry(Key(value)) {
            entry.insert(place);
            self.bytes += bytes;
        }
    }

    /// Of these values, which are all different.
    pub fn restore(values: Doc<'_>) -> Result<Distinct> {
        let mut set = Distinct::default();
        set.insert_all(values)?;
        Ok(set)
    }

    /// Adds the elements of an array.
    pub fn insert_all(&mut self, items: Doc<'_>) -> Result<()> {
        for elem in items.ticked() {
            self.insert(elem?.value().into_owned());
        }
        Ok(())
    }

    pub fn merge(&mut self, other: Distinct) -> Result<()> {
        let mut entries: Vec<_> = other.places.into_iter().collect();
        sort::sort_by(&mut entries, |(_, a), (_, b)| a.cmp(b))?;
        for (key, _) in entries {
            work::tick(1)?;
            self.insert(key.0);
        }
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    pub fn value(&self) -> Result<Value<'static>> {
        let mut entries: Vec<_> = self.places.iter().collect();
        sort::sort_by(&mut entries, |(_, a), (_, b)| a.cmp(b))?;
        array_of(entries.into_iter().map(|(key, _)| &key.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_restored_takes_what_was_saved() {
        let mut elements = Elements::default();
        for bytes in [1, 1000, 1, 70, 5000, 3] {
            elements.push(&Value::from("x".repeat(bytes)));
            let saved = DocBuf::build(|out| elements.save(out).unwrap());
            let restored = Elements::restore(saved.as_doc()).unwrap();
            assert_eq!(restored.memory_bytes(), elements.memory_bytes());
            assert_eq!(restored.value().unwrap(), elements.value().unwrap());
        }
    }
}
