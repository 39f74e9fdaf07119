//! `find`.

use super::aggregate::{check_uuid, resolve_views};
use super::ddl;
use super::internal_fields::{query_settings, refuse_term, runtime_now};
use crate::args::{Args, fields};
use crate::cursors::Tailing;
use crate::fail_command;
use crate::invocation::Invocation;
use crate::oplog;
use crate::registry::{Command, OpCounter, ReadLevels, Run};
use crate::reply::{NewCursor, open_cursor};
use kauri_base::{Error, ErrorCode, Result, bail, limits};
use kauri_bson::{Doc, Elem, Type, Value};
use kauri_catalog::OperationKind;
use kauri_matcher::{Matcher, ParseCx, Place};
use kauri_mutate::Projection;
use kauri_query::exec::sort::SortPattern;
use kauri_query::exec::{PlanExecutor, QueryEnv};
use kauri_query::pipeline::views::Found;
use kauri_query::pipeline::{self, BuildCx, Input};
use kauri_query::plan::{self, Hint, Query};
use kauri_storage::Direction;
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    has_default_limit: true,
    read_levels: ReadLevels::All,
    api_v1: true,
    in_transaction: true,
    kind: OperationKind::Query,
    op_counter: OpCounter::Query,
    has_plan: true,
    ..Command::read("find", "finds documents", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace_or_uuid()?;
        if ns.collection().starts_with('$') {
            bail!(InvalidNamespace, "Invalid namespace specified '{ns}'");
        }
        let mut env = invocation.query_env();
        let mut request = FindRequest::parse(invocation.body, "find", &mut env)?;
        let catalog = &invocation.server.catalog;
        let found = resolve_views(invocation, &ns)?;
        check_uuid(invocation, &ns, &found, request.uuid.as_ref())?;
        let Found { collection, pipeline: view, is_view } = found;
        let own = oplog::rows(&view, &mut request.query);
        if is_view && own.is_none() {
            request.suit_view(&env)?;
        }
        let log = oplog::log_of(&view).filter(|_| request.tailing != Tailing::No);
        let log = log.map(|reader| reader.place().clone());
        let root = if let Some(rows) = own {
            plan::over_rows(rows, &request.query)
        } else if view.stages.is_empty() {
            plan::plan(&mut invocation.op, collection.as_ref(), &request.query, &env).await?.root
        } else {
            let cx = BuildCx::new(catalog.clone(), invocation.db, collection.clone(), env.clone());
            let rows = pipeline::build(&view, Input::Collection(None), &cx)?;
            plan::over_rows(rows, &request.query)
        };
        let tailing = match &collection {
            Some(collection) if request.tailing != Tailing::No => {
                if collection.options.capped.is_none() {
                    bail!(
                        BadValue,
                        "error processing query: ns={ns} Tree: $and\nSort: {{}}\nProj: {{}}\n \
                         tailable cursor requested on non capped collection"
                    );
                }
                collection.usage.count_tailing_scan();
                request.tailing
            }
            _ if log.is_some() => request.tailing,
            _ => Tailing::No,
        };
        if invocation.server.fail_points.any_active() {
            fail_command::wait_in_find(invocation, &ns.to_string()).await?;
        }
        let executor = PlanExecutor::new(root, env).looking_ahead();
        let new = NewCursor {
            ns,
            collection,
            tailing,
            log,
            no_timeout: request.no_timeout,
            first_batch: request.batch_size.unwrap_or(limits::FIRST_BATCH_DOCS as u64),
            single_batch: request.single_batch,
        };
        open_cursor(invocation, executor, new).await
    })
}

/// The arguments of `find`.
pub struct FindRequest {
    /// The query.
    pub query: Query,
    /// `batchSize`.
    pub batch_size: Option<u64>,
    /// `singleBatch`.
    pub single_batch: bool,
    /// `tailable`, `awaitData`.
    pub tailing: Tailing,
    /// `noCursorTimeout`.
    pub no_timeout: bool,
    /// The UUID that the collection has to have.
    pub uuid: Option<[u8; 16]>,
}

impl FindRequest {
    /// Reads them from the command document; `env` gets the variables of `let`.
    pub fn parse(body: Doc<'_>, name: &str, env: &mut QueryEnv) -> Result<FindRequest> {
        let args = Args::new(name);
        let mut request = FindRequest {
            query: Query::default(),
            batch_size: None,
            single_batch: false,
            tailing: Tailing::No,
            no_timeout: false,
            uuid: None,
        };
        let (mut filter, mut projection, mut order) = (Doc::EMPTY, Doc::EMPTY, Doc::EMPTY);
        let (mut tailable, mut await_data) = (false, false);
        if let Some(null) = body.get("filter").filter(|e| e.ty() == Type::Null) {
            return Err(args.wrong_type(null, &["object"]));
        }
        for elem in fields(body) {
            match elem.key() {
                "filter" => filter = args.object(elem)?,
                "projection" => projection = args.object(elem)?,
                "sort" => order = args.object(elem)?,
                "skip" => request.query.skip = args.count(elem)?,
                "limit" => request.query.limit = args.count(elem)?,
                "batchSize" => request.batch_size = Some(args.count(elem)?),
                "singleBatch" => request.single_batch = args.bool(elem)?,
                "hint" => request.query.hint = hint(elem)?,
                "min" => request.query.min = non_empty(args.object(elem)?),
                "max" => request.query.max = non_empty(args.object(elem)?),
                "returnKey" => request.query.return_key = args.bool(elem)?,
                "showRecordId" => request.query.show_record_id = args.bool(elem)?,
                "tailable" => tailable = args.bool(elem)?,
                "awaitData" => await_data = args.bool(elem)?,
                "noCursorTimeout" => request.no_timeout = args.bool(elem)?,
                "allowDiskUse" => env.spilling.allowed = args.bool(elem)?,
                "let" => define_let(args.object(elem)?, env)?,
                "collation" => refuse_collation(args.object(elem)?)?,
                "collectionUUID" => request.uuid = Some(ddl::uuid(&args, elem)?),
                "term" => refuse_term(args.long(elem)?)?,
                "runtimeConstants" | "legacyRuntimeConstants" => {
                    env.now_ms = runtime_now(&args, elem)?;
                }
                "querySettings" => return Err(query_settings(7_746_901)),
                _ => args.other(elem)?,
            }
        }
        if await_data && !tailable {
            bail!(FailedToParse, "Cannot set 'awaitData' without also setting 'tailable'");
        }
        request.tailing = match (tailable, await_data) {
            (false, _) => Tailing::No,
            (true, false) => Tailing::Tailable,
            (true, true) => Tailing::AwaitData,
        };
        request.query.sort = sort(order)?;
        let natural = natural_order(order)?;
        if let Some(direction) = natural {
            order_by_record(&mut request.query, direction)?;
        }
        if tailable {
            check_tailable(&mut request, natural)?;
        }
        if let (Some(min), Some(max)) = (&request.query.min, &request.query.max)
            && !min.as_doc().iter().map(|e| e.key()).eq(max.as_doc().iter().map(|e| e.key()))
        {
            bail!(51176, "min and max must have the same field names");
        }
        request.query.filter = matcher(filter, env)?;
        if !projection.is_empty() {
            request.query.projection = Some(parse_projection(projection, &request.query, env)?);
            request.query.keep_sort_key = true;
        }
        Ok(request)
    }

    /// Adapts the request to a view: its projection follows the rules of `$project`, and it cannot be tailed.
    fn suit_view(&mut self, env: &QueryEnv) -> Result<()> {
        if self.tailing != Tailing::No {
            bail!(InvalidPipelineOperator, "cannot use tailable option on a view");
        }
        if let Some((projection, spec)) = &mut self.query.projection {
            let expressions = kauri_expr::ParseCx { vars: env.scope.clone(), ..Default::default() };
            let cx = kauri_mutate::ParseCx::new().with_expressions(&expressions);
            *projection = Arc::new(Projection::parse_project(spec.as_doc(), &cx)?);
        }
        Ok(())
    }
}

/// The direction of a sort by `$natural`.
pub fn natural_order(spec: Doc<'_>) -> Result<Option<Direction>> {
    let Some(natural) = spec.get("$natural") else { return Ok(None) };
    if spec.count() > 1 {
        bail!(BadValue, "Cannot include '$natural' in compound sort: {}", spec);
    }
    match natural.value().as_f64_lossy() {
        Some(1.0) => Ok(Some(Direction::Forward)),
        Some(-1.0) => Ok(Some(Direction::Backward)),
        _ => bail!(BadValue, "$natural sort cannot be set to a value other than -1 or 1."),
    }
}

/// A sort by `$natural` is a hint by another name; it conflicts with a hint of another kind.
pub fn order_by_record(query: &mut Query, direction: Direction) -> Result<()> {
    match &query.hint {
        None => query.hint = Some(Hint::Natural(direction)),
        Some(Hint::Natural(hinted)) if *hinted == direction => {}
        Some(_) => bail!(BadValue, "Cannot use a $natural sort with a hint that contradicts it"),
    }
    Ok(())
}

/// A tailable cursor follows the records in their order, and nothing else.
fn check_tailable(request: &mut FindRequest, order: Option<Direction>) -> Result<()> {
    if request.single_batch {
        bail!(BadValue, "Cannot use tailable option with the 'singleBatch' option");
    }
    if request.query.sort.is_some() || order == Some(Direction::Backward) {
        bail!(BadValue, "cannot use tailable option with a sort other than {{$natural: 1}}");
    }
    if request.query.hint.is_none() {
        request.query.hint = Some(Hint::Natural(Direction::Forward));
    }
    Ok(())
}

fn parse_projection(
    spec: Doc<'_>,
    query: &Query,
    env: &QueryEnv,
) -> Result<(Arc<Projection>, kauri_bson::DocBuf)> {
    let expressions = kauri_expr::ParseCx { vars: env.scope.clone(), ..Default::default() };
    let cx = kauri_mutate::ParseCx::new().with_expressions(&expressions);
    let filter = query.filter.as_ref().map(|f| f.expr());
    Ok((Arc::new(Projection::parse(spec, filter, &cx)?), spec.to_buf()))
}

/// The filter, ready to match; `None` if it lets everything through.
pub fn matcher(filter: Doc<'_>, env: &QueryEnv) -> Result<Option<Arc<Matcher>>> {
    matcher_at(Place::Find, filter, env)
}

/// The filter of `count` or `distinct`. An aggregation runs them on a view; on a collection `$$NOW` has no value, as
/// in MongoDB.
pub fn matcher_on(is_view: bool, filter: Doc<'_>, env: &QueryEnv) -> Result<Option<Arc<Matcher>>> {
    let vars = env.scope.clone();
    matcher_with(
        Place::Find,
        filter,
        kauri_expr::ParseCx { vars, lacks_now: !is_view, ..Default::default() },
    )
}

/// The filter of an update, which may not hold everything where the update may insert.
pub fn update_matcher(
    filter: Doc<'_>,
    upsert: bool,
    env: &QueryEnv,
) -> Result<Option<Arc<Matcher>>> {
    matcher_at(if upsert { Place::Upsert } else { Place::Find }, filter, env)
}

fn matcher_at(place: Place, filter: Doc<'_>, env: &QueryEnv) -> Result<Option<Arc<Matcher>>> {
    let vars = env.scope.clone();
    matcher_with(place, filter, kauri_expr::ParseCx { vars, ..Default::default() })
}

fn matcher_with(
    place: Place,
    filter: Doc<'_>,
    expressions: kauri_expr::ParseCx,
) -> Result<Option<Arc<Matcher>>> {
    if filter.is_empty() {
        return Ok(None);
    }
    let cx = ParseCx::new(place).with_expressions(&expressions);
    Ok(Some(Arc::new(Matcher::parse(filter, &cx)?)))
}

/// The sort; `None` if there is none.
pub fn sort(spec: Doc<'_>) -> Result<Option<SortPattern>> {
    if spec.is_empty() || spec.get("$natural").is_some() {
        return Ok(None);
    }
    SortPattern::parse(spec).map(Some)
}

/// Fails if this is no `hint` by its type.
pub fn hint_type(elem: Elem<'_>) -> Result<Elem<'_>> {
    match elem.ty() {
        Type::String | Type::Document => Ok(elem),
        _ => Err(no_hint()),
    }
}

fn no_hint() -> Error {
    Error::new(ErrorCode::FailedToParse, "Hint must be a string or an object")
}

/// `hint`: a name, a key pattern or `{$natural: ±1}`.
pub fn hint(elem: Elem<'_>) -> Result<Option<Hint>> {
    match elem.value() {
        Value::String(name) if name.is_empty() => {
            Err(Error::new(ErrorCode::BadValue, "hint cannot be an empty string"))
        }
        Value::String(name) => Ok(Some(Hint::Name(name.into_owned()))),
        name if name.string_bytes().is_some() => Err(kauri_bson::not_utf8::error("the hint")),
        Value::Document(pattern) => {
            let pattern = pattern.into_buf();
            match pattern.as_doc().first() {
                None => Ok(None),
                Some(_) if has_natural_and_more(pattern.as_doc()) => {
                    bail!(BadValue, "$natural hint may not be combined with other fields")
                }
                Some(first) if first.key() == "$natural" => match first.value().as_i64_exact() {
                    Some(1) => Ok(Some(Hint::Natural(Direction::Forward))),
                    Some(-1) => Ok(Some(Hint::Natural(Direction::Backward))),
                    _ => bail!(
                        BadValue,
                        "$natural hint may only accept a value of -1 or 1, not {}",
                        kauri_bson::shell_value(&first.value())
                    ),
                },
                Some(_) => Ok(Some(Hint::Pattern(pattern))),
            }
        }
        _ => Err(no_hint()),
    }
}

fn has_natural_and_more(hint: Doc<'_>) -> bool {
    hint.get("$natural").is_some() && hint.iter().count() > 1
}

fn non_empty(doc: Doc<'_>) -> Option<kauri_bson::DocBuf> {
    (!doc.is_empty()).then(|| doc.to_buf())
}

/// Evaluates the variables of a command's `let`.
pub fn define_let(variables: Doc<'_>, env: &mut QueryEnv) -> Result<()> {
    for elem in variables {
        kauri_expr::check_name_for_write(elem.key())?;
        let cx = kauri_expr::ParseCx { vars: env.scope.clone(), ..Default::default() };
        let expression = kauri_expr::Expression::parse(&elem.value(), &cx)?;
        let value = expression.eval(&env.eval_cx(), Doc::EMPTY)?.into_owned();
        env.scope.define(elem.key());
        env.values.push(value);
    }
    Ok(())
}

/// Collations other than the simple one are not there yet.
pub fn refuse_collation(collation: Doc<'_>) -> Result<()> {
    let locale = collation.value("locale");
    match locale.lossy().as_str() {
        Some("simple") => Ok(()),
        None if collation.is_empty() => Ok(()),
        None => Err(Error::location(
            40414,
            "BSON field 'collation.locale' is missing but a required field",
        )),
        Some(_) => bail!(
            BadValue,
            "collation other than {{locale: \"simple\"}} is not supported by this server"
        ),
    }
}
