//! The catalog's tests, in one program: it is linked once.

mod checks;
mod common;
mod concurrency;
mod definitions;
mod lifecycle;
mod unusable;
