//! Aggregation pipelines: stages parsed once, then built into a tree of executor stages.
//!
//! A [`StageSpec`] knows its arguments and where in a pipeline it may stand, and builds the
//! [`Stage`](crate::exec::Stage) that works on the rows of the one before it. What the first stages
//! say of filter, order and number is handed to the planner, so that indexes serve pipelines too.

pub mod build;
pub mod count;
pub mod filter;
pub mod group;
pub mod parse;
pub mod sample;
pub mod simple;
pub mod transform;
pub mod unwind;

use crate::exec::{QueryEnv, Stage};
use kauri_base::Result;
use kauri_bson::DocWriter;
use kauri_catalog::{Catalog, Collection};
use kauri_matcher::MatchExpr;
use kauri_storage::CommitTicket;
use std::any::Any;
use std::sync::{Arc, Mutex};

pub use build::{Input, build, build_by_trial, build_stages};
pub use parse::{ParseCx, Place};

/// Where in a pipeline a stage may stand.
#[derive(Clone, Copy, Default, Debug)]
pub struct Constraints {
    /// Only first; it brings its own rows.
    pub first: bool,
    /// Only last; it writes.
    pub last: bool,
    /// Not within `$facet`.
    pub not_in_facet: bool,
    /// Not within the pipelines of `$lookup` and `$unionWith`, nor in a view.
    pub not_in_subpipeline: bool,
    /// Needs no collection (`aggregate: 1`).
    pub collectionless: bool,
}

/// A parsed stage.
pub trait StageSpec: Send + Sync {
    /// Its name, `$match`.
    fn name(&self) -> &'static str;

    /// Where it may stand.
    fn constraints(&self) -> Constraints {
        Constraints::default()
    }

    /// The stage over the rows of `child`. A stage that must be first ignores `child`.
    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>>;

    /// Writes the stage as `explain` shows it: one field, named like the stage.
    fn explain(&self, out: &mut DocWriter<'_>);

    /// The filter, if it is a `$match`: the planner may use it.
    fn as_match(&self) -> Option<&MatchExpr> {
        None
    }

    /// For telling stages apart where one works with the next.
    fn as_any(&self) -> &dyn Any;
}

/// A parsed pipeline.
#[derive(Clone, Default)]
pub struct Pipeline {
    /// The stages in order.
    pub stages: Vec<Arc<dyn StageSpec>>,
}

impl Pipeline {
    /// Whether it writes its result somewhere (`$out`, `$merge`).
    pub fn writes(&self) -> bool {
        self.stages.last().is_some_and(|stage| stage.constraints().last)
    }

    /// Whether its first stage brings its own rows.
    pub fn has_own_source(&self) -> bool {
        self.stages.first().is_some_and(|stage| stage.constraints().first)
    }
}

/// What building is given.
#[derive(Clone)]
pub struct BuildCx {
    /// For stages that read or write other collections.
    pub catalog: Arc<Catalog>,
    /// The database.
    pub db: String,
    /// The collection that the pipeline reads, if it exists.
    pub collection: Option<Arc<Collection>>,
    /// Time, variables, randomness.
    pub env: QueryEnv,
    /// How many pipelines this one is within.
    pub depth: usize,
    /// Where a stage that writes leaves its last commit, for the command to wait for.
    pub written: Arc<Mutex<Option<CommitTicket>>>,
    /// `bypassDocumentValidation`.
    pub bypass_validation: bool,
}

impl BuildCx {
    /// For the pipeline of a command on this collection.
    pub fn new(
        catalog: Arc<Catalog>,
        db: &str,
        collection: Option<Arc<Collection>>,
        env: QueryEnv,
    ) -> Self {
        BuildCx {
            catalog,
            db: db.to_owned(),
            collection,
            env,
            depth: 0,
            written: Arc::default(),
            bypass_validation: false,
        }
    }
}
