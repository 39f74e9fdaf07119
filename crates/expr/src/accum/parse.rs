//! Parsing accumulators: `{field: {$sum: …}}`.

use super::percentile::{Method, parse_p};
use super::{AccumulatorSpec, Kind};
use crate::expression::Expression;
use crate::node::Node;
use crate::optimize::optimize;
use crate::parse::{ParseCx, Parser};
use kauri_base::{Error, Result, bail};
use kauri_bson::keygen::KeyPattern;
use kauri_bson::{Doc, Value};

impl AccumulatorSpec {
    /// Parses `field: {$accumulator: argument}` of a group.
    pub fn parse_field(field: &str, value: &Value<'_>, cx: &ParseCx) -> Result<AccumulatorSpec> {
        if field.contains('.') {
            bail!(40235, "The field name '{field}' cannot contain '.'");
        }
        if field.starts_with('$') {
            bail!(40236, "The field name '{field}' cannot be an operator name");
        }
        let doc = value.as_document();
        let Some((doc, operator)) = doc.and_then(|doc| Some((doc, doc.first()?))) else {
            bail!(40234, "The field '{field}' must be an accumulator object");
        };
        if !operator.key().starts_with('$') {
            bail!(40234, "The field '{field}' must be an accumulator object");
        }
        if doc.count() != 1 {
            bail!(40238, "The field '{field}' must specify one accumulator");
        }
        Self::parse(operator.key(), &operator.value(), cx)
    }

    /// Parses an accumulator's argument.
    pub fn parse(name: &str, argument: &Value<'_>, cx: &ParseCx) -> Result<AccumulatorSpec> {
        if argument.as_array().is_some() {
            bail!(40237, "The {name} accumulator is a unary operator");
        }
        Self::parse_in_window(name, argument, cx)
    }

    /// The same for a window, where an array is an expression like any other.
    pub fn parse_in_window(
        name: &str,
        argument: &Value<'_>,
        cx: &ParseCx,
    ) -> Result<AccumulatorSpec> {
        let kind = match name {
            "$sum" => Kind::Sum,
            "$avg" => Kind::Avg,
            "$min" => Kind::Min,
            "$max" => Kind::Max,
            "$first" => Kind::First,
            "$last" => Kind::Last,
            "$push" => Kind::Push,
            "$addToSet" => Kind::AddToSet,
            "$setUnion" => Kind::SetUnion,
            "$concatArrays" => Kind::ConcatArrays,
            "$mergeObjects" => Kind::MergeObjects,
            "$stdDevPop" => Kind::Deviation { sample: false },
            "$stdDevSamp" => Kind::Deviation { sample: true },
            "$count" => return count(argument, cx),
            "$firstN" => return n_of_input(name, Kind::Ends { last: false }, argument, cx),
            "$lastN" => return n_of_input(name, Kind::Ends { last: true }, argument, cx),
            "$minN" => return n_of_input(name, Kind::Extremes { greatest: false }, argument, cx),
            "$maxN" => return n_of_input(name, Kind::Extremes { greatest: true }, argument, cx),
            "$top" | "$topN" | "$bottom" | "$bottomN" => return sorted(name, argument, cx),
            "$median" | "$percentile" => return percentile(name, argument, cx),
            "$accumulator" => bail!(
                31264,
                "$accumulator requires server-side JavaScript, which is not available on this server"
            ),
            _ => bail!(15952, "unknown group operator '{name}'"),
        };
        Ok(spec(kind, Expression::parse(argument, cx)?, cx))
    }
}

/// Whether an accumulator of this name exists.
pub fn is_accumulator_name(name: &str) -> bool {
    const NAMES: [&str; 25] = [
        "$sum",
        "$avg",
        "$min",
        "$max",
        "$first",
        "$last",
        "$push",
        "$addToSet",
        "$setUnion",
        "$concatArrays",
        "$mergeObjects",
        "$stdDevPop",
        "$stdDevSamp",
        "$count",
        "$firstN",
        "$lastN",
        "$minN",
        "$maxN",
        "$top",
        "$topN",
        "$bottom",
        "$bottomN",
        "$median",
        "$percentile",
        "$accumulator",
    ];
    NAMES.contains(&name)
}

fn spec(kind: Kind, argument: Expression, cx: &ParseCx) -> AccumulatorSpec {
    AccumulatorSpec { kind, argument, n: None, sort: None, in_group: cx.in_group }
}

fn count(argument: &Value<'_>, cx: &ParseCx) -> Result<AccumulatorSpec> {
    if !argument.as_document().is_some_and(Doc::is_empty) {
        bail!(TypeMismatch, "$count takes no arguments, i.e. $count:{{}}");
    }
    Ok(spec(Kind::Count, Expression::literal(Value::Int32(1)), cx))
}

fn n_of_input(
    name: &str,
    kind: Kind,
    argument: &Value<'_>,
    cx: &ParseCx,
) -> Result<AccumulatorSpec> {
    let Some(doc) = argument.as_document() else {
        bail!(5787900, "specification must be an object; found {argument:?}");
    };
    if let Some(other) = doc.iter().find(|e| !matches!(e.key(), "n" | "input")) {
        bail!(5787901, "Unknown argument for 'n' operator: {}", other.key());
    }
    let (n, input) = (doc.get("n"), doc.get("input"));
    let Some(n) = n else { bail!(5787906, "Missing value for 'n' of {name}") };
    let Some(input) = input else { bail!(5787907, "Missing value for 'input' of {name}") };
    let n = Expression::parse(&n.value(), cx)?;
    let argument = Expression::parse(&input.value(), cx)?;
    Ok(AccumulatorSpec { n: Some(n), ..spec(kind, argument, cx) })
}

fn sorted(name: &str, argument: &Value<'_>, cx: &ParseCx) -> Result<AccumulatorSpec> {
    let single = !name.ends_with('N');
    let kind = Kind::Sorted { bottom: name.starts_with("$bottom"), single };
    let Some(doc) = argument.as_document() else {
        bail!(5788001, "specification must be an object; found {argument:?}");
    };
    let known = |key: &str| matches!(key, "output" | "sortBy") || (key == "n" && !single);
    if let Some(other) = doc.iter().find(|e| !known(e.key())) {
        bail!(5788002, "Unknown argument to {name} '{}'", other.key());
    }
    let n = match (doc.get("n"), single) {
        (_, true) => None,
        (Some(n), false) => Some(Expression::parse(&n.value(), cx)?),
        (None, false) => bail!(5788003, "Missing value for 'n'"),
    };
    let Some(output) = doc.get("output") else {
        bail!(5788004, "Missing value for 'output'");
    };
    let Some(sort) = doc.get("sortBy") else {
        bail!(5788005, "Missing value for 'sortBy'");
    };
    let sort = sort.value();
    let Some(pattern) = sort.as_document() else {
        bail!(5788604, "Invalid sortBy: expected an object, found {}", sort.type_name());
    };
    check_pattern(pattern)?;
    let argument = Expression::parse(&output.value(), cx)?;
    let sort = Some(KeyPattern::parse(pattern)?);
    Ok(AccumulatorSpec { n, sort, ..spec(kind, argument, cx) })
}

/// The rules of `$sort`'s pattern.
fn check_pattern(pattern: Doc<'_>) -> Result<()> {
    if pattern.is_empty() {
        bail!(15976, "$sort stage must have at least one sort key");
    }
    for elem in pattern {
        let value = elem.value();
        if !value.is_number() {
            bail!(
                15974,
                "Illegal key in $sort specification: {}",
                kauri_bson::shell::elem_to_string(elem)
            );
        }
        if !matches!(value.as_i64_exact(), Some(1 | -1)) {
            bail!(15975, "$sort key ordering must be 1 (for ascending) or -1 (for descending)");
        }
        crate::path::FieldPath::parse(elem.key())?;
    }
    Ok(())
}

/// The input, `p` and the method of `$percentile` and `$median`.
pub(crate) fn percentile_arguments(
    name: &str,
    argument: &Value<'_>,
    parser: &mut Parser<'_>,
) -> Result<(Node, Option<Vec<f64>>, Method)> {
    let with_p = name == "$percentile";
    let Some(doc) = argument.as_document() else {
        let code = if with_p { 7429703 } else { 7436100 };
        return Err(Error::location(
            code,
            format!("specification must be an object; found {name} :{argument:?}"),
        ));
    };
    let known = |key: &str| matches!(key, "input" | "method") || (key == "p" && with_p);
    if let Some(other) = doc.iter().find(|e| !known(e.key())) {
        bail!(40415, "BSON field '{name}.{}' is an unknown field.", other.key());
    }
    let required = |field: &str| match doc.get(field) {
        Some(elem) => Ok(elem.value()),
        None => Err(Error::location(
            40414,
            format!("BSON field '{name}.{field}' is missing but a required field"),
        )),
    };
    let input = required("input")?;
    let p = if with_p { Some(required("p")?) } else { None };
    let method = required("method")?;
    let method = method.lossy();
    if method.as_str().is_none() {
        bail!(
            TypeMismatch,
            "BSON field '{name}.method' is the wrong type '{}', expected type 'string'",
            method.type_name()
        );
    }
    let method = Method::parse(&method)?;
    let p = match p {
        Some(p) => {
            let p = optimize(parser.operand(&p)?, false)?;
            let value = p.as_literal().ok_or_else(|| {
                Error::location(7750300, "The $percentile 'p' field must be a constant")
            })?;
            Some(parse_p(value)?)
        }
        None => None,
    };
    Ok((parser.operand(&input)?, p, method))
}

fn percentile(name: &str, argument: &Value<'_>, cx: &ParseCx) -> Result<AccumulatorSpec> {
    let (input, p, method) = percentile_arguments(name, argument, &mut Parser::new(cx))?;
    let input = Expression::of_node(optimize(input, false)?);
    let kind = match p {
        Some(p) => Kind::Percentile { p, method },
        None => Kind::Median { method },
    };
    Ok(spec(kind, input, cx))
}
