//! Spilling of sorts.

use super::run::{Means, executor, gives_the_same, rows, run};
use super::{Choice, cases, show};
use kauri_base::ErrorCode;
use kauri_base::clock::SeededRandom;
use kauri_base::temporary::{MemoryStore, TemporaryStore};
use kauri_base::{Error, Result};
use kauri_bson::{DocBuf, Value, doc};
use kauri_query::exec::rows::Rows;
use kauri_query::exec::sort::{Sort, SortPattern};
use kauri_query::exec::{ExecCx, QueryEnv, Stage, Step};
use kauri_storage::StorageEngine;
use kauri_storage::ephemeral::EphemeralEngine;
use std::sync::Arc;

fn pattern(choice: &Choice) -> DocBuf {
    let mut names = vec!["a", "b", "c", "n", "a.x", "items", "pad"];
    DocBuf::build(|out| {
        for _ in 0..1 + choice.below(3) {
            let name = names.swap_remove(choice.below(names.len()));
            out.put(name, if choice.below(2) == 0 { 1 } else { -1 });
            if matches!(name, "a" | "items" | "a.x") {
                // Two arrays in one sort key are rejected.
                names.retain(|name| !matches!(*name, "a" | "c" | "items" | "a.x"));
            }
        }
    })
}

fn stages(choice: &Choice) -> Vec<DocBuf> {
    let mut stages = vec![doc! { "$sort" => pattern(choice) }];
    match choice.below(4) {
        0 => stages.push(doc! { "$limit" => 1 + choice.below(300) as i32 }),
        1 => {
            stages.push(doc! { "$skip" => choice.below(20) as i32 });
            stages.push(doc! { "$limit" => 1 + choice.below(300) as i32 });
        }
        2 => stages
            .push(doc! { "$project" => doc! { "a" => 1, "key" => doc! { "$meta" => "sortKey" } } }),
        _ => {}
    }
    stages
}

#[test]
fn spilled_sorts_equal_unspilled_ones() {
    let spilled = std::cell::Cell::new(0);
    cases(600, |seed| {
        let choice = Choice::new(seed);
        let docs = choice.docs(choice.of(&[0, 1, 5, 60, 400]));
        let stages = stages(&choice);
        let bytes_max = choice.of(&[0, 100, 1000, 10_000, 30_000]);
        let place = gives_the_same((seed, &choice), &docs, &stages, bytes_max, |rows| rows);
        let has_spilled = place.is_some_and(|place| place.counters.sort.read().spills > 1);
        spilled.set(spilled.get() + u64::from(has_spilled));
    });
    if std::env::var("KAURI_SEED").is_err() {
        assert!(spilled.get() > 200, "{} cases spilled", spilled.get());
    }
}

/// More runs than can be merged at once.
fn many() -> Vec<DocBuf> {
    (0..5000).map(|n| doc! { "_id" => n, "k" => n * 7919 % 997, "pad" => "y".repeat(60) }).collect()
}

#[test]
fn many_runs_are_merged_in_rounds() {
    let (docs, stages) = (many(), [doc! { "$sort" => doc! { "k" => 1 } }]);
    let (expected, _) = run(&docs, &stages, &Means::ample()).unwrap();
    for bytes_max in [2000, 40_000] {
        let means = Means::in_memory(bytes_max);
        let (found, told) = run(&docs, &stages, &means).unwrap();
        assert!(found == expected, "{bytes_max} bytes");
        let number = |field: &str| told.as_doc().value(field).as_i64_exact().unwrap_or(-1);
        assert_eq!(told.as_doc().value("usedDisk"), Value::Bool(true));
        assert_eq!(number("spilledRecords"), 5000);
        assert!(number("spills") > 5, "{}", show(&[told]));
        // Runs merged in rounds are written more than once.
        let least = if bytes_max == 2000 { 2 } else { 1 };
        assert!(number("spilledDataStorageSize") >= least * number("spilledBytes") / 2);
        let counted = means.place.unwrap().counters.sort.read();
        assert_eq!(counted.spills as i64, number("spills"));
    }
}

fn failed(result: Result<Vec<DocBuf>>) -> Option<ErrorCode> {
    result.err().map(|error| error.code())
}

#[test]
fn a_sort_that_may_not_spill_is_refused() {
    let (docs, stages) = (many(), [doc! { "$sort" => doc! { "k" => 1 } }]);
    let not_allowed = Means { allowed: false, ..Means::in_memory(40_000) };
    let nowhere = Means { place: None, ..Means::in_memory(40_000) };
    for means in [not_allowed, nowhere] {
        let mut executor = executor(&docs, &stages, &means).unwrap();
        let code = failed(rows(&mut executor, usize::MAX));
        assert_eq!(code, Some(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed));
    }
    // The best few rows fit into memory.
    let stages = [doc! { "$sort" => doc! { "k" => 1 } }, doc! { "$limit" => 20 }];
    let means = Means { place: None, ..Means::in_memory(40_000) };
    assert_eq!(run(&docs, &stages, &means).unwrap().0.len(), 20);
}

#[test]
fn files_end_with_the_plan_and_failures_are_reported() {
    let (docs, stages) = (many(), [doc! { "$sort" => doc! { "k" => 1 } }]);
    let store = Arc::new(MemoryStore::new());
    let means = Means::little(40_000, store.clone());
    let mut half = executor(&docs, &stages, &means).unwrap();
    assert_eq!(rows(&mut half, 2500).unwrap().len(), 2500);
    assert!(store.bytes_used() > 0 && store.files() > 0);
    drop(half);
    assert_eq!((store.bytes_used(), store.files()), (0, 0));
    // A full disk is reported, wherever it occurs.
    let full = Error::new(ErrorCode::OutOfDiskSpace, "no space left on device");
    for count in [0, 1, 5, 40, 100, 200] {
        store.fail_after(count, full.clone());
        let mut executor = executor(&docs, &stages, &means).unwrap();
        let code = failed(rows(&mut executor, usize::MAX));
        assert_eq!(code, Some(ErrorCode::OutOfDiskSpace), "after {count} transfers");
        drop(executor);
        assert_eq!((store.bytes_used(), store.files()), (0, 0));
    }
}

fn number(told: &DocBuf, field: &str) -> i64 {
    told.as_doc().value(field).as_i64_exact().unwrap_or(-1)
}

#[test]
fn no_more_runs_are_merged_than_needed() {
    let docs: Vec<DocBuf> = (0..39_000)
        .map(|n| doc! { "_id" => n * 7919 % 39_019, "pad" => "z".repeat(1000) })
        .collect();
    let means = Means::in_memory(650_000);
    let (found, told) = run(&docs, &[doc! { "$sort" => doc! { "_id" => 1 } }], &means).unwrap();
    assert!(found.is_sorted_by_key(|row| number(row, "_id")) && found.len() == 39_000);
    assert!(number(&told, "spills") > 64);
    let (written, held) = (number(&told, "spilledDataStorageSize"), number(&told, "spilledBytes"));
    assert!(written > held && written < held / 4 * 5, "{written} of {held} bytes");
}

#[test]
fn merged_runs_free_their_space() {
    let store = Arc::new(MemoryStore::new());
    let means = Means::little(2000, store.clone());
    let mut sort = executor(&many(), &[doc! { "$sort" => doc! { "k" => 1 } }], &means).unwrap();
    rows(&mut sort, 1).unwrap();
    let bytes: usize = many().iter().map(|doc| doc.as_doc().as_bytes().len()).sum();
    let used = store.bytes_used() as usize;
    assert!(used > bytes && used < bytes / 2 * 3, "{used} for {bytes} bytes");
}

/// The best rows alone take nearly all the memory, and every row is better than those before.
#[test]
fn a_limited_sort_that_nearly_fills_its_memory_spills() {
    let docs: Vec<DocBuf> = (0..4000).map(|n| doc! { "_id" => n, "k" => -n }).collect();
    let stages = [doc! { "$sort" => doc! { "k" => 1 } }, doc! { "$limit" => 2000 }];
    let (expected, _) = run(&docs, &stages, &Means::ample()).unwrap();
    let means = Means::in_memory(200_000);
    let (found, _) = run(&docs, &stages, &means).unwrap();
    assert!(found == expected);
    assert!(means.place.unwrap().counters.sort.read().spills > 0);
}

/// Sorting many rows in memory yields to other operations: the sort returns `Again` repeatedly.
#[test]
fn many_rows_are_sorted_in_slices() {
    const ROWS: i32 = 60_000;
    let docs = (0..ROWS).map(|n| doc! { "_id" => n * 7919 % 60_013, "pad" => "z" });
    let pattern = SortPattern::parse(doc! { "_id" => 1 }.as_doc()).unwrap();
    let mut sort = Sort::new(Box::new(Rows::new(docs)), pattern, 0, false);
    let (unit, env) =
        (EphemeralEngine::new().recovery_unit(), QueryEnv::new(0, Arc::new(SeededRandom::new(7))));
    let mut cx = ExecCx { ru: &*unit, env: &env, budget: u32::MAX };
    let mut again = 0;
    let mut found = Vec::new();
    loop {
        match sort.work(&mut cx).unwrap() {
            Step::Row(row) => found.push(row.doc().value("_id").as_i64_exact().unwrap()),
            Step::Again => again += 1,
            Step::Blocked(_) => panic!("nothing to wait for"),
            Step::Done => break,
        }
    }
    assert!(found.is_sorted() && found.len() == ROWS as usize);
    assert!(again > ROWS / 8192, "{again} times");
}
