//! Validates a value against a schema.

use super::{
    Additional, ArrayRules, Dependency, Items, NumberRules, ObjectRules, Rules, Schema, StringRules,
};
use kauri_base::{Result, sort, work};
use kauri_bson::{Decimal128, Doc, Elem, Number, Value, compare, equal};
use std::cmp::Ordering;
use std::collections::HashSet;

impl Schema {
    /// Whether the document obeys.
    pub(crate) fn matches(&self, doc: Doc<'_>) -> Result<bool> {
        self.rules.allow(&Value::from(doc))
    }
}

impl Rules {
    pub(super) fn allow(&self, value: &Value<'_>) -> Result<bool> {
        work::check_stack()?;
        if let (Some(types), Some(ty)) = (self.types, value.ty())
            && !types.contains(ty)
        {
            return Ok(false);
        }
        work::tick(4)?;
        if let Some(values) = &self.values
            && !is_one_of(values, value)?
        {
            return Ok(false);
        }
        Ok(self.allow_by_type(value)? && self.allow_by_schemas(value)?)
    }

    fn allow_by_type(&self, value: &Value<'_>) -> Result<bool> {
        match value {
            Value::String(text) => self.string.allow(text),
            text if text.string_bytes().is_some() => {
                Ok(self.string.allow_not_utf8(text.string_bytes().unwrap_or_default()))
            }
            Value::Array(list) => self.array.allow(list.as_doc()),
            Value::Document(doc) => self.object.allow(doc.as_doc()),
            _ => Ok(value.as_number().is_none_or(|n| self.number.allow(value, n))),
        }
    }

    fn allow_by_schemas(&self, value: &Value<'_>) -> Result<bool> {
        for rules in &self.all_of {
            if !rules.allow(value)? {
                return Ok(false);
            }
        }
        if let Some(any_of) = &self.any_of
            && count_allowing(any_of, value, 1)? == 0
        {
            return Ok(false);
        }
        if let Some(one_of) = &self.one_of
            && count_allowing(one_of, value, 2)? != 1
        {
            return Ok(false);
        }
        match &self.not {
            Some(rules) => Ok(!rules.allow(value)?),
            None => Ok(true),
        }
    }
}

fn is_one_of(values: &[Value<'_>], value: &Value<'_>) -> Result<bool> {
    for one in values {
        work::tick(1)?;
        if equal_unordered(one, value) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// How many of the schemas the value obeys, counted up to `enough`.
fn count_allowing(schemas: &[Rules], value: &Value<'_>, enough: usize) -> Result<usize> {
    let mut count = 0;
    for rules in schemas {
        count += usize::from(rules.allow(value)?);
        if count >= enough {
            break;
        }
    }
    Ok(count)
}

impl NumberRules {
    fn allow(&self, value: &Value<'_>, number: Number) -> bool {
        self.reaches_minimum(value) && self.keeps_maximum(value) && self.is_multiple(number)
    }

    pub(super) fn reaches_minimum(&self, value: &Value<'_>) -> bool {
        self.minimum.as_ref().is_none_or(|bound| bound.admits(value, Ordering::Greater))
    }

    pub(super) fn keeps_maximum(&self, value: &Value<'_>) -> bool {
        self.maximum.as_ref().is_none_or(|bound| bound.admits(value, Ordering::Less))
    }

    pub(super) fn is_multiple(&self, number: Number) -> bool {
        self.multiple_of.is_none_or(|divisor| (to_decimal(number) % divisor).is_zero())
    }
}

impl super::Bound {
    /// Whether a number lies on this side of the bound, or on it. As with `$gte` and `$lte`, NaN is
    /// within no bound but NaN's own.
    fn admits(&self, value: &Value<'_>, side: Ordering) -> bool {
        if value.is_nan() || self.value.is_nan() {
            return value.is_nan() && self.value.is_nan() && !self.exclusive;
        }
        let order = compare(value, &self.value);
        order == side || order.is_eq() && !self.exclusive
    }
}

/// The number as a decimal; a double with its 15 significant digits.
pub(crate) fn to_decimal(number: Number) -> Decimal128 {
    match number {
        Number::Int(v) => Decimal128::from(v),
        Number::Double(v) => Decimal128::from_f64(v),
        Number::Decimal(v) => v,
    }
}

/// Whether a count keeps within bounds.
pub(super) fn within(count: u64, min: Option<u64>, max: Option<u64>) -> bool {
    min.is_none_or(|min| count >= min) && max.is_none_or(|max| count <= max)
}

impl StringRules {
    fn allow(&self, text: &str) -> Result<bool> {
        let bounded = self.length_min.is_some() || self.length_max.is_some();
        if bounded && !within(length(text.as_bytes()), self.length_min, self.length_max) {
            return Ok(false);
        }
        self.pattern.as_ref().map_or(Ok(true), |regex| regex.is_match(text))
    }

    /// No pattern matches text that is not UTF-8.
    fn allow_not_utf8(&self, text: &[u8]) -> bool {
        within(length(text), self.length_min, self.length_max) && self.pattern.is_none()
    }
}

/// The length of a text as the keywords count it: in code points, which are bytes that begin one.
pub(super) fn length(text: &[u8]) -> u64 {
    text.iter().filter(|byte| **byte & 0xC0 != 0x80).count() as u64
}

impl ArrayRules {
    fn allow(&self, list: Doc<'_>) -> Result<bool> {
        let bounded = self.count_min.is_some() || self.count_max.is_some();
        if bounded && !within(list.count_ticked()? as u64, self.count_min, self.count_max) {
            return Ok(false);
        }
        if self.unique && has_duplicates(list)? {
            return Ok(false);
        }
        match &self.items {
            Items::Any => Ok(true),
            Items::Each(rules) => all_allowed(list, |elem| rules.allow(&elem.value())),
            Items::ByPosition(schemas) => {
                let mut position = 0;
                all_allowed(list, |elem| {
                    position += 1;
                    match (schemas.get(position - 1), &self.additional) {
                        (Some(rules), _) => rules.allow(&elem.value()),
                        (None, Some(additional)) => additional.allow(elem),
                        (None, None) => Ok(true),
                    }
                })
            }
        }
    }
}

impl Additional {
    fn allow(&self, elem: Elem<'_>) -> Result<bool> {
        match self {
            Additional::Allowed(allowed) => Ok(*allowed),
            Additional::Rules(rules) => rules.allow(&elem.value()),
        }
    }
}

impl ObjectRules {
    fn allow(&self, doc: Doc<'_>) -> Result<bool> {
        if !has_all(doc, &self.required)? {
            return Ok(false);
        }
        let bounded = self.count_min.is_some() || self.count_max.is_some();
        if bounded && !within(doc.count_ticked()? as u64, self.count_min, self.count_max) {
            return Ok(false);
        }
        let present = present_of(doc, self.dependencies.iter().map(|(name, _)| name))?;
        for ((_, dependency), present) in self.dependencies.iter().zip(present) {
            if !present {
                continue;
            }
            if !dependency.holds(doc)? {
                return Ok(false);
            }
        }
        if self.properties.is_empty() && self.patterns.is_empty() && self.additional.is_none() {
            return Ok(true);
        }
        all_allowed(doc, |elem| self.allow_property(elem))
    }

    /// Whether `properties` or `patternProperties` speaks of this property.
    pub(super) fn names(&self, name: &str) -> Result<bool> {
        if self.by_name.contains_key(name) {
            return Ok(true);
        }
        for (regex, _) in &self.patterns {
            if regex.is_match(name)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn allow_property(&self, elem: Elem<'_>) -> Result<bool> {
        let mut named = false;
        let positions = self.by_name.get(elem.key()).map_or(&[][..], Vec::as_slice);
        for (_, rules) in positions.iter().filter_map(|at| self.properties.get(*at)) {
            named = true;
            if !rules.allow(&elem.value())? {
                return Ok(false);
            }
        }
        for (regex, rules) in &self.patterns {
            if regex.is_match(elem.key())? {
                named = true;
                if !rules.allow(&elem.value())? {
                    return Ok(false);
                }
            }
        }
        match &self.additional {
            Some(additional) if !named => additional.allow(elem),
            _ => Ok(true),
        }
    }
}

impl Dependency {
    pub(super) fn holds(&self, doc: Doc<'_>) -> Result<bool> {
        match self {
            Dependency::Properties(names) => has_all(doc, names),
            Dependency::Rules(rules) => rules.allow(&Value::from(doc)),
        }
    }
}

fn all_allowed(doc: Doc<'_>, mut allow: impl FnMut(Elem<'_>) -> Result<bool>) -> Result<bool> {
    for elem in doc.ticked() {
        if !allow(elem?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Names that are looked up one by one.
const FEW_NAMES: usize = 8;

/// Whether the object has fields of all these names.
fn has_all(doc: Doc<'_>, names: &[String]) -> Result<bool> {
    Ok(present_of(doc, names.iter())?.into_iter().all(|present| present))
}

/// Of each name whether the object has a field of it.
fn present_of<'n>(
    doc: Doc<'_>,
    names: impl ExactSizeIterator<Item = &'n String>,
) -> Result<Vec<bool>> {
    work::tick(names.len() as u32)?;
    if names.len() <= FEW_NAMES {
        return Ok(names.map(|name| doc.get(name).is_some()).collect());
    }
    let mut fields = HashSet::new();
    for elem in doc.ticked() {
        fields.insert(elem?.key_bytes());
    }
    Ok(names.map(|name| fields.contains(name.as_bytes())).collect())
}

/// Whether two elements of the array are equal, fields of objects in any order.
pub(crate) fn has_duplicates(list: Doc<'_>) -> Result<bool> {
    let mut values: Vec<Value<'_>> = Vec::new();
    for elem in list.ticked() {
        values.push(elem?.value());
    }
    sort::sort_by(&mut values, |a, b| compare_unordered(a, b, 0))?;
    for pair in values.windows(2) {
        work::tick(1)?;
        if let [a, b] = pair
            && compare_unordered(a, b, 0).is_eq()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Equality that ignores the order of objects' fields.
pub(super) fn equal_unordered(a: &Value<'_>, b: &Value<'_>) -> bool {
    match (a, b) {
        (Value::Document(_) | Value::Array(_), Value::Document(_) | Value::Array(_)) => {
            compare_unordered(a, b, 0).is_eq()
        }
        _ => equal(a, b),
    }
}

/// Nesting up to here is looked into; no document that was accepted is deeper.
const DEPTH_MAX: usize = kauri_base::limits::DOCUMENT_DEPTH_MAX + 8;

fn elements(doc: Doc<'_>, by_name: bool) -> Vec<Elem<'_>> {
    work::tick_infallible((doc.as_bytes().len() / 16) as u32);
    let mut elems: Vec<Elem<'_>> = doc.iter().collect();
    if by_name {
        elems.sort_by(|a, b| a.key_bytes().cmp(b.key_bytes()));
    }
    elems
}

fn compare_unordered(a: &Value<'_>, b: &Value<'_>, depth: usize) -> Ordering {
    let (names, left, right) = match (a, b) {
        _ if depth > DEPTH_MAX || work::check_stack().is_err() => return compare(a, b),
        (Value::Document(a), Value::Document(b)) => (true, a.as_doc(), b.as_doc()),
        (Value::Array(a), Value::Array(b)) => (false, a.as_doc(), b.as_doc()),
        _ => return compare(a, b),
    };
    let (left, right) = (elements(left, names), elements(right, names));
    for (l, r) in left.iter().zip(&right) {
        let class = |e: &Elem<'_>| e.ty().canonical();
        let mut order = class(l).cmp(&class(r));
        if order.is_eq() && names {
            order = l.key_bytes().cmp(r.key_bytes());
        }
        let order = order.then_with(|| compare_unordered(&l.value(), &r.value(), depth + 1));
        if order.is_ne() {
            return order;
        }
    }
    left.len().cmp(&right.len())
}
