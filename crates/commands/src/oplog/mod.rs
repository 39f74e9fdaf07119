//! The collections of the database `local` that a member of a replica set does not store: `oplog.rs`, rendered from the
//! replicated log, and `system.replset`, the configuration.
//!
//! They resolve to a stage that brings rows of its own. Readers narrow the stage to the times that they ask for, so that
//! the log is not scanned. Clients cannot write them: admission refuses writes to the database.
//!
//! - [`bounds`]: the times that a filter asks for.
//! - [`scan`]: reads the entries.
//! - [`render`]: an entry as a document.

pub mod bounds;
pub mod render;
pub mod scan;

use bounds::Bounds;
use kauri_base::Result;
use kauri_bson::{Doc, DocBuf, DocWriter, Value, doc};
use kauri_catalog::Namespace;
use kauri_member::oplog::LogReader;
use kauri_member::{Member, MemberState};
use kauri_query::exec::Stage;
use kauri_query::exec::rows::Rows;
use kauri_query::pipeline::views::Found;
use kauri_query::pipeline::{BuildCx, Constraints, FieldUse, Pipeline, StageSpec};
use kauri_query::plan::{Hint, Query};
use kauri_storage::{Direction, StorageEngine};
use scan::LogScan;
use std::any::Any;
use std::sync::Arc;

/// The database.
pub const DATABASE: &str = "local";
/// The log as a collection.
pub const OPLOG: &str = "local.oplog.rs";
/// The configuration as a collection.
const CONFIGURATION: &str = "local.system.replset";

/// What these collections are made from.
pub struct Own<'s> {
    /// The member, if this server is one.
    pub member: Option<&'s Arc<Member>>,
    /// The engine.
    pub engine: &'s Arc<dyn StorageEngine>,
}

impl<'s> Own<'s> {
    /// The log, if the server is a member of a set that serves data.
    fn reader(&self) -> Option<&'s Arc<LogReader>> {
        let (member, engine) = (self.member?, self.engine);
        let serves = member.standing().0 != MemberState::Arbiter;
        let has_log = engine.replicated_log().is_ok_and(|log| log.frames().last.index > 0);
        (serves && has_log).then(|| member.log_reader(engine))
    }

    /// The configuration document; `None` before the set begins.
    fn configuration(&self) -> Option<DocBuf> {
        let view = self.member?.view();
        view.config.as_ref().map(|config| config.to_doc())
    }

    fn log_bytes(&self) -> u64 {
        self.member.map_or(0, |member| member.log_bytes())
    }

    /// What such a name stands for; `None` of other names.
    pub fn resolve(&self, ns: &Namespace) -> Option<Found> {
        let rows = match ns.as_str() {
            OPLOG => OwnRows::Log(self.reader()?.clone()),
            CONFIGURATION => OwnRows::Documents(vec![self.configuration()?]),
            _ => return None,
        };
        let stage: Arc<dyn StageSpec> = Arc::new(OwnSource::all(rows));
        Some(Found { collection: None, pipeline: Pipeline { stages: vec![stage] }, is_view: true })
    }

    /// How many documents such a collection has, or about so many; `None` of other collections.
    pub fn count(&self, ns: &Namespace) -> Option<u64> {
        match ns.as_str() {
            OPLOG => Some(self.reader()?.extent().1),
            CONFIGURATION => self.configuration().map(|_| 1),
            _ => None,
        }
    }

    /// Writes the figures of such a collection, as `collStats` has them. False of other collections.
    pub fn write_stats(&self, ns: &Namespace, scale: i64, out: &mut DocWriter<'_>) -> bool {
        let Some(count) = self.count(ns) else { return false };
        let is_log = ns.as_str() == OPLOG;
        let bytes = match (self.reader(), self.configuration()) {
            (Some(reader), _) if is_log => reader.extent().0,
            (_, Some(config)) => config.as_doc().as_bytes().len() as u64,
            _ => 0,
        };
        let scaled = |bytes: u64| Value::Int64((bytes / scale.max(1) as u64) as i64);
        out.put_value("size", &scaled(bytes));
        out.put("count", count as i64);
        if let Some(average) = bytes.checked_div(count) {
            out.put("avgObjSize", average as i64);
        }
        out.put("numOrphanDocs", 0);
        out.put_value("storageSize", &scaled(bytes));
        out.put("freeStorageSize", 0);
        out.put("capped", is_log);
        if is_log {
            let most = self.log_bytes();
            out.put("max", 0);
            out.put_value("maxSize", &scaled(most));
        }
        out.put("nindexes", 0);
        out.array("indexBuilds");
        out.put("totalIndexSize", 0);
        out.put_value("totalSize", &scaled(bytes));
        out.put("indexSizes", Doc::EMPTY);
        out.put("scaleFactor", scale);
        true
    }

    /// These collections as `listCollections` shows them.
    pub fn list(&self, name_only: bool) -> Vec<DocBuf> {
        let names = [OPLOG, CONFIGURATION].into_iter();
        let there = names.filter_map(|name| Namespace::parse(name).ok());
        let there = there.filter(|ns| self.count(ns).is_some());
        let row = |ns: Namespace| {
            DocBuf::build(|out| {
                out.put("name", ns.collection());
                out.put("type", "collection");
                if name_only {
                    return;
                }
                let is_log = ns.as_str() == OPLOG;
                let most = self.log_bytes();
                let log = doc! { "capped" => true, "size" => most as i64, "autoIndexId" => false };
                out.put(
                    "options",
                    if is_log {
                        log
                    } else {
                        doc! {}
                    },
                );
                let uuid = kauri_catalog::system_views_uuid(ns.as_str());
                let mut info = out.document("info");
                info.put("readOnly", false);
                info.put_value(
                    "uuid",
                    &Value::Binary { subtype: 4, bytes: uuid.as_slice().into() },
                );
            })
        };
        there.map(row).collect()
    }

    /// The database of these collections as `listDatabases` shows it, if there are any.
    pub fn database(&self, name_only: bool) -> Option<DocBuf> {
        let reader = self.reader()?;
        Some(DocBuf::build(|out| {
            out.put("name", DATABASE);
            if !name_only {
                out.put("sizeOnDisk", reader.extent().0 as i64);
                out.put("empty", false);
            }
        }))
    }
}

#[derive(Clone)]
enum OwnRows {
    Log(Arc<LogReader>),
    Documents(Vec<DocBuf>),
}

/// The stage that brings the rows.
struct OwnSource {
    rows: OwnRows,
    direction: Direction,
    bounds: Bounds,
}

impl OwnSource {
    fn all(rows: OwnRows) -> OwnSource {
        OwnSource { rows, direction: Direction::Forward, bounds: Bounds::ALL }
    }

    fn of(pipeline: &Pipeline) -> Option<&OwnSource> {
        pipeline.stages.first()?.as_any().downcast_ref()
    }

    fn open(&self, direction: Direction, bounds: Bounds) -> Box<dyn Stage> {
        match &self.rows {
            OwnRows::Log(reader) => Box::new(LogScan::new(reader.clone(), direction, bounds)),
            OwnRows::Documents(rows) if direction == Direction::Backward => {
                Box::new(Rows::new(rows.iter().rev().cloned()))
            }
            OwnRows::Documents(rows) => Box::new(Rows::new(rows.clone())),
        }
    }
}

impl StageSpec for OwnSource {
    fn name(&self) -> &'static str {
        "$cursor"
    }

    fn constraints(&self) -> Constraints {
        Constraints::SOURCE
    }

    fn field_use(&self) -> FieldUse {
        FieldUse::everything()
    }

    fn build(&self, _child: Box<dyn Stage>, _cx: &BuildCx) -> Result<Box<dyn Stage>> {
        Ok(self.open(self.direction, self.bounds))
    }

    fn explain(&self, out: &mut DocWriter<'_>) {
        let stage = self.open(self.direction, self.bounds);
        let mut cursor = out.document("$cursor");
        let mut planner = cursor.document("queryPlanner");
        stage.explain(
            &mut planner.document("winningPlan"),
            kauri_query::exec::Verbosity::QueryPlanner,
        );
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The log, if a name that was resolved is it.
pub fn log_of(pipeline: &Pipeline) -> Option<&Arc<LogReader>> {
    match &OwnSource::of(pipeline)?.rows {
        OwnRows::Log(reader) => Some(reader),
        OwnRows::Documents(_) => None,
    }
}

/// The rows of such a collection for a query: narrowed to its times, and in its order where that is the natural one.
/// `None` of other collections.
pub fn rows(pipeline: &Pipeline, query: &mut Query) -> Option<Box<dyn Stage>> {
    let own = OwnSource::of(pipeline)?;
    let mut direction = direction_of(query.hint.as_ref());
    let mut bounds = Bounds::ALL;
    if let OwnRows::Log(_) = own.rows {
        bounds = query.filter.as_ref().map_or(bounds, |filter| Bounds::of(filter.expr()));
        // Times ascend from entry to entry.
        let order = query.sort.as_ref().map(|sort| sort.spec());
        if let Some(ordered) = order.and_then(bounds::order_of_times) {
            (direction, query.sort) = (ordered, None);
        }
    }
    Some(own.open(direction, bounds))
}

fn direction_of(hint: Option<&Hint>) -> Direction {
    match hint {
        Some(Hint::Natural(direction)) => *direction,
        _ => Direction::Forward,
    }
}

/// Has the first stage of a pipeline on such a collection bring its rows in the direction of the hint, and narrows it to
/// the times that the filter behind it asks for.
pub fn narrow(pipeline: &mut Pipeline, hint: Option<&Hint>) {
    let Some(own) = OwnSource::of(pipeline) else { return };
    let filter = pipeline.stages.get(1).and_then(|stage| stage.as_match());
    let bounds = match (&own.rows, filter) {
        (OwnRows::Log(_), Some(filter)) => Bounds::of(filter),
        _ => own.bounds,
    };
    let stage = OwnSource { rows: own.rows.clone(), direction: direction_of(hint), bounds };
    pipeline.stages[0] = Arc::new(stage);
}
