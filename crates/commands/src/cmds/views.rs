//! Checking a view's definition.

use crate::invocation::Invocation;
use kauri_base::{Result, bail, limits};
use kauri_bson::{DocBuf, Type};
use kauri_catalog::{Namespace, Resolved, View};
use kauri_expr::VariableScope;
use kauri_query::pipeline::{self, ParseCx, Place};

/// `viewOn` and `pipeline` as given.
pub struct ViewRequest {
    /// What it reads.
    pub view_on: String,
    /// The stages, an array.
    pub pipeline: DocBuf,
}

/// Most bytes of the pipelines of a view and those below it.
const PIPELINE_BYTES_MAX: usize = limits::DOCUMENT_BYTES_MAX;

/// The view, checked: its name, its stages, that it doesn't read itself and isn't too deep.
pub fn define(invocation: &Invocation<'_>, ns: &Namespace, request: &ViewRequest) -> Result<View> {
    if request.view_on.is_empty() {
        bail!(BadValue, "'viewOn' cannot be empty");
    }
    let below = Namespace::new(ns.database(), &request.view_on)?;
    if ns.is_system() {
        bail!(InvalidNamespace, "invalid name for a view: {ns}");
    }
    let cx = ParseCx::new(&below, VariableScope::new(), Place::View);
    pipeline::parse::parse(request.pipeline.as_doc(), &cx)?;
    check_graph(invocation, ns, below, request.pipeline.as_bytes().len())?;
    let options = DocBuf::build(|out| {
        out.put("viewOn", &request.view_on);
        out.put_raw(b"pipeline", Type::Array, request.pipeline.as_bytes());
    });
    Ok(View {
        ns: ns.clone(),
        view_on: request.view_on.clone(),
        pipeline: request.pipeline.clone(),
        options,
    })
}

/// Follows the names that the view reads, through its stages too.
fn check_graph(
    invocation: &Invocation<'_>,
    ns: &Namespace,
    below: Namespace,
    bytes: usize,
) -> Result<()> {
    let catalog = &invocation.server.catalog;
    let (mut current, mut depth, mut bytes) = (below, 1, bytes);
    loop {
        if current == *ns {
            bail!(
                GraphContainsCycle,
                "View cycle detected: {ns} => {current}: a view cannot be defined on itself"
            );
        }
        let Resolved::View(view) = catalog.resolve(current.as_str()) else { return Ok(()) };
        depth += 1;
        bytes += view.pipeline.as_bytes().len();
        if depth > limits::PIPELINE_DEPTH_MAX {
            bail!(
                ViewDepthLimitExceeded,
                "View depth too deep or view cycle detected; maximum depth is {}",
                limits::PIPELINE_DEPTH_MAX
            );
        }
        if bytes > PIPELINE_BYTES_MAX {
            bail!(
                ViewPipelineMaxSizeExceeded,
                "View pipeline exceeds maximum size; maximum size is {PIPELINE_BYTES_MAX}"
            );
        }
        current = Namespace::new(ns.database(), &view.view_on)?;
    }
}
