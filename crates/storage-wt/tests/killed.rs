//! A process killed with -9. All units acknowledged as written survive, units are complete, and counts and
//! indexes match.

mod common;

use common::TempDir;
use kauri_conformance::table::{Table, TableIndex, doc, number};
use kauri_storage::{Durability, StorageEngine, WriteUnit};
use kauri_storage_wt::{Options, WiredTiger};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

const CHILD: &str = "KAURI_WT_TEST_DIRECTORY";
const CYCLES: usize = 12;
const UNIT: i64 = 3;

fn open(path: &Path) -> Table {
    let options = Options { cache_bytes: 64 << 20, ..Options::default() };
    let engine: Arc<dyn StorageEngine> = Arc::new(WiredTiger::open(path, options).expect("open"));
    let indexes = [TableIndex::new(20, false, "k"), TableIndex::new(21, true, "u")];
    let table = Table::new(&engine, 10, &indexes);
    if engine.record_store(table.id).is_none() {
        let mut unit = WriteUnit::new();
        table.create_in(&mut unit);
        table.commit(&mut unit);
    }
    table.attach();
    table
}

/// Inserts units of three documents and prints each, until it is killed.
fn write_forever(path: &Path) -> ! {
    let table = open(path);
    let first = table.records().values().map(|r| number(&r.doc, "k") + 1).max().unwrap_or(0);
    let mut out = std::io::stdout();
    for k in first.. {
        let mut unit = WriteUnit::new();
        for i in 0..UNIT {
            table.insert_in(&mut unit, &doc(k, k * UNIT + i, "some text to fill it"));
        }
        table.commit(&mut unit).wait(Durability::Written).expect("wait");
        writeln!(out, "wrote {k}").and_then(|()| out.flush()).expect("the parent listens");
    }
    unreachable!("there are enough numbers");
}

#[test]
fn acknowledged_units_survive_kill_9() {
    if let Some(path) = std::env::var_os(CHILD) {
        write_forever(Path::new(&path));
    }
    let directory = TempDir::new();
    let mut acknowledged = -1;
    for cycle in 0..CYCLES {
        let mut child = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "acknowledged_units_survive_kill_9", "--nocapture"])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let written = lines.map_while(Result::ok).filter_map(|line| {
            line.strip_prefix("wrote ").and_then(|number| number.parse::<i64>().ok())
        });
        for k in written.take(20 + cycle * 37) {
            assert_eq!(k, acknowledged + 1, "it continues where it was killed");
            acknowledged = k;
        }
        child.kill().expect("kill -9");
        child.wait().expect("its end");
        let table = open(directory.path());
        let mut units: BTreeMap<i64, i64> = BTreeMap::new();
        for record in table.records().values() {
            *units.entry(number(&record.doc, "k")).or_default() += 1;
        }
        for k in 0..=acknowledged {
            assert_eq!(units.get(&k), Some(&UNIT), "unit {k} of {acknowledged}, cycle {cycle}");
        }
        assert!(units.values().all(|count| *count == UNIT), "a unit is torn");
        table.check();
        // Unacknowledged commits may exist; from now on they count as acknowledged.
        acknowledged = units.keys().next_back().copied().unwrap_or(-1);
    }
    assert!(acknowledged > 100, "the child wrote");
}
