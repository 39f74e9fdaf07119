//! Catalog tests, in one program so that it is linked once.

mod checks;
mod common;
mod concurrency;
mod definitions;
mod follower;
mod leader;
mod lifecycle;
mod members;
mod role_changes;
mod unusable;
