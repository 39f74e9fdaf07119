//! The options of a collection.

use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{Doc, DocBuf, DocWriter, Value};
use kauri_matcher::MatchExpr;
use std::sync::Arc;

/// The action for a document that fails validation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum ValidationAction {
    Error,
    Warn,
    ErrorAndLog,
}

/// The writes that are validated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ValidationLevel {
    /// None.
    Off,
    /// Inserts, and updates of documents that satisfy it.
    Moderate,
    /// All.
    Strict,
}

/// Bounds of a capped collection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capped {
    /// Most bytes of documents.
    pub bytes_max: u64,
    /// Most documents; 0 for any number.
    pub records_max: u64,
}

/// A collection's options, parsed, with the text that they came from.
#[derive(Clone)]
pub struct CollectionOptions {
    /// The bounds, if it is capped.
    pub capped: Option<Capped>,
    /// The validator as given.
    pub validator: Option<DocBuf>,
    /// The parsed validator, or the error of a stored one that is unusable: then writes that it would validate
    /// fail.
    pub validator_expr: Option<Result<Arc<MatchExpr>>>,
    /// The writes that are validated, if specified.
    pub validation_level: Option<ValidationLevel>,
    /// The action for a document that fails, if specified.
    pub validation_action: Option<ValidationAction>,
    /// Whether it is a copy in the making, which a restart drops.
    pub temp: bool,
    /// Options that are kept and shown but that mean nothing to the engine (`storageEngine`,
    /// `indexOptionDefaults`, `changeStreamPreAndPostImages`, …).
    pub kept: DocBuf,
}

impl Default for CollectionOptions {
    fn default() -> Self {
        CollectionOptions {
            capped: None,
            validator: None,
            validator_expr: None,
            validation_level: None,
            validation_action: None,
            temp: false,
            kept: DocBuf::new(),
        }
    }
}

impl CollectionOptions {
    /// Reads what [`CollectionOptions::write`] wrote. Options of users are checked by the commands
    /// that take them; here they are taken as they are.
    pub fn from_stored(doc: Doc<'_>) -> Result<CollectionOptions> {
        let mut options = CollectionOptions::default();
        let mut kept = Vec::new();
        {
            let mut kept = DocWriter::new(&mut kept);
            let (mut is_capped, mut bytes_max, mut records_max) = (false, 0, 0);
            for elem in doc {
                match (elem.key(), elem.value()) {
                    ("capped", Value::Bool(capped)) => is_capped = capped,
                    ("temp", Value::Bool(temp)) => options.temp = temp,
                    ("size", size) => {
                        bytes_max = size.to_i64_saturating().unwrap_or(0).max(0) as u64
                    }
                    ("max", max) => {
                        records_max = max.to_i64_saturating().unwrap_or(0).max(0) as u64
                    }
                    ("validator", Value::Document(validator)) => {
                        let validator = validator.into_buf();
                        if let Err(error) = options.set_validator(Some(validator.clone())) {
                            options.validator = Some(validator);
                            options.validator_expr = Some(Err(error));
                        }
                    }
                    ("validationLevel", level) => {
                        options.validation_level =
                            Some(parse_level(level.as_str().unwrap_or_default())?);
                    }
                    ("validationAction", action) => {
                        options.validation_action =
                            Some(parse_action(action.as_str().unwrap_or_default())?);
                    }
                    _ => kept.put_elem(elem),
                }
            }
            if is_capped {
                options.capped = Some(Capped { bytes_max, records_max });
            }
        }
        options.kept = DocBuf::from_vec(kept)?;
        Ok(options)
    }

    /// Sets or removes the validator.
    pub fn set_validator(&mut self, validator: Option<DocBuf>) -> Result<()> {
        let validator = validator.filter(|v| !v.as_doc().is_empty());
        self.validator_expr = match &validator {
            Some(doc) => {
                let cx = kauri_matcher::ParseCx::new(kauri_matcher::Place::Validator);
                Some(Ok(Arc::new(MatchExpr::parse(doc.as_doc(), &cx)?)))
            }
            None => None,
        };
        self.validator = validator;
        Ok(())
    }

    /// Writes them as `listCollections` shows them, in MongoDB's order.
    pub fn write(&self, out: &mut DocWriter<'_>) {
        if let Some(capped) = self.capped {
            out.put("capped", true);
            out.put_value("size", &number(capped.bytes_max));
            if capped.records_max > 0 {
                out.put_value("max", &number(capped.records_max));
            }
        }
        if self.temp {
            out.put("temp", true);
        }
        out.put_all(self.kept.as_doc());
        if let Some(validator) = &self.validator {
            out.put("validator", validator);
        }
        // A validator always shows how it is applied.
        if self.validator.is_some() || self.validation_level.is_some() {
            out.put("validationLevel", level_name(self.level()));
        }
        if self.validator.is_some() || self.validation_action.is_some() {
            out.put("validationAction", action_name(self.action()));
        }
    }

    /// The writes that are validated.
    pub fn level(&self) -> ValidationLevel {
        self.validation_level.unwrap_or(ValidationLevel::Strict)
    }

    /// The action for a document that fails.
    pub fn action(&self) -> ValidationAction {
        self.validation_action.unwrap_or(ValidationAction::Error)
    }

    /// The options as a document.
    pub fn to_doc(&self) -> DocBuf {
        DocBuf::build(|w| self.write(w))
    }
}

/// The smallest type that holds the number, as MongoDB shows these.
fn number(n: u64) -> Value<'static> {
    i32::try_from(n).map_or(Value::Int64(n as i64), Value::Int32)
}

/// `validationLevel` by name.
pub fn parse_level(name: &str) -> Result<ValidationLevel> {
    match name {
        "off" => Ok(ValidationLevel::Off),
        "moderate" => Ok(ValidationLevel::Moderate),
        "strict" => Ok(ValidationLevel::Strict),
        other => Err(Error::new(
            ErrorCode::BadValue,
            format!(
                "Enumeration value '{other}' for field 'validationLevel' is not a valid value."
            ),
        )),
    }
}

/// `validationAction` by name.
pub fn parse_action(name: &str) -> Result<ValidationAction> {
    match name {
        "error" => Ok(ValidationAction::Error),
        "warn" => Ok(ValidationAction::Warn),
        "errorAndLog" => Ok(ValidationAction::ErrorAndLog),
        other => Err(Error::new(
            ErrorCode::BadValue,
            format!(
                "Enumeration value '{other}' for field 'validationAction' is not a valid value."
            ),
        )),
    }
}

fn level_name(level: ValidationLevel) -> &'static str {
    match level {
        ValidationLevel::Off => "off",
        ValidationLevel::Moderate => "moderate",
        ValidationLevel::Strict => "strict",
    }
}

fn action_name(action: ValidationAction) -> &'static str {
    match action {
        ValidationAction::Error => "error",
        ValidationAction::Warn => "warn",
        ValidationAction::ErrorAndLog => "errorAndLog",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kauri_bson::doc;

    #[test]
    fn a_stored_validator_that_cannot_be_parsed_is_kept_with_its_error() {
        let stored = doc! { "validator" => doc! { "$noSuchOperator" => 1 }, "size" => 5 };
        let options = CollectionOptions::from_stored(stored.as_doc()).unwrap();
        let error = options.validator_expr.clone().unwrap().err().unwrap();
        assert_eq!(error.code(), ErrorCode::BadValue);
        assert_eq!(options.validator, Some(doc! { "$noSuchOperator" => 1 }));
        assert_eq!(
            options.to_doc().as_doc().value("validator"),
            stored.as_doc().value("validator")
        );
        let mut options = options;
        options.set_validator(Some(doc! { "a" => 1 })).unwrap();
        assert!(matches!(options.validator_expr, Some(Ok(_))));
        assert!(options.set_validator(Some(doc! { "$noSuchOperator" => 1 })).is_err());
    }
}
