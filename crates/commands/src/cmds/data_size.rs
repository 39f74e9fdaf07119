//! `dataSize`: the size of a collection's documents, or of those in a range of an index.

use super::ddl;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{ErrorCode, Result, bail};
use kauri_bson::{Doc, shell_text};
use kauri_catalog::{Collection, Namespace, spec};
use kauri_query::exec::{Flow, PlanExecutor};
use kauri_query::plan::{self, Hint, Query};
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    replans: true,
    aliases: &["datasize"],
    ..Command::read("dataSize", "returns the size of documents in bytes", run)
};

struct Request<'a> {
    key: Option<Doc<'a>>,
    min: Option<Doc<'a>>,
    max: Option<Doc<'a>>,
    bytes_max: i64,
    docs_max: i64,
    estimate: bool,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let started = invocation.server.clock.monotonic();
        let args = Args::new("dataSize");
        let name = args.given(invocation.target()?, Args::namespace)?;
        let name = name.ok_or_else(|| args.missing("dataSize"))?;
        let request = parse(invocation)?;
        let ns = Namespace::parse(&name)?;
        let (mut bytes, mut docs, mut max_reached) = (0, 0, false);
        if let Some(collection) = ddl::collection(invocation, &ns)? {
            let whole = request.min.is_none() && request.max.is_none();
            let stats = collection.stats()?;
            if whole && (request.estimate || (request.bytes_max == 0 && request.docs_max == 0)) {
                (bytes, docs) = (stats.bytes as i64, stats.records as i64);
            } else {
                (bytes, docs, max_reached) = measure(invocation, &collection, &request).await?;
            }
        }
        let took = invocation.server.clock.monotonic().saturating_sub(started);
        let out = &mut invocation.reply;
        out.put("estimate", request.estimate);
        out.put("size", bytes);
        out.put("numObjects", docs);
        if max_reached {
            out.put("maxReached", true);
        }
        out.put("millis", took.as_millis() as i32);
        Ok(())
    })
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<Request<'a>> {
    let args = Args::new("dataSize");
    let mut request =
        Request { key: None, min: None, max: None, bytes_max: 0, docs_max: 0, estimate: false };
    for elem in invocation.body.iter().skip(1) {
        match elem.key() {
            "keyPattern" => request.key = args.given(elem, Args::object)?,
            "min" => request.min = args.given(elem, Args::object)?,
            "max" => request.max = args.given(elem, Args::object)?,
            "maxSize" => request.bytes_max = args.given(elem, Args::long)?.unwrap_or(0),
            "maxObjects" => request.docs_max = args.given(elem, Args::long)?.unwrap_or(0),
            "estimate" => request.estimate = args.given(elem, Args::safe_bool)?.unwrap_or(false),
            _ => args.other(elem)?,
        }
    }
    request.min = request.min.filter(|bound| !bound.is_empty());
    request.max = request.max.filter(|bound| !bound.is_empty());
    if request.min.is_some() != request.max.is_some() {
        bail!(BadValue, "only one of min or max specified");
    }
    Ok(request)
}

async fn measure(
    invocation: &mut Invocation<'_>,
    collection: &Arc<Collection>,
    request: &Request<'_>,
) -> Result<(i64, i64, bool)> {
    let mut query = Query::default();
    if let (Some(min), Some(max)) = (request.min, request.max) {
        let key = request.key.unwrap_or(Doc::EMPTY);
        let known = collection
            .indexes
            .iter()
            .any(|i| i.ready && spec::same_key(i.definition().key.as_doc(), key));
        if !known {
            bail!(
                OperationFailed,
                "couldn't find valid index containing key pattern {}",
                shell_text(key)
            );
        }
        query.hint = Some(Hint::Pattern(key.to_buf()));
        query.min = Some(min.to_buf());
        query.max = Some(max.to_buf());
    }
    let env = invocation.query_env();
    let planned = plan::plan(&mut invocation.op, Some(collection), &query, &env).await;
    let root = match planned {
        Ok(planned) => planned.root,
        // A range that is empty in itself.
        Err(error) if error.code() == ErrorCode::from_number(51175) => return Ok((0, 0, false)),
        Err(error) => return Err(error),
    };
    let mut executor = PlanExecutor::new(root, env);
    let (mut bytes, mut docs, mut max_reached) = (0, 0, false);
    executor
        .for_each(&mut invocation.op, &mut |row| {
            bytes += row.doc().as_bytes().len() as i64;
            docs += 1;
            max_reached = (request.bytes_max > 0 && bytes > request.bytes_max)
                || (request.docs_max > 0 && docs > request.docs_max);
            Ok(if max_reached { Flow::Stop } else { Flow::Continue })
        })
        .await?;
    Ok((bytes, docs, max_reached))
}
