//! The inputs of an evaluation: the document, variables, clock values, a random source.
//!
//! Values borrow from the document, from the expression's literals and from variables where possible. An [`Env`] is
//! small and copied down the tree; bindings are frames on the stack.

use kauri_base::{RandomSource, Timestamp};
use kauri_bson::{Doc, Value};

/// What all evaluations of a command share. Values are fixed: no clock is read.
#[derive(Clone, Copy, Default)]
pub struct EvalCx<'c> {
    /// `$$NOW`: milliseconds since 1970 at the command's start.
    pub now_ms: i64,
    /// `$$CLUSTER_TIME`, where there is one.
    pub cluster_time: Option<Timestamp>,
    /// Values of the variables of the [`VariableScope`](crate::VariableScope) by position; an absent one is
    /// missing.
    pub vars: &'c [Value<'c>],
    /// `$$USER_ROLES`.
    pub user_roles: Option<&'c Value<'c>>,
    /// Randomness for `$rand`.
    pub random: Option<&'c dyn RandomSource>,
    /// `$meta` values of the current document.
    pub meta: Option<&'c dyn MetaSource>,
}

/// Metadata that travels with a document (`textScore`, `indexKey`, …).
pub trait MetaSource {
    /// The value of this name; `Missing` if the document has none.
    fn meta(&self, name: &str) -> Value<'_>;
}

/// The environment of an evaluation.
#[derive(Clone, Copy)]
pub(crate) struct Env<'t> {
    pub root: Doc<'t>,
    pub frame: Option<&'t Frame<'t>>,
    pub cx: &'t EvalCx<'t>,
}

/// Variables that were bound together, and the frame before them.
pub(crate) struct Frame<'t> {
    /// The id of the first; those of the others follow.
    pub first: u32,
    pub values: &'t [Value<'t>],
    pub parent: Option<&'t Frame<'t>>,
}

impl<'t> Env<'t> {
    /// The value of a variable that the expression itself binds.
    pub fn local(self, id: u32) -> Option<&'t Value<'t>> {
        let mut frame = self.frame;
        while let Some(here) = frame {
            if let Some(at) = id.checked_sub(here.first)
                && let Some(value) = here.values.get(at as usize)
            {
                return Some(value);
            }
            frame = here.parent;
        }
        None
    }

    /// The same environment with one more binding.
    pub fn with<'s>(self, frame: &'s Frame<'s>) -> Env<'s>
    where
        't: 's,
    {
        Env { root: self.root, frame: Some(frame), cx: self.cx }
    }
}
