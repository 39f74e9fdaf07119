//! Random units, committed to the engine and to the in-memory engine: both must return the same and have the same
//! contents.
//!
//! Ids and commit numbers may differ, because an engine decides how many of them a refused unit consumes; their
//! order must be the same.

use super::Subject;
use super::inspect::{self, Entry, Stored};
use super::table::{Table, TableIndex, doc, number};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_storage::StorageEngine;
use kauri_storage::ephemeral::EphemeralEngine;
use kauri_storage::error::StorageError;
use kauri_storage::unit::{OpKind, WriteUnit};
use std::collections::BTreeMap;
use std::sync::Arc;

const COLLECTIONS: usize = 3;
/// Few values, so that keys collide.
const UNIQUE_VALUES: u64 = 60;

/// One collection on both sides. An id's place in the lists is the same on both.
struct Pair {
    sides: [Table; 2],
    ids: [Vec<RecordId>; 2],
    /// What each side's version of the record was when it was last read; possibly outdated.
    seen: [BTreeMap<usize, Stored>; 2],
    definitions: [u64; 2],
}

struct Run {
    random: SeededRandom,
    next_id: u32,
    pairs: Vec<Pair>,
    accepted: usize,
    refused: BTreeMap<&'static str, usize>,
}

/// A planned operation, to be made into one of each side.
enum Plan {
    Insert(Vec<u8>),
    Update(usize, Vec<u8>),
    Delete(usize),
    Backfill(usize),
    ChangeDefinition,
    ExpectDefinition,
}

pub(super) fn random_units(subject: &mut Subject) {
    for seed in 1..=4 {
        let mut run = Run::new(seed, seed as u32 * 1000);
        let engines = [subject.engine(), Arc::new(EphemeralEngine::new())];
        run.create_all(&engines);
        for step in 0..600 {
            run.step(&engines);
            if step % 50 == 49 {
                run.compare(&engines, &format!("seed {seed}, step {step}"));
            }
        }
        run.expect_variety();
    }
}

pub(super) fn random_units_with_reopening(subject: &mut Subject) {
    let oracle: Arc<dyn StorageEngine> = Arc::new(EphemeralEngine::new());
    let mut run = Run::new(99, 1000);
    run.create_all(&[subject.engine(), oracle.clone()]);
    for round in 0..8 {
        let engines = [subject.engine(), oracle.clone()];
        run.attach_side(&engines[0], round > 0);
        for _ in 0..150 {
            run.step(&engines);
        }
        run.compare(&engines, &format!("before reopening, round {round}"));
        engines[0].sync().expect("sync");
        let [engine, _] = engines;
        run.detach_side(&oracle);
        drop(engine);
        subject.reopen();
    }
    let engines = [subject.engine(), oracle.clone()];
    run.attach_side(&engines[0], true);
    run.compare(&engines, "at the end");
    run.expect_variety();
}

impl Run {
    fn new(seed: u64, first_id: u32) -> Run {
        Run {
            random: SeededRandom::new(seed),
            next_id: first_id,
            pairs: Vec::new(),
            accepted: 0,
            refused: BTreeMap::new(),
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n.max(1)
    }

    fn create_all(&mut self, engines: &[Arc<dyn StorageEngine>; 2]) {
        for _ in 0..COLLECTIONS {
            let pair = self.create(engines);
            self.pairs.push(pair);
        }
    }

    fn create(&mut self, engines: &[Arc<dyn StorageEngine>; 2]) -> Pair {
        self.next_id += 10;
        let id = self.next_id;
        let indexes = [
            TableIndex::new(id, false, "k"),
            TableIndex::new(id + 1, true, "u"),
            TableIndex::new(id + 2, false, "s"),
        ];
        let sides = [0, 1].map(|side| Table::create(&engines[side], id, &indexes));
        Pair { sides, ids: Default::default(), seen: Default::default(), definitions: [0; 2] }
            .refreshed()
    }

    /// Lets the first side's engine go, so that it can be closed.
    fn detach_side(&mut self, stand_in: &Arc<dyn StorageEngine>) {
        for pair in &mut self.pairs {
            pair.sides[0].engine = stand_in.clone();
        }
    }

    fn attach_side(&mut self, engine: &Arc<dyn StorageEngine>, attach: bool) {
        for pair in &mut self.pairs {
            pair.sides[0].engine = engine.clone();
            if attach {
                pair.sides[0].attach();
            }
            pair.refresh();
        }
    }

    fn step(&mut self, engines: &[Arc<dyn StorageEngine>; 2]) {
        match self.below(100) {
            0 => {
                let at = self.below(COLLECTIONS as u64) as usize;
                let pair = self.create(engines);
                let old = std::mem::replace(&mut self.pairs[at], pair);
                for side in &old.sides {
                    let mut unit = WriteUnit::new();
                    unit.push(side.id, RecordId(0), OpKind::DropStore);
                    side.commit(&mut unit);
                }
            }
            1..5 => {
                let at = self.below(COLLECTIONS as u64) as usize;
                self.pairs[at].refresh();
            }
            _ => self.unit(engines),
        }
    }

    fn plan(&self, pair: usize, taken: &mut Vec<usize>) -> Plan {
        let document = || {
            let text = "t".repeat(self.below(200) as usize);
            doc(self.below(20) as i64, self.below(UNIQUE_VALUES) as i64, &text)
        };
        let known = self.pairs[pair].seen[0].len() as u64;
        let pick = self.pairs[pair].seen[0].keys().nth(self.below(known) as usize).copied();
        let pick = pick.filter(|pick| !taken.contains(pick));
        taken.extend(pick);
        match (self.below(20), pick) {
            (0, _) => Plan::ChangeDefinition,
            (1..3, _) => Plan::ExpectDefinition,
            (3..9, Some(at)) => Plan::Update(at, document()),
            (9..12, Some(at)) => Plan::Delete(at),
            (12..13, Some(at)) => Plan::Backfill(at),
            _ => Plan::Insert(document()),
        }
    }

    fn unit(&mut self, engines: &[Arc<dyn StorageEngine>; 2]) {
        let mut taken: Vec<Vec<usize>> = vec![Vec::new(); COLLECTIONS];
        let plans: Vec<_> = (0..=self.below(4))
            .map(|_| {
                let pair = self.below(COLLECTIONS as u64) as usize;
                (pair, self.plan(pair, &mut taken[pair]))
            })
            .collect();
        let results = [0, 1].map(|side| {
            let mut unit = WriteUnit::new();
            for (pair, plan) in &plans {
                self.pairs[*pair].plan_in(&mut unit, side, plan);
            }
            let result = engines[side].commit(&mut unit).map(drop).map_err(|error| kind(&error));
            let inserted = unit.ops.iter().filter(|op| matches!(op.kind, OpKind::Insert { .. }));
            (result, inserted.map(|op| (op.collection, op.record)).collect::<Vec<_>>())
        });
        let [(mine, inserted), (theirs, also_inserted)] = results;
        assert_eq!(mine, theirs, "the engines disagree about a unit");
        match mine {
            Err(kind) => *self.refused.entry(kind).or_default() += 1,
            Ok(()) => {
                self.accepted += 1;
                for (one, two) in inserted.into_iter().zip(also_inserted) {
                    let pair = self.pairs.iter_mut().find(|pair| pair.sides[0].id == one.0);
                    let pair = pair.expect("a collection of the run");
                    pair.ids[0].push(one.1);
                    pair.ids[1].push(two.1);
                }
            }
        }
        // Usually the next statement reads anew; now and then it was computed before this one.
        if self.below(4) > 0 {
            self.pairs.iter_mut().for_each(Pair::refresh);
        }
    }

    fn compare(&self, engines: &[Arc<dyn StorageEngine>; 2], when: &str) {
        for pair in &self.pairs {
            pair.sides.iter().for_each(Table::check);
            let [mine, theirs] = [0, 1].map(|side| pair.documents(side));
            assert_eq!(mine, theirs, "{when}: the records differ");
            for index in &pair.sides[0].indexes {
                let [mine, theirs] = [0, 1].map(|side| {
                    let entries = inspect::entries(&*engines[side], index.spec.id).expect("scan");
                    entries.into_iter().map(|entry| pair.place(side, entry)).collect::<Vec<_>>()
                });
                assert_eq!(mine, theirs, "{when}: {:?} differs", index.spec.id);
            }
        }
    }

    fn expect_variety(&self) {
        let refused: usize = self.refused.values().sum();
        assert_eq!(self.refused.len(), 2, "{:?}", self.refused);
        assert!(self.accepted > 100 && refused > 100, "{} and {:?}", self.accepted, self.refused);
    }
}

/// What a caller would do about it: compute anew, or answer.
fn kind(error: &StorageError) -> &'static str {
    match error {
        StorageError::WriteConflict | StorageError::StaleCatalog(_) => "outdated",
        StorageError::DuplicateKey { .. } => "duplicate",
        error => panic!("commit: {error}"),
    }
}

impl Pair {
    fn refreshed(mut self) -> Self {
        self.refresh();
        self
    }

    fn refresh(&mut self) {
        for side in [0, 1] {
            let table = &self.sides[side];
            let number = table.engine.definition_number(table.id);
            self.definitions[side] = number.expect("the collection");
            let at = |id: &RecordId| self.ids[side].binary_search(id).expect("an id of the run");
            let records = table.records();
            self.seen[side] = records.iter().map(|(id, r)| (at(id), r.clone())).collect();
        }
    }

    fn plan_in(&self, unit: &mut WriteUnit<'_>, side: usize, plan: &Plan) {
        let table = &self.sides[side];
        let record = |at: &usize| (self.ids[side][*at], &self.seen[side][at]);
        match plan {
            Plan::Insert(doc) => drop(table.insert_in(unit, doc)),
            Plan::Update(at, doc) => {
                let (id, seen) = record(at);
                table.update_in(unit, id, seen, doc);
            }
            Plan::Delete(at) => {
                let (id, seen) = record(at);
                table.delete_in(unit, id, seen);
            }
            Plan::Backfill(at) => {
                let (id, seen) = record(at);
                table.backfill_in(unit, &table.indexes[0], id, seen);
            }
            Plan::ChangeDefinition => {
                unit.push(table.id, RecordId(0), OpKind::ChangeDefinition);
            }
            Plan::ExpectDefinition => unit.expect_definition(table.id, self.definitions[side]),
        }
    }

    /// The documents by their place in the list of ids.
    fn documents(&self, side: usize) -> Vec<(usize, i64, Vec<u8>)> {
        let at = |id: &RecordId| self.ids[side].binary_search(id).expect("an id of the run");
        let records = self.sides[side].records();
        let line = |(id, r): (&RecordId, &Stored)| (at(id), number(&r.doc, "u"), r.doc.clone());
        records.iter().map(line).collect()
    }

    fn place(&self, side: usize, entry: Entry) -> (Vec<u8>, usize, Vec<u8>) {
        let at = self.ids[side].binary_search(&entry.record).expect("an id of the run");
        (entry.key, at, entry.type_bits)
    }
}
