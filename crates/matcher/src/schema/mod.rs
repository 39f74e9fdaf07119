//! `$jsonSchema`: MongoDB's variant of JSON Schema draft 4, with `bsonType`.
//!
//! A schema restricts values, not paths: it is stored as the contents of its keywords and evaluated by walking
//! value and schema together. A keyword for one type accepts values of other types.
//!
//! Invariant: the parser limits the nesting of schemas, and so the recursion here.

pub(crate) mod eval;
mod explain;

pub(crate) use explain::{DETAILS_BYTES_MAX, VALUE_BYTES_MAX};

use crate::type_set::TypeSet;
use kauri_bson::{Decimal128, DocBuf, Value};
use kauri_expr::regex::Regex;
use std::collections::HashMap;

/// A parsed `$jsonSchema`.
#[derive(Debug)]
pub struct Schema {
    pub(crate) source: DocBuf,
    pub(crate) rules: Rules,
}

impl Schema {
    /// The schema as the filter wrote it.
    pub fn source(&self) -> &DocBuf {
        &self.source
    }
}

/// One (sub)schema. Absent keywords restrict nothing.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) types: Option<TypeSet>,
    pub(crate) values: Option<Vec<Value<'static>>>,
    pub(crate) all_of: Vec<Rules>,
    pub(crate) any_of: Option<Vec<Rules>>,
    pub(crate) one_of: Option<Vec<Rules>>,
    pub(crate) not: Option<Box<Rules>>,
    pub(crate) number: NumberRules,
    pub(crate) string: StringRules,
    pub(crate) array: ArrayRules,
    pub(crate) object: ObjectRules,
}

#[derive(Debug, Default)]
pub(crate) struct NumberRules {
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) multiple_of: Option<Decimal128>,
}

#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) value: Value<'static>,
    pub(crate) exclusive: bool,
}

#[derive(Debug, Default)]
pub(crate) struct StringRules {
    pub(crate) length_min: Option<u64>,
    pub(crate) length_max: Option<u64>,
    pub(crate) pattern: Option<Regex>,
}

#[derive(Debug, Default)]
pub(crate) struct ArrayRules {
    pub(crate) count_min: Option<u64>,
    pub(crate) count_max: Option<u64>,
    pub(crate) unique: bool,
    pub(crate) items: Items,
    pub(crate) additional: Option<Additional>,
}

#[derive(Debug, Default)]
pub(crate) enum Items {
    #[default]
    Any,
    /// All elements.
    Each(Box<Rules>),
    /// One schema a position; `additionalItems` speaks of what is beyond.
    ByPosition(Vec<Rules>),
}

#[derive(Debug)]
pub(crate) enum Additional {
    Allowed(bool),
    Rules(Box<Rules>),
}

#[derive(Debug, Default)]
pub(crate) struct ObjectRules {
    pub(crate) required: Vec<String>,
    pub(crate) count_min: Option<u64>,
    pub(crate) count_max: Option<u64>,
    pub(crate) properties: Vec<(String, Rules)>,
    /// The properties' positions by name.
    pub(crate) by_name: HashMap<String, Vec<usize>>,
    pub(crate) patterns: Vec<(Regex, Rules)>,
    pub(crate) additional: Option<Additional>,
    pub(crate) dependencies: Vec<(String, Dependency)>,
}

/// What must hold of an object that has a certain property.
#[derive(Debug)]
pub(crate) enum Dependency {
    Properties(Vec<String>),
    Rules(Box<Rules>),
}
