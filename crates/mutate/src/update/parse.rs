//! Parses operator documents.

use crate::cx::ParseCx;
use crate::raw::RawValue;
use crate::text;
use crate::update::arithmetic::{Arithmetic, BitOp};
use crate::update::array::{Push, PushSort, ValueSet};
use crate::update::condition::{self, ArrayFilters};
use crate::update::ops::{Leaf, Op, Operand};
use crate::update::path::{Component, Name, parse_path};
use crate::update::tree::{Entry, Fields, build};
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, Elem, Type, Value, not_utf8};
use std::cmp::Ordering;

/// A parsed operator document.
#[derive(Debug)]
pub(crate) struct Operators {
    pub(crate) leaves: Vec<Leaf>,
    pub(crate) renames: Vec<Rename>,
    pub(crate) filters: ArrayFilters,
    pub(crate) tree: Fields,
    /// Whether a path has a `$`.
    pub(crate) positional: bool,
    /// Whether a path begins at `_id`.
    pub(crate) touches_id: bool,
}

/// One `$rename`.
#[derive(Debug)]
pub(crate) struct Rename {
    pub(crate) from: Vec<Name>,
    pub(crate) to: Vec<Name>,
    pub(crate) from_path: Box<str>,
    pub(crate) to_path: Box<str>,
}

/// Parses `{$set: {…}, …}`.
pub(crate) fn parse_operators(
    spec: Doc<'_>,
    array_filters: &[Doc<'_>],
    cx: &ParseCx<'_>,
) -> Result<Operators> {
    let filters = condition::parse_array_filters(array_filters, cx)?;
    let mut parser = Parser { cx, leaves: Vec::new(), renames: Vec::new(), entries: Vec::new() };
    for elem in spec {
        parser.modifier(elem)?;
    }
    let Parser { leaves, renames, entries, .. } = parser;
    check_filters(&filters, &entries, &leaves, spec)?;
    let has =
        |wanted: fn(&Component) -> bool| entries.iter().any(|e| e.components.iter().any(wanted));
    let positional = has(|c| matches!(c, Component::Positional));
    let touches_id = entries.iter().any(
        |e| matches!(e.components.first(), Some(Component::Field(name)) if name.as_str() == "_id"),
    );
    let tree = build(entries)?;
    Ok(Operators { leaves, renames, filters, tree, positional, touches_id })
}

/// Checks that identifiers and array filters belong to each other.
fn check_filters(
    filters: &ArrayFilters,
    entries: &[Entry],
    leaves: &[Leaf],
    spec: Doc<'_>,
) -> Result<()> {
    let mut used = vec![false; filters.len()];
    for entry in entries {
        for component in &entry.components {
            let Component::Filtered(identifier) = component else { continue };
            if identifier.is_empty() {
                continue;
            }
            match filters.place(identifier) {
                Some(place) => used.get_mut(place).into_iter().for_each(|used| *used = true),
                None => {
                    let path = leaves.get(entry.leaf).map_or("", |l| &l.path);
                    bail!(
                        BadValue,
                        "No array filter found for identifier '{identifier}' in path '{path}'"
                    );
                }
            }
        }
    }
    match filters.iter().zip(used).find(|(_, used)| !used) {
        Some((filter, _)) => bail!(
            FailedToParse,
            "The array filter for identifier '{}' was not used in the update {}",
            filter.identifier(),
            text::doc(spec)
        ),
        None => Ok(()),
    }
}

struct Parser<'p> {
    cx: &'p ParseCx<'p>,
    leaves: Vec<Leaf>,
    renames: Vec<Rename>,
    entries: Vec<Entry>,
}

impl Parser<'_> {
    fn modifier(&mut self, elem: Elem<'_>) -> Result<()> {
        let name = elem.key();
        let parse: fn(&mut Self, Elem<'_>) -> Result<Op> = match name {
            "$set" => |_, e| Ok(Op::Set(Operand::of_elem(e))),
            "$setOnInsert" => |_, e| Ok(Op::SetOnInsert(Operand::of_elem(e))),
            "$unset" => |_, _| Ok(Op::Unset),
            "$inc" => |_, e| arithmetic(Arithmetic::Add, e),
            "$mul" => |_, e| arithmetic(Arithmetic::Multiply, e),
            "$min" => |_, e| Ok(Op::Extreme(Ordering::Less, Operand::of_elem(e))),
            "$max" => |_, e| Ok(Op::Extreme(Ordering::Greater, Operand::of_elem(e))),
            "$currentDate" => |_, e| current_date(e),
            "$rename" => Self::rename,
            "$push" => |_, e| Ok(Op::Push(push(e)?)),
            "$addToSet" => |_, e| add_to_set(e),
            "$pop" => |_, e| pop(e),
            "$pull" => |parser, e| Ok(Op::Pull(condition::parse_pull(e, parser.cx)?)),
            "$pullAll" => |_, e| pull_all(e),
            "$bit" => |_, e| bit(e),
            _ => bail!(
                FailedToParse,
                "Unknown modifier: {name}. Expected a valid update modifier or pipeline-style \
                 update specified as an array"
            ),
        };
        let (Type::Document, Some(operands)) = (elem.ty(), elem.as_doc()) else {
            bail!(
                FailedToParse,
                "Modifiers operate on fields but we found type {} instead. For example: {{$mod: \
                 {{<field>: ...}}}} not {{{}}}",
                elem.ty().alias(),
                text::elem(elem)
            );
        };
        for operand in operands.ticked() {
            let operand = operand?;
            let path = operand.key();
            let components = parse_path(path)?;
            let op = parse(self, operand)?;
            self.add(path, components, op);
        }
        Ok(())
    }

    fn add(&mut self, path: &str, components: Vec<Component>, op: Op) {
        let leaf = self.leaves.len();
        self.leaves.push(Leaf { op, path: path.into() });
        self.entries.push(Entry { components, leaf });
    }

    /// `$rename` is two leaves: this gives the one at the source and adds the one at the target.
    fn rename(&mut self, elem: Elem<'_>) -> Result<Op> {
        not_utf8::refuse(&elem.value(), "The 'to' field for $rename")?;
        let Value::String(to) = elem.value() else {
            bail!(BadValue, "The 'to' field for $rename must be a string: {}", text::elem(elem));
        };
        if to.contains('\0') {
            bail!(9867600, "The 'to' field for $rename cannot contain an embedded null byte");
        }
        let from = elem.key();
        let (source, target) = (parse_path(from)?, parse_path(&to)?);
        if source == target {
            bail!(
                BadValue,
                "The source and target field for $rename must differ: {}",
                text::elem(elem)
            );
        }
        let names = |components: &[Component], which: &str, path: &str| {
            let name = |c: &Component| match c {
                Component::Field(name) => Ok(name.clone()),
                _ => Err(Error::new(
                    ErrorCode::BadValue,
                    format!("The {which} field for $rename may not be dynamic: {path}"),
                )),
            };
            components.iter().map(name).collect::<Result<Vec<Name>>>()
        };
        self.renames.push(Rename {
            from: names(&source, "source", from)?,
            to: names(&target, "destination", &to)?,
            from_path: from.into(),
            to_path: to.as_ref().into(),
        });
        let rename = self.renames.len() - 1;
        self.add(&to, target, Op::RenameTo(rename));
        Ok(Op::RenameFrom(rename))
    }
}

fn arithmetic(op: Arithmetic, elem: Elem<'_>) -> Result<Op> {
    if !elem.ty().is_number() {
        let verb = match op {
            Arithmetic::Add => "increment",
            Arithmetic::Multiply => "multiply",
        };
        bail!(TypeMismatch, "Cannot {verb} with non-numeric argument: {{{}}}", text::elem(elem));
    }
    Ok(Op::Arithmetic(op, elem.value().into_owned()))
}

fn current_date(elem: Elem<'_>) -> Result<Op> {
    let doc = match elem.value() {
        Value::Bool(_) => return Ok(Op::CurrentDate),
        Value::Document(doc) => doc,
        _ => bail!(
            BadValue,
            "{} is not valid type for $currentDate. Please use a boolean ('true') or a $type \
             expression ({{$type: 'timestamp/date'}}).",
            elem.ty().alias()
        ),
    };
    let mut found = None;
    for option in doc.as_doc() {
        if option.key() != "$type" {
            bail!(BadValue, "Unrecognized $currentDate option: {}", option.key());
        }
        found = match option.value().as_str() {
            Some("date") => Some(Op::CurrentDate),
            Some("timestamp") => Some(Op::CurrentTimestamp),
            _ => None,
        };
        if found.is_none() {
            break;
        }
    }
    found.ok_or_else(|| {
        let message = "The '$type' string field is required to be 'date' or 'timestamp': \
                       {$currentDate: {field : {$type: 'date'}}}";
        Error::bad_value(message)
    })
}

fn push(elem: Elem<'_>) -> Result<Push> {
    let mut push = Push { each: Vec::new(), position: None, slice: None, sort: None };
    let clauses = match (elem.ty(), elem.as_doc()) {
        (Type::Document, Some(doc)) if doc.get("$each").is_some() => doc,
        _ => {
            push.each.push(RawValue::of_elem(elem));
            return Ok(push);
        }
    };
    for clause in clauses {
        match clause.key() {
            "$each" => push.each = each("$push", ErrorCode::BadValue, clause)?,
            "$position" => {
                let integer = clause.value().as_i64_exact();
                push.position = Some(integer.ok_or_else(|| {
                    let ty = clause.ty().alias();
                    let what = "The value for $position must be an integer value";
                    Error::bad_value(format!("{what}, not of type: {ty}"))
                })?);
            }
            "$slice" => {
                let integer = clause.value().as_i64_exact();
                push.slice = Some(integer.ok_or_else(|| {
                    let ty = clause.ty().alias();
                    let what = "The value for $slice must be an integer value";
                    Error::bad_value(format!("{what} but was given type: {ty}"))
                })?);
            }
            "$sort" => push.sort = Some(sort(clause)?),
            other => bail!(BadValue, "Unrecognized clause in $push: {other}"),
        }
    }
    Ok(push)
}

fn raw_values(items: Doc<'_>) -> Result<Vec<RawValue>> {
    items.ticked().map(|elem| elem.map(RawValue::of_elem)).collect()
}

fn each(operator: &str, code: ErrorCode, clause: Elem<'_>) -> Result<Vec<RawValue>> {
    match (clause.ty(), clause.as_doc()) {
        (Type::Array, Some(items)) => raw_values(items),
        _ => Err(Error::new(
            code,
            format!(
                "The argument to $each in {operator} must be an array but it was of type: {}",
                clause.ty().alias()
            ),
        )),
    }
}

fn sort(clause: Elem<'_>) -> Result<PushSort> {
    if clause.ty().is_number() {
        return Ok(PushSort::Whole { descending: is_descending(clause)? });
    }
    let (Type::Document, Some(pattern)) = (clause.ty(), clause.as_doc()) else {
        bail!(
            BadValue,
            "The $sort is invalid: use 1/-1 to sort the whole element, or {{field:1/-1}} to sort \
             embedded fields"
        );
    };
    if pattern.is_empty() {
        bail!(BadValue, "The $sort pattern is empty when it should be a set of fields.");
    }
    let mut fields = Vec::new();
    for field in pattern {
        let path = field.key();
        if path.is_empty() {
            bail!(BadValue, "The $sort field cannot be empty");
        }
        if path.split('.').any(str::is_empty) {
            bail!(BadValue, "The $sort field is a dotted field but has an empty part: {path}");
        }
        fields.push((path.into(), is_descending(field)?));
    }
    Ok(PushSort::Fields(fields))
}

fn is_descending(direction: Elem<'_>) -> Result<bool> {
    match direction.value().as_i64_exact() {
        Some(1) => Ok(false),
        Some(-1) => Ok(true),
        _ => bail!(BadValue, "The $sort element value must be either 1 or -1"),
    }
}

fn add_to_set(elem: Elem<'_>) -> Result<Op> {
    let first = match elem.ty() {
        Type::Document => elem.as_doc().and_then(Doc::first),
        _ => None,
    };
    let Some(clause) = first.filter(|e| e.key() == "$each") else {
        return Ok(Op::AddToSet(ValueSet::new(vec![RawValue::of_elem(elem)])?));
    };
    let values = each("$addToSet", ErrorCode::TypeMismatch, clause)?;
    if elem.as_doc().is_some_and(|d| d.iter().nth(1).is_some()) {
        bail!(
            BadValue,
            "Found unexpected fields after $each in $addToSet: {}",
            text::value(&elem.value())
        );
    }
    Ok(Op::AddToSet(ValueSet::new(values)?))
}

fn pop(elem: Elem<'_>) -> Result<Op> {
    let value = elem.value();
    if !value.is_number() {
        bail!(FailedToParse, "Expected a number in: {}", text::elem(elem));
    }
    match value.as_i64_exact() {
        Some(1) => Ok(Op::Pop { first: false }),
        Some(-1) => Ok(Op::Pop { first: true }),
        Some(other) => bail!(FailedToParse, "$pop expects 1 or -1, found: {other}"),
        None => bail!(FailedToParse, "Expected an integer: {}", text::elem(elem)),
    }
}

fn pull_all(elem: Elem<'_>) -> Result<Op> {
    match (elem.ty(), elem.as_doc()) {
        (Type::Array, Some(items)) => Ok(Op::PullAll(ValueSet::new(raw_values(items)?)?)),
        _ => bail!(
            BadValue,
            "$pullAll requires an array argument but was given a {}",
            elem.ty().alias()
        ),
    }
}

fn bit(elem: Elem<'_>) -> Result<Op> {
    let (Type::Document, Some(doc)) = (elem.ty(), elem.as_doc()) else {
        bail!(
            BadValue,
            "The $bit modifier is not compatible with a {}. You must pass in an embedded \
             document: {{$bit: {{field: {{and/or/xor: #}}}}",
            elem.ty().alias()
        );
    };
    let mut ops = Vec::new();
    for operation in doc {
        let Some(op) = BitOp::from_name(operation.key()) else {
            bail!(
                BadValue,
                "The $bit modifier only supports 'and', 'or', and 'xor', not '{}' which is an \
                 unknown operator: {{{}}}",
                operation.key(),
                text::elem(operation)
            );
        };
        if !matches!(operation.ty(), Type::Int32 | Type::Int64) {
            bail!(
                BadValue,
                "The $bit modifier field must be an Integer(32/64 bit); a '{}' is not supported \
                 here: {{{}}}",
                operation.ty().alias(),
                text::elem(operation)
            );
        }
        ops.push((op, operation.value().into_owned()));
    }
    if ops.is_empty() {
        bail!(
            BadValue,
            "You must pass in at least one bitwise operation. The format is: {{$bit: {{field: \
             {{and/or/xor: #}}}}"
        );
    }
    Ok(Op::Bit(ops))
}
