//! `collMod`: changes a collection's options, one of its indexes, or a view.

use super::collection_options::{check_validator_place, images_enabled, view_pipeline};
use super::views::{self, ViewRequest};
use super::{coll_mod_index, ddl};
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use coll_mod_index::IndexChange;
use kauri_base::{Result, bail};
use kauri_bson::{Doc, DocBuf, Elem};
use kauri_catalog::{Collection, CollectionOptions, Namespace, Resolved, View, options};
use kauri_storage::CommitTicket;
use std::sync::Arc;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    ..Command::define("collMod", "changes options of a collection or view", run)
};

/// Largest `cappedSize`: a petabyte.
const CAPPED_BYTES_MAX: i64 = 1 << 50;

#[derive(Default)]
struct Request<'a> {
    index: Option<IndexChange>,
    validator: Option<Doc<'a>>,
    level: Option<String>,
    action: Option<String>,
    view_on: Option<String>,
    pipeline: Option<DocBuf>,
    images: Option<bool>,
    capped_size: Option<i64>,
    capped_max: Option<i64>,
    expire: bool,
    timeseries: bool,
    dry_run: bool,
}

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let request = parse(invocation)?;
        check_dry_run(&request)?;
        let ticket = match invocation.server.catalog.resolve(ns.as_str()) {
            Resolved::Nothing if request.validator.is_some() && ns.is_system() => {
                bail!(InvalidOptions, "Document validators not allowed on system collection {ns}")
            }
            Resolved::Nothing => bail!(NamespaceNotFound, "ns does not exist: {ns}"),
            Resolved::View(view) => change_view(invocation, &view, &request)?,
            Resolved::Collection(collection) => {
                check_collection(&collection, &request)?;
                change_collection(invocation, &ns, &request).await?
            }
        };
        ddl::log("Changed a collection", &ns);
        invocation.wait_for_commit(ticket).await
    })
}

fn parse<'a>(invocation: &Invocation<'a>) -> Result<Request<'a>> {
    let args = Args::new("collMod");
    let mut request = Request::default();
    for elem in invocation.body.iter().skip(1) {
        match elem.key() {
            "index" => request.index = args.given(elem, coll_mod_index::parse)?,
            "validator" => request.validator = args.given(elem, Args::object)?,
            "validationLevel" => request.level = args.given(elem, Args::string)?,
            "validationAction" => request.action = args.given(elem, Args::string)?,
            "viewOn" => request.view_on = args.given(elem, Args::string)?,
            "pipeline" => request.pipeline = args.given(elem, view_pipeline)?,
            "changeStreamPreAndPostImages" => {
                request.images = args.given(elem, |args, elem| {
                    let doc = args.object(elem)?;
                    images_enabled(doc, "collMod.changeStreamPreAndPostImages")
                })?;
            }
            "cappedSize" => request.capped_size = args.given(elem, capped_size)?,
            "cappedMax" => request.capped_max = args.given(elem, capped_max)?,
            "expireAfterSeconds" => request.expire = check_expire(&args, elem)?,
            "timeseries" => request.timeseries = args.given(elem, Args::object)?.is_some(),
            "dryRun" => request.dry_run = args.given(elem, Args::safe_bool)?.unwrap_or(false),
            _ => args.other(elem)?,
        }
    }
    if let Some(level) = &request.level {
        options::parse_level(level)?;
    }
    if let Some(action) = &request.action {
        options::parse_action(action)?;
    }
    Ok(request)
}

fn capped_size(args: &Args<'_>, elem: Elem<'_>) -> Result<i64> {
    let size = args.long(elem)?;
    if !(1..=CAPPED_BYTES_MAX).contains(&size) {
        bail!(
            BadValue,
            "BSON field 'cappedSize' value must be between 1 and {CAPPED_BYTES_MAX}, actual value \
             '{size}'"
        );
    }
    Ok(size)
}

fn capped_max(args: &Args<'_>, elem: Elem<'_>) -> Result<i64> {
    let max = args.long(elem)?;
    if max > i64::from(i32::MAX) {
        bail!(BadValue, "max in a capped collection has to be < 2^31 or not set");
    }
    Ok(max)
}

/// `expireAfterSeconds` of a clustered or time series collection: a number, or "off".
fn check_expire(args: &Args<'_>, elem: Elem<'_>) -> Result<bool> {
    let value = elem.value();
    if value.is_nullish() {
        return Ok(false);
    }
    match value.lossy().as_str() {
        Some("off") => Ok(true),
        Some(text) => {
            bail!(
                InvalidOptions,
                "Invalid string value for the 'clusteredIndex::expireAfterSeconds' option. Got: '{text}'. Accepted value is 'off'."
            )
        }
        None if value.is_number() => Ok(true),
        None => Err(args.wrong_type(elem, &["string", "int", "decimal", "double", "long"])),
    }
}

fn check_dry_run(request: &Request<'_>) -> Result<()> {
    if request.dry_run && request.index.as_ref().is_none_or(|i| i.unique.is_none()) {
        bail!(
            InvalidOptions,
            "The 'dryRun' option is only allowed when converting an index to unique"
        );
    }
    Ok(())
}

fn check_collection(collection: &Collection, request: &Request<'_>) -> Result<()> {
    let wrong = [
        (request.view_on.is_some(), "viewOn"),
        (request.pipeline.is_some(), "pipeline"),
        (request.timeseries, "timeseries"),
        (request.expire, "expireAfterSeconds"),
    ];
    for (given, option) in wrong {
        if given {
            bail!(InvalidOptions, "option not supported on this kind of collection: {option}");
        }
    }
    let capped = request.capped_size.is_some() || request.capped_max.is_some();
    if capped && collection.options.capped.is_none() {
        bail!(InvalidOptions, "Collection must be capped.");
    }
    let restricted = matches!(collection.ns.database(), "admin" | "local" | "config");
    if let Some(validator) = request.validator {
        if restricted && !validator.is_empty() {
            bail!(
                InvalidOptions,
                "Document validators are not allowed on collection {} in the {} database",
                collection.ns,
                collection.ns.database()
            );
        }
        check_validator_place(validator, collection.ns.is_system())?;
    }
    if request.images == Some(true) && restricted {
        bail!(
            InvalidOptions,
            "changeStreamPreAndPostImages is not supported in the {} database",
            collection.ns.database()
        );
    }
    Ok(())
}

async fn change_collection(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    request: &Request<'_>,
) -> Result<Option<CommitTicket>> {
    let mut ticket = None;
    let mut reply = DocBuf::new();
    if let Some(change) = &request.index {
        let collection = ddl::existing(invocation, ns)?;
        coll_mod_index::check(&collection, change)?;
        if change.unique == Some(true) {
            coll_mod_index::check_no_duplicates(invocation, &collection, change).await?;
        }
        if !request.dry_run {
            (reply, ticket) = ddl::retry(invocation, |invocation| {
                let collection = ddl::existing(invocation, ns)?;
                let catalog = &invocation.server.catalog;
                coll_mod_index::apply(invocation.op.scope(), catalog, &collection, change)
            })
            .await?;
        }
    }
    if changes_options(request) && !request.dry_run {
        let changed = ddl::retry(invocation, |invocation| {
            let collection = ddl::existing(invocation, ns)?;
            let options = changed_options(&collection, request)?;
            invocation.server.catalog.change_options(invocation.op.scope(), &collection, options)
        })
        .await?;
        ticket = Some(changed);
    }
    invocation.reply.put_all(reply.as_doc());
    Ok(ticket)
}

fn changes_options(request: &Request<'_>) -> bool {
    request.validator.is_some()
        || request.level.is_some()
        || request.action.is_some()
        || request.images.is_some()
        || request.capped_size.is_some()
        || request.capped_max.is_some()
}

fn changed_options(collection: &Collection, request: &Request<'_>) -> Result<CollectionOptions> {
    let mut options = collection.options.clone();
    if let Some(validator) = request.validator {
        options.set_validator(Some(validator.to_buf()))?;
    }
    if let Some(level) = &request.level {
        options.validation_level = Some(options::parse_level(level)?);
    }
    if let Some(action) = &request.action {
        options.validation_action = Some(options::parse_action(action)?);
    }
    if let Some(capped) = &mut options.capped {
        if let Some(size) = request.capped_size {
            capped.bytes_max = size as u64;
        }
        if let Some(max) = request.capped_max {
            capped.records_max = max.max(0) as u64;
        }
    }
    if let Some(enabled) = request.images {
        options.kept = DocBuf::build(|out| {
            let others = options.kept.as_doc();
            for elem in others.iter().filter(|e| e.key() != "changeStreamPreAndPostImages") {
                out.put_elem(elem);
            }
            if enabled {
                out.document("changeStreamPreAndPostImages").put("enabled", true);
            }
        });
    }
    Ok(options)
}

fn change_view(
    invocation: &mut Invocation<'_>,
    view: &Arc<View>,
    request: &Request<'_>,
) -> Result<Option<CommitTicket>> {
    let wrong = [
        (request.index.is_some(), "index"),
        (request.validator.is_some(), "validator"),
        (request.level.is_some(), "validationLevel"),
        (request.action.is_some(), "validationAction"),
        (request.images.is_some(), "changeStreamPreAndPostImages"),
        (request.capped_size.is_some(), "cappedSize"),
        (request.capped_max.is_some(), "cappedMax"),
        (request.timeseries, "timeseries"),
        (request.expire, "expireAfterSeconds"),
    ];
    for (given, option) in wrong {
        if given {
            bail!(InvalidOptions, "option not supported on a view: {option}");
        }
    }
    if request.view_on.is_none() && request.pipeline.is_none() {
        return Ok(None);
    }
    let changed = ViewRequest {
        view_on: request.view_on.clone().unwrap_or_else(|| view.view_on.clone()),
        pipeline: request.pipeline.clone().unwrap_or_else(|| view.pipeline.clone()),
    };
    let definition = views::define(invocation, &view.ns, &changed)?;
    invocation.server.catalog.change_view(invocation.op.scope(), definition).map(Some)
}
