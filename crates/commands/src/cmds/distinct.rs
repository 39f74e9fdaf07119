//! `distinct`.

use super::aggregate::{check_uuid, resolve_views};
use super::ddl;
use super::find::{hint, matcher_on, refuse_collation};
use super::internal_fields::query_settings;
use crate::args::{Args, fields};
use crate::invocation::Invocation;
use crate::oplog;
use crate::registry::{Command, ReadLevels, Run};
use crate::reply::executor_error;
use kauri_base::{Result, bail, limits, work};
use kauri_bson::{Doc, KeyStringBuilder, Type, Value};
use kauri_catalog::OperationKind;
use kauri_query::exec::{Flow, PlanExecutor};
use kauri_query::pipeline::views::Found;
use kauri_query::pipeline::{self, BuildCx, Input};
use kauri_query::plan::{self, Query};
use std::collections::BTreeMap;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    has_default_limit: true,
    read_levels: ReadLevels::All,
    in_transaction: true,
    kind: OperationKind::Read,
    has_plan: true,
    ..Command::read("distinct", "returns the distinct values of a field", run)
};

/// The arguments of `distinct`.
pub struct DistinctRequest<'a> {
    /// The dotted path.
    pub key: String,
    /// The filter.
    pub filter: Doc<'a>,
    /// The hint.
    pub hint: Option<plan::Hint>,
    /// The UUID that the collection has to have.
    pub uuid: Option<[u8; 16]>,
}

impl<'a> DistinctRequest<'a> {
    /// Reads them from the command document.
    pub fn parse(body: Doc<'a>) -> Result<DistinctRequest<'a>> {
        let args = Args::new("distinct");
        let (mut key, mut filter, mut use_hint, mut uuid) = (None, Doc::EMPTY, None, None);
        for elem in fields(body) {
            match elem.key() {
                "key" => key = Some(args.string(elem)?),
                "query" => filter = args.object(elem)?,
                "hint" => use_hint = hint(elem)?,
                "collation" => refuse_collation(args.object(elem)?)?,
                "collectionUUID" => uuid = Some(ddl::uuid(&args, elem)?),
                "querySettings" => return Err(query_settings(7_923_000)),
                _ => args.other(elem)?,
            }
        }
        let Some(key) = key else { return Err(args.missing("key")) };
        if key.contains('\0') {
            bail!(31032, "Key field cannot contain an embedded null byte");
        }
        Ok(DistinctRequest { key, filter, hint: use_hint, uuid })
    }
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace_or_uuid()?;
        let request = DistinctRequest::parse(invocation.body)?;
        let env = invocation.query_env();
        let found = resolve_views(invocation, &ns)?;
        let filter = matcher_on(found.is_view, request.filter, &env)?;
        check_uuid(invocation, &ns, &found, request.uuid.as_ref())?;
        let Found { collection, pipeline: view, is_view } = found;
        let catalog = &invocation.server.catalog;
        let mut query = Query { filter, hint: request.hint, ..Query::default() };
        let root = if let Some(rows) = oplog::rows(&view, &mut query) {
            plan::over_rows(rows, &query)
        } else if view.stages.is_empty() {
            match plan::plan_distinct(collection.as_ref(), &query, &request.key, &env)? {
                Some(planned) => planned.root,
                None => {
                    let op = &mut invocation.op;
                    plan::plan(op, collection.as_ref(), &query, &env).await?.root
                }
            }
        } else {
            let cx = BuildCx::new(catalog.clone(), invocation.db, collection.clone(), env.clone());
            let rows = pipeline::build(&view, Input::Collection(None), &cx)?;
            plan::over_rows(rows, &query)
        };
        let mut executor = PlanExecutor::new(root, env);
        let path: Vec<&str> = request.key.split('.').collect();
        let mut values = Values::default();
        let found = executor
            .for_each(&mut invocation.op, &mut |row| {
                gather(row.doc(), &path, &mut values)?;
                if values.bytes > limits::DOCUMENT_BYTES_MAX {
                    bail!(17217, "distinct too big, 16mb cap");
                }
                Ok(Flow::Continue)
            })
            .await;
        invocation.figures.plan = Some(executor.totals());
        // MongoDB runs it on a view as an aggregation.
        let runs = if is_view { "aggregate" } else { "distinct" };
        found.map_err(|error| executor_error(runs, &ns, error))?;
        invocation.int_ok = is_view;
        let mut out = invocation.reply.array("values");
        for value in values.found.values() {
            work::tick(1)?;
            out.push_value(value);
        }
        Ok(())
    })
}

/// The first one of equal values, by their keys, so in sort order.
#[derive(Default)]
struct Values {
    found: BTreeMap<Vec<u8>, Value<'static>>,
    bytes: usize,
    key: KeyStringBuilder,
}

impl Values {
    fn add(&mut self, value: Value<'_>) {
        self.key.clear();
        self.key.append(&value, false);
        if !self.found.contains_key(self.key.bytes()) {
            self.bytes += self.key.bytes().len() + 8;
            self.found.insert(self.key.to_vec(), value.into_owned());
        }
    }
}

/// The values at a path, through arrays; a last component's array counts by its elements.
fn gather(doc: Doc<'_>, path: &[&str], values: &mut Values) -> Result<()> {
    let Some((first, rest)) = path.split_first() else { return Ok(()) };
    let Some(elem) = doc.get(first) else { return Ok(()) };
    if rest.is_empty() {
        match elem.as_doc().filter(|_| elem.ty() == Type::Array) {
            Some(array) => {
                for elem in array.ticked() {
                    values.add(elem?.value());
                }
            }
            None => values.add(elem.value()),
        }
        return Ok(());
    }
    let Some(inner) = elem.as_doc() else { return Ok(()) };
    if elem.ty() == Type::Document {
        return gather(inner, rest, values);
    }
    // An array: by position if the next component is one, and through its documents.
    if rest[0].bytes().all(|b| b.is_ascii_digit()) {
        gather(inner, rest, values)?;
    }
    for element in inner.ticked() {
        let element = element?;
        if let Some(doc) = element.as_doc().filter(|_| element.ty() == Type::Document) {
            gather(doc, rest, values)?;
        }
    }
    Ok(())
}
