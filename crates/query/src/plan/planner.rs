//! The planner: finds candidate plans for a query.

use super::index_access::{IndexAccess, conjuncts, of_index, of_min_max};
use super::query::{Hint, Query};
use super::tree;
use crate::exec::count::FastCount;
use crate::exec::idhack::IdHack;
use crate::exec::scan::CollScan;
use crate::exec::{Eof, Stage};
use crate::pipeline::filter::FilterStage;
use kauri_base::{Error, Result, bail};
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
    /// A scan for each branch of a disjunction.
    Or(Vec<IndexAccess>),
    /// The same, each with all that its rows must satisfy, and giving them in the query's order.
    Merge(Vec<(IndexAccess, Arc<Matcher>)>),
}

impl Candidate {
    /// Whether no other one can be better.
    pub fn is_certain(&self) -> bool {
        match &self.kind {
            Kind::Nothing | Kind::Natural(_) | Kind::Id(..) => true,
            Kind::Index(access) => access.single,
            Kind::Or(_) | Kind::Merge(_) => false,
        }
    }

    /// Names the way: the same of another query of the same shape has the same name.
    pub fn name(&self) -> String {
        let of = |access: &IndexAccess| format!("{}{:?},", access.index.id.0, access.sorted);
        match &self.kind {
            Kind::Nothing => "nothing".to_owned(),
            Kind::Natural(direction) => format!("natural {direction:?}"),
            Kind::Id(..) => "id".to_owned(),
            Kind::Index(access) => format!("index {}", of(access)),
            Kind::Or(all) => format!("or {}", all.iter().map(of).collect::<String>()),
            Kind::Merge(all) => {
                format!("merge {}", all.iter().map(|(access, _)| of(access)).collect::<String>())
            }
        }
    }

    /// The tree that executes it.
    pub fn into_stage(self, collection: Option<&Arc<Collection>>, query: &Query) -> Box<dyn Stage> {
        let Some(collection) = collection else { return tree::finish(eof(), query, true) };
        let (root, is_sorted): (Box<dyn Stage>, bool) = match self.kind {
            Kind::Nothing => (eof(), true),
            Kind::Natural(Direction::Forward)
                if query.count && query.filter.is_none() && query.hint.is_none() =>
            {
                return Box::new(FastCount::new(collection.clone(), query.skip, query.limit));
            }
            Kind::Natural(direction) => {
                let filter = query.filter.clone();
                (Box::new(CollScan::new(collection.clone(), direction, filter)), false)
            }
            Kind::Id(index, id) => (Box::new(IdHack::new(collection.clone(), index, &id)), true),
            Kind::Index(access) => return tree::of_index(collection, query, access),
            Kind::Or(branches) => (tree::of_or(collection, query, branches), false),
            Kind::Merge(branches) => match &query.sort {
                Some(sort) => (tree::of_merge(collection, sort, branches), true),
                None => (eof(), true),
            },
        };
        tree::finish(root, query, is_sorted)
    }
}

fn eof() -> Box<dyn Stage> {
    Box::new(Eof::default())
}

/// The candidates for a query, the most promising first; there is always one.
pub fn candidates(collection: Option<&Arc<Collection>>, query: &Query) -> Result<Vec<Candidate>> {
    let one = |kind| Ok(vec![Candidate { kind }]);
    let Some(collection) = collection else { return one(Kind::Nothing) };
    if query.min.is_some() || query.max.is_some() {
        return one(Kind::Index(by_min_max(collection, query)?));
    }
    if let Some(Hint::Natural(direction)) = query.hint {
        return one(Kind::Natural(direction));
    }
    let filter = query.filter.as_ref().map(|f| f.expr());
    let forced = match &query.hint {
        Some(hint) => Some(hinted(collection, hint)?),
        None => None,
    };
    if matches!(filter, Some(MatchExpr::AlwaysFalse)) {
        return one(Kind::Nothing);
    }
    if query.hint.is_none()
        && query.allowed.is_none()
        && !query.return_key
        && let Some(id_index) = collection.id_index()
        && let Some(id) = filter.and_then(id_equality)
    {
        return one(Kind::Id(id_index.clone(), id.clone()));
    }
    let sort = query.sort.as_ref().map(|s| s.spec());
    let usable = usable(collection, query);
    let mut found: Vec<IndexAccess> = match &forced {
        Some(forced) => of_index(forced, filter, sort, true).into_iter().collect(),
        None => usable.iter().filter_map(|index| of_index(index, filter, sort, false)).collect(),
    };
    found.sort_by_key(|c| std::cmp::Reverse(score(c)));
    let mut all: Vec<Candidate> =
        found.into_iter().map(|access| Candidate { kind: Kind::Index(access) }).collect();
    if forced.is_none()
        && let Some(kind) = of_disjunction(&usable, query)
    {
        all.push(Candidate { kind });
    }
    if all.is_empty() {
        return one(Kind::Natural(Direction::Forward));
    }
    Ok(all)
}

/// Fails if a filter has no plan but to scan the collection. Collections of the server's own are exempt.
pub fn refuse_scans(
    candidates: &[Candidate],
    collection: Option<&Arc<Collection>>,
    query: &Query,
) -> Result<()> {
    let scans = matches!(candidates, [Candidate { kind: Kind::Natural(_) }]);
    let is_exempt = |c: &Arc<Collection>| c.ns.is_system() || c.ns.database() == "local";
    if !scans || query.filter.is_none() || collection.is_none_or(is_exempt) {
        return Ok(());
    }
    match query.hint {
        Some(Hint::Natural(_)) => bail!(
            NoQueryExecutionPlans,
            "hint $natural is not allowed, because 'notablescan' is enabled"
        ),
        _ => bail!(
            NoQueryExecutionPlans,
            "No indexed plans available, and running with 'notablescan'"
        ),
    }
}

/// The query over rows that are there already (a view's).
pub fn over_rows(rows: Box<dyn Stage>, query: &Query) -> Box<dyn Stage> {
    let filtered: Box<dyn Stage> = match &query.filter {
        Some(filter) => Box::new(FilterStage::new(rows, filter.clone())),
        None => rows,
    };
    tree::finish(filtered, query, false)
}

/// The indexes that may serve the query without being asked for by name.
pub(super) fn usable(collection: &Collection, query: &Query) -> Vec<Arc<Index>> {
    let allowed = |index: &Index| {
        let Some(allowed) = &query.allowed else { return true };
        allowed.iter().any(|hint| is_meant(index, hint))
    };
    let ready = collection.indexes.iter().filter(|i| i.ready && !i.definition().hidden);
    ready.filter(|index| allowed(index)).cloned().collect()
}

/// What promises to look at the fewest documents, before any was looked at.
fn score(access: &IndexAccess) -> (bool, usize, usize, bool) {
    (access.single, access.points, access.bound_fields, access.is_in_order())
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

fn is_meant(index: &Index, hint: &Hint) -> bool {
    match hint {
        Hint::Name(name) => index.name() == name,
        Hint::Pattern(pattern) => {
            kauri_bson::compare_docs(pattern.as_doc(), index.definition().key.as_doc()).is_eq()
        }
        Hint::Natural(_) => false,
    }
}

/// The index that a hint means.
pub(super) fn hinted<'c>(collection: &'c Collection, hint: &Hint) -> Result<&'c Arc<Index>> {
    let found = collection.indexes.iter().find(|index| is_meant(index, hint));
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

fn by_min_max(collection: &Collection, query: &Query) -> Result<IndexAccess> {
    let index = match &query.hint {
        None => {
            return Err(Error::location(
                51173,
                "When using min()/max() a hint of which index to use must be provided",
            ));
        }
        Some(Hint::Natural(_)) => {
            return Err(Error::location(51174, "The index chosen is not compatible with min/max"));
        }
        Some(hint) => hinted(collection, hint)?,
    };
    let (min, max) = (query.min.as_ref(), query.max.as_ref());
    let filter = query.filter.as_ref().map(|f| f.expr());
    let sort = query.sort.as_ref().map(|s| s.spec());
    of_min_max(index, min.map(|d| d.as_doc()), max.map(|d| d.as_doc()), filter, sort)
}

/// The scans of a filter with a disjunction whose every branch an index can serve; in the query's
/// order if there is one and each can give that.
fn of_disjunction(usable: &[Arc<Index>], query: &Query) -> Option<Kind> {
    let parts = conjuncts(query.filter.as_ref().map(|f| f.expr()));
    let (position, branches) =
        parts.iter().enumerate().find_map(|(position, part)| match part {
            MatchExpr::Or(branches) => Some((position, branches)),
            _ => None,
        })?;
    if let Some(sort) = &query.sort {
        let in_order = |branch: &MatchExpr| {
            let mut all: Vec<MatchExpr> = parts.iter().map(|part| (*part).clone()).collect();
            *all.get_mut(position)? = branch.clone();
            let all = MatchExpr::And(all).optimize();
            let accesses = usable
                .iter()
                .filter_map(|index| of_index(index, Some(&all), Some(sort.spec()), false));
            let best = accesses.filter(|a| a.sorted.is_some()).max_by_key(score)?;
            Some((best, Arc::new(Matcher::new(all))))
        };
        if let Some(merged) = branches.iter().map(in_order).collect() {
            return Some(Kind::Merge(merged));
        }
    }
    let best_for = |branch| {
        let accesses = usable.iter().filter_map(|index| of_index(index, Some(branch), None, false));
        accesses.max_by_key(score)
    };
    branches.iter().map(best_for).collect::<Option<Vec<_>>>().map(Kind::Or)
}
