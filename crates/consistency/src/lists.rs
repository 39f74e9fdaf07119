//! Transactions that append values to lists and read lists.
//!
//! Every value is appended once in a history, so a list that is read tells which transactions wrote it, and in which
//! order. Anomalies that one list shows are reported as such; all others are cycles of dependencies.

use crate::cycles::{self, Cycle, Order, Promise};
use crate::graph::{Dependency, Graph};
use std::collections::{BTreeMap, BTreeSet};

/// The number of a list, and a value in it.
pub type Key = u64;
#[allow(missing_docs)]
pub type Value = u64;

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The value goes to the end of the list.
    Append(Key, Value),
    /// The list was read; `None` without a reply.
    Read(Key, Option<Vec<Value>>),
}

/// What is known of a transaction's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was acknowledged at this time.
    Committed(u64),
    /// It was refused and has no effect.
    Aborted,
    /// It may have an effect or not.
    Unknown,
}

/// A transaction; a single operation is a transaction of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// The client. It sends its next transaction after the reply to this one.
    pub client: u64,
    /// When it was sent.
    pub sent: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Its steps, in order.
    pub steps: Vec<Step>,
}

impl Transaction {
    fn is_aborted(&self) -> bool {
        self.outcome == Outcome::Aborted
    }

    fn reads(&self) -> impl Iterator<Item = (usize, Key, &[Value])> {
        self.steps.iter().enumerate().filter_map(|(at, step)| match step {
            Step::Read(key, Some(list)) => Some((at, *key, list.as_slice())),
            _ => None,
        })
    }

    /// Its own appends to a list before a step.
    fn own(&self, key: Key, before: usize) -> Vec<Value> {
        let own = |step: &Step| match step {
            Step::Append(of, value) if *of == key => Some(*value),
            _ => None,
        };
        self.steps.iter().take(before).filter_map(own).collect()
    }

    /// What a read found before the transaction's own appends; none if the read lacks these.
    fn external<'a>(&self, at: usize, key: Key, list: &'a [Value]) -> Option<&'a [Value]> {
        list.strip_suffix(self.own(key, at).as_slice())
    }

    /// The version of the list that a read proves. A transaction's own appends are part of one if it committed.
    fn version<'a>(&self, at: usize, key: Key, list: &'a [Value]) -> Option<&'a [Value]> {
        match self.outcome {
            Outcome::Committed(_) => Some(list),
            Outcome::Unknown => self.external(at, key, list),
            Outcome::Aborted => None,
        }
    }
}

/// What is wrong with a history. Numbers are indices of transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Fault {
    /// A list has a value that no transaction appended to it.
    Phantom { reader: usize, key: Key, value: Value },
    /// A list has a value twice: a write was applied twice.
    Duplicate { reader: usize, key: Key, value: Value },
    /// A list has a value of a transaction that was refused (G1a).
    AbortedRead { reader: usize, key: Key, value: Value },
    /// A list ends within the appends of another transaction (G1b).
    IntermediateRead { reader: usize, key: Key, value: Value },
    /// A transaction does not see its own appends, or sees another list than before.
    Internal { reader: usize, key: Key },
    /// Two lists of one key have different orders.
    IncompatibleOrder { readers: (usize, usize), key: Key },
    /// An acknowledged append is in no list, though one was read after it.
    Lost { writer: usize, key: Key, value: Value },
    /// A cycle of dependencies.
    Cycle(Cycle),
}

/// All faults of a history.
pub fn check(history: &[Transaction], promise: Promise) -> Vec<Fault> {
    check_each(history, promise, |_| promise.order)
}

/// The same, where some transactions only read and are promised less: `order` tells which orders a transaction follows,
/// of those that the promise has. A read by a weaker one may be of an old version. Whatever it has seen stays, so
/// later transactions follow it all the same.
pub fn check_each(
    history: &[Transaction],
    promise: Promise,
    order: impl Fn(usize) -> Order,
) -> Vec<Fault> {
    let lists = Lists::new(history);
    let mut faults = lists.faults();
    // Without an order of versions there are no dependencies to speak of.
    if faults.iter().any(|fault| matches!(fault, Fault::IncompatibleOrder { .. })) {
        return faults;
    }
    let mut graph = Graph::new(history.len());
    lists.add_data(&mut graph);
    if promise.order != Order::Data {
        add_sessions(history, &mut graph, &order);
    }
    if promise.order == Order::RealTime {
        lists.lost(&order, &mut faults);
        add_real_time(history, &mut graph, &order);
    }
    faults.extend(cycles::find(&graph, promise).into_iter().map(Fault::Cycle));
    faults
}

struct Lists<'a> {
    history: &'a [Transaction],
    /// The transaction that appended a value to a list.
    writers: BTreeMap<(Key, Value), usize>,
    /// The longest version of each list that was read, and its reader.
    longest: BTreeMap<Key, (usize, &'a [Value])>,
    /// The transactions whose committed appends are in no list that was read.
    unread: BTreeMap<Key, Vec<usize>>,
}

impl<'a> Lists<'a> {
    fn new(history: &'a [Transaction]) -> Lists<'a> {
        let mut writers = BTreeMap::new();
        let mut longest: BTreeMap<Key, (usize, &[Value])> = BTreeMap::new();
        for (index, transaction) in history.iter().enumerate() {
            for step in &transaction.steps {
                if let Step::Append(key, value) = step {
                    let before = writers.insert((*key, *value), index);
                    assert!(before.is_none(), "the history appends {value} to {key} twice");
                }
            }
            for (at, key, list) in transaction.reads() {
                let Some(version) = transaction.version(at, key, list) else { continue };
                let best = longest.entry(key).or_insert((index, version));
                if version.len() > best.1.len() {
                    *best = (index, version);
                }
            }
        }
        let read: BTreeSet<(Key, Value)> = longest
            .iter()
            .flat_map(|(key, (_, list))| list.iter().map(|value| (*key, *value)))
            .collect();
        let mut unread: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (place, writer) in &writers {
            let outcome = history.get(*writer).map(|transaction| transaction.outcome);
            if matches!(outcome, Some(Outcome::Committed(_))) && !read.contains(place) {
                unread.entry(place.0).or_default().push(*writer);
            }
        }
        Lists { history, writers, longest, unread }
    }

    fn writer(&self, key: Key, value: Value) -> Option<usize> {
        self.writers.get(&(key, value)).copied()
    }

    /// What single lists show.
    fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for (reader, transaction) in self.history.iter().enumerate() {
            // A refused transaction may have read anything.
            if transaction.is_aborted() {
                continue;
            }
            self.internal(reader, transaction, &mut faults);
            for (at, key, list) in transaction.reads() {
                self.values(reader, key, list, &mut faults);
                if let Some(external) = transaction.external(at, key, list) {
                    self.intermediate(reader, key, external, &mut faults);
                }
                if let Some((other, longest)) = self.longest.get(&key)
                    && let Some(version) = transaction.version(at, key, list)
                    && !longest.starts_with(version)
                {
                    faults.push(Fault::IncompatibleOrder { readers: (reader, *other), key });
                }
            }
        }
        faults
    }

    fn values(&self, reader: usize, key: Key, list: &[Value], faults: &mut Vec<Fault>) {
        let mut seen = BTreeSet::new();
        for value in list.iter().copied() {
            if !seen.insert(value) {
                faults.push(Fault::Duplicate { reader, key, value });
            }
            match self.writer(key, value).and_then(|writer| self.history.get(writer)) {
                None => faults.push(Fault::Phantom { reader, key, value }),
                Some(writer) if writer.is_aborted() => {
                    faults.push(Fault::AbortedRead { reader, key, value });
                }
                Some(_) => {}
            }
        }
    }

    /// The last value of a list is the last one that its transaction appended to it.
    fn intermediate(&self, reader: usize, key: Key, list: &[Value], faults: &mut Vec<Fault>) {
        let Some(value) = list.last().copied() else { return };
        let Some(writer) = self.writer(key, value).filter(|writer| *writer != reader) else {
            return;
        };
        let Some(transaction) = self.history.get(writer) else { return };
        if transaction.own(key, usize::MAX).last() != Some(&value) {
            faults.push(Fault::IntermediateRead { reader, key, value });
        }
    }

    /// Within a transaction a list changes by its own appends only.
    fn internal(&self, reader: usize, transaction: &Transaction, faults: &mut Vec<Fault>) {
        let mut external: BTreeMap<Key, &[Value]> = BTreeMap::new();
        for (at, key, list) in transaction.reads() {
            let found = transaction.external(at, key, list);
            let agrees = found.is_some_and(|found| *external.entry(key).or_insert(found) == found);
            if !agrees {
                faults.push(Fault::Internal { reader, key });
            }
        }
    }

    fn add_data(&self, graph: &mut Graph) {
        for (key, (_, longest)) in &self.longest {
            let writers: Vec<_> = longest.iter().map(|value| self.writer(*key, *value)).collect();
            for pair in writers.windows(2) {
                if let [Some(one), Some(other)] = pair {
                    graph.add(*one, *other, Dependency::WriteWrite);
                }
            }
            // Committed appends that no list has come after all that were read.
            for unread in self.unread(*key) {
                if let Some(Some(last)) = writers.last() {
                    graph.add(*last, unread, Dependency::WriteWrite);
                }
            }
        }
        for (reader, transaction) in self.history.iter().enumerate() {
            if transaction.is_aborted() {
                continue;
            }
            for (at, key, list) in transaction.reads() {
                if let Some(external) = transaction.external(at, key, list) {
                    self.add_read(graph, reader, key, external);
                }
            }
        }
    }

    /// Acknowledged appends that no list has.
    fn lost(&self, order: &impl Fn(usize) -> Order, faults: &mut Vec<Fault>) {
        // When the last one of the reads was sent that have everything acknowledged before.
        let mut last_read: BTreeMap<Key, u64> = BTreeMap::new();
        for (index, transaction) in self.history.iter().enumerate() {
            if order(index) == Order::RealTime && !transaction.is_aborted() {
                for (_, key, _) in transaction.reads() {
                    let last = last_read.entry(key).or_default();
                    *last = transaction.sent.max(*last);
                }
            }
        }
        for ((key, value), writer) in &self.writers {
            let Some(Outcome::Committed(at)) = self.history.get(*writer).map(|of| of.outcome)
            else {
                continue;
            };
            let is_unread = self.unread(*key).any(|unread| unread == *writer);
            if is_unread && last_read.get(key).is_some_and(|sent| *sent > at) {
                faults.push(Fault::Lost { writer: *writer, key: *key, value: *value });
            }
        }
    }

    fn unread(&self, key: Key) -> impl Iterator<Item = usize> {
        self.unread.get(&key).into_iter().flatten().copied()
    }

    /// A read comes after the writer of its last value and before the writer of the next one.
    fn add_read(&self, graph: &mut Graph, reader: usize, key: Key, list: &[Value]) {
        if let Some(writer) = list.last().and_then(|value| self.writer(key, *value)) {
            graph.add(writer, reader, Dependency::WriteRead);
        }
        let longest = self.longest.get(&key).map_or(&[][..], |(_, longest)| longest);
        match longest.get(list.len()) {
            Some(next) => {
                if let Some(writer) = self.writer(key, *next) {
                    graph.add(reader, writer, Dependency::ReadWrite);
                }
            }
            None => {
                for unread in self.unread(key) {
                    graph.add(reader, unread, Dependency::ReadWrite);
                }
            }
        }
    }
}

/// Acknowledged transactions of one client have the order in which it sent them. One that does not follow this order
/// comes after none.
fn add_sessions(history: &[Transaction], graph: &mut Graph, order: &impl Fn(usize) -> Order) {
    let mut last: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    let mut by_time: Vec<usize> = (0..history.len()).collect();
    by_time.sort_by_key(|index| history.get(*index).map(|transaction| transaction.sent));
    for index in by_time {
        let Some(transaction) = history.get(index) else { continue };
        if let Outcome::Committed(_) = transaction.outcome {
            let before = last.entry(transaction.client).or_default();
            if order(index) != Order::Data {
                for before in before.drain(..) {
                    graph.add(before, index, Dependency::Session);
                }
            }
            before.push(index);
        }
    }
}

/// A transaction comes after all that were answered before it was sent. Edges that follow from others are left out: the
/// frontier has those that no later answered transaction came after. One that does not follow this order comes after
/// none.
fn add_real_time(history: &[Transaction], graph: &mut Graph, order: &impl Fn(usize) -> Order) {
    let mut events = Vec::new();
    for (index, transaction) in history.iter().enumerate() {
        match transaction.outcome {
            Outcome::Committed(at) => {
                events.push((transaction.sent, 1, index));
                events.push((at, 0, index));
            }
            Outcome::Unknown => events.push((transaction.sent, 1, index)),
            Outcome::Aborted => {}
        }
    }
    // A reply orders only what was sent strictly later, so requests of the same time come first.
    events.sort_by_key(|(at, kind, index)| (*at, std::cmp::Reverse(*kind), *index));
    let mut frontier: BTreeSet<usize> = BTreeSet::new();
    let mut before: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (_, kind, index) in events {
        if kind == 1 {
            if order(index) != Order::RealTime {
                continue;
            }
            for earlier in &frontier {
                graph.add(*earlier, index, Dependency::RealTime);
            }
            before.insert(index, frontier.iter().copied().collect());
        } else {
            for earlier in before.remove(&index).into_iter().flatten() {
                frontier.remove(&earlier);
            }
            frontier.insert(index);
        }
    }
}
