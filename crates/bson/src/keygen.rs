//! Index key generation. (API that crates/catalog is written against right now; whoever implements
//! this file: keep these names, or change crates/catalog/src/{index,collection}.rs with them.)
//!
//! ```text
//! pub struct KeyPattern { .. }
//! impl KeyPattern {
//!     pub fn parse(key: Doc<'_>) -> Result<KeyPattern>;      // { a: 1, "b.c": -1 }
//!     pub fn len(&self) -> usize;                            // number of fields
//!     pub fn fields(&self) -> &[KeyField];                   // path: String, descending: bool
//!     /// Appends the document's keys to `keys` (which the caller cleared), sorted, without doubles.
//!     pub fn generate(&self, doc: Doc<'_>, sparse: bool, keys: &mut Keys) -> Result<()>;
//!     /// The values of a key, in the pattern's order.
//!     pub fn decode(&self, key: &[u8], type_bits: &[u8]) -> Result<Vec<Value<'static>>>;
//! }
//! #[derive(Default)] pub struct Keys { .. }                  // reusable, one byte buffer inside
//! pub struct Key<'k> { pub bytes: &'k [u8], pub type_bits: &'k [u8] }
//! impl Keys {
//!     pub fn clear(&mut self);
//!     pub fn iter(&self) -> impl Iterator<Item = Key<'_>>;
//!     pub fn contains(&self, key: &[u8]) -> bool;            // key bytes only
//!     pub fn contains_exactly(&self, key: &[u8], type_bits: &[u8]) -> bool;
//!     pub fn multikey(&self) -> &[u64];   // per field: bit i set = path component i was an array
//! }
//! // in extjson.rs or so, re-exported at the crate root:
//! pub fn shell_text(doc: Doc<'_>) -> String;                 // `{ a: 1, b: "x" }` as in E11000 messages
//! ```
