//! Catalog tests, in one program so that it is linked once.

mod checks;
mod common;
mod concurrency;
mod definitions;
mod lifecycle;
mod unusable;
