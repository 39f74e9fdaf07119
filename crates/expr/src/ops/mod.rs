//! The operators, one file a family, and the table of their names.

pub(crate) mod binding;
pub(crate) mod boolean;
pub(crate) mod compare;
pub(crate) mod conditional;
pub(crate) mod literal;
pub(crate) mod registry;
pub(crate) mod string;
