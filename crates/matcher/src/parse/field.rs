//! Operators under a field: `{field: {$gt: 1, $exists: true}}`.

use super::{Level, Parser, geo, is_operators, leaf, not, number, regex, toplevel};
use crate::path::Path;
use crate::tree::{BitOp, BitTest, CompareOp, InList, MatchExpr, Modulo, Predicate};
use crate::type_set::TypeSet;
use kauri_base::{Error, Result, bail, work};
use kauri_bson::shell::elem_to_string;
use kauri_bson::{Doc, Elem, Type, Value, compare};
use std::cmp::Ordering;

/// The operand of a comparison.
pub(super) fn operand(elem: Elem<'_>) -> Result<Value<'static>> {
    if elem.ty() == Type::Undefined {
        bail!(BadValue, "cannot compare to undefined");
    }
    Ok(elem.value().into_owned())
}

impl Parser<'_, '_> {
    /// Adds a predicate for each operator of an operator object.
    pub(super) fn operators(
        &mut self,
        path: &Path,
        operators: Doc<'_>,
        out: &mut Vec<MatchExpr>,
    ) -> Result<()> {
        if self.geo_near(operators)? {
            return Ok(());
        }
        for elem in operators {
            self.node()?;
            if let Some(child) = self.operator(path, elem, operators)? {
                out.push(child);
            }
        }
        Ok(())
    }

    fn operator(
        &mut self,
        path: &Path,
        elem: Elem<'_>,
        siblings: Doc<'_>,
    ) -> Result<Option<MatchExpr>> {
        let compared = |op| comparison(path, op, elem);
        Ok(Some(match elem.key() {
            "$eq" => return compared(CompareOp::Eq).map(Some),
            "$lt" => return compared(CompareOp::Lt).map(Some),
            "$lte" => return compared(CompareOp::Lte).map(Some),
            "$gt" => return compared(CompareOp::Gt).map(Some),
            "$gte" => return compared(CompareOp::Gte).map(Some),
            "$ne" => {
                if elem.ty() == Type::Regex {
                    bail!(BadValue, "Can't have regex as arg to $ne.");
                }
                not(compared(CompareOp::Eq)?)
            }
            "$in" => self.in_list(path, elem)?,
            "$nin" => not(self.in_list(path, elem)?),
            "$not" => self.negation(path, elem)?,
            "$exists" => {
                let exists = leaf(path, Predicate::Exists);
                if elem.value().truthy() { exists } else { not(exists) }
            }
            "$type" => {
                let source = Box::new(elem.value().into_owned());
                leaf(path, Predicate::Type(type_set(elem)?, source))
            }
            "$mod" => leaf(path, Predicate::Mod(modulo(elem)?)),
            "$size" => leaf(path, Predicate::Size(size(elem)?)),
            "$regex" => leaf(path, Predicate::Regex(regex::of_operators(siblings)?)),
            "$options" => {
                if siblings.get("$regex").is_none() {
                    bail!(BadValue, "$options needs a $regex");
                }
                return Ok(None);
            }
            "$all" => self.all(path, elem)?,
            "$elemMatch" => self.elem_match(path, elem)?,
            "$bitsAllSet" => bits(path, BitOp::AllSet, elem)?,
            "$bitsAllClear" => bits(path, BitOp::AllClear, elem)?,
            "$bitsAnySet" => bits(path, BitOp::AnySet, elem)?,
            "$bitsAnyClear" => bits(path, BitOp::AnyClear, elem)?,
            "$where" => bail!(BadValue, "$where cannot be applied to a field"),
            other if geo::is_operator(other) => return Err(geo::unsupported(elem)),
            other => bail!(BadValue, "unknown operator: {other}"),
        }))
    }

    fn in_list(&mut self, path: &Path, elem: Elem<'_>) -> Result<MatchExpr> {
        if elem.ty() != Type::Array {
            bail!(BadValue, "{} needs an array", elem.key());
        }
        let mut list = InList::default();
        for item in elem.as_doc().unwrap_or(Doc::EMPTY) {
            self.node()?;
            if is_operators(item, false) {
                bail!(BadValue, "cannot nest $ under {}", elem.key());
            }
            if item.ty() == Type::Regex {
                list.regexes.push(regex::of_value(&item.value())?);
            } else {
                list.values.push(operand(item)?);
            }
        }
        list.normalize();
        Ok(leaf(path, Predicate::In(list)))
    }

    fn negation(&mut self, path: &Path, elem: Elem<'_>) -> Result<MatchExpr> {
        match elem.value() {
            value if value.ty() == Some(Type::Regex) => {
                Ok(not(leaf(path, Predicate::Regex(regex::of_value(&value)?))))
            }
            Value::Document(operators) => {
                if operators.as_doc().is_empty() {
                    bail!(BadValue, "$not cannot be empty");
                }
                let mut children = Vec::new();
                self.below_branch(|p| p.operators(path, operators.as_doc(), &mut children))?;
                Ok(not(super::and_of(children)))
            }
            _ => bail!(BadValue, "$not needs a regex or a document"),
        }
    }

    fn all(&mut self, path: &Path, elem: Elem<'_>) -> Result<MatchExpr> {
        if elem.ty() != Type::Array {
            bail!(BadValue, "$all needs an array");
        }
        let items = elem.as_doc().unwrap_or(Doc::EMPTY);
        let is_elem_match = |item: Elem<'_>| {
            item.ty() == Type::Document
                && item.as_doc().and_then(Doc::first).is_some_and(|e| e.key() == "$elemMatch")
        };
        let matches_elements = items.first().is_some_and(is_elem_match);
        let mut children = Vec::new();
        for item in items {
            self.node()?;
            children.push(if matches_elements {
                match item.as_doc().and_then(Doc::first) {
                    Some(inner) if is_elem_match(item) => self.elem_match(path, inner)?,
                    _ => bail!(BadValue, "$all/$elemMatch has to be consistent"),
                }
            } else if item.ty() == Type::Regex {
                leaf(path, Predicate::Regex(regex::of_value(&item.value())?))
            } else if item.ty() == Type::Document
                && item.as_doc().and_then(Doc::first).is_some_and(|e| is_operator(e.key()))
            {
                bail!(BadValue, "no $ expressions in $all")
            } else {
                leaf(path, Predicate::Compare(CompareOp::Eq, operand(item)?))
            });
        }
        Ok(if children.is_empty() { MatchExpr::AlwaysFalse } else { super::and_of(children) })
    }

    fn elem_match(&mut self, path: &Path, elem: Elem<'_>) -> Result<MatchExpr> {
        let Value::Document(operand) = elem.value() else {
            bail!(BadValue, "$elemMatch needs an Object");
        };
        let operand = operand.as_doc();
        // Predicates on the values themselves, unless the first operator stands in place of a field.
        let on_values = is_operators(elem, true)
            && operand.first().is_some_and(|e| !toplevel::is_top_level(e.key_bytes()));
        let pred = self.below_branch(|p| {
            Ok(if on_values {
                let mut children = Vec::new();
                p.operators(&Path::to_self(), operand, &mut children)?;
                Predicate::ElemMatchValue(Box::new(super::and_of(children)))
            } else {
                Predicate::ElemMatchObject(Box::new(p.document(operand, Level::Element)?))
            })
        })?;
        Ok(leaf(path, pred))
    }
}

/// Whether an operator of this name may stand under a field.
fn is_operator(name: &str) -> bool {
    matches!(
        name,
        "$eq" | "$ne" | "$lt" | "$lte" | "$gt" | "$gte" | "$in" | "$nin" | "$not" | "$exists"
    ) || matches!(name, "$type" | "$mod" | "$size" | "$regex" | "$options" | "$all" | "$elemMatch")
        || matches!(name, "$bitsAllSet" | "$bitsAllClear" | "$bitsAnySet" | "$bitsAnyClear")
        || geo::is_operator(name)
}

fn comparison(path: &Path, op: CompareOp, elem: Elem<'_>) -> Result<MatchExpr> {
    if elem.ty() == Type::Regex && op != CompareOp::Eq {
        bail!(BadValue, "Can't have RegEx as arg to predicate over field '{path}'.");
    }
    Ok(leaf(path, Predicate::Compare(op, operand(elem)?)))
}

impl InList {
    /// Sorts the values and drops those that equal another.
    pub(crate) fn normalize(&mut self) {
        self.values.sort_by(|a, b| {
            work::tick_infallible(1);
            compare(a, b)
        });
        self.values.dedup_by(|a, b| compare(a, b) == Ordering::Equal);
    }
}

fn type_set(elem: Elem<'_>) -> Result<TypeSet> {
    let mut set = TypeSet::EMPTY;
    match elem.value() {
        Value::Array(items) => {
            if items.as_doc().is_empty() {
                bail!(FailedToParse, "must match at least one type");
            }
            for item in items.iter() {
                add_type(&mut set, item)?;
            }
        }
        _ => add_type(&mut set, elem)?,
    }
    Ok(set)
}

fn add_type(set: &mut TypeSet, elem: Elem<'_>) -> Result<()> {
    let value = elem.value();
    if let Some(name) = value.lossy().as_str() {
        match Type::from_alias(name) {
            Some(ty) => set.insert(ty),
            None if name == "number" => set.insert_numbers(),
            None => bail!(BadValue, "Unknown type name alias: {name}"),
        }
        return Ok(());
    }
    let Some(number) = value.as_number() else {
        bail!(TypeMismatch, "type must be represented as a number or a string");
    };
    let code = match number.to_i64_exact() {
        Some(code) => code,
        None => bail!(BadValue, "Invalid numerical type code: {}", number.to_f64_lossy()),
    };
    match type_of_code(code) {
        Some(ty) => set.insert(ty),
        None if code == 0 => {
            bail!(BadValue, "Invalid numerical type code: 0. Instead use {{$exists:false}}.")
        }
        None => bail!(BadValue, "Invalid numerical type code: {code}"),
    }
    Ok(())
}

fn type_of_code(code: i64) -> Option<Type> {
    match code {
        -1 => Some(Type::MinKey),
        1..=127 => Type::from_byte(code as u8),
        _ => None,
    }
}

fn modulo(elem: Elem<'_>) -> Result<Modulo> {
    let Value::Array(operands) = elem.value() else {
        bail!(BadValue, "malformed mod, needs to be an array");
    };
    let mut operands = operands.iter();
    let (Some(divisor), Some(remainder)) = (operands.next(), operands.next()) else {
        bail!(BadValue, "malformed mod, not enough elements");
    };
    if operands.next().is_some() {
        bail!(BadValue, "malformed mod, too many elements");
    }
    let whole = |elem: Elem<'_>, what: &str| {
        let value = elem.value();
        if !value.is_number() {
            bail!(BadValue, "malformed mod, {what} not a number");
        }
        number::to_long_truncated(&value)
            .map_err(|e| e.context(format_args!("malformed mod, {what} value is invalid")))
    };
    let (divisor, remainder) = (whole(divisor, "divisor")?, whole(remainder, "remainder")?);
    if divisor == 0 {
        bail!(BadValue, "divisor cannot be 0");
    }
    Ok(Modulo { divisor, remainder })
}

fn size(elem: Elem<'_>) -> Result<i64> {
    match number::to_non_negative_int(elem) {
        Ok(size) => Ok(i64::from(size)),
        Err(e) => bail!(BadValue, "Failed to parse $size. {}", e.message()),
    }
}

/// Bits beyond these of a BinData mask name positions that no number has; the bound keeps a mask of
/// megabytes from becoming a list of positions of hundreds.
const MASK_BYTES_MAX: usize = 1 << 20;

fn bits(path: &Path, op: BitOp, elem: Elem<'_>) -> Result<MatchExpr> {
    let value = elem.value();
    let mut positions: Vec<u32> = Vec::new();
    match &value {
        Value::Array(list) => {
            for item in list.iter() {
                positions.push(number::to_non_negative_int(item).map_err(|e| {
                    Error::bad_value(format!("Failed to parse bit position. {}", e.message()))
                })?);
            }
            positions.sort_unstable();
            positions.dedup();
        }
        Value::Binary { bytes, .. } => {
            if bytes.len() > MASK_BYTES_MAX {
                bail!(BadValue, "{path} takes a BinData of at most {MASK_BYTES_MAX} bytes");
            }
            for (i, byte) in bytes.iter().enumerate() {
                positions.extend((0..8).filter(|b| byte >> b & 1 == 1).map(|b| i as u32 * 8 + b));
            }
        }
        _ if value.is_number() => {
            let mask = number::to_non_negative_long(elem)? as u64;
            positions.extend((0..64).filter(|b| mask >> b & 1 == 1));
        }
        _ => {
            let printed = elem_to_string(elem);
            bail!(
                BadValue,
                "{path} takes an Array, a number, or a BinData but received: {printed}"
            );
        }
    }
    Ok(leaf(path, Predicate::Bits(BitTest::new(op, positions))))
}
