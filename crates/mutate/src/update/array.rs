//! The array operators: `$push`, `$addToSet`, `$pop`, `$pullAll`, `$pull`.
//!
//! Each takes the array as raw bytes and appends the new array's bytes, or reports no change.

use crate::raw::{self, RawValue};
use kauri_base::{Result, sort, work};
use kauri_bson::compare::{compare, compare_elem_values, compare_elem_with};
use kauri_bson::{Doc, Elem, Type, Value};
use std::cmp::Ordering;

/// `$push` with its modifiers.
#[derive(Debug)]
pub(crate) struct Push {
    pub(crate) each: Vec<RawValue>,
    pub(crate) position: Option<i64>,
    pub(crate) slice: Option<i64>,
    pub(crate) sort: Option<PushSort>,
}

/// `$push`'s `$sort`.
#[derive(Debug)]
pub(crate) enum PushSort {
    /// By the elements themselves.
    Whole {
        /// Largest first.
        descending: bool,
    },
    /// By fields of the elements: dotted path and whether the largest comes first.
    Fields(Vec<(Box<str>, bool)>),
}

/// A value of an array, raw.
type Item<'v> = (Type, &'v [u8]);

impl Push {
    /// Appends the bytes of the array after the push.
    pub(crate) fn apply(&self, array: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        if self.position.is_none() && self.slice.is_none() && self.sort.is_none() {
            return self.append(array, out);
        }
        let mut items: Vec<Item<'_>> = Vec::new();
        for elem in array.ticked() {
            let elem = elem?;
            items.push((elem.ty(), elem.value_bytes()));
        }
        let place = place_of(self.position, items.len());
        items.splice(place..place, self.each.iter().map(|v| (v.ty(), v.bytes())));
        match &self.sort {
            Some(PushSort::Whole { descending }) => {
                sort::sort_by(&mut items, |a, b| directed(compare_items(*a, *b), *descending))?;
            }
            Some(PushSort::Fields(fields)) => sort_by_fields(&mut items, fields)?,
            None => {}
        }
        let kept = match self.slice {
            None => items.as_slice(),
            Some(slice) => {
                let count = usize::try_from(slice.unsigned_abs()).unwrap_or(usize::MAX);
                let count = count.min(items.len());
                let start = if slice < 0 { items.len() - count } else { 0 };
                items.get(start..start + count).unwrap_or_default()
            }
        };
        raw::put_array(out, kept.iter().copied())
    }

    /// The push of nothing but new elements at the end: the array's bytes are copied as they stand.
    fn append(&self, array: Doc<'_>, out: &mut Vec<u8>) -> Result<()> {
        let start = raw::begin(out);
        let bytes = array.as_bytes();
        out.extend_from_slice(bytes.get(4..bytes.len() - 1).unwrap_or_default());
        let count = if self.each.is_empty() { 0 } else { array.count_ticked()? };
        for (i, value) in self.each.iter().enumerate() {
            work::tick_bytes(64 + value.bytes().len())?;
            let name = raw::IndexName::new((count + i) as u64);
            raw::put_raw(out, value.ty(), name.as_bytes(), value.bytes());
        }
        raw::end(out, start);
        Ok(())
    }
}

/// Where `$position` stands in an array of this length: from the end if it is negative.
fn place_of(position: Option<i64>, length: usize) -> usize {
    match position {
        None => length,
        Some(p) => {
            let distance = usize::try_from(p.unsigned_abs()).unwrap_or(usize::MAX).min(length);
            if p < 0 { length - distance } else { distance }
        }
    }
}

fn directed(order: Ordering, descending: bool) -> Ordering {
    if descending { order.reverse() } else { order }
}

fn compare_items(a: Item<'_>, b: Item<'_>) -> Ordering {
    compare(&Value::from_raw(a.0, a.1), &Value::from_raw(b.0, b.1))
}

/// Sorts elements. The fields that they are sorted by are looked up once.
fn sort_by_fields(items: &mut Vec<Item<'_>>, fields: &[(Box<str>, bool)]) -> Result<()> {
    let mut keyed = Vec::new();
    for item in items.iter() {
        work::tick_bytes(64 * fields.len() + item.1.len())?;
        let keys: Box<[Value<'_>]> = fields.iter().map(|(path, _)| sort_key(*item, path)).collect();
        keyed.push((keys, *item));
    }
    sort::sort_by(&mut keyed, |(a, _), (b, _)| {
        let pairs = a.iter().zip(b).zip(fields);
        let mut orders =
            pairs.map(|((a, b), (_, descending))| directed(compare(a, b), *descending));
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    })?;
    items.clear();
    items.extend(keyed.into_iter().map(|(_, item)| item));
    Ok(())
}

/// What a path finds in an element, null if nothing: arrays are walked by position only.
fn sort_key<'v>(item: Item<'v>, path: &str) -> Value<'v> {
    let mut doc = match item {
        (Type::Document, bytes) => Doc::from_bytes(bytes).unwrap_or(Doc::EMPTY),
        _ => return Value::Null,
    };
    let mut parts = path.split('.').peekable();
    while let Some(part) = parts.next() {
        let Some(elem) = doc.get(part) else { return Value::Null };
        if parts.peek().is_none() {
            return elem.value();
        }
        match elem.as_doc() {
            Some(inner) => doc = inner,
            None => return Value::Null,
        }
    }
    Value::Null
}

/// Values without duplicates, in comparison order for search, with their original order kept.
#[derive(Debug)]
pub(crate) struct ValueSet {
    /// In the order given, each once.
    values: Vec<RawValue>,
    /// Places in `values`, in comparison order.
    order: Vec<usize>,
}

impl ValueSet {
    pub(crate) fn new(all: Vec<RawValue>) -> Result<ValueSet> {
        let mut order: Vec<usize> = (0..all.len()).collect();
        let value = |i: &usize| all.get(*i).map_or(Value::Missing, RawValue::value);
        // The sort is stable, so the first of equal values stays.
        sort::sort_by(&mut order, |a, b| compare(&value(a), &value(b)))?;
        work::tick(all.len() as u32)?;
        order.dedup_by(|b, a| compare(&value(a), &value(b)).is_eq());
        let mut keep = vec![false; all.len()];
        order.iter().filter_map(|i| keep.get_mut(*i).map(|k| *k = true)).for_each(drop);
        let mut renumbered = vec![0; all.len()];
        let mut values = Vec::with_capacity(order.len());
        for ((place, value), kept) in all.into_iter().enumerate().zip(keep) {
            if kept {
                if let Some(slot) = renumbered.get_mut(place) {
                    *slot = values.len();
                }
                values.push(value);
            }
        }
        let order = order.iter().map(|i| renumbered.get(*i).copied().unwrap_or_default()).collect();
        Ok(ValueSet { values, order })
    }

    pub(crate) fn values(&self) -> &[RawValue] {
        &self.values
    }

    /// The place of the value that equals the element's.
    fn find(&self, elem: Elem<'_>) -> Option<usize> {
        let order = |i: &usize| match self.values.get(*i) {
            Some(value) => compare_elem_with(elem, &value.value()).reverse(),
            None => Ordering::Less,
        };
        let place = self.order.binary_search_by(order).ok()?;
        self.order.get(place).copied()
    }

    /// `$addToSet`: appends the bytes of the array with those of the values that it lacks; nothing
    /// and false if it has them all.
    pub(crate) fn add_to(&self, array: Doc<'_>, out: &mut Vec<u8>) -> Result<bool> {
        let mut present = vec![false; self.values.len()];
        let mut left = present.len();
        let mut count = 0;
        for elem in array.ticked() {
            let elem = elem?;
            count += 1;
            if left == 0 {
                continue;
            }
            if let Some(found) = self.find(elem).and_then(|i| present.get_mut(i))
                && !*found
            {
                *found = true;
                left -= 1;
            }
        }
        if left == 0 {
            return Ok(false);
        }
        let start = raw::begin(out);
        let bytes = array.as_bytes();
        out.extend_from_slice(bytes.get(4..bytes.len() - 1).unwrap_or_default());
        for (value, _) in self.values.iter().zip(&present).filter(|(_, present)| !**present) {
            work::tick_bytes(64 + value.bytes().len())?;
            let name = raw::IndexName::new(count);
            raw::put_raw(out, value.ty(), name.as_bytes(), value.bytes());
            count += 1;
        }
        raw::end(out, start);
        Ok(true)
    }

    /// Whether a value equals the element's.
    pub(crate) fn contains(&self, elem: Elem<'_>) -> bool {
        self.find(elem).is_some()
    }
}

/// Appends the bytes of the array without the elements that `remove` names; nothing and false if
/// it names none.
pub(crate) fn retain(
    array: Doc<'_>,
    out: &mut Vec<u8>,
    mut remove: impl FnMut(Elem<'_>) -> Result<bool>,
) -> Result<bool> {
    let start = raw::begin(out);
    let (mut kept, mut removed) = (0u64, false);
    for elem in array.ticked() {
        let elem = elem?;
        if remove(elem)? {
            removed = true;
            continue;
        }
        let name = raw::IndexName::new(kept);
        raw::put_raw(out, elem.ty(), name.as_bytes(), elem.value_bytes());
        kept += 1;
    }
    if removed {
        raw::end(out, start);
    } else {
        out.truncate(start);
    }
    Ok(removed)
}

/// `$pop`: appends the bytes of the array without its first or last element; nothing and false if
/// it is empty.
pub(crate) fn pop(array: Doc<'_>, first: bool, out: &mut Vec<u8>) -> Result<bool> {
    let count = array.count_ticked()?;
    if count == 0 {
        return Ok(false);
    }
    let skip = usize::from(first);
    let kept = array.iter().skip(skip).take(count - 1).map(|e| (e.ty(), e.value_bytes()));
    raw::put_array(out, kept)?;
    Ok(true)
}

/// Whether two elements hold equal values in the comparison order.
pub(crate) fn equal(a: Elem<'_>, b: Elem<'_>) -> bool {
    compare_elem_values(a, b).is_eq()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::{DocBuf, array, doc};

    fn items(value: &Value<'_>) -> Vec<RawValue> {
        value.as_array().into_iter().flatten().map(RawValue::of_elem).collect()
    }

    fn show(bytes: Vec<u8>) -> String {
        let doc = DocBuf::from_vec(bytes).unwrap_or_default();
        let keys_in_order = doc.as_doc().iter().enumerate().all(|(i, e)| e.key() == i.to_string());
        assert!(keys_in_order, "{doc:?}");
        crate::text::value(&Value::Array(doc.into()))
    }

    fn pushed(array: &Value<'_>, push: &Push) -> String {
        let mut out = Vec::new();
        push.apply(array.as_array().unwrap_or(Doc::EMPTY), &mut out).unwrap();
        show(out)
    }

    #[test]
    fn push_positions_and_slices() {
        let base = array![1, 2, 3];
        for (position, slice, expected) in [
            (None, None, "[ 1, 2, 3, 8, 9 ]"),
            (Some(0), None, "[ 8, 9, 1, 2, 3 ]"),
            (Some(-1), None, "[ 1, 2, 8, 9, 3 ]"),
            (Some(i64::MIN), None, "[ 8, 9, 1, 2, 3 ]"),
            (Some(i64::MAX), None, "[ 1, 2, 3, 8, 9 ]"),
            (None, Some(2), "[ 1, 2 ]"),
            (None, Some(-2), "[ 8, 9 ]"),
            (Some(1), Some(0), "[]"),
            (None, Some(i64::MIN), "[ 1, 2, 3, 8, 9 ]"),
            (None, Some(i64::MAX), "[ 1, 2, 3, 8, 9 ]"),
        ] {
            let push = Push { each: items(&array![8, 9]), position, slice, sort: None };
            assert_eq!(pushed(&base, &push), expected, "{position:?} {slice:?}");
        }
    }

    #[test]
    fn push_sorts_by_value_or_by_fields() {
        let whole = |descending| Some(PushSort::Whole { descending });
        let push = |each, sort| Push { each, position: None, slice: None, sort };
        let base = array![3, "a", 1.5];
        let ascending = push(items(&array![2, Value::Null]), whole(false));
        assert_eq!(pushed(&base, &ascending), r#"[ null, 1.5, 2, 3, "a" ]"#);
        let base = array![doc! { "k" => doc! { "n" => 2 } }, 7, doc! { "k" => doc! { "n" => 1 } }];
        let fields = Some(PushSort::Fields(vec![("k.n".into(), true)]));
        let sorted = pushed(&base, &push(Vec::new(), fields));
        assert_eq!(sorted, "[ { k: { n: 2 } }, { k: { n: 1 } }, 7 ]");
    }

    #[test]
    fn sets_compare_numbers_across_types() {
        let set = ValueSet::new(items(&array![2.0, 5, 2, "x", 5.0])).unwrap();
        assert_eq!(set.values().len(), 3);
        let mut out = Vec::new();
        let base = array![1, 2];
        assert!(set.add_to(base.as_array().unwrap_or(Doc::EMPTY), &mut out).unwrap());
        assert_eq!(show(out), r#"[ 1, 2, 5, "x" ]"#);
        let full = array!["x", 5, 7, 2];
        let mut out = Vec::new();
        assert!(!set.add_to(full.as_array().unwrap_or(Doc::EMPTY), &mut out).unwrap());
        assert!(out.is_empty());
        let removed =
            retain(full.as_array().unwrap_or(Doc::EMPTY), &mut out, |e| Ok(set.contains(e)));
        assert_eq!(removed, Ok(true));
        assert_eq!(show(out), "[ 7 ]");
    }

    #[test]
    fn pop_takes_one_from_an_end() {
        let base = array![1, 2, 3];
        for (first, expected) in [(true, "[ 2, 3 ]"), (false, "[ 1, 2 ]")] {
            let mut out = Vec::new();
            assert!(pop(base.as_array().unwrap_or(Doc::EMPTY), first, &mut out).unwrap());
            assert_eq!(show(out), expected);
        }
        let mut out = Vec::new();
        assert!(!pop(Doc::EMPTY, true, &mut out).unwrap());
        assert!(out.is_empty());
    }
}
