//! Variables: names that may be read and bound, and variables from outside of an expression.

use kauri_base::{Result, bail};
use std::collections::HashMap;
use std::sync::Arc;

/// Names that are bound outside the expression: a command's or `$lookup`'s `let`, `$redact`'s
/// `KEEP`, `PRUNE` and `DESCEND`. Their values are given at evaluation, by position. A clone is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariableScope {
    variables: Arc<Variables>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Variables {
    names: Vec<String>,
    /// The position of the last variable of a name.
    by_name: HashMap<String, usize>,
}

impl VariableScope {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable, which hides an earlier one of the same name; gives its position.
    pub fn define(&mut self, name: impl Into<String>) -> usize {
        let variables = Arc::make_mut(&mut self.variables);
        let (name, position) = (name.into(), variables.names.len());
        variables.by_name.insert(name.clone(), position);
        variables.names.push(name);
        position
    }

    /// The position of the variable of this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.variables.by_name.get(name).copied()
    }

    /// The names by position.
    pub fn names(&self) -> &[String] {
        &self.variables.names
    }
}

/// Whether the server itself gives this variable its value.
pub fn is_system_variable(name: &str) -> bool {
    matches!(
        name,
        "ROOT"
            | "REMOVE"
            | "NOW"
            | "CLUSTER_TIME"
            | "JS_SCOPE"
            | "IS_MR"
            | "SEARCH_META"
            | "USER_ROLES"
    )
}

/// Checks a name that is read (`$$name`).
pub fn check_name_for_read(name: &str) -> Result<()> {
    check_name(name, |c| c.is_ascii_alphabetic())
}

/// Checks a name that a user binds: it begins with a lower-case letter, or is `CURRENT`.
pub fn check_name_for_write(name: &str) -> Result<()> {
    if name == "CURRENT" {
        return Ok(());
    }
    check_name(name, |c| c.is_ascii_lowercase())
}

fn check_name(name: &str, first_ok: fn(char) -> bool) -> Result<()> {
    let mut chars = name.chars();
    let Some(first) = chars.next() else {
        bail!(FailedToParse, "empty variable names are not allowed");
    };
    if first.is_ascii() && !first_ok(first) {
        bail!(FailedToParse, "'{name}' starts with an invalid character for a user variable name");
    }
    let bad = chars.find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_');
    if let Some(bad) = bad {
        bail!(FailedToParse, "'{name}' contains an invalid character for a variable name: '{bad}'");
    }
    Ok(())
}
