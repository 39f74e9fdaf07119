//! Raw BSON: views over bytes, values, writers, the comparison order, KeyString index keys.
//!
//! Documents stay raw. [`Doc`] borrows bytes, [`DocBuf`] owns them, [`Value`] is one value, borrowed where
//! possible. Bytes from outside are validated once, by [`validate()`]. Views only check what memory safety and the
//! absence of panics need, and stop at malformed bytes.
//!
//! The `bson` crate's raw types check keys and strings again at each step and hide the constructor of the array
//! view, so this crate has its own views. Its owned types serve tests and tools, by [`convert`].
//!
//! This crate must not know queries, storage or the wire.

pub mod bid;
pub mod compare;
pub mod convert;
pub mod decimal;
mod decimal_text;
pub mod doc;
pub mod extjson;
pub mod keygen;
pub mod keystring;
pub mod not_utf8;
pub mod number;
pub mod object_id;
pub mod path;
#[cfg(test)]
mod random;
pub mod shell;
pub mod types;
pub mod validate;
pub mod value;
pub mod writer;

pub use compare::{compare, compare_docs, equal, hash_value};
pub use doc::{Doc, DocBuf, DocCow, Elem, Iter, Ticked};
pub use extjson::log_doc;
pub use keystring::{Discriminator, KeyStringBuilder, TypeBits};
pub use number::Number;
pub use object_id::ObjectIds;
pub use shell::{doc_to_string as shell_text, value_to_string as shell_value};
pub use types::Type;
pub use validate::validate;
pub use value::{Decimal128, Value};
pub use writer::{ArrayWriter, DocWriter};
