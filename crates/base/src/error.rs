//! The error that a command replies with.
//!
//! One type for every error that a client may see: a MongoDB code, MongoDB's message, and the extra reply fields
//! that some codes have (`keyPattern`, `keyValue`, `errInfo`, …). A layer that decides by the kind of error
//! (storage: retry or fail) has an enum of its own and converts it.

use crate::codes::ErrorCode;
use std::borrow::Cow;
use std::fmt;

/// The result type of everything that can fail towards a client.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error as a client sees it: `code`, `codeName`, `errmsg`, extra fields and error labels.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    code: ErrorCode,
    message: String,
    details: Option<Box<Details>>,
}

#[derive(Clone, Default, PartialEq, Eq)]
struct Details {
    /// A BSON document (raw bytes) whose fields are added to the reply.
    extra: Vec<u8>,
    labels: Vec<Cow<'static, str>>,
}

impl Error {
    /// An error of this code with this message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), details: None }
    }

    /// `BadValue` (2), the commonest one.
    pub fn bad_value(message: impl Into<String>) -> Self {
        Error::new(ErrorCode::BadValue, message)
    }

    /// `FailedToParse` (9).
    pub fn failed_to_parse(message: impl Into<String>) -> Self {
        Error::new(ErrorCode::FailedToParse, message)
    }

    /// `TypeMismatch` (14).
    pub fn type_mismatch(message: impl Into<String>) -> Self {
        Error::new(ErrorCode::TypeMismatch, message)
    }

    /// An error known by a bare number, as MongoDB's `Location40353` are.
    pub fn location(number: i32, message: impl Into<String>) -> Self {
        Error::new(ErrorCode::from_number(number), message)
    }

    /// Adds reply fields: `document` is one whole raw BSON document.
    pub fn with_extra(mut self, document: Vec<u8>) -> Self {
        self.details.get_or_insert_default().extra = document;
        self
    }

    /// Adds an error label (`RetryableWriteError`, `TransientTransactionError`).
    pub fn with_label(mut self, label: impl Into<Cow<'static, str>>) -> Self {
        self.details.get_or_insert_default().labels.push(label.into());
        self
    }

    /// The same error with `prefix` put before its message, as MongoDB's `withContext` does
    /// (`prefix :: caused by :: message`).
    pub fn context(mut self, prefix: impl fmt::Display) -> Self {
        self.message = format!("{prefix} :: caused by :: {}", self.message);
        self
    }

    /// The code.
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The message alone, without code or name.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The raw BSON document of extra reply fields, if there is one.
    pub fn extra(&self) -> Option<&[u8]> {
        self.details.as_deref().map(|d| d.extra.as_slice()).filter(|e| !e.is_empty())
    }

    /// The error's labels.
    pub fn labels(&self) -> &[Cow<'static, str>] {
        self.details.as_deref().map_or(&[], |d| &d.labels)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.code.name(), self.code.number(), self.message)
    }
}

impl std::error::Error for Error {}

/// `bail!(BadValue, "no {x}")`: returns `Err` of that code. A number makes a `LocationN`.
#[macro_export]
macro_rules! bail {
    ($code:ident, $($arg:tt)*) => {
        return Err($crate::Error::new($crate::ErrorCode::$code, format!($($arg)*)).into())
    };
    ($number:literal, $($arg:tt)*) => {
        return Err($crate::Error::location($number, format!($($arg)*)).into())
    };
}
