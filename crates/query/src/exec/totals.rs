//! Execution statistics of a whole plan, and the access paths it used.

use kauri_catalog::Index;
use std::fmt;
use std::sync::Arc;

/// Ways that a summary of a plan names.
const LEAVES_MAX: usize = 64;

/// See the module's head.
#[derive(Clone, Default, Debug)]
pub struct Totals {
    /// `totalKeysExamined`.
    pub keys_examined: u64,
    /// `totalDocsExamined`.
    pub docs_examined: u64,
    /// Whether part of the plan is not in them, since the stack ended ([`super::guard`]).
    pub are_cut: bool,
    /// Whether rows are sorted (`hasSortStage`).
    pub sorts: bool,
    /// Whether the plan was chosen by a trial (`fromMultiPlanner`).
    pub won_trial: bool,
    /// The ways to the documents, the first of very many.
    pub leaves: Vec<Leaf>,
}

impl Totals {
    /// Adds a way to the documents.
    pub fn add_leaf(&mut self, name: &'static str, index: Option<&Arc<Index>>) {
        if self.leaves.len() < LEAVES_MAX {
            self.leaves.push(Leaf { name, index: index.cloned() });
        }
    }

    /// The ways to the documents as `planSummary` names them: `IXSCAN { a: 1 }, COLLSCAN`.
    pub fn summary(&self) -> String {
        self.leaves.iter().map(Leaf::to_string).collect::<Vec<_>>().join(", ")
    }
}

/// A stage at the bottom of a plan.
#[derive(Clone)]
pub struct Leaf {
    name: &'static str,
    index: Option<Arc<Index>>,
}

impl fmt::Display for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.index {
            Some(index) => write!(f, "{} {}", self.name, index.definition().key.as_doc()),
            None => f.write_str(self.name),
        }
    }
}

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
