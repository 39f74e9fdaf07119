//! Linearizable objects: whether an order of operations exists, each within its time, in which every reply is right.
//!
//! The search tries operations that may come next, depth first, and remembers which sets of operations lead to which
//! state. Its work is bounded; a history of one object with a few dozen operations at once stays far below.

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;

/// The most states that are looked at before the search gives up.
pub const STATES_MAX: usize = 5_000_000;

/// An operation on an object.
#[derive(Clone, Debug)]
pub struct Operation<O> {
    /// When it was sent.
    pub sent: u64,
    /// When it was answered; `None`: it may take effect at any later time, or never.
    pub answered: Option<u64>,
    /// No effect comes after this time, though there was no answer: the server that had it is gone.
    pub until: Option<u64>,
    /// What it did, with its reply.
    pub what: O,
}

/// A sequential object.
pub trait Object: Clone + Eq + Hash {
    /// Operations with their replies.
    type Operation;
    /// The state after an operation; `None` if the reply is not one that this state gives.
    fn apply(&self, operation: &Self::Operation) -> Option<Self>;
}

/// What the search says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is none.
    Not,
    /// The search gave up.
    Undecided,
}

/// Searches an order of the operations from an initial state.
pub fn check<T: Object>(initial: T, operations: &[Operation<T::Operation>]) -> Verdict {
    let mut order: Vec<usize> = (0..operations.len()).collect();
    order.sort_by_key(|at| operations.get(*at).map(|one| one.sent));
    let operations: Vec<_> = order.iter().filter_map(|at| operations.get(*at)).collect();
    let mut search = Search { operations, seen: HashSet::new() };
    let done = Bits(vec![0; search.operations.len().div_ceil(64)]);
    search.run(done, initial)
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn with(&self, at: usize) -> Bits {
        let mut bits = self.clone();
        if let Some(word) = bits.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
        bits
    }
}

struct Search<'a, T: Object> {
    /// By the time when they were sent.
    operations: Vec<&'a Operation<T::Operation>>,
    seen: HashSet<(Bits, T)>,
}

impl<T: Object> Search<'_, T> {
    /// Depth first, with a stack of its own.
    fn run(&mut self, done: Bits, initial: T) -> Verdict {
        let mut stack = vec![(done, initial)];
        while let Some((done, state)) = stack.pop() {
            if !self.seen.insert((done.clone(), state.clone())) {
                continue;
            }
            if self.seen.len() > STATES_MAX {
                return Verdict::Undecided;
            }
            let open = || self.operations.iter().enumerate().filter(|(at, _)| !done.has(*at));
            // An operation that was sent after this answer cannot come before it.
            let bound = open().filter_map(|(_, one)| one.answered).min();
            let Some(bound) = bound else { return Verdict::Linearizable };
            let last_sent = self.last_sent(&done);
            for (at, one) in open().take_while(|(_, one)| one.sent <= bound) {
                if one.until.is_some_and(|until| last_sent > until) {
                    continue;
                }
                if let Some(next) = state.apply(&one.what) {
                    stack.push((done.with(at), next));
                }
            }
        }
        Verdict::Not
    }

    /// When the last of these was sent.
    fn last_sent(&self, done: &Bits) -> u64 {
        let last = self.operations.iter().enumerate().rev().find(|(at, _)| done.has(*at));
        last.map_or(0, |(_, one)| one.sent)
    }
}

/// A register with a unique owner of values.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Register(pub Option<u64>);

/// Operations on a [`Register`].
#[derive(Clone, Debug)]
pub enum RegisterOperation {
    /// It has this value afterwards.
    Write(Option<u64>),
    /// It has this value; without a reply nothing is known.
    Read(Option<u64>),
    /// It had the first value and has the second one afterwards.
    CompareAndSet(Option<u64>, Option<u64>),
    /// It did not have this value.
    Mismatch(Option<u64>),
}

impl Object for Register {
    type Operation = RegisterOperation;

    fn apply(&self, operation: &RegisterOperation) -> Option<Register> {
        use RegisterOperation::{CompareAndSet, Mismatch, Read, Write};
        match operation {
            Write(value) => Some(Register(*value)),
            Read(value) => (self.0 == *value).then(|| self.clone()),
            CompareAndSet(from, to) => (self.0 == *from).then_some(Register(*to)),
            Mismatch(value) => (self.0 != *value).then(|| self.clone()),
        }
    }
}

/// A number that operations add to (`$inc`).
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Counter(pub i64);

/// Operations on a [`Counter`].
#[derive(Clone, Debug)]
pub enum CounterOperation {
    /// Adds this, whatever there is.
    Add(i64),
    /// Adds the first number; the second one is what there is afterwards (findAndModify).
    AddAndGet(i64, i64),
    /// There is this number.
    Read(i64),
}

impl Object for Counter {
    type Operation = CounterOperation;

    fn apply(&self, operation: &CounterOperation) -> Option<Counter> {
        match operation {
            CounterOperation::Add(by) => Some(Counter(self.0.wrapping_add(*by))),
            CounterOperation::AddAndGet(by, after) => {
                (self.0.wrapping_add(*by) == *after).then_some(Counter(*after))
            }
            CounterOperation::Read(value) => (self.0 == *value).then(|| self.clone()),
        }
    }
}
