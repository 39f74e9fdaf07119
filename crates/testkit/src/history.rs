//! The commits, and when each was promised.
//!
//! "When" is a number of events of the emulator's trace: a crash after `at` events must keep everything promised at
//! `at` or before, and cannot have a commit that began later.

use crate::model::{Change, Model};
use kauri_base::CommitSeq;
use kauri_storage::Durability;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// The loss of a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// The process's memory.
    Process,
    /// That, and what was not drained.
    Power,
}

/// A unit that was committed.
struct Commit {
    seq: CommitSeq,
    /// Events before the engine was asked to.
    began_at: usize,
    changes: Vec<Change>,
}

struct Promise {
    at: usize,
    seq: CommitSeq,
    durability: Durability,
}

/// A history that many threads record.
#[derive(Default)]
pub struct History {
    commits: Mutex<Vec<Commit>>,
    promises: Mutex<Vec<Promise>>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl History {
    /// A unit was committed.
    pub fn committed(&self, seq: CommitSeq, began_at: usize, changes: Vec<Change>) {
        lock(&self.commits).push(Commit { seq, began_at, changes });
    }

    /// Everything up to this commit was promised to last, by now.
    pub fn promised(&self, at: usize, seq: CommitSeq, durability: Durability) {
        lock(&self.promises).push(Promise { at, seq, durability });
    }

    /// Commits so far.
    pub fn len(&self) -> usize {
        lock(&self.commits).len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The recorded history, as changes to `base`.
    pub fn timeline(self, base: Model) -> Timeline {
        let mut commits = self.commits.into_inner().unwrap_or_else(PoisonError::into_inner);
        let promises = self.promises.into_inner().unwrap_or_else(PoisonError::into_inner);
        commits.sort_by_key(|commit| commit.seq);
        assert!(commits.is_sorted_by(|a, b| a.seq < b.seq), "a commit number was given twice");
        let mut model = base.clone();
        let mut by_hash: HashMap<u64, Vec<usize>> = HashMap::from([(model.hash(), vec![0])]);
        let mut positions = model.pending_positions();
        for (n, commit) in commits.iter().enumerate() {
            for change in &commit.changes {
                assert!(!model.is_reused(change), "an id is given a second time: {change:?}");
                // What a pending unit comes to can't be read: by its place it is known.
                if let Change::Append(position, _) = change {
                    let known = (position.term, position.index);
                    assert!(
                        positions.insert(known),
                        "a place is given a second time: {position:?}"
                    );
                }
                model.apply(change);
            }
            by_hash.entry(model.hash()).or_default().push(n + 1);
        }
        Timeline { cursor: Mutex::new((0, base.clone())), base, commits, promises, by_hash }
    }
}

/// The events in the order of the commit sequence. A *state* is a number of commits.
pub struct Timeline {
    base: Model,
    commits: Vec<Commit>,
    promises: Vec<Promise>,
    by_hash: HashMap<u64, Vec<usize>>,
    /// A state and its contents, so that asking in order is fast.
    cursor: Mutex<(usize, Model)>,
}

impl Timeline {
    /// The last state.
    pub fn end(&self) -> usize {
        self.commits.len()
    }

    /// The state that a crash after `at` events must at least keep.
    pub fn promised(&self, at: usize, loss: Loss) -> usize {
        let counts = |promise: &&Promise| {
            promise.at <= at && (loss == Loss::Process || promise.durability == Durability::Durable)
        };
        let seq = self.promises.iter().filter(counts).map(|promise| promise.seq).max();
        seq.map_or(0, |seq| self.commits.partition_point(|commit| commit.seq <= seq))
    }

    /// The highest state that a crash after `at` events can leave.
    pub fn begun(&self, at: usize) -> usize {
        self.commits.iter().rposition(|commit| commit.began_at <= at).map_or(0, |n| n + 1)
    }

    /// The first and the last of these states with these contents: a record that comes and goes
    /// again leaves none.
    pub fn find(
        &self,
        contents: &Model,
        states: std::ops::RangeInclusive<usize>,
    ) -> Option<(usize, usize)> {
        let found = self.by_hash.get(&contents.hash())?;
        let mut within = found.iter().copied().filter(|state| states.contains(state));
        let first = within.next()?;
        Some((first, within.next_back().unwrap_or(first)))
    }

    /// The contents of a state.
    pub fn contents(&self, state: usize) -> Model {
        let mut cursor = lock(&self.cursor);
        if cursor.0 > state {
            *cursor = (0, self.base.clone());
        }
        let (from, model) = &mut *cursor;
        for commit in &self.commits[*from..state] {
            commit.changes.iter().for_each(|change| model.apply(change));
        }
        *from = state;
        model.clone()
    }
}
