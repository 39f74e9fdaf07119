//! Aggregation pipelines: stages are parsed once, then built into a tree of executor stages.
//!
//! A [`StageSpec`] has its arguments and the allowed positions in a pipeline, and builds the
//! [`Stage`](crate::exec::Stage) that processes the rows of the previous stage. Filter, order and limit of the
//! first stages go to the planner, so pipelines use indexes, too. Each stage declares the fields that it reads and
//! changes ([`FieldUse`]). With that, stages are reordered (`optimize`), and only fields that later stages read are
//! copied (`build`).
//!
//! A stage that writes (`$out`, `$merge`) is not a stage of the tree, but a [`Sink`] for its rows. Commits wait for
//! space that readers keep from reuse, so no reader may be entered during a write.

mod batches;
pub mod bucket;
pub mod bucket_auto;
pub mod build;
mod collection_info;
pub mod count;
mod densify;
mod documents;
pub mod facet;
pub mod field_use;
mod fill;
pub mod filter;
mod granularity;
pub mod group;
mod group_table;
mod hash;
pub mod lookup;
pub mod merge;
pub mod optimize;
pub mod out;
pub mod parse;
mod partitions;
pub mod redact;
mod remote;
pub mod sample;
pub mod server_info;
mod server_stages;
pub mod simple;
mod source;
mod spec;
mod sub;
pub mod transform;
mod unavailable;
pub mod union_with;
pub mod unwind;
mod unwind_group;
pub mod views;
pub mod window;

use crate::exec::{Fields, Flow, PlanExecutor, QueryEnv, Row, Stage, Step, Take};
use crate::namespaces::Namespaces;
use crate::write::Bypass;
use kauri_base::{Result, bail, limits};
use kauri_bson::decimal::Rounding;
use kauri_bson::{DocWriter, Value};
use kauri_catalog::Collection;
use kauri_expr::FieldPath;
use kauri_matcher::MatchExpr;
use kauri_storage::{CommitTicket, Operation};
use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use build::{Input, build, build_by_trial, build_stages};
pub use field_use::{FieldUse, Keeps};
pub use parse::{ParseCx, Place};
pub use server_info::ServerInfo;

/// The allowed positions of a stage.
#[derive(Clone, Copy, Default, Debug)]
pub struct Constraints {
    /// Only first; it has no input.
    pub first: bool,
    /// Only last; it writes.
    pub last: bool,
    /// Not within `$facet`.
    pub not_in_facet: bool,
    /// Not within the pipelines of `$lookup`.
    pub not_in_lookup: bool,
    /// Not within the pipelines of `$unionWith`.
    pub not_in_union: bool,
    /// Needs no collection (`aggregate: 1`), and takes none.
    pub collectionless: bool,
    /// Describes views themselves, not their contents.
    pub own_views: bool,
    /// Takes no read concern but `local`.
    pub local_reads: bool,
    /// Not part of API version 1.
    pub not_in_api: bool,
}

impl Constraints {
    /// For a stage that writes.
    pub fn of_sink() -> Constraints {
        Constraints {
            last: true,
            not_in_facet: true,
            not_in_lookup: true,
            not_in_union: true,
            ..Constraints::default()
        }
    }

    /// For a stage about the server or a collection, not about documents.
    pub const SOURCE: Constraints = Constraints {
        first: true,
        last: false,
        not_in_facet: true,
        not_in_lookup: false,
        not_in_union: false,
        collectionless: false,
        own_views: false,
        local_reads: false,
        not_in_api: false,
    };
}

/// A parsed stage.
pub trait StageSpec: Send + Sync {
    /// Its name, `$match`.
    fn name(&self) -> &'static str;

    /// Where it may stand.
    fn constraints(&self) -> Constraints {
        Constraints::default()
    }

    /// What it reads of its rows, and what it does to them.
    fn field_use(&self) -> FieldUse;

    /// The stage over the rows of `child`. A stage that must be first ignores `child`.
    fn build(&self, child: Box<dyn Stage>, cx: &BuildCx) -> Result<Box<dyn Stage>>;

    /// Writes the stage as `explain` shows it: one field, named like the stage.
    fn explain(&self, out: &mut DocWriter<'_>);

    /// The filter, if it is a `$match`: the planner may use it.
    fn as_match(&self) -> Option<&MatchExpr> {
        None
    }

    /// What the rows are given to, if it is a stage that writes.
    fn sink(&self) -> Option<&dyn Sink> {
        None
    }

    /// For telling stages apart where one works with the next.
    fn as_any(&self) -> &dyn Any;
}

/// A sink at work.
pub type Writing<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// Consumes a pipeline's rows and writes them.
pub trait Sink: Send + Sync {
    /// Fails where it could not begin: before the rows are read, and for `explain`.
    fn check(&self, cx: &BuildCx) -> Result<()>;

    /// Takes all rows. What was committed last is left in [`BuildCx::written`].
    fn run<'a>(
        &'a self,
        op: &'a mut Operation,
        rows: &'a mut PlanExecutor,
        cx: &'a BuildCx,
    ) -> Writing<'a>;
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
        self.stages.last().is_some_and(|stage| stage.sink().is_some())
    }

    /// Whether its first stage brings its own rows.
    pub fn has_own_source(&self) -> bool {
        self.stages.first().is_some_and(|stage| stage.constraints().first)
    }
}

/// Fails if a pipeline is too long, all that its stages stand for and the stages of views counted.
pub fn check_length(stages: &[Arc<dyn StageSpec>]) -> Result<()> {
    if stages.len() > limits::PIPELINE_STAGES_MAX {
        bail!(
            5054701,
            "Pipeline length must be no longer than {} stages: it has {}, those that stages stand for and those \
             of views counted.",
            limits::PIPELINE_STAGES_MAX,
            stages.len()
        );
    }
    Ok(())
}

/// A path that a stage names.
pub(crate) fn field_path(text: &str) -> Result<FieldPath> {
    if text.split('.').count() > limits::DOCUMENT_DEPTH_MAX {
        bail!(Overflow, "FieldPath is too long");
    }
    FieldPath::parse(text)
}

/// A number as a long: a double's fraction is cut off, a decimal is rounded, ties to even.
pub fn truncated(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Decimal128(decimal) => {
            let whole = decimal.round_to_integral(Rounding::HalfEven);
            Value::Decimal128(whole).to_i64_saturating()
        }
        other => other.to_i64_saturating(),
    }
}

/// Fails if a document of so many bytes may not be passed on to the next stage. A client is given
/// none beyond 16 MB, but a later stage may make a small one of it.
pub(crate) fn check_size(bytes: usize) -> Result<()> {
    if bytes > limits::EXPRESSION_VALUE_BYTES_MAX {
        bail!(
            BSONObjectTooLarge,
            "BSONObj size: {bytes} (0x{bytes:X}) is invalid. Size must be between 0 and {}(16MB)",
            limits::DOCUMENT_INTERNAL_BYTES_MAX
        );
    }
    Ok(())
}

/// `Stage::work` of a stage that only lends rows: has it lend one, and keeps that.
pub(crate) fn work_by_lending(
    lend: impl FnOnce(&mut Take<'_>) -> Result<Step<()>>,
) -> Result<Step<Row<'static>>> {
    let mut given = None;
    let step = lend(&mut |row| {
        given = Some(row.clone().into_owned());
        Ok(Flow::Stop)
    })?;
    Ok(match (step, given) {
        (_, Some(row)) => Step::Row(row),
        (Step::Blocked(ticket), None) => Step::Blocked(ticket),
        (Step::Done, None) => Step::Done,
        (Step::Row(()) | Step::Again, None) => Step::Again,
    })
}

/// Bytes that a value holds outside itself.
pub(crate) fn heap_bytes(value: &Value<'_>) -> usize {
    match value {
        Value::String(text) | Value::Symbol(text) | Value::Code(text) => text.len(),
        Value::Document(doc) | Value::Array(doc) => doc.as_bytes().len(),
        Value::Binary { bytes, .. } | Value::NotUtf8 { bytes, .. } => bytes.len(),
        Value::Regex { pattern, options } => pattern.len() + options.len(),
        Value::DbPointer { namespace, .. } => namespace.len(),
        Value::CodeWithScope { code, scope } => code.len() + scope.as_bytes().len(),
        _ => 0,
    }
}

/// The fields that later stages read of a stage's rows.
#[derive(Clone, Debug, Default)]
pub struct Needed {
    /// Fields.
    pub fields: Fields,
    /// Whether `$meta: "sortKey"` is needed.
    pub sort_key: bool,
}

/// The context of building.
#[derive(Clone)]
pub struct BuildCx {
    /// For stages that read or write other collections.
    pub namespaces: Arc<dyn Namespaces>,
    /// The database.
    pub db: String,
    /// The collection that the pipeline reads, if it exists.
    pub collection: Option<Arc<Collection>>,
    /// Time, variables, randomness.
    pub env: QueryEnv,
    /// Number of enclosing pipelines.
    pub depth: usize,
    /// Number of stages of the enclosing pipelines that its rows pass.
    pub levels: usize,
    /// The last commit of a writing stage, for the command to wait for.
    pub written: Arc<Mutex<Option<CommitTicket>>>,
    /// The checks that writing stages skip.
    pub bypass: Bypass,
    /// The fields that later stages read; all, at the end of the pipeline.
    pub needed: Needed,
    /// Maximum number of rows that they take; 0 if unknown.
    pub most: u64,
    /// The server, for stages about it.
    pub server: Option<Arc<dyn ServerInfo>>,
}

impl BuildCx {
    /// For the pipeline of a command on this collection.
    pub fn new(
        namespaces: Arc<dyn Namespaces>,
        db: &str,
        collection: Option<Arc<Collection>>,
        env: QueryEnv,
    ) -> Self {
        BuildCx {
            namespaces,
            db: db.to_owned(),
            collection,
            env,
            depth: 0,
            levels: 0,
            written: Arc::default(),
            bypass: Bypass::default(),
            needed: Needed::default(),
            most: 0,
            server: None,
        }
    }

    /// Notes a commit.
    pub fn committed(&self, ticket: CommitTicket) {
        *self.lock_written() = Some(ticket);
    }

    /// Whether anything has been committed.
    pub fn has_written(&self) -> bool {
        self.lock_written().is_some()
    }

    /// The last commit.
    pub fn take_written(&self) -> Option<CommitTicket> {
        self.lock_written().take()
    }

    fn lock_written(&self) -> MutexGuard<'_, Option<CommitTicket>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
