//! What evaluation is given: the document, variables, clock values, a source of randomness.
//!
//! Values borrow from the document, from the expression's literals and from variables as long as
//! they can. An [`Env`] is small and copied down the tree; bindings are frames on the stack.

use kauri_base::{RandomSource, Timestamp};
use kauri_bson::{Doc, Value};

/// What every evaluation of a command shares. Nothing in it is looked up: no clock is read.
#[derive(Clone, Copy, Default)]
pub struct EvalCx<'c> {
    /// `$$NOW`: milliseconds since 1970 at the command's start.
    pub now_ms: i64,
    /// `$$CLUSTER_TIME`, where there is one.
    pub cluster_time: Option<Timestamp>,
    /// Values of the variables of the [`VariableScope`](crate::VariableScope) by position; one that
    /// is left out is missing.
    pub vars: &'c [Value<'c>],
    /// `$$USER_ROLES`.
    pub user_roles: Option<&'c Value<'c>>,
    /// Randomness for `$rand`.
    pub random: Option<&'c dyn RandomSource>,
    /// `$meta` values of the document at hand.
    pub meta: Option<&'c dyn MetaSource>,
}

/// Metadata that travels with a document (`textScore`, `indexKey`, …).
pub trait MetaSource {
    /// The value of this name; `Missing` if the document has none.
    fn meta(&self, name: &str) -> Value<'_>;
}

/// What an expression sees while it is evaluated.
#[derive(Clone, Copy)]
pub(crate) struct Env<'t> {
    pub root: Doc<'t>,
    pub frame: Option<&'t Frame<'t>>,
    pub cx: &'t EvalCx<'t>,
}

/// Variables that were bound together, and what was bound before them.
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
