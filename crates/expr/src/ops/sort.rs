//! Sort orders: of `$sortArray`, and of `$top`, `$bottom` and their like.

use crate::eval::Env;
use crate::node::{Call, Node, Prepared};
use crate::numeric::Num;
use crate::ops::array::{collect, elems};
use crate::ops::compare;
use crate::ops::registry::Op;
use crate::parse::{self, Parser};
use kauri_base::{Error, Result, bail, sort, work};
use kauri_bson::{Doc, Elem, Value};
use std::cmp::Ordering;

/// `sortBy`: whole values or the fields of documents.
#[derive(Debug)]
pub(crate) enum SortBy {
    Whole {
        descending: bool,
    },
    /// Names and whether descending; any name is a name here.
    Fields(Vec<(Vec<String>, bool)>),
}

impl SortBy {
    fn parse(spec: &Value<'_>) -> Result<SortBy> {
        if let Some(doc) = spec.as_document() {
            let fields: Result<Vec<_>> = doc.iter().map(sort_field).collect();
            let fields = fields?;
            if fields.is_empty() {
                bail!(2942505, "$sortArray requires a non-empty 'sortBy' specification");
            }
            return Ok(SortBy::Fields(fields));
        }
        if !spec.is_number() {
            bail!(
                2942507,
                "Invalid sort direction type {}: sortBy must be 1, -1 or a document",
                spec.type_name()
            );
        }
        match spec.as_i64_exact() {
            Some(1) => Ok(SortBy::Whole { descending: false }),
            Some(-1) => Ok(SortBy::Whole { descending: true }),
            _ => bail!(2942506, "Sort direction must be 1 or -1"),
        }
    }

    /// Sorts elements. The fields that they are sorted by are looked up once.
    fn sort(&self, items: &mut Vec<Elem<'_>>) -> Result<()> {
        let fields = match self {
            SortBy::Whole { descending } => {
                return sort::sort_by(items, |a, b| {
                    directed(compare::elem_order(*a, *b), *descending)
                });
            }
            SortBy::Fields(fields) => fields,
        };
        let mut keyed = Vec::new();
        for elem in items.iter() {
            elem.tick()?;
            work::tick(fields.len() as u32)?;
            let keys: Box<[Value<'_>]> = fields.iter().map(|(path, _)| key(*elem, path)).collect();
            keyed.push((keys, *elem));
        }
        sort::sort_by(&mut keyed, |(a, _), (b, _)| {
            let pairs = a.iter().zip(b).zip(fields);
            let mut orders =
                pairs.map(|((a, b), (_, descending))| directed(compare::order(a, b), *descending));
            orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
        })?;
        items.clear();
        items.extend(keyed.into_iter().map(|(_, elem)| elem));
        Ok(())
    }
}

fn directed(order: Ordering, descending: bool) -> Ordering {
    if descending { order.reverse() } else { order }
}

fn sort_field(elem: Elem<'_>) -> Result<(Vec<String>, bool)> {
    let value = elem.value();
    let bad = || Error::location(2942505, "$sortArray: sort directions must be 1 or -1");
    let descending = match Num::of(&value).and_then(|_| value.as_i64_exact()) {
        Some(1) => false,
        Some(-1) => true,
        _ => return Err(bad()),
    };
    let path: Vec<String> = elem.key().split('.').map(str::to_owned).collect();
    if path.iter().any(String::is_empty) {
        return Err(bad());
    }
    Ok((path, descending))
}

/// The value at a path of an element, without entering arrays; null if there is none.
fn key<'d>(elem: Elem<'d>, path: &[String]) -> Value<'d> {
    let mut here = Some(elem);
    for name in path {
        here = here.and_then(Elem::as_doc).and_then(|doc: Doc<'d>| doc.get(name));
    }
    here.map_or(Value::Null, Elem::value)
}

/// Arguments: input.
pub(crate) fn parse_sort_array(
    parser: &mut Parser<'_>,
    op: &'static Op,
    arg: &Value<'_>,
) -> Result<Node> {
    let Some(doc) = arg.as_document() else {
        bail!(2942500, "$sortArray requires an object as an argument, found: {}", arg.type_name());
    };
    let (mut input, mut sort) = (None, None);
    for elem in doc {
        match elem.key() {
            "input" => input = Some(parser.operand(&elem.value())?),
            "sortBy" => sort = Some(elem.value()),
            name => bail!(2942501, "$sortArray found an unknown argument: {name}"),
        }
    }
    let Some(input) = input else {
        bail!(2942502, "$sortArray requires 'input' to be specified");
    };
    let Some(sort) = sort else {
        bail!(2942503, "$sortArray requires 'sortBy' to be specified");
    };
    Ok(parse::prepared_call(op, vec![input], Prepared::Sort(SortBy::parse(&sort)?)))
}

pub(crate) fn sort_array<'t>(call: &'t Call, env: Env<'t>) -> Result<Value<'t>> {
    let input = call.arg(0, env)?;
    if input.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(items) = input.as_array() else {
        bail!(
            2942504,
            "The input argument to $sortArray must be an array, but was of type: {}",
            input.type_name()
        );
    };
    let mut items = collect(items)?;
    if let Prepared::Sort(by) = &call.prepared {
        by.sort(&mut items)?;
    }
    elems(&items)
}
