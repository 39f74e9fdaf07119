//! `$jsonSchema`: JSON Schema draft 4 as MongoDB has it, with `bsonType`.
//!
//! A schema restricts values, not paths: it is kept as what its keywords say and evaluated by
//! walking value and schema together. A keyword that speaks of one type lets values of others pass.
//!
//! Invariant: the parser bounds how deep schemas nest, which bounds recursion here.

mod eval;
mod explain;
mod parse;

use crate::tree::TypeSet;
use kauri_bson::{Decimal128, DocBuf, Value};
use kauri_expr::regex::Regex;
use std::collections::HashMap;

/// A parsed `$jsonSchema`.
#[derive(Debug)]
pub struct Schema {
    source: DocBuf,
    rules: Rules,
}

impl Schema {
    /// The schema as the filter wrote it.
    pub fn source(&self) -> &DocBuf {
        &self.source
    }
}

/// One (sub)schema. Absent keywords restrict nothing.
#[derive(Debug, Default)]
struct Rules {
    types: Option<TypeSet>,
    values: Option<Vec<Value<'static>>>,
    all_of: Vec<Rules>,
    any_of: Option<Vec<Rules>>,
    one_of: Option<Vec<Rules>>,
    not: Option<Box<Rules>>,
    number: NumberRules,
    string: StringRules,
    array: ArrayRules,
    object: ObjectRules,
}

#[derive(Debug, Default)]
struct NumberRules {
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<Decimal128>,
}

#[derive(Debug)]
struct Bound {
    value: Value<'static>,
    exclusive: bool,
}

#[derive(Debug, Default)]
struct StringRules {
    length_min: Option<u64>,
    length_max: Option<u64>,
    pattern: Option<Regex>,
}

#[derive(Debug, Default)]
struct ArrayRules {
    count_min: Option<u64>,
    count_max: Option<u64>,
    unique: bool,
    items: Items,
    additional: Option<Additional>,
}

#[derive(Debug, Default)]
enum Items {
    #[default]
    Any,
    /// All elements.
    Each(Box<Rules>),
    /// One schema a position; `additionalItems` speaks of what is beyond.
    ByPosition(Vec<Rules>),
}

#[derive(Debug)]
enum Additional {
    Allowed(bool),
    Rules(Box<Rules>),
}

#[derive(Debug, Default)]
struct ObjectRules {
    required: Vec<String>,
    count_min: Option<u64>,
    count_max: Option<u64>,
    properties: Vec<(String, Rules)>,
    /// The properties' positions by name.
    by_name: HashMap<String, Vec<usize>>,
    patterns: Vec<(Regex, Rules)>,
    additional: Option<Additional>,
    dependencies: Vec<(String, Dependency)>,
}

/// What must hold of an object that has a certain property.
#[derive(Debug)]
enum Dependency {
    Properties(Vec<String>),
    Rules(Box<Rules>),
}
