//! Matcher tests, in one program so that it is linked once.

#[path = "../reference/mod.rs"]
mod reference;

mod errors;
mod json_schema;
mod mismatch;
mod parser_fuzz;
mod random;
mod semantics;
mod trees;
mod work;
