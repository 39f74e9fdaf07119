//! The operators, one file per family, and the table of their names.

pub(crate) mod accumulate;
pub(crate) mod arithmetic;
pub(crate) mod array;
pub(crate) mod binding;
pub(crate) mod bitwise;
pub(crate) mod boolean;
pub(crate) mod bytewise;
pub(crate) mod compare;
pub(crate) mod conditional;
pub(crate) mod convert;
pub(crate) mod convert_number;
pub(crate) mod date;
pub(crate) mod date_math;
pub(crate) mod date_text;
pub(crate) mod literal;
pub(crate) mod members;
pub(crate) mod merged;
pub(crate) mod misc;
pub(crate) mod object;
pub(crate) mod regex;
pub(crate) mod registry;
pub(crate) mod set;
pub(crate) mod sort;
pub(crate) mod string;
pub(crate) mod trigonometry;
pub(crate) mod types;
