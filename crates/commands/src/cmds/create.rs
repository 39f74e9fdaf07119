//! `create`: creates a collection or a view.

use super::collection_options::{self, CreateRequest};
use super::ddl;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{ErrorCode, Result, bail};
use kauri_bson::shell_text;
use kauri_catalog::{Namespace, Resolved, View};
use kauri_storage::CommitTicket;

/// See the module's head.
pub const COMMAND: Command = Command {
    api_v1: true,
    adds_memory: true,
    ..Command::define("create", "creates a collection or a view", run)
};

fn run<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let request = collection_options::parse_create(invocation)?;
        let is_part = invocation.part.is_some();
        if ns.collection() == "system.views" && request.view.is_none() && !is_part {
            // It comes and goes with the views.
            if !request.options.to_doc().as_doc().is_empty() || request.id_index.is_some() {
                bail!(InvalidOptions, "{ns} takes no options: the catalog keeps views");
            }
            return Ok(());
        }
        ns.check_creatable()?;
        let ticket = match &request.view {
            Some(_) => create_view(invocation, &ns, &request)?,
            None => create_collection(invocation, &ns, request)?,
        };
        ddl::log("Created a collection", &ns);
        invocation.wait_for_commit(ticket).await
    })
}

fn create_collection(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    request: CreateRequest,
) -> Result<Option<CommitTicket>> {
    let catalog = &invocation.server.catalog;
    let wanted = request.options.to_doc();
    let uuid = invocation.part.as_ref().and_then(|part| part.uuid);
    let (scope, id_index) = (invocation.op.scope(), request.id_index);
    match catalog.create_collection_with(scope, ns, request.options, id_index, uuid) {
        Ok((_, ticket)) => Ok(Some(ticket)),
        Err(error) if error.code() == ErrorCode::NamespaceExists && uuid.is_none() => {
            match catalog.resolve(ns.as_str()) {
                // Made again as it is: nothing to do.
                Resolved::Collection(existing) if existing.options.to_doc() == wanted => Ok(None),
                Resolved::Collection(existing) => bail!(
                    NamespaceExists,
                    "namespace {ns} already exists, but with different options: {}",
                    shell_text(existing.options.to_doc().as_doc())
                ),
                Resolved::View(view) => bail!(
                    NamespaceExists,
                    "namespace {ns} already exists, but is a view: {}",
                    shell_text(view.options.as_doc())
                ),
                Resolved::Nothing => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

fn create_view(
    invocation: &mut Invocation<'_>,
    ns: &Namespace,
    request: &CreateRequest,
) -> Result<Option<CommitTicket>> {
    let Some(view) = &request.view else { return Ok(None) };
    let catalog = &invocation.server.catalog;
    let definition = super::views::define(invocation, ns, view)?;
    match catalog.resolve(ns.as_str()) {
        Resolved::Nothing => catalog.create_view(invocation.op.scope(), definition).map(Some),
        Resolved::View(existing) if same_view(&existing, &definition) => Ok(None),
        Resolved::View(existing) => bail!(
            NamespaceExists,
            "namespace {ns} already exists, but with different options: {}",
            shell_text(existing.options.as_doc())
        ),
        Resolved::Collection(existing) => bail!(
            NamespaceExists,
            "namespace {ns} already exists, but with different options: {}",
            shell_text(existing.options.to_doc().as_doc())
        ),
    }
}

fn same_view(a: &View, b: &View) -> bool {
    a.view_on == b.view_on && a.pipeline == b.pipeline
}
