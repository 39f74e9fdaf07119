//! `planCacheClear` and the commands on index filters. Plans are not kept across operations, so
//! there is nothing to clear; filters cannot be set.

use super::ddl;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Access, Command, Run};
use kauri_base::{Result, bail};
use kauri_bson::Value;

/// `planCacheClear`.
pub const CLEAR: Command = Command {
    access: Access::Read,
    ..Command::new("planCacheClear", "drops cached plans of a collection", clear)
};

/// `planCacheListFilters`.
pub const LIST_FILTERS: Command = Command {
    access: Access::Read,
    ..Command::new("planCacheListFilters", "lists index filters of a collection", list_filters)
};

/// `planCacheClearFilters`.
pub const CLEAR_FILTERS: Command = Command {
    access: Access::Read,
    ..Command::new("planCacheClearFilters", "drops index filters of a collection", clear)
};

fn clear<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        check_shape(invocation)?;
        ddl::collection(invocation, &ns).map(drop)
    })
}

/// The shape of a query whose plans are meant.
fn check_shape(invocation: &Invocation<'_>) -> Result<()> {
    let args = Args::new(invocation.name);
    let (mut query, mut others) = (false, false);
    for elem in invocation.body.iter().skip(1) {
        match elem.key() {
            "query" => query = args.given(elem, Args::object)?.is_some(),
            "sort" | "projection" | "collation" => {
                others |= args.given(elem, Args::object)?.is_some();
            }
            _ => args.other(elem)?,
        }
    }
    if others && !query {
        bail!(BadValue, "sort or projection provided without query");
    }
    Ok(())
}

fn list_filters<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let args = Args::new("planCacheListFilters");
        for elem in invocation.body.iter().skip(1) {
            args.other(elem)?;
        }
        ddl::collection(invocation, &ns)?;
        invocation.reply.put_value("filters", &Value::array([]));
        Ok(())
    })
}
