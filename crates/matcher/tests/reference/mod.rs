//! A naive matcher, and filters and documents for it.

pub mod generate;
mod matcher;

pub use matcher::*;
