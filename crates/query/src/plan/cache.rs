//! The plan cache: the winner of the last trial of each query shape, and index filters.
//!
//! The first trial of a shape leaves an inactive entry. A second trial that needs at most the same work activates
//! it. With an active entry, its plan runs alone, without a trial. If the plan needs ten times the recorded work
//! for its first rows, all candidates compete again, as in MongoDB. An entry belongs to a collection's definition,
//! so any DDL removes it.
//!
//! Filters last until they are cleared, the collection is dropped, or the server ends.

use super::query::Hint;
use super::shape;
use kauri_base::CollectionId;
use kauri_bson::{DocBuf, Value};
use kauri_catalog::Collection;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Shapes that are remembered at most.
const ENTRIES_MAX: usize = 5000;
/// Filters that may be set.
const FILTERS_MAX: usize = 5000;
/// Times the work of the trial after which a cached plan is given up
/// (`internalQueryCacheEvictionRatio`).
const EVICTION_RATIO: u64 = 10;

type Key = (CollectionId, String);

/// See the module's head.
#[derive(Default)]
pub struct PlanCache {
    /// The server's name, for `$planCacheStats`.
    host: OnceLock<String>,
    inner: Mutex<Inner>,
    /// Filters that are set, so that queries need not take the lock to find none.
    filter_count: AtomicUsize,
    /// Whether a filter that has no plan but a scan is refused (`notablescan`).
    refuses_scans: AtomicBool,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<Key, Entry>,
    filters: HashMap<Key, Filter>,
    /// How many filters were ever set: they are listed in this order.
    set: u64,
}

struct Entry {
    definition: Weak<Collection>,
    plan: String,
    works: u64,
    active: bool,
    origin: Origin,
}

/// The origin of an entry.
pub struct Origin {
    /// The query: filter, sort, projection.
    pub query: [DocBuf; 3],
    /// The plan as `explain` shows it.
    pub plan: DocBuf,
    /// The scores of the candidates, the winner first.
    pub scores: Vec<f64>,
    /// When (Unix milliseconds).
    pub at_ms: i64,
}

/// An index filter.
#[derive(Clone)]
pub struct Filter {
    /// A sample query of the shape: filter, sort, projection, collation.
    pub shape_of: [DocBuf; 4],
    /// The indexes that may be used.
    pub indexes: Arc<Vec<Hint>>,
    order: u64,
}

impl Filter {
    /// A filter of the shape that this query (filter, sort, projection, collation) has.
    pub fn new(shape_of: [DocBuf; 4], indexes: Vec<Hint>) -> Filter {
        Filter { shape_of, indexes: Arc::new(indexes), order: 0 }
    }
}

/// A plan that an entry recommends.
pub struct Recommended {
    /// The candidate's name.
    pub plan: String,
    /// The work that it may take for its first rows.
    pub works_max: u64,
}

impl PlanCache {
    /// Names the server; once.
    pub fn set_host(&self, host: &str) {
        self.host.get_or_init(|| host.to_owned());
    }

    /// Has filters refused, or not, that have no plan but a scan.
    pub fn refuse_scans(&self, refuse: bool) {
        self.refuses_scans.store(refuse, Ordering::Relaxed);
    }

    /// Whether they are refused.
    pub fn refuses_scans(&self) -> bool {
        self.refuses_scans.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The plan that an active entry has for the shape.
    pub fn recommended(&self, collection: &Arc<Collection>, shape: &str) -> Option<Recommended> {
        let inner = self.lock();
        let entry = inner.entries.get(&(collection.id, shape.to_owned()))?;
        (entry.active && entry.is_of(collection)).then(|| Recommended {
            plan: entry.plan.clone(),
            works_max: entry.works.saturating_mul(EVICTION_RATIO),
        })
    }

    /// Notes the winner of a trial.
    pub fn won(
        &self,
        collection: &Arc<Collection>,
        shape: &str,
        plan: String,
        works: u64,
        origin: Origin,
    ) {
        let mut inner = self.lock();
        let key = (collection.id, shape.to_owned());
        if let Some(entry) = inner.entries.get_mut(&key).filter(|e| e.is_of(collection)) {
            entry.active = !entry.active && works <= entry.works;
            entry.works = if entry.active { works } else { works.max(entry.works * 2) };
            entry.plan = plan;
            entry.origin = origin;
            return;
        }
        if inner.entries.len() >= ENTRIES_MAX {
            let dropped = inner.entries.keys().next().cloned();
            dropped.and_then(|key| inner.entries.remove(&key));
        }
        let definition = Arc::downgrade(collection);
        inner.entries.insert(key, Entry { definition, plan, works, active: false, origin });
    }

    /// Gives an entry up whose plan has become a bad one.
    pub fn failed(&self, collection: &Arc<Collection>, shape: &str) {
        self.lock().entries.remove(&(collection.id, shape.to_owned()));
    }

    /// The collection's entries as `$planCacheStats` shows them.
    pub fn entries(&self, collection: &Arc<Collection>) -> Vec<DocBuf> {
        let inner = self.lock();
        let mine = inner.entries.iter().filter(|(_, entry)| entry.is_of(collection));
        let shown = mine.map(|((id, shape), entry)| {
            let filtered = inner.filters.contains_key(&(*id, shape.clone()));
            entry.show(shape, filtered, self.host.get().map_or("", String::as_str))
        });
        shown.collect()
    }

    /// Forgets the plans of one shape of the collection, or of all.
    pub fn clear(&self, collection: &Collection, shape: Option<&str>) {
        self.lock()
            .entries
            .retain(|(id, of), _| *id != collection.id || shape.is_some_and(|shape| shape != of));
    }

    /// Whether any filter is set at all.
    pub fn has_filters(&self) -> bool {
        self.filter_count.load(Ordering::Relaxed) > 0
    }

    /// The indexes that may be used for the shape, if a filter is set.
    pub fn filter(&self, collection: &Collection, shape: &str) -> Option<Arc<Vec<Hint>>> {
        self.lock().filters.get(&(collection.id, shape.to_owned())).map(|f| f.indexes.clone())
    }

    /// Sets the filter of a shape; false if there are too many.
    pub fn set_filter(&self, collection: &Collection, shape: String, mut filter: Filter) -> bool {
        let mut inner = self.lock();
        let key = (collection.id, shape);
        if inner.filters.len() >= FILTERS_MAX && !inner.filters.contains_key(&key) {
            return false;
        }
        inner.set += 1;
        filter.order = inner.set;
        inner.entries.remove(&key);
        inner.filters.insert(key, filter);
        self.filter_count.store(inner.filters.len(), Ordering::Relaxed);
        true
    }

    /// The collection's filters in the order in which they were set.
    pub fn filters(&self, collection: &Collection) -> Vec<Filter> {
        let inner = self.lock();
        let mine = inner.filters.iter().filter(|((id, _), _)| *id == collection.id);
        let mut filters: Vec<Filter> = mine.map(|(_, filter)| filter.clone()).collect();
        filters.sort_by_key(|filter| filter.order);
        filters
    }

    /// Takes back the filter of one shape of the collection, or all.
    pub fn clear_filters(&self, collection: &Collection, shape: Option<&str>) {
        let mut inner = self.lock();
        let others =
            |id: CollectionId, of: &str| id != collection.id || shape.is_some_and(|s| s != of);
        inner.filters.retain(|(id, of), _| others(*id, of));
        self.filter_count.store(inner.filters.len(), Ordering::Relaxed);
        inner.entries.retain(|(id, of), _| others(*id, of));
    }
}

impl Entry {
    fn show(&self, shape: &str, filtered: bool, host: &str) -> DocBuf {
        let Origin { query: [query, sort, projection], plan, scores, at_ms } = &self.origin;
        let hash = shape::hash(shape);
        let bytes = shape.len() + query.as_bytes().len() + plan.as_bytes().len();
        DocBuf::build(|w| {
            w.put("version", "1");
            w.put("queryHash", hash.as_str());
            w.put("planCacheShapeHash", hash.as_str());
            w.put("planCacheKey", shape::hash(&format!("{shape}|{}", self.plan)).as_str());
            w.put("isActive", self.active);
            w.put("works", self.works as i64);
            w.put("worksType", "works");
            w.put("timeOfCreation", Value::DateTime(*at_ms));
            {
                let mut created = w.document("createdFromQuery");
                created.put("query", query);
                created.put("sort", sort);
                created.put("projection", projection);
            }
            w.put("cachedPlan", plan);
            {
                let mut stats = w.array("creationExecStats");
                scores.iter().for_each(|_| drop(stats.document()));
            }
            {
                let mut list = w.array("candidatePlanScores");
                scores.iter().for_each(|score| list.push(*score));
            }
            w.put("indexFilterSet", filtered);
            w.put("estimatedSizeBytes", bytes as i64);
            w.put("host", host);
        })
    }

    fn is_of(&self, collection: &Arc<Collection>) -> bool {
        std::ptr::eq(self.definition.as_ptr(), Arc::as_ptr(collection))
    }
}
