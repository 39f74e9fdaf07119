//! Reads a command's fields with the checks and messages of MongoDB's own argument parser (its "IDL": wrong type
//! 14, unknown field 40415, missing field 40414).

use crate::accepted;
use kauri_base::{Error, ErrorCode, Result, bail};
use kauri_bson::{Doc, Elem, Type, Value, not_utf8};

/// Fields that every command takes, and the dispatcher or the log acts on.
const GENERIC: &[&str] = &[
    "$db",
    "$readPreference",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "autocommit",
    "comment",
    "help",
    "lsid",
    "maxTimeMS",
    "maxTimeMSOpOnly",
    "readConcern",
    "startTransaction",
    "txnNumber",
    "writeConcern",
];

/// Whether every command takes this field.
pub fn is_generic(field: &str) -> bool {
    GENERIC.contains(&field) || accepted::is_of_every_command(field)
}

/// The arguments of a command after its name. A null counts as missing, as in MongoDB's parser for all optional
/// arguments except `hint`, which it reads whatever its type.
pub fn fields<'d>(body: Doc<'d>) -> impl Iterator<Item = Elem<'d>> {
    body.iter().skip(1).filter(is_given)
}

fn is_given(elem: &Elem<'_>) -> bool {
    elem.ty() != Type::Null || elem.key() == "hint"
}

/// The same of a structure within a command.
pub fn structure<'d>(doc: Doc<'d>) -> impl Iterator<Item = Elem<'d>> {
    doc.iter().filter(is_given)
}

/// Reads the fields of one command or of one of its embedded structures; knows the path for
/// messages.
#[derive(Clone, Copy)]
pub struct Args<'n> {
    path: &'n str,
}

impl<'n> Args<'n> {
    /// For the structure of this path (`find`, `update.updates`).
    pub fn new(path: &'n str) -> Self {
        Args { path }
    }

    /// The error for a value of the wrong type.
    pub fn wrong_type(&self, elem: Elem<'_>, expected: &[&str]) -> Error {
        let expected = match expected {
            [one] => format!("expected type '{one}'"),
            many => format!("expected types '[{}]'", many.join(", ")),
        };
        Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{}.{}' is the wrong type '{}', {expected}",
                self.path,
                elem.key(),
                elem.ty().alias()
            ),
        )
    }

    /// The error for a field that the command does not have.
    pub fn unknown(&self, field: &str) -> Error {
        Error::location(40415, format!("BSON field '{}.{field}' is an unknown field.", self.path))
    }

    /// Fails unless the field is one that every command takes, or one of `accepted`.
    pub fn other(&self, elem: Elem<'_>) -> Result<()> {
        if is_generic(elem.key()) { Ok(()) } else { self.accepted(elem) }
    }

    /// Fails unless the field is one of `accepted`.
    pub fn accepted(&self, elem: Elem<'_>) -> Result<()> {
        if accepted::passes(self, self.path, elem)? {
            Ok(())
        } else {
            Err(self.unknown(elem.key()))
        }
    }

    /// Reads an optional field, for which null and undefined mean that it is not given.
    pub fn given<'d, T>(
        &self,
        elem: Elem<'d>,
        read: impl FnOnce(&Self, Elem<'d>) -> Result<T>,
    ) -> Result<Option<T>> {
        if elem.value().is_nullish() { Ok(None) } else { read(self, elem).map(Some) }
    }

    /// The error for a required field that is not there.
    pub fn missing(&self, field: &str) -> Error {
        Error::location(
            40414,
            format!("BSON field '{}.{field}' is missing but a required field", self.path),
        )
    }

    /// A document. Null is a wrong type.
    pub fn object<'d>(&self, elem: Elem<'d>) -> Result<Doc<'d>> {
        match (elem.ty(), elem.as_doc()) {
            (Type::Document, Some(doc)) => Ok(doc),
            _ => Err(self.wrong_type(elem, &["object"])),
        }
    }

    /// An array, as the document of its elements.
    pub fn array<'d>(&self, elem: Elem<'d>) -> Result<Doc<'d>> {
        match (elem.ty(), elem.as_doc()) {
            (Type::Array, Some(doc)) => Ok(doc),
            _ => Err(self.wrong_type(elem, &["array"])),
        }
    }

    /// A string.
    pub fn string(&self, elem: Elem<'_>) -> Result<String> {
        match elem.value() {
            Value::String(text) => Ok(text.into_owned()),
            text if text.string_bytes().is_some() => {
                Err(not_utf8::error(&format!("BSON field '{}.{}'", self.path, elem.key())))
            }
            _ => Err(self.wrong_type(elem, &["string"])),
        }
    }

    /// A string that names a collection or database.
    pub fn namespace(&self, elem: Elem<'_>) -> Result<String> {
        not_utf8::refuse_as_namespace(&elem.value())?;
        self.string(elem)
    }

    /// `true` or `false` and nothing else.
    pub fn bool(&self, elem: Elem<'_>) -> Result<bool> {
        match elem.value() {
            Value::Bool(flag) => Ok(flag),
            _ => Err(self.wrong_type(elem, &["bool"])),
        }
    }

    /// A boolean, or a number that stands for one (`safeBool`).
    pub fn safe_bool(&self, elem: Elem<'_>) -> Result<bool> {
        match elem.value() {
            Value::Bool(flag) => Ok(flag),
            value if value.is_number() => Ok(value.truthy()),
            _ => Err(self.wrong_type(elem, &["bool", "long", "int", "decimal", "double"])),
        }
    }

    /// An integer of any number type (`safeInt64`): a double's fraction is cut off, a decimal is
    /// rounded to the nearest, ties to even.
    pub fn long(&self, elem: Elem<'_>) -> Result<i64> {
        let value = elem.value();
        kauri_query::pipeline::truncated(&value)
            .ok_or_else(|| self.wrong_type(elem, &["long", "int", "decimal", "double"]))
    }

    /// As `long`, and not negative.
    pub fn count(&self, elem: Elem<'_>) -> Result<u64> {
        self.at_least(elem, 0).map(|n| n as u64)
    }

    /// As `long`, and at least `min`.
    pub fn at_least(&self, elem: Elem<'_>, min: i64) -> Result<i64> {
        let number = self.long(elem)?;
        if number < min {
            bail!(
                BadValue,
                "BSON field '{}' value must be >= {min}, actual value '{number}'",
                elem.key()
            );
        }
        Ok(number)
    }
}
