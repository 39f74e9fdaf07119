//! A slow and simple second opinion on updates and projections: works on owned documents, path by
//! path, and shares nothing with what it judges, comparison and matching included.

#![allow(dead_code)]

pub mod generate;
pub mod matching;
pub mod order;
pub mod project;
pub mod update;
