//! Index images and pending units of a replicated log in one directory. Shutdowns and crashes leave units that
//! are pending, committed later or dropped. The data is right, the directory check finds no fault, and valid
//! images are used.

use crate::common::{self, clean, dynamic, open, options, status};
use kauri_base::clock::SeededRandom;
use kauri_base::{RandomSource, RecordId};
use kauri_conformance::table::{Table, TableIndex, doc};
use kauri_storage::{LogPosition, PendingLog, StorageEngine, WriteUnit};
use kauri_storage_log::{PmLog, verify};
use std::collections::BTreeMap;
use std::sync::Arc;

type Docs = BTreeMap<RecordId, Vec<u8>>;

fn described(engine: &Arc<PmLog>) -> Table {
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    indexes.iter().for_each(TableIndex::set_complete);
    Table::new(&dynamic(engine), 10, &indexes)
}

fn log(engine: &PmLog) -> &dyn PendingLog {
    engine.pending_log().expect("pending units")
}

fn docs(table: &Table) -> Docs {
    table.records().into_iter().map(|(id, record)| (id, record.doc)).collect()
}

struct Run {
    random: SeededRandom,
    visible: Docs,
    /// The pending units: index, and changes.
    pending: Vec<(u64, Vec<(RecordId, Option<Vec<u8>>)>)>,
    next: u64,
    unique: i64,
}

impl Run {
    fn below(&self, n: u64) -> u64 {
        self.random.next_u64() % n.max(1)
    }

    fn apply(&mut self, changes: Vec<(RecordId, Option<Vec<u8>>)>) {
        for (id, doc) in changes {
            match doc {
                Some(doc) => drop(self.visible.insert(id, doc)),
                None => drop(self.visible.remove(&id)),
            }
        }
    }

    /// Commits a unit of one to three documents, or appends it as a pending unit.
    fn write(&mut self, engine: &PmLog, table: &Table, pending: bool) {
        let mut unit = WriteUnit::new();
        let (mut changes, mut taken) = (Vec::new(), Vec::new());
        for _ in 0..=self.below(3) {
            self.unique += 1;
            let new = doc(self.below(9) as i64, self.unique, &"x".repeat(self.below(300) as usize));
            let pick = self.visible.keys().nth(self.below(2 * self.visible.len() as u64) as usize);
            match pick.filter(|id| !taken.contains(*id)).copied() {
                Some(id) => {
                    taken.push(id);
                    let old = table.record(id);
                    if self.below(3) == 0 {
                        table.delete_in(&mut unit, id, &old);
                        changes.push(None);
                    } else {
                        table.update_in(&mut unit, id, &old, &new);
                        changes.push(Some(new));
                    }
                }
                None => {
                    table.insert_in(&mut unit, &new);
                    changes.push(Some(new));
                }
            }
        }
        let position = LogPosition { term: 1, index: self.next };
        let written = match pending {
            true => log(engine).append(&mut unit, position),
            false => engine.commit(&mut unit),
        };
        // The write conflicts with the claim of a pending unit.
        if written.is_err() {
            return;
        }
        let changes = unit.ops.iter().map(|op| op.record).zip(changes).collect();
        if pending {
            self.pending.push((self.next, changes));
            self.next += 1;
        } else {
            self.apply(changes);
        }
    }

    fn resolve(&mut self, engine: &PmLog) {
        let at = self.below(self.pending.len() as u64) as usize;
        let Some((index, _)) = self.pending.get(at) else { return };
        if self.below(2) == 0 {
            log(engine).commit_up_to(*index).expect("commit");
            let rest = self.pending.split_off(at + 1);
            for (_, changes) in std::mem::replace(&mut self.pending, rest) {
                self.apply(changes);
            }
        } else {
            log(engine).truncate_after(index - 1).expect("truncate");
            self.next = *index;
            self.pending.truncate(at);
        }
    }
}

#[test]
fn images_are_valid_beside_pending_units() {
    let (mut loaded, mut loaded_with_pending, mut rebuilt) = (0, 0, 0);
    for seed in 0..12 {
        let emulator = common::emulator();
        let mut engine = open(&emulator, options());
        let mut table = described(&engine);
        let mut unit = WriteUnit::new();
        table.create_in(&mut unit);
        table.commit(&mut unit);
        let random = SeededRandom::new(seed);
        let mut run = Run { random, visible: Docs::new(), pending: Vec::new(), next: 1, unique: 0 };
        (0..100).for_each(|_| run.write(&engine, &table, false));
        for round in 0..12 {
            for _ in 0..run.below(20) {
                match run.below(8) {
                    0..3 => run.write(&engine, &table, true),
                    3..5 => run.resolve(&engine),
                    5 => clean(&engine),
                    _ => run.write(&engine, &table, false),
                }
            }
            let when = format!("seed {seed}, round {round}");
            if run.below(2) == 0 {
                engine.close().expect("close");
            } else {
                engine.sync().expect("sync");
            }
            drop((engine, table));
            let report = verify(&emulator, &mut |_, _| {}).expect("the check");
            assert_eq!((report.damage, report.images), (vec![], vec![]), "{when}");
            engine = open(&emulator, options());
            table = described(&engine);
            table.attach();
            assert!(docs(&table) == run.visible, "{when}");
            table.check();
            assert_eq!(log(&engine).pending().len(), run.pending.len(), "{when}");
            match status(&engine, "indexImages.loaded") {
                0 => rebuilt += 1,
                _ if run.pending.is_empty() => loaded += 1,
                _ => loaded_with_pending += 1,
            }
        }
    }
    assert!(
        loaded > 10 && loaded_with_pending > 5 && rebuilt > 20,
        "{loaded} loaded, {loaded_with_pending} beside pending units, {rebuilt} rebuilt"
    );
}
