//! Equalities in a sub-pipeline's first filter: `{$match: {$expr: {$eq: ["$a", "$$x"]}}}` returns a subset of `{a:
//! x}`, which an index or a hash table can find.

use super::super::{ParseCx, StageSpec};
use kauri_bson::{Doc, Type, Value};
use kauri_expr::Expression;
use kauri_matcher::MatchExpr;
use std::sync::Arc;

/// A field of the other side, and the value that it must equal for a row.
pub struct Derived {
    /// The field's path.
    pub path: String,
    /// Reads only variables.
    pub value: Expression,
}

impl Derived {
    /// Whether a filter on the field finds the documents whose field equals this value by expression. An expression
    /// compares an array as a whole, a filter its elements.
    pub fn serves(value: &Value<'_>) -> bool {
        !matches!(value.ty(), None | Some(Type::Array | Type::Regex | Type::Undefined))
    }
}

/// Finds such an equality in the first stage.
pub fn derive(stages: &[Arc<dyn StageSpec>], base: usize, cx: &ParseCx) -> Option<Derived> {
    let filter = stages.first()?.as_match()?;
    let parts = match filter {
        MatchExpr::And(parts) => parts.as_slice(),
        one => std::slice::from_ref(one),
    };
    parts.iter().find_map(|part| match part {
        MatchExpr::Expr(expr) => in_expression(expr.source(), base, cx),
        _ => None,
    })
}

fn in_expression(source: &Value<'_>, base: usize, cx: &ParseCx) -> Option<Derived> {
    let call = source.as_document()?.first()?;
    let arguments = call.as_doc().filter(|_| call.ty() == Type::Array)?;
    match call.key() {
        "$and" => arguments.iter().find_map(|part| in_expression(&part.value(), base, cx)),
        "$eq" => of_sides(arguments, base, cx),
        _ => None,
    }
}

fn of_sides(sides: Doc<'_>, base: usize, cx: &ParseCx) -> Option<Derived> {
    let sides: Vec<Value<'_>> = sides.iter().map(|side| side.value()).collect();
    let [a, b] = sides.as_slice() else { return None };
    of_pair(a, b, base, cx).or_else(|| of_pair(b, a, base, cx))
}

fn of_pair(field: &Value<'_>, value: &Value<'_>, base: usize, cx: &ParseCx) -> Option<Derived> {
    let path = field.as_str()?.strip_prefix('$')?;
    if path.starts_with('$')
        || path.split('.').any(|part| part.starts_with(|c: char| c.is_ascii_digit()))
    {
        return None;
    }
    let value = Expression::parse(value, &cx.expressions()).ok()?;
    let found = value.dependencies();
    let of_variables = found.fields.is_empty()
        && !found.whole_document
        && !found.random
        && found.meta.is_empty()
        && found.variables.iter().any(|position| *position >= base);
    of_variables.then(|| Derived { path: path.to_owned(), value })
}
