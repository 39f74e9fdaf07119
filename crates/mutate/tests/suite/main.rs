//! Tests of updates and projections, in one program so that it is linked once.

#[path = "../reference/mod.rs"]
mod reference;

mod common;
mod differential;
mod fuzz;
mod project_tables;
mod update_tables;
mod work;
