//! `planCacheClear` and the commands on index filters.

use super::ddl;
use super::find::matcher;
use crate::args::Args;
use crate::invocation::Invocation;
use crate::registry::{Command, Run};
use kauri_base::{Error, Result, bail};
use kauri_bson::{Doc, DocBuf, Value};
use kauri_query::plan::cache::Filter;
use kauri_query::plan::{Hint, shape};

/// `planCacheClear`.
pub const CLEAR: Command =
    Command { ..Command::read("planCacheClear", "drops cached plans of a collection", clear) };

/// `planCacheListFilters`.
pub const LIST_FILTERS: Command = Command {
    ..Command::read("planCacheListFilters", "lists index filters of a collection", list_filters)
};

/// `planCacheClearFilters`.
pub const CLEAR_FILTERS: Command = Command {
    ..Command::read("planCacheClearFilters", "drops index filters of a collection", clear_filters)
};

/// `planCacheSetFilter`.
pub const SET_FILTER: Command = Command {
    ..Command::read("planCacheSetFilter", "sets the indexes for a query shape", set_filter)
};

fn clear<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let Some(collection) = ddl::collection(invocation, &ns)? else { return Ok(()) };
        let shape = shape_if_given(invocation)?;
        invocation.server.plans.clear(&collection, shape.as_deref());
        Ok(())
    })
}

fn clear_filters<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let Some(collection) = ddl::collection(invocation, &ns)? else { return Ok(()) };
        let shape = shape_if_given(invocation)?;
        invocation.server.plans.clear_filters(&collection, shape.as_deref());
        Ok(())
    })
}

/// The shape that the command names; none if it names none, and so means all.
fn shape_if_given(invocation: &Invocation<'_>) -> Result<Option<String>> {
    if invocation.body.get("query").is_some() {
        return ShapeOf::read(invocation)?.shape(invocation).map(Some);
    }
    if ["sort", "projection", "collation"].iter().any(|f| invocation.body.get(f).is_some()) {
        bail!(BadValue, "sort, projection, or collation provided without query");
    }
    Ok(None)
}

/// The fields that say which shape is meant.
struct ShapeOf<'a> {
    query: Doc<'a>,
    sort: Doc<'a>,
    projection: Doc<'a>,
    collation: Doc<'a>,
}

impl<'a> ShapeOf<'a> {
    fn read(invocation: &Invocation<'a>) -> Result<ShapeOf<'a>> {
        let object = |name: &str| match invocation.body.get(name) {
            None => Ok(None),
            Some(elem) => match elem.as_doc() {
                Some(doc) => Ok(Some(doc)),
                None => Err(Error::bad_value(format!("optional field {name} must be an object"))),
            },
        };
        let Some(query) = object("query")? else {
            bail!(BadValue, "required field query missing");
        };
        let collation = object("collation")?;
        if let Some(given) = invocation.body.get("collation") {
            if given.ty() != kauri_bson::Type::Document {
                bail!(BadValue, "optional field collation must be an object");
            }
            if collation.is_some_and(Doc::is_empty) {
                bail!(BadValue, "optional field collation cannot be empty");
            }
            if collation.is_some_and(|c| c.get("locale").is_none()) {
                return Err(Args::new("collation").missing("locale"));
            }
        }
        Ok(ShapeOf {
            query,
            sort: object("sort")?.unwrap_or(Doc::EMPTY),
            projection: object("projection")?.unwrap_or(Doc::EMPTY),
            collation: collation.unwrap_or(Doc::EMPTY),
        })
    }

    fn shape(&self, invocation: &Invocation<'_>) -> Result<String> {
        let filter = matcher(self.query, &invocation.query_env())?;
        let filter = filter.as_ref().map(|f| f.expr());
        let mut shape = shape::of_parts(filter, self.sort, self.projection);
        if !self.collation.is_empty() {
            shape += &kauri_bson::shell_text(self.collation);
        }
        Ok(shape)
    }
}

fn set_filter<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let Some(collection) = ddl::collection(invocation, &ns)? else {
            bail!(BadValue, "no such collection");
        };
        let Some(indexes) = invocation.body.get("indexes") else {
            bail!(BadValue, "required field indexes missing");
        };
        let hints = match indexes.value() {
            Value::Array(list) => list.as_doc().iter().map(|e| hint(&e.value())).collect(),
            _ => bail!(BadValue, "required field indexes must be an array"),
        };
        let hints: Vec<Hint> = match hints {
            Ok(hints) => hints,
            Err(error) => return Err(error),
        };
        if hints.is_empty() {
            bail!(BadValue, "required field indexes must contain at least one index");
        }
        let of = ShapeOf::read(invocation)?;
        let shape = of.shape(invocation)?;
        let filter = Filter::new(
            [of.query, of.sort, of.projection, of.collation].map(|doc| doc.to_buf()),
            hints,
        );
        if !invocation.server.plans.set_filter(&collection, shape, filter) {
            bail!(ExceededMemoryLimit, "too many index filters are set");
        }
        Ok(())
    })
}

/// An index as a filter names it.
fn hint(value: &Value<'_>) -> Result<Hint> {
    kauri_bson::not_utf8::refuse(value, "an index name")?;
    match value {
        Value::String(name) if !name.is_empty() => Ok(Hint::Name(name.clone().into_owned())),
        Value::Document(key) if !key.as_doc().is_empty() => {
            Ok(Hint::Pattern(key.as_doc().to_buf()))
        }
        Value::String(_) => bail!(BadValue, "index name cannot be empty"),
        Value::Document(_) => bail!(BadValue, "index specification cannot be empty"),
        _ => bail!(BadValue, "each item in indexes must be an object or string"),
    }
}

fn list_filters<'a>(invocation: &'a mut Invocation<'_>) -> Run<'a> {
    Box::pin(async move {
        let ns = invocation.namespace()?;
        let filters = match ddl::collection(invocation, &ns)? {
            Some(collection) => invocation.server.plans.filters(&collection),
            None => Vec::new(),
        };
        let mut list = invocation.reply.array("filters");
        for filter in filters {
            let mut entry = list.document();
            let [query, sort, projection, collation] = &filter.shape_of;
            let put = |name: &str, doc: &DocBuf, entry: &mut kauri_bson::DocWriter<'_>| {
                entry.put(name, doc);
            };
            put("query", query, &mut entry);
            put("sort", sort, &mut entry);
            put("projection", projection, &mut entry);
            if !collation.as_doc().is_empty() {
                put("collation", collation, &mut entry);
            }
            let mut indexes = entry.array("indexes");
            for index in filter.indexes.iter() {
                match index {
                    Hint::Name(name) => indexes.push(name.as_str()),
                    Hint::Pattern(key) => indexes.push(key),
                    Hint::Natural(_) => {}
                }
            }
        }
        Ok(())
    })
}
