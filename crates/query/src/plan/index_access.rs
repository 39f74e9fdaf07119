//! How one index can serve one query: bounds from its predicates, the remaining filter on documents, and whether
//! the index's order is the query's.

use super::bounds::{IndexBounds, KeyRange};
use super::interval::{self, Interval, IntervalList, is_exact_for_complement, of_predicate};
use kauri_base::{Result, bail, work};
use kauri_bson::{Discriminator, Doc, KeyStringBuilder, Value};
use kauri_catalog::Index;
use kauri_matcher::{Leaf, MatchExpr, Predicate};
use kauri_storage::Direction;
use std::sync::Arc;

/// Ranges that one scan may have; beyond that, fewer fields are used for bounds.
const RANGES_MAX: usize = 5000;
/// Scans that may be merged to make an order (`internalQueryMaxScansToExplode`).
const SCANS_TO_EXPLODE_MAX: usize = 200;

/// A way to read an index for a query.
#[derive(Clone)]
pub struct IndexAccess {
    /// The index.
    pub index: Arc<Index>,
    /// The bounds to read.
    pub bounds: IndexBounds,
    /// Which of the conjuncts need not be checked again, by position.
    pub covered: Vec<bool>,
    /// Leading fields that are bound to single values.
    pub points: usize,
    /// Fields that are bound at all.
    pub bound_fields: usize,
    /// The direction in which the scan gives the rows in the query's order, if one does.
    pub sorted: Option<Direction>,
    /// If the whole scan does not give that order: the parts that do, to be merged.
    pub merged: Vec<IndexBounds>,
    /// Whether no field behind the first one is bound.
    pub only_first: bool,
    /// At most one record can be found (all fields of a unique index bound to single values).
    pub single: bool,
}

impl IndexAccess {
    /// Whether the rows come in the query's order without being gathered and sorted.
    pub fn is_in_order(&self) -> bool {
        self.sorted.is_some()
    }
}

/// The parts of a filter that all have to hold.
pub fn conjuncts(filter: Option<&MatchExpr>) -> Vec<&MatchExpr> {
    match filter {
        None => Vec::new(),
        Some(MatchExpr::And(children)) => children.iter().collect(),
        Some(other) => vec![other],
    }
}

/// How `index` could serve; `None` if it cannot or has no advantage. With `forced` (a hint) it serves even with a
/// full scan, and even if it does not have all documents.
pub fn of_index(
    index: &Arc<Index>,
    filter: Option<&MatchExpr>,
    sort: Option<Doc<'_>>,
    forced: bool,
) -> Option<IndexAccess> {
    let definition = index.definition();
    if let Some(partial) = definition.partial.as_ref().filter(|_| !forced) {
        let implied = filter.is_some_and(|filter| kauri_matcher::is_subset_of(filter, partial));
        if !implied {
            return None;
        }
    }
    let parts = conjuncts(filter);
    let paths: Vec<&str> = definition.key.as_doc().iter().map(|e| e.key()).collect();
    let Bound { lists, mut covered, excludes_missing, first_is_there } =
        bind(index, &paths, &parts);
    if definition.sparse && !excludes_missing && !forced {
        return None;
    }
    let mut sorted = sort.and_then(|sort| sort_direction(index, &paths, &lists, sort, 0));
    let mut merged = Vec::new();
    if let Some(sort) = sort.filter(|_| sorted.is_none())
        && let leading @ 1.. = points_before_sort(index, &paths, &lists, sort)
        && let Some(direction) = sort_direction(index, &paths, &lists, sort, leading)
        && let Some(parts) = exploded(index, &paths, &lists, leading)
    {
        (sorted, merged) = (Some(direction), parts);
    }
    let leads = lists.first().is_some_and(|list| !list.is_all())
        || excludes_missing_first(&lists)
        || definition.sparse && first_is_there;
    if !leads && sorted.is_none() && !forced {
        return None;
    }
    let (ranges, fields_in_ranges) = ranges_of(index, &lists);
    // What the ranges don't express has to be checked on the document.
    for (field, path) in paths.iter().enumerate().skip(fields_in_ranges) {
        if !lists[field].is_all() {
            for (position, part) in parts.iter().enumerate() {
                if path_of(part) == Some(path) {
                    covered[position] = false;
                }
            }
        }
    }
    let points =
        lists.iter().take_while(|list| list.intervals.len() == 1 && list.is_points()).count();
    Some(IndexAccess {
        index: index.clone(),
        bounds: IndexBounds { fields: texts(index, &paths, &lists), ranges },
        covered,
        points,
        bound_fields: lists.iter().filter(|list| !list.is_all()).count(),
        sorted,
        merged,
        only_first: lists.iter().skip(1).all(IntervalList::is_all),
        single: definition.unique && points == paths.len(),
    })
}

/// What the conjuncts allow in each field.
struct Bound {
    lists: Vec<IntervalList>,
    /// The conjuncts that need not be checked again.
    covered: Vec<bool>,
    /// Whether a document without the fields cannot satisfy them.
    excludes_missing: bool,
    /// Whether one without the first field cannot.
    first_is_there: bool,
}

fn bind(index: &Index, paths: &[&str], parts: &[&MatchExpr]) -> Bound {
    let mut lists: Vec<IntervalList> = Vec::with_capacity(paths.len());
    let mut covered = vec![false; parts.len()];
    let (mut excludes_missing, mut first_is_there) = (false, false);
    for (field, path) in paths.iter().enumerate() {
        let shares_array = (0..field).any(|earlier| {
            !lists[earlier].is_all() && shares_array_prefix(index, earlier, field, paths)
        });
        let bound = if shares_array {
            FieldBound { list: IntervalList::all(), used: Vec::new(), excludes_missing: false }
        } else {
            of_field(index, field, path, parts)
        };
        excludes_missing |= bound.excludes_missing;
        first_is_there |= field == 0 && bound.excludes_missing;
        if bound.list.exact {
            bound.used.iter().for_each(|part| covered[*part] = true);
        }
        lists.push(bound.list);
    }
    Bound { lists, covered, excludes_missing, first_is_there }
}

/// For `explain`: the intervals of each field, ascending in the index's direction.
fn texts(index: &Index, paths: &[&str], lists: &[IntervalList]) -> Vec<(String, Vec<String>)> {
    let pattern = &index.definition().pattern;
    let of = |(field, (path, list)): (usize, (&&str, &IntervalList))| {
        let mut texts: Vec<String> = list.intervals.iter().map(Interval::text).collect();
        if pattern.is_descending(field) {
            texts = texts.iter().rev().map(|t| super::bounds::reversed(t)).collect();
        }
        ((*path).to_owned(), texts)
    };
    paths.iter().zip(lists).enumerate().map(of).collect()
}

/// The bounds cut into parts within each of which the leading fields have one value; `None` if they
/// would be too many.
fn exploded(
    index: &Index,
    paths: &[&str],
    lists: &[IntervalList],
    leading: usize,
) -> Option<Vec<IndexBounds>> {
    let mut all = vec![lists.to_vec()];
    for field in 0..leading {
        if all.len() * lists[field].intervals.len() > SCANS_TO_EXPLODE_MAX {
            return None;
        }
        let one = |lists: &Vec<IntervalList>, interval: &Interval| {
            let mut lists = lists.clone();
            lists[field].intervals = vec![interval.clone()];
            lists
        };
        all = all
            .iter()
            .flat_map(|so_far| lists[field].intervals.iter().map(|i| one(so_far, i)))
            .collect();
    }
    let bounds = |lists: Vec<IntervalList>| {
        let (ranges, _) = ranges_of(index, &lists);
        IndexBounds { fields: texts(index, paths, &lists), ranges }
    };
    Some(all.into_iter().map(bounds).collect())
}

/// The part of an index from `min` to below `max`, as the user gives them; all of the filter is left to
/// be checked.
pub fn of_min_max(
    index: &Arc<Index>,
    min: Option<Doc<'_>>,
    max: Option<Doc<'_>>,
    filter: Option<&MatchExpr>,
    sort: Option<Doc<'_>>,
) -> Result<IndexAccess> {
    let definition = index.definition();
    let key = definition.key.as_doc();
    let names = |bound: Doc<'_>| {
        bound.count() == key.count() && bound.iter().zip(key).all(|(a, b)| a.key() == b.key())
    };
    if !min.is_none_or(names) || !max.is_none_or(names) {
        bail!(51174, "The index chosen is not compatible with min/max");
    }
    let bytes = |bound: Doc<'_>| {
        let mut key = KeyStringBuilder::new();
        for (field, elem) in bound.iter().enumerate() {
            key.append(&elem.value(), definition.pattern.is_descending(field));
        }
        key.to_vec()
    };
    let range = KeyRange {
        low: min.map(bytes).unwrap_or_default(),
        high: max.map(bytes).unwrap_or_default(),
    };
    if max.is_some() && range.low >= range.high {
        bail!(
            51175,
            "The value provided for min() does not come before the value provided for max()"
        );
    }
    let paths: Vec<&str> = key.iter().map(|e| e.key()).collect();
    let lists = vec![IntervalList::all(); paths.len()];
    let sorted = sort.and_then(|sort| sort_direction(index, &paths, &lists, sort, 0));
    let text =
        |doc: Option<Doc<'_>>, none: &str| doc.map_or(none.to_owned(), kauri_bson::shell_text);
    let interval = format!("[{}, {})", text(min, "MinKey"), text(max, "MaxKey"));
    Ok(IndexAccess {
        index: index.clone(),
        bounds: IndexBounds {
            fields: vec![(paths.join(","), vec![interval])],
            ranges: vec![range],
        },
        covered: vec![false; conjuncts(filter).len()],
        points: 0,
        bound_fields: 0,
        sorted,
        merged: Vec::new(),
        only_first: false,
        single: false,
    })
}

fn excludes_missing_first(lists: &[IntervalList]) -> bool {
    lists.first().is_some_and(|list| list.intervals.is_empty())
}

/// The path that a conjunct is about, if it's about one.
fn path_of(part: &MatchExpr) -> Option<&str> {
    match part {
        MatchExpr::Leaf(leaf) => Some(leaf.path.as_str()),
        MatchExpr::Not(child) => path_of(child),
        _ => None,
    }
}

struct FieldBound {
    list: IntervalList,
    /// The conjuncts that it's made of.
    used: Vec<usize>,
    /// Whether a document without the field cannot satisfy them.
    excludes_missing: bool,
}

fn of_field(index: &Index, field: usize, path: &str, parts: &[&MatchExpr]) -> FieldBound {
    let multikey = index.keys.multikey.of_field(field) != 0;
    let mut bound =
        FieldBound { list: IntervalList::all(), used: Vec::new(), excludes_missing: false };
    let mut exact = true;
    let mut lists: Vec<IntervalList> = Vec::new();
    for (position, part) in parts.iter().enumerate() {
        work::tick_infallible(1);
        let Some((list, excludes_missing)) = of_part(part, path) else { continue };
        if multikey
            && is_by_position(path)
            && !matches!(part, MatchExpr::Not(_))
            && holds_null(&list)
        {
            // The key is of what lies at the position; a document beside it may lack the field.
            continue;
        }
        bound.excludes_missing |= excludes_missing;
        if list.is_all() {
            continue;
        }
        if !multikey || lists.is_empty() {
            exact &= list.exact;
            lists.push(list);
            bound.used.push(position);
        } else if lists.iter().any(|kept| narrower(&list, kept)) {
            // A document with several keys may satisfy each predicate by another key: only one of
            // them can bound the scan.
            exact = list.exact;
            lists = vec![list];
            bound.used = vec![position];
        }
    }
    if let Some(list) = interval::intersect_all(lists) {
        bound.list = list;
    }
    bound.list.exact = exact && !bound.used.is_empty();
    bound
}

/// Whether a component of the path may be an array's position.
pub fn is_by_position(path: &str) -> bool {
    path.split('.').any(|part| part.bytes().all(|b| b.is_ascii_digit()))
}

fn narrower(a: &IntervalList, b: &IntervalList) -> bool {
    a.is_points() && !b.is_points()
}

/// What a conjunct allows in the keys of this path, and whether it excludes a missing field.
fn of_part(part: &MatchExpr, path: &str) -> Option<(IntervalList, bool)> {
    match part {
        // An array that lies at a position is one key as a whole.
        MatchExpr::Leaf(Leaf {
            path,
            pred: Predicate::ElemMatchValue(_) | Predicate::ElemMatchObject(_),
        }) if is_by_position(path.as_str()) => None,
        MatchExpr::Leaf(leaf) if leaf.path.as_str() == path => {
            let list = of_predicate(&leaf.pred)?;
            let excludes = matches!(leaf.pred, Predicate::Exists) || !holds_null(&list);
            Some((list, excludes))
        }
        MatchExpr::Leaf(leaf) => match &leaf.pred {
            // {a: {$elemMatch: {b: …}}} bounds an index on a.b by one of its predicates.
            Predicate::ElemMatchObject(child) => {
                let rest = path.strip_prefix(leaf.path.as_str())?.strip_prefix('.')?;
                let mut best: Option<(IntervalList, bool)> = None;
                for part in conjuncts(Some(child)) {
                    if let Some((mut list, excludes)) = of_part(part, rest) {
                        list.exact = false;
                        if best.as_ref().is_none_or(|(b, _)| narrower(&list, b)) {
                            best = Some((list, excludes));
                        }
                    }
                }
                best
            }
            _ => None,
        },
        MatchExpr::Not(child) => match &**child {
            MatchExpr::Leaf(leaf) if leaf.path.as_str() == path => {
                let simple = matches!(leaf.pred, Predicate::Compare(..) | Predicate::In(_));
                let list = if simple { of_predicate(&leaf.pred)? } else { return None };
                if !is_exact_for_complement(&leaf.pred) {
                    return Some((IntervalList::all(), false));
                }
                Some((list.complement(), false))
            }
            _ => None,
        },
        _ => None,
    }
}

fn holds_null(list: &IntervalList) -> bool {
    let null = IntervalList { intervals: vec![Interval::point(Value::Null)], exact: true };
    !list.intersect(&null).intervals.is_empty()
}

/// Whether two fields' paths go through the same array, so that bounding both by predicates that
/// may be about different elements would lose documents.
fn shares_array_prefix(index: &Index, a: usize, b: usize, paths: &[&str]) -> bool {
    let bits = index.keys.multikey.of_field(a) | index.keys.multikey.of_field(b);
    paths[a]
        .split('.')
        .zip(paths[b].split('.'))
        .enumerate()
        .take_while(|(_, (x, y))| x == y)
        .any(|(component, _)| bits >> component.min(63) & 1 == 1)
}

/// Whether a field is bound to single values, of which each entry has one.
fn is_points(index: &Index, lists: &[IntervalList], field: usize) -> bool {
    let list = &lists[field];
    !list.intervals.is_empty() && list.is_points() && index.keys.multikey.of_field(field) == 0
}

/// How many leading fields are bound to single values and not sorted by.
fn points_before_sort(
    index: &Index,
    paths: &[&str],
    lists: &[IntervalList],
    sort: Doc<'_>,
) -> usize {
    let before =
        |field: &usize| is_points(index, lists, *field) && sort.get(paths[*field]).is_none();
    (0..paths.len()).take_while(before).count()
}

/// The direction in which the scan is in the query's order, or in which its parts are that have one
/// value in each of the first `exploded` fields.
fn sort_direction(
    index: &Index,
    paths: &[&str],
    lists: &[IntervalList],
    sort: Doc<'_>,
    exploded: usize,
) -> Option<Direction> {
    let mut wanted: Vec<(&str, bool)> =
        sort.iter().map(|e| (e.key(), e.value().as_f64_lossy().is_some_and(|n| n < 0.0))).collect();
    let is_one = |field: usize| is_points(index, lists, field) && lists[field].intervals.len() == 1;
    let is_fixed = |field: usize| is_one(field) || field < exploded;
    // Fields that are fixed to one value don't disturb an order, and sort by nothing.
    wanted
        .retain(|(path, _)| !paths.iter().enumerate().any(|(field, p)| p == path && is_one(field)));
    let mut direction: Option<Direction> = None;
    let mut field = 0;
    for (path, descending) in wanted {
        while field < paths.len() && is_fixed(field) {
            field += 1;
        }
        if field >= paths.len() || paths[field] != path || index.keys.multikey.of_field(field) != 0
        {
            return None;
        }
        let same = index.definition().pattern.is_descending(field) == descending;
        let needed = if same { Direction::Forward } else { Direction::Backward };
        if direction.is_some_and(|d| d != needed) {
            return None;
        }
        direction = Some(needed);
        field += 1;
    }
    Some(direction.unwrap_or(Direction::Forward))
}

/// The byte ranges of the bounds, ascending, and how many leading fields they express.
fn ranges_of(index: &Index, lists: &[IntervalList]) -> (Vec<KeyRange>, usize) {
    let pattern = &index.definition().pattern;
    let mut prefixes: Vec<KeyStringBuilder> = vec![KeyStringBuilder::new()];
    let mut used = 0;
    for (field, list) in lists.iter().enumerate() {
        let descending = pattern.is_descending(field);
        let fits = prefixes.len().saturating_mul(list.intervals.len()) <= RANGES_MAX;
        if !list.is_points() || !fits {
            break;
        }
        let mut next = Vec::with_capacity(prefixes.len() * list.intervals.len());
        for prefix in &prefixes {
            for interval in &list.intervals {
                work::tick_infallible(1);
                let mut key = prefix.clone();
                key.append(&interval.low, descending);
                next.push(key);
            }
        }
        prefixes = next;
        used = field + 1;
    }
    let mut ranges = Vec::new();
    for prefix in &prefixes {
        match lists.get(used) {
            Some(list) if !list.is_all() && prefixes.len() * list.intervals.len() <= RANGES_MAX => {
                let descending = pattern.is_descending(used);
                ranges.extend(list.intervals.iter().map(|i| range_of(prefix, i, descending)));
            }
            _ => ranges.push(range_of_prefix(prefix)),
        }
    }
    ranges.sort_by(|a, b| {
        work::tick_infallible(1);
        a.low.cmp(&b.low)
    });
    ranges.dedup();
    let express = match lists.get(used) {
        Some(list) if prefixes.len() * list.intervals.len().max(1) <= RANGES_MAX => used + 1,
        _ => used,
    };
    (ranges, express)
}

fn range_of(prefix: &KeyStringBuilder, interval: &Interval, descending: bool) -> KeyRange {
    let end = |value: &Value<'_>, behind: bool| {
        let mut key = prefix.clone();
        key.append(value, descending);
        if behind {
            key.finish(Discriminator::ExclusiveAfter);
        }
        key.to_vec()
    };
    if descending {
        KeyRange {
            low: end(&interval.high, !interval.high_inclusive),
            high: end(&interval.low, interval.low_inclusive),
        }
    } else {
        KeyRange {
            low: end(&interval.low, !interval.low_inclusive),
            high: end(&interval.high, interval.high_inclusive),
        }
    }
}

fn range_of_prefix(prefix: &KeyStringBuilder) -> KeyRange {
    let low = prefix.to_vec();
    if low.is_empty() {
        return KeyRange { low, high: Vec::new() };
    }
    let mut high = prefix.clone();
    high.finish(Discriminator::ExclusiveAfter);
    KeyRange { low, high: high.to_vec() }
}
