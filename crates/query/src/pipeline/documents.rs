//! `$documents`: rows that are literals in the pipeline.

use super::source::Source;
use super::{Constraints, ParseCx};
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, Elem, Type, Value};
use kauri_expr::Expression;

/// Parses the stage: an expression that gives an array of documents.
pub fn parse(elem: Elem<'_>, cx: &ParseCx) -> Result<Source> {
    let expression = Expression::parse(&elem.value(), &cx.expressions())?;
    let variables = expression.dependencies().variables;
    let produce = Box::new(move |cx: &super::BuildCx| {
        let eval = cx.env.eval_cx();
        documents(&expression.eval(&eval, Doc::EMPTY)?)
    });
    Ok(Source {
        constraints: Constraints { collectionless: true, ..Constraints::SOURCE },
        variables,
        ..Source::new("$documents", elem.value(), produce)
    })
}

/// The stage that gives these rows.
pub fn of(rows: Vec<DocBuf>) -> Source {
    let shown = Value::array(rows.iter().cloned().map(Value::from));
    Source::new("$documents", shown, Box::new(move |_| Ok(rows.clone())))
}

fn documents(value: &Value<'_>) -> Result<Vec<DocBuf>> {
    let Some(list) = value.as_array() else {
        bail!(5858203, "an array is expected in $documents, found {}", value.type_name());
    };
    let mut documents = Vec::new();
    for item in list {
        match item.as_doc().filter(|_| item.ty() == Type::Document) {
            Some(doc) => documents.push(doc.to_buf()),
            None => bail!(
                40228,
                "'newRoot' expression  must evaluate to an object, but resulting value was: {}. \
                 Type of resulting value: '{}'.",
                kauri_bson::shell_value(&item.value()),
                item.ty().alias()
            ),
        }
    }
    Ok(documents)
}
