//! A slow and simple reference for updates and projections. It works on owned documents, path by path. It
//! shares no code with the crate under test, comparison and matching included.

#![allow(dead_code)]

pub mod generate;
pub mod matching;
pub mod order;
pub mod project;
pub mod update;
