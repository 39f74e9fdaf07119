//! `$jsonSchema`: parses a schema document into rules.

use super::{Parser, number};
use crate::schema::eval;
use crate::schema::{Additional, ArrayRules, Bound, Dependency, Items, ObjectRules, Rules, Schema};
use crate::tree::MatchExpr;
use crate::type_set::TypeSet;
use kauri_base::{Error, Result, bail, work};
use kauri_bson::{Doc, Elem, Type, Value, not_utf8};
use kauri_expr::regex::Regex;
use std::collections::HashSet;
use std::sync::Arc;

/// Keywords of draft 4 that MongoDB knows of and refuses, and encryption's, which need a driver and
/// a server that encrypt.
const UNSUPPORTED: [&str; 8] =
    ["$ref", "$schema", "default", "definitions", "format", "id", "encrypt", "encryptMetadata"];

impl Parser<'_, '_> {
    /// Parses `$jsonSchema`'s operand.
    pub(super) fn schema(&mut self, doc: Doc<'_>) -> Result<MatchExpr> {
        let rules = self.rules(doc)?;
        Ok(MatchExpr::Schema(Arc::new(Schema { source: doc.to_buf(), rules })))
    }

    fn rules(&mut self, doc: Doc<'_>) -> Result<Rules> {
        self.deeper(|p| p.keywords(doc))
    }

    fn keywords(&mut self, doc: Doc<'_>) -> Result<Rules> {
        work::check_stack()?;
        let mut rules = Rules::default();
        let mut bson_types: Option<TypeSet> = None;
        let (mut exclusive_min, mut exclusive_max) = (None, None);
        let mut seen: Vec<&str> = Vec::new();
        for elem in doc {
            self.node()?;
            let key = elem.key();
            if seen.contains(&key) {
                bail!(FailedToParse, "Duplicate $jsonSchema keyword: {key}");
            }
            match key {
                "type" => rules.types = Some(types(elem, json_type)?),
                "bsonType" => bson_types = Some(types(elem, bson_type)?),
                "enum" => rules.values = Some(enumeration(elem)?),
                "allOf" => rules.all_of = self.schemas(elem)?,
                "anyOf" => rules.any_of = Some(self.schemas(elem)?),
                "oneOf" => rules.one_of = Some(self.schemas(elem)?),
                "not" => rules.not = Some(Box::new(self.subschema(elem)?)),
                "minimum" => rules.number.minimum = Some(bound(elem)?),
                "maximum" => rules.number.maximum = Some(bound(elem)?),
                "exclusiveMinimum" => exclusive_min = Some(boolean(elem)?),
                "exclusiveMaximum" => exclusive_max = Some(boolean(elem)?),
                "multipleOf" => rules.number.multiple_of = Some(multiple_of(elem)?),
                "minLength" => rules.string.length_min = Some(count(elem)?),
                "maxLength" => rules.string.length_max = Some(count(elem)?),
                "pattern" => rules.string.pattern = Some(pattern(elem)?),
                "title" | "description" => {
                    text(elem)?;
                }
                key if UNSUPPORTED.contains(&key) => {
                    bail!(FailedToParse, "$jsonSchema keyword '{key}' is not currently supported")
                }
                _ => {
                    let known = self.array_keyword(elem, &mut rules.array)?
                        || self.object_keyword(elem, &mut rules.object)?;
                    if !known {
                        bail!(FailedToParse, "Unknown $jsonSchema keyword: {key}");
                    }
                }
            }
            seen.push(key);
        }
        if rules.types.is_some() && bson_types.is_some() {
            bail!(FailedToParse, "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'");
        }
        rules.types = rules.types.or(bson_types);
        exclusive(&mut rules.number.minimum, exclusive_min, "minimum", "exclusiveMinimum")?;
        exclusive(&mut rules.number.maximum, exclusive_max, "maximum", "exclusiveMaximum")?;
        Ok(rules)
    }

    fn array_keyword(&mut self, elem: Elem<'_>, rules: &mut ArrayRules) -> Result<bool> {
        match elem.key() {
            "minItems" => rules.count_min = Some(count(elem)?),
            "maxItems" => rules.count_max = Some(count(elem)?),
            "uniqueItems" => rules.unique = boolean(elem)?,
            "items" => {
                rules.items = match elem.value() {
                    Value::Document(doc) => Items::Each(Box::new(self.rules(doc.as_doc())?)),
                    Value::Array(list) => {
                        let mut schemas = Vec::new();
                        for item in list.iter() {
                            let Value::Document(doc) = item.value() else {
                                bail!(
                                    TypeMismatch,
                                    "$jsonSchema keyword 'items' requires that each element of \
                                     the array is an object, but found a {}",
                                    item.ty().alias()
                                );
                            };
                            schemas.push(self.rules(doc.as_doc())?);
                        }
                        Items::ByPosition(schemas)
                    }
                    _ => return Err(must_be(elem, "an array or an object")),
                }
            }
            "additionalItems" => rules.additional = Some(self.additional(elem)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn object_keyword(&mut self, elem: Elem<'_>, rules: &mut ObjectRules) -> Result<bool> {
        match elem.key() {
            "required" => rules.required = required(elem)?,
            "minProperties" => rules.count_min = Some(count(elem)?),
            "maxProperties" => rules.count_max = Some(count(elem)?),
            "properties" => {
                for property in object(elem)? {
                    let name = property.key().to_owned();
                    let Value::Document(doc) = property.value() else {
                        bail!(
                            TypeMismatch,
                            "Nested schema for $jsonSchema property '{name}' must be an object"
                        );
                    };
                    let position = rules.properties.len();
                    rules.by_name.entry(name.clone()).or_default().push(position);
                    rules.properties.push((name, self.rules(doc.as_doc())?));
                }
            }
            "patternProperties" => {
                for property in object(elem)? {
                    let name = property.key();
                    let Value::Document(doc) = property.value() else {
                        bail!(
                            TypeMismatch,
                            "$jsonSchema keyword 'patternProperties' has property '{name}' which \
                             is not an object"
                        );
                    };
                    let regex = Regex::new(name, "").map_err(|e| {
                        Error::bad_value(format!(
                            "Invalid regular expression '{name}' in $jsonSchema keyword \
                             'patternProperties': {}",
                            e.message()
                        ))
                    })?;
                    rules.patterns.push((regex, self.rules(doc.as_doc())?));
                }
            }
            "additionalProperties" => rules.additional = Some(self.additional(elem)?),
            "dependencies" => {
                for property in object(elem)? {
                    let dependency = self.dependency(property)?;
                    rules.dependencies.push((property.key().to_owned(), dependency));
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn dependency(&mut self, elem: Elem<'_>) -> Result<Dependency> {
        let name = elem.key();
        match elem.value() {
            Value::Document(doc) => Ok(Dependency::Rules(Box::new(self.rules(doc.as_doc())?))),
            Value::Array(list) => {
                if list.as_doc().is_empty() {
                    bail!(
                        FailedToParse,
                        "Property '{name}' in $jsonSchema keyword 'dependencies' cannot be an \
                         empty array"
                    );
                }
                let mut names: Vec<String> = Vec::new();
                let mut seen = HashSet::new();
                for item in list.as_doc().ticked() {
                    let value = item?.value();
                    not_utf8::refuse(&value, "a field of 'dependencies'")?;
                    let Some(text) = value.as_str() else {
                        bail!(
                            TypeMismatch,
                            "$jsonSchema keyword 'dependencies' requires that each array holds \
                             strings only, but found a {}",
                            value.type_name()
                        );
                    };
                    if !seen.insert(text.to_owned()) {
                        bail!(
                            FailedToParse,
                            "$jsonSchema keyword 'dependencies' array for '{name}' contains \
                             duplicate element: {text}"
                        );
                    }
                    names.push(text.to_owned());
                }
                Ok(Dependency::Properties(names))
            }
            _ => bail!(
                TypeMismatch,
                "Property '{name}' in $jsonSchema keyword 'dependencies' must be either an object \
                 or an array"
            ),
        }
    }

    fn additional(&mut self, elem: Elem<'_>) -> Result<Additional> {
        match elem.value() {
            Value::Bool(allowed) => Ok(Additional::Allowed(allowed)),
            Value::Document(doc) => Ok(Additional::Rules(Box::new(self.rules(doc.as_doc())?))),
            _ => Err(must_be(elem, "either an object or a boolean")),
        }
    }

    fn subschema(&mut self, elem: Elem<'_>) -> Result<Rules> {
        match elem.value() {
            Value::Document(doc) => self.rules(doc.as_doc()),
            _ => Err(must_be(elem, "an object")),
        }
    }

    fn schemas(&mut self, elem: Elem<'_>) -> Result<Vec<Rules>> {
        let key = elem.key();
        let Value::Array(list) = elem.value() else { return Err(must_be(elem, "an array")) };
        if list.as_doc().is_empty() {
            bail!(BadValue, "$jsonSchema keyword '{key}' must be a non-empty array");
        }
        let mut schemas = Vec::new();
        for item in list.iter() {
            let Value::Document(doc) = item.value() else {
                bail!(
                    TypeMismatch,
                    "$jsonSchema keyword '{key}' must be an array of objects, but found an \
                     element of type {}",
                    item.ty().alias()
                );
            };
            schemas.push(self.rules(doc.as_doc())?);
        }
        Ok(schemas)
    }
}

fn must_be(elem: Elem<'_>, what: &str) -> Error {
    Error::type_mismatch(format!("$jsonSchema keyword '{}' must be {what}", elem.key()))
}

fn object(elem: Elem<'_>) -> Result<Doc<'_>> {
    match elem.as_doc() {
        Some(doc) if elem.ty() == Type::Document => Ok(doc),
        _ => Err(must_be(elem, "an object")),
    }
}

fn boolean(elem: Elem<'_>) -> Result<bool> {
    match elem.value() {
        Value::Bool(value) => Ok(value),
        _ => Err(must_be(elem, "a boolean")),
    }
}

fn text(elem: Elem<'_>) -> Result<String> {
    not_utf8::refuse(&elem.value(), &format!("$jsonSchema keyword '{}'", elem.key()))?;
    match elem.value() {
        Value::String(value) => Ok(value.into_owned()),
        _ => Err(must_be(elem, "of type string")),
    }
}

fn count(elem: Elem<'_>) -> Result<u64> {
    number::to_non_negative_long(elem).map(|n| n as u64)
}

fn bound(elem: Elem<'_>) -> Result<Bound> {
    let value = elem.value();
    if !value.is_number() {
        return Err(must_be(elem, "a number"));
    }
    Ok(Bound { value: value.into_owned(), exclusive: false })
}

/// Puts `exclusiveMinimum` or `exclusiveMaximum` to the bound that it speaks of.
fn exclusive(
    bound: &mut Option<Bound>,
    exclusive: Option<bool>,
    keyword: &str,
    name: &str,
) -> Result<()> {
    match (bound, exclusive) {
        (Some(bound), Some(exclusive)) => bound.exclusive = exclusive,
        (None, Some(_)) => bail!(
            FailedToParse,
            "$jsonSchema keyword '{keyword}' must be a present if '{name}' is present"
        ),
        _ => {}
    }
    Ok(())
}

fn multiple_of(elem: Elem<'_>) -> Result<kauri_bson::Decimal128> {
    let value = elem.value();
    let Some(number) = value.as_number() else { return Err(must_be(elem, "a number")) };
    let decimal = eval::to_decimal(number);
    if decimal.is_zero() || decimal.is_negative() || decimal.is_nan() {
        bail!(FailedToParse, "$jsonSchema keyword 'multipleOf' must have a positive value");
    }
    Ok(decimal)
}

fn pattern(elem: Elem<'_>) -> Result<Regex> {
    Regex::new(&text(elem)?, "")
}

fn required(elem: Elem<'_>) -> Result<Vec<String>> {
    let Value::Array(list) = elem.value() else { return Err(must_be(elem, "an array")) };
    let mut names: Vec<String> = Vec::new();
    let mut seen = HashSet::new();
    for item in list.as_doc().ticked() {
        let value = item?.value();
        not_utf8::refuse(&value, "a field of 'required'")?;
        let Some(text) = value.as_str() else {
            bail!(
                TypeMismatch,
                "$jsonSchema keyword 'required' must be an array of strings, but found an element \
                 of type {}",
                value.type_name()
            );
        };
        if !seen.insert(text.to_owned()) {
            bail!(
                FailedToParse,
                "$jsonSchema keyword 'required' array cannot contain duplicate values"
            );
        }
        names.push(text.to_owned());
    }
    if names.is_empty() {
        bail!(FailedToParse, "$jsonSchema keyword 'required' cannot be an empty array");
    }
    Ok(names)
}

fn enumeration(elem: Elem<'_>) -> Result<Vec<Value<'static>>> {
    let Value::Array(list) = elem.value() else { return Err(must_be(elem, "an array")) };
    let mut values: Vec<Value<'static>> = Vec::new();
    for item in list.as_doc().ticked() {
        values.push(item?.value().into_owned());
    }
    if eval::has_duplicates(list.as_doc())? {
        bail!(FailedToParse, "$jsonSchema keyword 'enum' array cannot contain duplicate values.");
    }
    if values.is_empty() {
        bail!(FailedToParse, "$jsonSchema keyword 'enum' cannot be an empty array");
    }
    Ok(values)
}

/// `type` and `bsonType`: a name or an array of names.
fn types(elem: Elem<'_>, parse: fn(&str, &mut TypeSet) -> Result<()>) -> Result<TypeSet> {
    let key = elem.key();
    let mut set = TypeSet::EMPTY;
    match elem.value().lossy() {
        Value::String(name) => parse(&name, &mut set)?,
        Value::Array(list) => {
            let mut names: Vec<String> = Vec::new();
            for item in list.as_doc().ticked() {
                let value = item?.value();
                let value = value.lossy();
                let Some(name) = value.as_str() else {
                    bail!(
                        TypeMismatch,
                        "$jsonSchema keyword '{key}' array elements must be strings"
                    );
                };
                if names.iter().any(|n| n == name) {
                    bail!(FailedToParse, "$jsonSchema keyword '{key}' has duplicate value: {name}");
                }
                parse(name, &mut set)?;
                names.push(name.to_owned());
            }
            if names.is_empty() {
                bail!(FailedToParse, "$jsonSchema keyword '{key}' must name at least one type");
            }
        }
        _ => return Err(must_be(elem, "either a string or an array of strings")),
    }
    Ok(set)
}

fn json_type(name: &str, set: &mut TypeSet) -> Result<()> {
    match name {
        "object" => set.insert(Type::Document),
        "array" => set.insert(Type::Array),
        "boolean" => set.insert(Type::Bool),
        "string" => set.insert(Type::String),
        "null" => set.insert(Type::Null),
        "number" => set.insert_numbers(),
        "integer" => bail!(FailedToParse, "$jsonSchema type 'integer' is not currently supported."),
        _ => bail!(BadValue, "Unknown type name alias: {name}"),
    }
    Ok(())
}

fn bson_type(name: &str, set: &mut TypeSet) -> Result<()> {
    match Type::from_alias(name) {
        Some(ty) => set.insert(ty),
        None if name == "number" => set.insert_numbers(),
        None if name == "integer" => {
            bail!(FailedToParse, "$jsonSchema type 'integer' is not currently supported.")
        }
        None => bail!(BadValue, "Unknown type name alias: {name}"),
    }
    Ok(())
}
