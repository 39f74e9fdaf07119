//! Filters on array elements: `arrayFilters` and the conditions of `$pull`.

use crate::cx::ParseCx;
use crate::raw::RawValue;
use crate::update::ops::PullCondition;
use kauri_base::{Result, bail, work};
use kauri_bson::{Doc, DocBuf, Elem, Type};
use kauri_matcher::{MatchCx, MatchExpr, Place, Predicate, is_operator_object};
use std::collections::HashMap;

/// The name under which `$pull` shows an element to its condition.
const ELEMENT: &str = "element";

/// An update's `arrayFilters`. Most updates have none, and pay a pointer.
#[derive(Debug, Default)]
pub(crate) struct ArrayFilters(Option<Box<Filters>>);

#[derive(Debug, Default)]
struct Filters {
    /// In the order in which the update has them.
    filters: Vec<ElementFilter>,
    /// The filters' places by identifier.
    by_identifier: HashMap<Box<str>, usize>,
}

impl ArrayFilters {
    /// Adds a filter; false if there is one of its identifier.
    fn add(&mut self, filter: ElementFilter) -> bool {
        let Filters { filters, by_identifier } = &mut **self.0.get_or_insert_default();
        let is_new = by_identifier.insert(filter.identifier.clone(), filters.len()).is_none();
        filters.push(filter);
        is_new
    }

    fn as_slice(&self) -> &[ElementFilter] {
        self.0.as_ref().map_or(&[], |all| &all.filters)
    }

    /// The filter of this identifier.
    pub(crate) fn get(&self, identifier: &str) -> Option<&ElementFilter> {
        self.as_slice().get(self.place(identifier)?)
    }

    /// The place of the filter of this identifier.
    pub(crate) fn place(&self, identifier: &str) -> Option<usize> {
        self.0.as_ref()?.by_identifier.get(identifier).copied()
    }

    /// The filters in the order in which the update has them.
    pub(crate) fn iter(&self) -> std::slice::Iter<'_, ElementFilter> {
        self.as_slice().iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

/// One of an update's `arrayFilters`.
#[derive(Debug)]
pub(crate) struct ElementFilter {
    identifier: Box<str>,
    expr: MatchExpr,
}

impl ElementFilter {
    /// The identifier in `$[identifier]`.
    pub(crate) fn identifier(&self) -> &str {
        &self.identifier
    }

    /// Whether the element passes.
    pub(crate) fn matches(&self, elem: Elem<'_>) -> Result<bool> {
        self.expr.matches_named(elem, &MatchCx::new())
    }
}

fn matcher_cx<'a>(cx: &ParseCx<'a>) -> kauri_matcher::ParseCx<'a> {
    let place = kauri_matcher::ParseCx::new(Place::Elements);
    match cx.expressions() {
        Some(expressions) => place.with_expressions(expressions),
        None => place,
    }
}

/// Parses `arrayFilters`.
pub(crate) fn parse_array_filters(specs: &[Doc<'_>], cx: &ParseCx<'_>) -> Result<ArrayFilters> {
    let mut filters = ArrayFilters::default();
    for spec in specs {
        let expr = MatchExpr::parse(*spec, &matcher_cx(cx))
            .map_err(|e| e.context("Error parsing array filter"))?;
        let Some(identifier) = placeholder(&expr)? else {
            bail!(
                FailedToParse,
                "Cannot use an expression without a top-level field name in arrayFilters"
            );
        };
        work::tick(1)?;
        if !is_identifier(identifier) {
            bail!(
                BadValue,
                "Error parsing array filter :: caused by :: The top-level field name must be an \
                 alphanumeric string beginning with a lowercase letter, found '{identifier}'"
            );
        }
        let identifier: Box<str> = identifier.into();
        if !filters.add(ElementFilter { identifier: identifier.clone(), expr: expr.optimize() }) {
            bail!(
                FailedToParse,
                "Found multiple array filters with the same top-level field name {identifier}"
            );
        }
    }
    Ok(filters)
}

/// The name that all paths of an array filter begin with.
fn placeholder(expr: &MatchExpr) -> Result<Option<&str>> {
    let children = match expr {
        MatchExpr::And(children) | MatchExpr::Or(children) | MatchExpr::Nor(children) => {
            children.as_slice()
        }
        MatchExpr::Not(child) => std::slice::from_ref(&**child),
        MatchExpr::Leaf(leaf) => return Ok(leaf.path.part(0)),
        _ => return Ok(None),
    };
    let mut found: Option<&str> = None;
    for child in children {
        match (found, placeholder(child)?) {
            (Some(a), Some(b)) if a != b => bail!(
                FailedToParse,
                "Error parsing array filter :: caused by :: Expected a single top-level field \
                 name, found '{a}' and '{b}'"
            ),
            (_, None) => {}
            (_, name) => found = name,
        }
    }
    Ok(found)
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Parses what `$pull` is to remove.
pub(crate) fn parse_pull(elem: Elem<'_>, cx: &ParseCx<'_>) -> Result<PullCondition> {
    let cx = matcher_cx(cx);
    let operators = is_operator_object(elem) && !is_logical(elem);
    match (elem.ty(), elem.as_doc()) {
        (Type::Document, Some(filter)) if !operators => {
            Ok(PullCondition::Documents(MatchExpr::parse(filter, &cx)?.optimize()))
        }
        (Type::Document | Type::Regex, _) => {
            let wrapped = DocBuf::build(|w| w.put_elem_as(ELEMENT, elem));
            Ok(PullCondition::Elements(MatchExpr::parse(wrapped.as_doc(), &cx)?.optimize()))
        }
        _ => Ok(PullCondition::Equal(RawValue::of_elem(elem))),
    }
}

/// Whether the document begins with an operator that stands at a filter's top level.
fn is_logical(elem: Elem<'_>) -> bool {
    let first = elem.as_doc().and_then(Doc::first);
    first.is_some_and(|e| {
        matches!(
            e.key(),
            "$and" | "$or" | "$nor" | "$expr" | "$jsonSchema" | "$text" | "$where" | "$comment"
        )
    })
}

/// Whether an element passes the operators of `$pull`.
pub(crate) fn passes(expr: &MatchExpr, elem: Elem<'_>) -> Result<bool> {
    expr.matches_named(elem, &MatchCx::new())
}

/// Whether a document of the array of `$pull` matches.
pub(crate) fn matches(expr: &MatchExpr, doc: Doc<'_>) -> Result<bool> {
    expr.matches(doc, &MatchCx::new())
}

/// The fields that a filter sets by equality, as upserts use them: every path with its value.
pub(crate) fn equalities<'f>(
    expr: &'f MatchExpr,
    found: &mut Vec<(&'f str, kauri_bson::Value<'f>)>,
) {
    match expr {
        MatchExpr::And(children) => children.iter().for_each(|c| equalities(c, found)),
        MatchExpr::Or(children) => {
            if let [only] = children.as_slice() {
                equalities(only, found);
            }
        }
        MatchExpr::Leaf(leaf) => {
            let value = match &leaf.pred {
                Predicate::Compare(kauri_matcher::CompareOp::Eq, value) => value,
                Predicate::In(list) if list.regexes().is_empty() => match list.values() {
                    [only] => only,
                    _ => return,
                },
                _ => return,
            };
            found.push((leaf.path.as_str(), value.borrow()));
        }
        _ => {}
    }
}
