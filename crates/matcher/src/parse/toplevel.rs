//! Operators at the position of a field: the logical ones, `$expr`, `$jsonSchema` and others.

use super::{Level, Parser, field, leaf, number, unknown_top_level};
use crate::cx::Place;
use crate::path::Path;
use crate::tree::{CompareOp, ExprMatch, MatchExpr, Predicate};
use kauri_base::{Result, bail};
use kauri_bson::{Elem, Value};

/// Whether an operator of this name stands in place of a field, not under one.
pub(super) fn is_top_level(name: &[u8]) -> bool {
    matches!(
        name,
        b"$and"
            | b"$or"
            | b"$nor"
            | b"$expr"
            | b"$jsonSchema"
            | b"$where"
            | b"$text"
            | b"$comment"
            | b"$alwaysTrue"
            | b"$alwaysFalse"
            | b"$sampleRate"
            | b"$ref"
            | b"$id"
            | b"$db"
    )
}

impl Parser<'_, '_> {
    /// `None` if the operator says nothing (`$comment`).
    pub(super) fn top_level_operator(
        &mut self,
        elem: Elem<'_>,
        level: Level,
    ) -> Result<Option<MatchExpr>> {
        Ok(Some(match elem.key() {
            "$and" => MatchExpr::And(self.branches(elem, level)?),
            "$or" => MatchExpr::Or(self.branches(elem, level)?),
            "$nor" => MatchExpr::Nor(self.branches(elem, level)?),
            "$comment" => return Ok(None),
            "$ref" | "$id" | "$db" => {
                let path = Path::new(elem.key());
                leaf(&path, Predicate::Compare(CompareOp::Eq, field::operand(elem)?))
            }
            "$alwaysTrue" => {
                always(elem)?;
                MatchExpr::AlwaysTrue
            }
            "$alwaysFalse" => {
                always(elem)?;
                MatchExpr::AlwaysFalse
            }
            "$expr" => self.expr(elem, level)?,
            "$sampleRate" => self.sample_rate(elem, level)?,
            "$jsonSchema" => self.json_schema(elem)?,
            "$where" => return self.where_clause(elem, level),
            "$text" => return self.text(elem, level),
            other => return Err(unknown_top_level(other)),
        }))
    }

    fn expr(&mut self, elem: Elem<'_>, level: Level) -> Result<MatchExpr> {
        if level == Level::Element {
            bail!(BadValue, "$expr can only be applied to the top-level document");
        }
        if !self.cx.allows_expressions() {
            bail!(QueryFeatureNotAllowed, "$expr is not allowed in this context");
        }
        if self.cx.place() == Place::Upsert {
            bail!(
                QueryFeatureNotAllowed,
                "$expr is not allowed in the query predicate for an upsert"
            );
        }
        Ok(MatchExpr::Expr(ExprMatch::parse(&elem.value(), self.cx)?))
    }

    fn sample_rate(&mut self, elem: Elem<'_>, level: Level) -> Result<MatchExpr> {
        if level == Level::Element {
            bail!(BadValue, "$sampleRate can only be applied to the top-level document");
        }
        if !self.cx.allows_expressions() {
            bail!(QueryFeatureNotAllowed, "$sampleRate is not allowed in this context");
        }
        let value = elem.value();
        let Some(rate) = value.as_f64_lossy() else {
            bail!(BadValue, "argument to $sampleRate must be a numeric type");
        };
        if !(0.0..=1.0).contains(&rate) {
            bail!(BadValue, "numeric argument to $sampleRate must be in [0, 1]");
        }
        Ok(match rate {
            0.0 => MatchExpr::AlwaysFalse,
            1.0 => MatchExpr::AlwaysTrue,
            _ => MatchExpr::SampleRate(rate),
        })
    }

    fn json_schema(&mut self, elem: Elem<'_>) -> Result<MatchExpr> {
        if !self.cx.allows_expressions() {
            bail!(QueryFeatureNotAllowed, "$jsonSchema is not allowed in this context");
        }
        let Value::Document(schema) = elem.value() else {
            bail!(TypeMismatch, "$jsonSchema must be an object");
        };
        self.deeper(|p| p.schema(schema.as_doc()))
    }

    fn where_clause(&mut self, elem: Elem<'_>, level: Level) -> Result<Option<MatchExpr>> {
        if level == Level::Element {
            bail!(BadValue, "$where can only be applied to the top-level document");
        }
        if !self.cx.is_of_command() {
            bail!(BadValue, "$where is not allowed in this context");
        }
        match elem.value() {
            Value::String(_) | Value::Code(_) | Value::CodeWithScope { .. } => {
                bail!(BadValue, "no globalScriptEngine in $where parsing")
            }
            _ => bail!(BadValue, "$where got bad type"),
        }
    }

    fn text(&mut self, elem: Elem<'_>, level: Level) -> Result<Option<MatchExpr>> {
        if level == Level::Element {
            bail!(BadValue, "$text can only be applied to the top-level document");
        }
        if !self.cx.is_of_command() && self.cx.place() != Place::Aggregation {
            bail!(BadValue, "$text is not allowed in this context");
        }
        let Value::Document(spec) = elem.value() else {
            bail!(TypeMismatch, "$text expects an object");
        };
        let mut search = false;
        for option in spec.as_doc() {
            let (key, value) = (option.key(), option.value());
            match (key, &value) {
                ("$search", text) if text.string_bytes().is_some() => search = true,
                ("$language", Value::String(language)) if is_language(language) => {}
                ("$language", language) if language.string_bytes().is_some() => {
                    let language = language.lossy();
                    let language = language.as_str().unwrap_or_default();
                    bail!(BadValue, "unsupported language: \"{language}\" for text index version 3")
                }
                ("$caseSensitive" | "$diacriticSensitive", Value::Bool(_)) => {}
                ("$search" | "$language", _) => {
                    bail!(
                        TypeMismatch,
                        "\"{key}\" had the wrong type. Expected string, found {}",
                        value.type_name()
                    )
                }
                ("$caseSensitive" | "$diacriticSensitive", _) => {
                    bail!(
                        TypeMismatch,
                        "\"{key}\" had the wrong type. Expected bool, found {}",
                        value.type_name()
                    )
                }
                _ => bail!(BadValue, "extra fields in $text"),
            }
        }
        if !search {
            bail!(NoSuchKey, "Missing expected field \"$search\"");
        }
        self.texts += 1;
        Ok(None)
    }
}

/// Whether text search knows the language, by name or ISO 639-1 code.
fn is_language(language: &str) -> bool {
    const NAMES: [&str; 31] = [
        "danish",
        "da",
        "dutch",
        "nl",
        "english",
        "en",
        "finnish",
        "fi",
        "french",
        "fr",
        "german",
        "de",
        "hungarian",
        "hu",
        "italian",
        "it",
        "norwegian",
        "nb",
        "portuguese",
        "pt",
        "romanian",
        "ro",
        "russian",
        "ru",
        "spanish",
        "es",
        "swedish",
        "sv",
        "turkish",
        "tr",
        "none",
    ];
    NAMES.iter().any(|name| name.eq_ignore_ascii_case(language))
}

/// The operand of `$alwaysTrue` and `$alwaysFalse`.
fn always(elem: Elem<'_>) -> Result<()> {
    if number::to_long(elem)? != 1 {
        bail!(FailedToParse, "{} must be an integer value of 1", elem.key());
    }
    Ok(())
}
