//! The planner: chooses how the documents of a query are found.

use crate::exec::fetch::Fetch;
use crate::exec::idhack::IdHack;
use crate::exec::limit::{Limit, Skip};
use crate::exec::or::Or;
use crate::exec::project::Project;
use crate::exec::scan::{CollScan, IxScan};
use crate::exec::sort::Sort;
use crate::exec::{Eof, Stage};
use crate::pipeline::filter::FilterStage;
use crate::plan::index_access::{IndexAccess, conjuncts, of_index};
use crate::plan::query::{Hint, Query};
use kauri_base::{Result, bail};
use kauri_bson::{Type, Value};
use kauri_catalog::{Collection, Index};
use kauri_matcher::{CompareOp, MatchExpr, Matcher, Predicate};
use kauri_storage::Direction;
use std::sync::Arc;

/// A way to the documents of a query.
pub struct Candidate {
    kind: Kind,
}

enum Kind {
    Nothing,
    Natural(Direction),
    Id(Arc<Index>, Value<'static>),
    Index(IndexAccess),
    Or(Vec<IndexAccess>),
}

impl Candidate {
    /// Whether no other one can be better.
    pub fn is_certain(&self) -> bool {
        match &self.kind {
            Kind::Nothing | Kind::Natural(_) | Kind::Id(..) => true,
            Kind::Index(access) => access.single,
            Kind::Or(_) => false,
        }
    }

    /// The tree that executes it.
    pub fn into_stage(self, collection: Option<&Arc<Collection>>, query: &Query) -> Box<dyn Stage> {
        let Some(collection) = collection else { return Box::new(Eof::default()) };
        let (root, is_sorted): (Box<dyn Stage>, bool) = match self.kind {
            Kind::Nothing => return Box::new(Eof::default()),
            Kind::Natural(direction) => (coll_scan(collection, query, direction), false),
            Kind::Id(index, id) => (Box::new(IdHack::new(collection.clone(), index, &id)), true),
            Kind::Index(access) => {
                let is_sorted = access.sorted.is_some();
                (fetch_by(collection, query, access), is_sorted)
            }
            Kind::Or(branches) => (fetch_by_or(collection, query, branches), false),
        };
        finish(root, query, is_sorted)
    }
}

/// The candidates for a query, the most promising first; there is always one.
pub fn candidates(collection: Option<&Arc<Collection>>, query: &Query) -> Result<Vec<Candidate>> {
    let one = |kind| Ok(vec![Candidate { kind }]);
    let Some(collection) = collection else { return one(Kind::Nothing) };
    if let Some(Hint::Natural(direction)) = query.hint {
        return one(Kind::Natural(direction));
    }
    let filter = query.filter.as_ref().map(|f| f.expr());
    if matches!(filter, Some(MatchExpr::AlwaysFalse)) {
        return one(Kind::Nothing);
    }
    if query.hint.is_none()
        && let Some(id_index) = collection.id_index()
        && let Some(id) = filter.and_then(id_equality)
    {
        return one(Kind::Id(id_index.clone(), id.clone()));
    }
    let sort = query.sort.as_ref().map(|s| s.spec());
    let forced = match &query.hint {
        Some(hint) => Some(hinted(collection, hint)?),
        None => None,
    };
    let usable = |index: &&Arc<Index>| match &forced {
        Some(forced) => index.id == forced.id,
        None => index.ready && !index.definition().hidden,
    };
    let mut found: Vec<IndexAccess> = collection
        .indexes
        .iter()
        .filter(usable)
        .filter_map(|index| of_index(index, filter, sort, forced.is_some()))
        .collect();
    found.sort_by_key(|c| std::cmp::Reverse(score(c)));
    if found.is_empty() {
        if let Some(branches) = or_access(collection, query) {
            return one(Kind::Or(branches));
        }
        return one(Kind::Natural(Direction::Forward));
    }
    Ok(found.into_iter().map(|access| Candidate { kind: Kind::Index(access) }).collect())
}

/// The query over rows that are there already (a view's).
pub fn over_rows(rows: Box<dyn Stage>, query: &Query) -> Box<dyn Stage> {
    let filtered: Box<dyn Stage> = match &query.filter {
        Some(filter) => Box::new(FilterStage::new(rows, filter.clone())),
        None => rows,
    };
    finish(filtered, query, false)
}

/// Sorts, cuts and projects what the access gives.
fn finish(mut root: Box<dyn Stage>, query: &Query, is_sorted: bool) -> Box<dyn Stage> {
    if let Some(sort) = query.sort.as_ref().filter(|_| !is_sorted) {
        let limit = match query.limit {
            0 => 0,
            limit => limit.saturating_add(query.skip),
        };
        let mut stage = Sort::new(root, sort.clone(), limit, query.keep_sort_key);
        if query.projection.is_none() && !query.keep_sort_key {
            stage = stage.keeping(query.fields.clone());
        }
        root = Box::new(stage);
    }
    if query.skip > 0 {
        root = Box::new(Skip::new(root, query.skip));
    }
    if query.limit > 0 {
        root = Box::new(Limit::new(root, query.limit));
    }
    if let Some((projection, spec)) = &query.projection {
        let filter = query.filter.clone();
        root = Box::new(Project::new(root, projection.clone(), spec.clone(), filter));
    }
    root
}

fn coll_scan(collection: &Arc<Collection>, query: &Query, direction: Direction) -> Box<dyn Stage> {
    Box::new(CollScan::new(collection.clone(), direction, query.filter.clone()))
}

/// What promises to look at the fewest documents, before any was looked at.
fn score(access: &IndexAccess) -> (bool, usize, usize, bool) {
    (access.single, access.points, access.bound_fields, access.sorted.is_some())
}

/// The value, if the filter asks for one `_id` and nothing else.
fn id_equality(filter: &MatchExpr) -> Option<&Value<'static>> {
    let parts = conjuncts(Some(filter));
    let [MatchExpr::Leaf(leaf)] = parts.as_slice() else { return None };
    let Predicate::Compare(CompareOp::Eq, value) = &leaf.pred else { return None };
    let exact = !matches!(
        value.ty(),
        None | Some(Type::Array | Type::Null | Type::Undefined | Type::Regex)
    );
    (leaf.path.as_str() == "_id" && exact).then_some(value)
}

fn hinted<'c>(collection: &'c Collection, hint: &Hint) -> Result<&'c Arc<Index>> {
    let found = collection.indexes.iter().find(|index| match hint {
        Hint::Name(name) => index.name() == name,
        Hint::Pattern(pattern) => {
            kauri_bson::compare_docs(pattern.as_doc(), index.definition().key.as_doc()).is_eq()
        }
        Hint::Natural(_) => false,
    });
    match found.filter(|index| index.ready && !index.definition().hidden) {
        Some(index) => Ok(index),
        None => bail!(
            BadValue,
            "error processing query: ns={} :: caused by :: hint provided does not correspond to an \
             existing index",
            collection.ns
        ),
    }
}

fn fetch_by(collection: &Arc<Collection>, query: &Query, access: IndexAccess) -> Box<dyn Stage> {
    let direction = access.sorted.unwrap_or(Direction::Forward);
    let parts = conjuncts(query.filter.as_ref().map(|f| f.expr()));
    let mut rest: Vec<MatchExpr> = parts
        .iter()
        .zip(&access.covered)
        .filter(|(_, covered)| !**covered)
        .map(|(part, _)| (*part).clone())
        .collect();
    let filter = match rest.len() {
        0 => None,
        1 => rest.pop().map(|one| Arc::new(Matcher::new(one))),
        n if n == parts.len() => query.filter.clone(),
        _ => Some(Arc::new(Matcher::new(MatchExpr::And(rest)))),
    };
    let scan = IxScan::new(access.index, access.bounds, direction, false);
    Box::new(Fetch::new(Box::new(scan), collection.clone(), filter, query.filter.clone()))
}

/// The scans of a filter with a disjunction whose every branch an index can serve.
fn or_access(collection: &Collection, query: &Query) -> Option<Vec<IndexAccess>> {
    if query.hint.is_some() {
        return None;
    }
    let filter = query.filter.as_ref()?;
    let branches = conjuncts(Some(filter.expr())).into_iter().find_map(|part| match part {
        MatchExpr::Or(branches) => Some(branches),
        _ => None,
    })?;
    let best_for = |branch| {
        let usable = collection.indexes.iter().filter(|i| i.ready && !i.definition().hidden);
        usable.filter_map(|index| of_index(index, Some(branch), None, false)).max_by_key(score)
    };
    branches.iter().map(best_for).collect()
}

fn fetch_by_or(
    collection: &Arc<Collection>,
    query: &Query,
    branches: Vec<IndexAccess>,
) -> Box<dyn Stage> {
    let scan = |access: IndexAccess| -> Box<dyn Stage> {
        Box::new(IxScan::new(access.index, access.bounds, Direction::Forward, false))
    };
    let or = Box::new(Or::new(branches.into_iter().map(scan).collect()));
    Box::new(Fetch::new(or, collection.clone(), query.filter.clone(), query.filter.clone()))
}
