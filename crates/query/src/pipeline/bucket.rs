//! `$bucket`: a `$group` by the bucket that a value falls into, and a `$sort`.

use super::group::Group;
use super::simple::SortStage;
use super::{ParseCx, parse::Parsed};
use crate::exec::sort::SortPattern;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, DocWriter, Elem, Type, Value, compare, doc};
use kauri_expr::Expression;
use std::sync::Arc;

struct Spec<'d> {
    group_by: Option<Elem<'d>>,
    boundaries: Vec<Value<'static>>,
    default: Option<Value<'static>>,
    output: Option<Doc<'d>>,
}

/// The two stages that `$bucket` stands for.
pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Parsed> {
    let Some(options) = elem.as_doc().filter(|_| elem.ty() == Type::Document) else {
        bail!(
            40201,
            "Argument to $bucket stage must be an object, but found type: {}.",
            elem.ty().alias()
        );
    };
    let spec = read(options, cx)?;
    let Some(group_by) = spec.group_by.filter(|_| !spec.boundaries.is_empty()) else {
        bail!(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.");
    };
    check_default(&spec)?;
    let group = DocBuf::build(|out| {
        write_id(&mut out.document("_id"), group_by, &spec);
        match spec.output {
            Some(output) => out.put_all(output),
            None => out.document("count").put("$sum", 1),
        }
    });
    Ok(vec![
        Arc::new(Group::of(group.as_doc(), cx)?),
        Arc::new(SortStage::of(SortPattern::parse(doc! { "_id" => 1 }.as_doc())?)),
    ])
}

fn read<'d>(options: Doc<'d>, cx: &ParseCx) -> Result<Spec<'d>> {
    let mut spec = Spec { group_by: None, boundaries: Vec::new(), default: None, output: None };
    for option in options {
        match option.key() {
            "groupBy" => {
                if !is_expression(&option.value()) {
                    bail!(
                        40202,
                        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an \
                         expression, but found: {}.",
                        kauri_bson::shell::elem_to_string(option)
                    );
                }
                spec.group_by = Some(option);
            }
            "boundaries" => spec.boundaries = boundaries(option, cx)?,
            "default" => {
                let Some(value) = constant(&option.value(), cx)? else {
                    bail!(
                        40195,
                        "The $bucket 'default' field must be a constant expression, but found: {}.",
                        kauri_bson::shell::elem_to_string(option)
                    );
                };
                spec.default = Some(value);
            }
            "output" => match option.as_doc().filter(|_| option.ty() == Type::Document) {
                Some(output) => spec.output = Some(output),
                None => bail!(
                    40196,
                    "The $bucket 'output' field must be an object, but found type: {}.",
                    option.ty().alias()
                ),
            },
            other => bail!(40197, "Unrecognized option to $bucket: {other}."),
        }
    }
    Ok(spec)
}

/// Whether it can be what rows are put in order by: a path, or an operator's call.
pub fn is_expression(value: &Value<'_>) -> bool {
    match value {
        Value::Document(doc) => doc.as_doc().first().is_some_and(|e| e.key().starts_with('$')),
        text => text.string_bytes().is_some_and(|text| text.starts_with(b"$")),
    }
}

fn constant(value: &Value<'_>, cx: &ParseCx) -> Result<Option<Value<'static>>> {
    let expression = Expression::parse(value, &cx.expressions())?;
    Ok(expression.as_constant().cloned())
}

fn boundaries(elem: Elem<'_>, cx: &ParseCx) -> Result<Vec<Value<'static>>> {
    let Value::Array(list) = elem.value() else {
        bail!(
            40200,
            "The $bucket 'boundaries' field must be an array, but found type: {}.",
            elem.ty().alias()
        );
    };
    let mut values: Vec<Value<'static>> = Vec::new();
    for item in list.as_doc().ticked() {
        let item = item?;
        match constant(&item.value(), cx)? {
            Some(value) => values.push(value),
            None => bail!(
                40191,
                "The $bucket 'boundaries' field must be an array of constant values, but found \
                 value: {}.",
                kauri_bson::shell_value(&item.value())
            ),
        }
    }
    if values.len() < 2 {
        bail!(
            40192,
            "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
            values.len()
        );
    }
    for pair in values.windows(2) {
        let [lower, upper] = pair else { continue };
        if canonical(lower) != canonical(upper) {
            bail!(
                40193,
                "All values in the 'boundaries' option to $bucket must have the same type. Found \
                 conflicting types {} and {}.",
                lower.type_name(),
                upper.type_name()
            );
        }
        if compare(lower, upper).is_ge() {
            bail!(
                40194,
                "The 'boundaries' option to $bucket must be sorted, but elements {} and {} are not \
                 in ascending order ({} is not less than {}).",
                0,
                1,
                kauri_bson::shell_value(lower),
                kauri_bson::shell_value(upper)
            );
        }
    }
    Ok(values)
}

fn canonical(value: &Value<'_>) -> u8 {
    value.ty().map_or(0, Type::canonical)
}

fn check_default(spec: &Spec<'_>) -> Result<()> {
    let (Some(default), [lowest, .., highest]) = (&spec.default, spec.boundaries.as_slice()) else {
        return Ok(());
    };
    if canonical(default) == canonical(lowest)
        && compare(default, lowest).is_ge()
        && compare(default, highest).is_lt()
    {
        bail!(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or \
             equal to the highest boundary."
        );
    }
    Ok(())
}

/// `{$switch: …}`: the lower boundary of the bucket.
fn write_id(out: &mut DocWriter<'_>, group_by: Elem<'_>, spec: &Spec<'_>) {
    let mut switch = out.document("$switch");
    {
        let mut branches = switch.array("branches");
        for pair in spec.boundaries.windows(2) {
            let [lower, upper] = pair else { continue };
            let mut branch = branches.document();
            {
                let mut case = branch.document("case");
                let mut both = case.array("$and");
                for (operator, bound) in [("$gte", lower), ("$lt", upper)] {
                    let mut comparison = both.document();
                    let mut sides = comparison.array(operator);
                    sides.push_elem(group_by);
                    sides.document().put_value("$literal", bound);
                }
            }
            branch.document("then").put_value("$literal", lower);
        }
    }
    if let Some(default) = &spec.default {
        switch.document("default").put_value("$literal", default);
    }
}
