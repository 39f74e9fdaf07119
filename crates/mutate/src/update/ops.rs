//! The operators: the leaves of an update's tree, and their effect on a value.

use crate::raw::{self, RawValue};
use crate::text;
use crate::update::apply::{Applier, Change, Slot};
use crate::update::arithmetic::{Arithmetic, BitOp, describe, is_identical};
use crate::update::array::{Push, PushSort, ValueSet, equal, pop, retain};
use crate::update::condition;
use kauri_base::{Result, bail};
use kauri_bson::compare::compare_elem_with;
use kauri_bson::{Doc, Elem, Type, Value};
use std::cmp::Ordering;

/// One operator on one path.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) op: Op,
    /// The path as the update wrote it.
    pub(crate) path: Box<str>,
}

/// The operators.
#[derive(Debug)]
pub(crate) enum Op {
    Set(Operand),
    SetOnInsert(Operand),
    Unset,
    Arithmetic(Arithmetic, Value<'static>),
    /// `$min` (`Less`) and `$max` (`Greater`): writes an operand that compares so to the current value.
    Extreme(Ordering, Operand),
    /// `$currentDate` of type date.
    CurrentDate,
    /// `$currentDate` of type timestamp.
    CurrentTimestamp,
    /// The source of `$rename`: the index in the update's list of renames.
    RenameFrom(usize),
    /// The target of `$rename`.
    RenameTo(usize),
    Push(Push),
    AddToSet(ValueSet),
    Pop {
        first: bool,
    },
    Pull(PullCondition),
    PullAll(ValueSet),
    Bit(Vec<(BitOp, Value<'static>)>),
}

/// A value to be written, and how deep it nests.
#[derive(Debug)]
pub(crate) struct Operand {
    pub(crate) value: RawValue,
    pub(crate) depth: usize,
}

/// The condition of `$pull`.
#[derive(Debug)]
pub(crate) enum PullCondition {
    /// Elements equal to the value.
    Equal(RawValue),
    /// Documents that match the filter.
    Documents(kauri_matcher::MatchExpr),
    /// Elements that pass operators.
    Elements(kauri_matcher::MatchExpr),
}

impl Operand {
    pub(crate) fn of_elem(elem: Elem<'_>) -> Operand {
        Operand {
            value: RawValue::of_elem(elem),
            depth: raw::depth_of(elem.ty(), elem.value_bytes()),
        }
    }
}

impl Op {
    /// Whether the operator does nothing, rather than fail, where its path cannot be.
    fn passes_over(&self, applier: &Applier<'_>) -> bool {
        match self {
            Op::Unset | Op::RenameFrom(_) => true,
            Op::SetOnInsert(_) => !applier.cx.is_insert,
            Op::RenameTo(rename) => applier.renamed(*rename).is_none(),
            _ => false,
        }
    }

    /// Whether it reads the time, or has conditions that may.
    pub(crate) fn tells_time(&self) -> bool {
        matches!(self, Op::CurrentDate | Op::Pull(_))
    }

    /// Whether its work is linear in its input and its changes (within a logarithm).
    pub(crate) fn is_linear(&self) -> bool {
        match self {
            Op::Pull(condition) => matches!(condition, PullCondition::Equal(_)),
            Op::Push(push) => !matches!(push.sort, Some(PushSort::Fields(_))),
            _ => true,
        }
    }

    /// Whether the operator makes the field if it is missing.
    fn creates(&self) -> bool {
        !matches!(self, Op::Pop { .. } | Op::Pull(_) | Op::PullAll(_))
    }
}

impl Leaf {
    /// The error of a path that goes through something that is neither document nor array; `step` is
    /// the first component that has no place.
    pub(crate) fn check_viable(
        &self,
        applier: &Applier<'_>,
        step: &str,
        blocked: Elem<'_>,
    ) -> Result<()> {
        if self.op.passes_over(applier) {
            return Ok(());
        }
        let blocked = text::elem(blocked);
        if self.op.creates() {
            bail!(PathNotViable, "Cannot create field '{step}' in element {{{blocked}}}");
        }
        let path = &self.path;
        bail!(
            PathNotViable,
            "Cannot use the part ({step}) of ({path}) to traverse the element ({{{blocked}}})"
        );
    }

    /// Applies the operator to the current value, or to a missing one.
    #[inline]
    pub(crate) fn apply(
        &self,
        applier: &mut Applier<'_>,
        existing: Option<Elem<'_>>,
        slot: &Slot<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change> {
        match (&self.op, existing) {
            (Op::Set(operand), existing) => set(operand, existing, slot, out),
            (Op::SetOnInsert(operand), existing) if applier.cx.is_insert => {
                set(operand, existing, slot, out)
            }
            (Op::SetOnInsert(_), _) => Ok(Change::Keep),
            (Op::Arithmetic(op, operand), existing) => {
                arithmetic(*op, operand, existing, applier, slot, out)
            }
            (Op::Unset, Some(_)) if slot.in_array => {
                raw::put_raw(out, Type::Null, slot.key, &[]);
                Ok(Change::Written)
            }
            (Op::Unset, Some(_)) => Ok(Change::Removed),
            (Op::Extreme(wanted, operand), Some(elem)) => {
                let order = compare_elem_with(elem, &operand.value.value()).reverse();
                if order == *wanted { write(operand, slot, out) } else { Ok(Change::Keep) }
            }
            (Op::Extreme(_, operand), None) => write(operand, slot, out),
            (Op::CurrentDate, _) => put(&Value::DateTime(applier.cx.now_ms), slot, out),
            (Op::CurrentTimestamp, _) => put(&Value::Timestamp(applier.cx.timestamp()), slot, out),
            (Op::RenameFrom(rename), Some(_)) if applier.renamed(*rename).is_some() => {
                Ok(Change::Removed)
            }
            (Op::RenameTo(rename), existing) => match applier.renamed(*rename) {
                Some(source) => rename_to(source, existing, slot, out),
                None => Ok(Change::Keep),
            },
            (Op::Bit(ops), existing) => bit(ops, existing, applier, slot, out),
            (Op::Push(push), existing) => self.push(push, existing, applier, slot, out),
            (Op::AddToSet(set), existing) => add_to_set(set, existing, slot, out),
            (Op::Pop { first }, Some(elem)) => self.pop(*first, elem, slot, out),
            (Op::PullAll(set), Some(elem)) => {
                pull("$pullAll", elem, slot, out, |e| Ok(set.contains(e)))
            }
            (Op::Pull(condition), Some(elem)) => {
                pull("$pull", elem, slot, out, |e| condition.matches(e))
            }
            (Op::Unset | Op::RenameFrom(_) | Op::Pop { .. } | Op::Pull(_) | Op::PullAll(_), _) => {
                Ok(Change::Keep)
            }
        }
    }

    fn push(
        &self,
        push: &Push,
        existing: Option<Elem<'_>>,
        applier: &Applier<'_>,
        slot: &Slot<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change> {
        let array = match existing {
            None => Doc::EMPTY,
            Some(elem) => match (elem.ty(), elem.as_doc()) {
                (Type::Array, Some(array)) => array,
                _ => bail!(
                    BadValue,
                    "The field '{}' must be an array but is of type {} in document {}",
                    self.path,
                    elem.ty().alias(),
                    text::id_of(applier.root)
                ),
            },
        };
        let deepest = push.each.iter().map(|v| raw::depth_of(v.ty(), v.bytes())).max();
        slot.check_depth(1 + deepest.unwrap_or(0))?;
        raw::put_header(out, Type::Array, slot.key);
        let start = out.len();
        push.apply(array, out)?;
        let same = existing.is_some_and(|e| out.get(start..) == Some(e.value_bytes()));
        Ok(if same { Change::Keep } else { Change::Written })
    }

    fn pop(
        &self,
        first: bool,
        elem: Elem<'_>,
        slot: &Slot<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Change> {
        let (Type::Array, Some(array)) = (elem.ty(), elem.as_doc()) else {
            bail!(
                TypeMismatch,
                "Path '{}' contains an element of non-array type '{}'",
                self.path,
                elem.ty().alias()
            );
        };
        raw::put_header(out, Type::Array, slot.key);
        Ok(if pop(array, first, out)? { Change::Written } else { Change::Keep })
    }
}

impl PullCondition {
    fn matches(&self, elem: Elem<'_>) -> Result<bool> {
        match self {
            PullCondition::Equal(value) => Ok(compare_elem_with(elem, &value.value()).is_eq()),
            PullCondition::Documents(filter) => match (elem.ty(), elem.as_doc()) {
                (Type::Document, Some(doc)) => condition::matches(filter, doc),
                _ => Ok(false),
            },
            PullCondition::Elements(operators) => condition::passes(operators, elem),
        }
    }
}

#[inline]
fn set(
    operand: &Operand,
    existing: Option<Elem<'_>>,
    slot: &Slot<'_>,
    out: &mut Vec<u8>,
) -> Result<Change> {
    match existing {
        Some(elem) if operand.value.is_same(elem) => Ok(Change::Keep),
        _ => write(operand, slot, out),
    }
}

#[inline]
fn write(operand: &Operand, slot: &Slot<'_>, out: &mut Vec<u8>) -> Result<Change> {
    slot.check_depth(operand.depth)?;
    raw::put_raw(out, operand.value.ty(), slot.key, operand.value.bytes());
    Ok(Change::Written)
}

fn put(value: &Value<'_>, slot: &Slot<'_>, out: &mut Vec<u8>) -> Result<Change> {
    slot.check_depth(0)?;
    raw::put_value(out, slot.key, value);
    Ok(Change::Written)
}

fn rename_to(
    source: Elem<'_>,
    existing: Option<Elem<'_>>,
    slot: &Slot<'_>,
    out: &mut Vec<u8>,
) -> Result<Change> {
    if existing.is_some_and(|e| e.ty() == source.ty() && equal(e, source))
        && existing.map(Elem::value_bytes) == Some(source.value_bytes())
    {
        return Ok(Change::Keep);
    }
    slot.check_depth(raw::depth_of(source.ty(), source.value_bytes()))?;
    raw::put_raw(out, source.ty(), slot.key, source.value_bytes());
    Ok(Change::Written)
}

fn arithmetic(
    op: Arithmetic,
    operand: &Value<'_>,
    existing: Option<Elem<'_>>,
    applier: &Applier<'_>,
    slot: &Slot<'_>,
    out: &mut Vec<u8>,
) -> Result<Change> {
    let Some(elem) = existing else {
        // $inc begins with its operand, $mul with a zero of its operand's type.
        let first = match op {
            Arithmetic::Add => Some(operand.borrow()),
            Arithmetic::Multiply => op.apply(operand, &Value::Int32(0)),
        };
        return put(&first.unwrap_or(Value::Missing), slot, out);
    };
    let current = elem.value();
    if !current.is_number() {
        bail!(
            TypeMismatch,
            "Cannot apply {} to a value of non-numeric type. {} has the field '{}' of \
             non-numeric type {}",
            op.name(),
            text::id_of(applier.root),
            elem.key(),
            elem.ty().alias()
        );
    }
    match op.apply(&current, operand) {
        Some(result) if is_identical(&result, &current) => Ok(Change::Keep),
        Some(result) => put(&result, slot, out),
        None => bail!(
            BadValue,
            "Failed to apply {} operations to current value ({}) for document {}",
            op.name(),
            describe(&current),
            text::id_of(applier.root)
        ),
    }
}

fn bit(
    ops: &[(BitOp, Value<'static>)],
    existing: Option<Elem<'_>>,
    applier: &Applier<'_>,
    slot: &Slot<'_>,
    out: &mut Vec<u8>,
) -> Result<Change> {
    let current = existing.map_or(Value::Int32(0), Elem::value);
    let result = ops.iter().try_fold(current.borrow(), |value, (op, operand)| {
        op.apply(&value, operand).map(|v| v as Value<'_>)
    });
    match (result, existing) {
        (Some(result), Some(_)) if is_identical(&result, &current) => Ok(Change::Keep),
        (Some(result), _) => put(&result, slot, out),
        (None, elem) => bail!(
            BadValue,
            "Cannot apply $bit to a value of non-integral type.{} has the field {} of \
             non-integer type {}",
            text::id_of(applier.root),
            elem.map_or("", Elem::key),
            current.type_name()
        ),
    }
}

fn add_to_set(
    set: &ValueSet,
    existing: Option<Elem<'_>>,
    slot: &Slot<'_>,
    out: &mut Vec<u8>,
) -> Result<Change> {
    let deepest = set.values().iter().map(|v| raw::depth_of(v.ty(), v.bytes())).max();
    let Some(elem) = existing else {
        slot.check_depth(1 + deepest.unwrap_or(0))?;
        raw::put_header(out, Type::Array, slot.key);
        raw::put_array(out, set.values().iter().map(|v| (v.ty(), v.bytes())))?;
        return Ok(Change::Written);
    };
    let (Type::Array, Some(array)) = (elem.ty(), elem.as_doc()) else {
        bail!(
            BadValue,
            "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {}",
            elem.key(),
            elem.ty().alias()
        );
    };
    slot.check_depth(1 + deepest.unwrap_or(0))?;
    raw::put_header(out, Type::Array, slot.key);
    Ok(if set.add_to(array, out)? { Change::Written } else { Change::Keep })
}

fn pull(
    name: &str,
    elem: Elem<'_>,
    slot: &Slot<'_>,
    out: &mut Vec<u8>,
    remove: impl FnMut(Elem<'_>) -> Result<bool>,
) -> Result<Change> {
    let (Type::Array, Some(array)) = (elem.ty(), elem.as_doc()) else {
        bail!(BadValue, "Cannot apply {name} to a non-array value");
    };
    raw::put_header(out, Type::Array, slot.key);
    Ok(if retain(array, out, remove)? { Change::Written } else { Change::Keep })
}
