//! Reads the fields of a stage's specification with the checks and messages of MongoDB's own argument parser:
//! unknown 40415, duplicate 40413, wrong type 14, missing 40414.

use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, Elem, Type};

/// A specification's fields, by name.
pub struct Spec<'d, 'n> {
    stage: &'n str,
    doc: Doc<'d>,
}

impl<'d, 'n> Spec<'d, 'n> {
    /// The specification `doc` of `stage` (a path, for messages), which may have these fields.
    pub fn new(stage: &'n str, doc: Doc<'d>, known: &[&str]) -> Result<Spec<'d, 'n>> {
        let mut seen: Vec<&str> = Vec::new();
        for elem in doc {
            let key = elem.key();
            if !known.contains(&key) {
                bail!(40415, "BSON field '{stage}.{key}' is an unknown field.");
            }
            if seen.contains(&key) {
                bail!(40413, "BSON field '{stage}.{key}' is a duplicate field");
            }
            seen.push(key);
        }
        Ok(Spec::any(stage, doc))
    }

    /// A specification that may have fields beyond the requested ones.
    pub fn any(stage: &'n str, doc: Doc<'d>) -> Spec<'d, 'n> {
        Spec { stage, doc }
    }

    /// The field as it is given.
    pub fn raw(&self, name: &str) -> Option<Elem<'d>> {
        self.doc.get(name)
    }

    /// The field, for which null and undefined mean that it is not given.
    pub fn get(&self, name: &str) -> Option<Elem<'d>> {
        self.raw(name).filter(|e| !matches!(e.ty(), Type::Null | Type::Undefined))
    }

    /// The error for a field of the wrong type.
    pub fn wrong_type(&self, elem: Elem<'_>, expected: &[&str]) -> Error {
        let expected = match expected {
            [one] => format!("expected type '{one}'"),
            many => format!("expected types '[{}]'", many.join(", ")),
        };
        Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{}.{}' is the wrong type '{}', {expected}",
                self.stage,
                elem.key(),
                elem.ty().alias()
            ),
        )
    }

    /// The error for a required field that is not given.
    pub fn missing(&self, name: &str) -> Error {
        let message = format!("BSON field '{}.{name}' is missing but a required field", self.stage);
        Error::location(40414, message)
    }

    /// A string, if it is given.
    pub fn string(&self, name: &str) -> Result<Option<String>> {
        let Some(elem) = self.get(name) else { return Ok(None) };
        if matches!(name, "db" | "coll") {
            kauri_bson::not_utf8::refuse_as_namespace(&elem.value())?;
        }
        kauri_bson::not_utf8::refuse(
            &elem.value(),
            &format!("BSON field '{}.{name}'", self.stage),
        )?;
        match elem.value().as_str() {
            Some(text) => Ok(Some(text.to_owned())),
            None => Err(self.wrong_type(elem, &["string"])),
        }
    }

    /// A document, if it is given.
    pub fn object(&self, name: &str) -> Result<Option<Doc<'d>>> {
        let Some(elem) = self.get(name) else { return Ok(None) };
        match elem.as_doc().filter(|_| elem.ty() == Type::Document) {
            Some(doc) => Ok(Some(doc)),
            None => Err(self.wrong_type(elem, &["object"])),
        }
    }

    /// An array, if it is given.
    pub fn array(&self, name: &str) -> Result<Option<Doc<'d>>> {
        let Some(elem) = self.get(name) else { return Ok(None) };
        match elem.as_doc().filter(|_| elem.ty() == Type::Array) {
            Some(doc) => Ok(Some(doc)),
            None => Err(self.wrong_type(elem, &["array"])),
        }
    }

    /// True or false, if it is there at all.
    pub fn flag(&self, name: &str) -> Result<Option<bool>> {
        let Some(elem) = self.raw(name) else { return Ok(None) };
        match elem.value() {
            kauri_bson::Value::Bool(flag) => Ok(Some(flag)),
            _ => Err(self.wrong_type(elem, &["bool"])),
        }
    }

    /// True or false, if it is given.
    pub fn bool(&self, name: &str) -> Result<Option<bool>> {
        if self.get(name).is_none() { Ok(None) } else { self.flag(name) }
    }
}

/// The elements of a `pipeline` argument, which is never null.
pub fn pipeline(elem: Elem<'_>) -> Result<Doc<'_>> {
    match elem.as_doc().filter(|_| elem.ty() == Type::Array) {
        Some(stages) => Ok(stages),
        None => bail!(TypeMismatch, "'pipeline' option must be specified as an array"),
    }
}
