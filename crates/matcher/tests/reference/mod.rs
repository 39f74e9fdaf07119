//! A naive matcher, with generated filters and documents for it.

pub mod generate;
mod matcher;

pub use matcher::*;
