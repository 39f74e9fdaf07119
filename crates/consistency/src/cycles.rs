//! Cycles in the graph of dependencies, and the anomalies that they prove.
//!
//! Each strongly connected component gives at most one cycle of each anomaly, a shortest one.

use crate::graph::{Dependency, Graph};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// An anomaly that a cycle proves (Adya's names).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Anomaly {
    /// Writes in a cycle: dirty writes.
    G0,
    /// Reads and writes in a cycle: information flows in a circle.
    G1c,
    /// A cycle with one anti-dependency: read skew, lost updates.
    GSingle,
    /// A cycle with anti-dependencies, no two of which follow each other: not snapshot isolation.
    GNonadjacent,
    /// A cycle with anti-dependencies: write skew; not serializable.
    G2,
}

/// Which order besides that of the data a database promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// None.
    Data,
    /// That of each client's own operations.
    Session,
    /// That of real time.
    RealTime,
}

/// What a database promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// Orders that count.
    pub order: Order,
    /// Write skew is an anomaly; without it the promise is snapshot isolation.
    pub serializable: bool,
}

impl Promise {
    /// Transactions have one order, and it is that of real time.
    pub const STRICT_SERIALIZABLE: Promise = Promise { order: Order::RealTime, serializable: true };
    /// Snapshot isolation in the order of real time (MongoDB's transactions with snapshot reads and majority writes).
    pub const SNAPSHOT: Promise = Promise { order: Order::RealTime, serializable: false };
}

/// A cycle: each transaction depends on the one before it in the given way; the first one depends on the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle {
    /// What it proves.
    pub anomaly: Anomaly,
    /// Indices of transactions, each with the edge to the next one.
    pub edges: Vec<(usize, Dependency)>,
}

/// The kinds of edges that count besides anti-dependencies.
fn order_kinds(order: Order) -> Vec<Dependency> {
    match order {
        Order::Data => vec![],
        Order::Session => vec![Dependency::Session],
        Order::RealTime => vec![Dependency::Session, Dependency::RealTime],
    }
}

/// All anomalies that the promise excludes.
pub fn find(graph: &Graph, promise: Promise) -> Vec<Cycle> {
    use Dependency::{ReadWrite, WriteRead, WriteWrite};
    let mut found = Vec::new();
    let mut kinds = order_kinds(promise.order);
    kinds.push(WriteWrite);
    // A cycle of session and real time alone cannot be: times are ordered.
    add(graph, &kinds, &mut found, |graph, component, kinds| {
        any_cycle(graph, component, kinds, Anomaly::G0)
    });
    kinds.push(WriteRead);
    add(graph, &kinds, &mut found, |graph, component, kinds| {
        cycle_with(graph, component, kinds, Anomaly::G1c, |why| why == WriteRead)
    });
    let without = kinds.clone();
    kinds.push(ReadWrite);
    add(graph, &kinds, &mut found, |graph, component, _| {
        cycle_of_one(graph, component, &without)
            .or_else(|| nonadjacent(graph, component, &without))
            .or_else(|| {
                promise.serializable.then(|| {
                    cycle_with(graph, component, &kinds, Anomaly::G2, |why| why == ReadWrite)
                })?
            })
    });
    found
}

type Component = BTreeSet<usize>;

fn add(
    graph: &Graph,
    kinds: &[Dependency],
    found: &mut Vec<Cycle>,
    search: impl Fn(&Graph, &Component, &[Dependency]) -> Option<Cycle>,
) {
    for component in graph.components(kinds) {
        let component: Component = component.into_iter().collect();
        found.extend(search(graph, &component, kinds));
    }
}

/// A shortest path within the component by edges of these kinds.
fn path(
    graph: &Graph,
    component: &Component,
    kinds: &[Dependency],
    from: usize,
    to: usize,
) -> Option<Vec<(usize, Dependency)>> {
    let mut came: BTreeMap<usize, (usize, Dependency)> = BTreeMap::new();
    let mut queue = VecDeque::from([from]);
    let mut seen = BTreeSet::from([from]);
    while let Some(node) = queue.pop_front() {
        for (next, why) in graph.edges(node) {
            if !kinds.contains(&why) || !component.contains(&next) {
                continue;
            }
            if next == to {
                let mut edges = vec![(node, why)];
                let mut at = node;
                while let Some((before, why)) = came.get(&at) {
                    edges.push((*before, *why));
                    at = *before;
                }
                edges.reverse();
                return Some(edges);
            }
            if seen.insert(next) {
                came.insert(next, (node, why));
                queue.push_back(next);
            }
        }
    }
    None
}

fn any_cycle(
    graph: &Graph,
    component: &Component,
    kinds: &[Dependency],
    anomaly: Anomaly,
) -> Option<Cycle> {
    let first = *component.first()?;
    Some(Cycle { anomaly, edges: path(graph, component, kinds, first, first)? })
}

/// A cycle that has an edge of a given kind.
fn cycle_with(
    graph: &Graph,
    component: &Component,
    kinds: &[Dependency],
    anomaly: Anomaly,
    wanted: impl Fn(Dependency) -> bool,
) -> Option<Cycle> {
    for from in component {
        for (to, why) in graph.edges(*from) {
            if !wanted(why) || !component.contains(&to) {
                continue;
            }
            if let Some(mut edges) = path(graph, component, kinds, to, *from) {
                edges.insert(0, (*from, why));
                return Some(Cycle { anomaly, edges });
            }
        }
    }
    None
}

/// A cycle with one anti-dependency.
fn cycle_of_one(graph: &Graph, component: &Component, without: &[Dependency]) -> Option<Cycle> {
    cycle_with(graph, component, without, Anomaly::GSingle, |why| why == Dependency::ReadWrite)
}

/// A cycle in which no two anti-dependencies follow each other. The search is one over pairs of a node and whether the
/// edge to it was an anti-dependency.
fn nonadjacent(graph: &Graph, component: &Component, without: &[Dependency]) -> Option<Cycle> {
    for from in component {
        for (to, why) in graph.edges(*from) {
            if why != Dependency::ReadWrite || !component.contains(&to) {
                continue;
            }
            if let Some(mut edges) = alternating(graph, component, without, to, *from) {
                edges.insert(0, (*from, why));
                return Some(Cycle { anomaly: Anomaly::GNonadjacent, edges });
            }
        }
    }
    None
}

/// A path that neither begins nor ends with an anti-dependency and has no two in a row.
fn alternating(
    graph: &Graph,
    component: &Component,
    without: &[Dependency],
    from: usize,
    to: usize,
) -> Option<Vec<(usize, Dependency)>> {
    type State = (usize, bool);
    let mut came: BTreeMap<State, (State, Dependency)> = BTreeMap::new();
    let start = (from, true);
    let mut queue = VecDeque::from([start]);
    let mut seen = BTreeSet::from([start]);
    while let Some(state) = queue.pop_front() {
        for (next, why) in graph.edges(state.0) {
            let anti = why == Dependency::ReadWrite;
            if !component.contains(&next) || (anti && state.1) || !(anti || without.contains(&why))
            {
                continue;
            }
            if next == to && !anti {
                let mut edges = vec![(state.0, why)];
                let mut at = state;
                while let Some((before, why)) = came.get(&at) {
                    edges.push((before.0, *why));
                    at = *before;
                }
                edges.reverse();
                return Some(edges);
            }
            if seen.insert((next, anti)) {
                came.insert((next, anti), (state, why));
                queue.push_back((next, anti));
            }
        }
    }
    None
}
