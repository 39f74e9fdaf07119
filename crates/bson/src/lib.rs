//! Raw BSON as the rest of Kauri sees it: views over bytes, values, writers, the comparison order,
//! KeyString index keys.
//!
//! Documents stay raw. [`Doc`] borrows bytes, [`DocBuf`] owns them, [`Value`] is one value, borrowed
//! where it can be. Bytes from outside are validated once, by [`validate()`]; views made later only check
//! what memory safety and the absence of panics need, and stop at what is malformed.
//!
//! The `bson` crate's own raw types check keys and strings again at each step and keep the array
//! view's constructor to themselves, which is why the views are our own; its owned types serve at
//! the edges (tests, tools) by [`convert`].
//!
//! Knows nothing of queries, storage or the wire.

pub mod bid;
pub mod compare;
pub mod convert;
pub mod decimal;
mod decimal_text;
pub mod doc;
pub mod extjson;
pub mod keygen;
pub mod keystring;
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
pub use object_id::new_object_id;
pub use shell::{doc_to_string as shell_text, value_to_string as shell_value};
pub use types::Type;
pub use validate::validate;
pub use value::{Decimal128, Value};
pub use writer::{ArrayWriter, DocWriter};
