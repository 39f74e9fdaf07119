//! Spilling of groups.

use super::run::{Means, executor, executor_over, gives_the_same, rows, run};
use super::{Choice, cases, show};
use kauri_base::temporary::{MemoryStore, TemporaryStore};
use kauri_base::{Error, ErrorCode, Result};
use kauri_bson::{DocBuf, DocWriter, Value, array, doc};
use kauri_query::exec::rows::Rows;
use kauri_query::exec::{ExecCx, Row, Stage, Step, Take, Totals, Verbosity};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every accumulator.
fn accumulators() -> Vec<DocBuf> {
    let by = doc! { "n" => 1, "_id" => -1 };
    let top = |name: &str| doc! { name => doc! { "sortBy" => by.clone(), "output" => "$b" } };
    let top_n =
        |name: &str| doc! { name => doc! { "sortBy" => by.clone(), "output" => "$a", "n" => 3 } };
    let n = |name: &str| doc! { name => doc! { "input" => "$a", "n" => 3 } };
    let p = array![0.1, 0.5, 0.9];
    vec![
        doc! { "$sum" => "$n" },
        doc! { "$sum" => "$b" },
        doc! { "$sum" => 1 },
        doc! { "$avg" => "$n" },
        doc! { "$count" => doc! {} },
        doc! { "$min" => "$a" },
        doc! { "$max" => "$pad" },
        doc! { "$first" => "$c" },
        doc! { "$last" => "$c" },
        doc! { "$push" => "$_id" },
        doc! { "$push" => "$$ROOT" },
        doc! { "$addToSet" => "$a" },
        doc! { "$setUnion" => "$items" },
        doc! { "$concatArrays" => "$items" },
        doc! { "$mergeObjects" => doc! { "a" => "$a", "b" => "$b", "id" => "$_id" } },
        doc! { "$stdDevPop" => "$n" },
        doc! { "$stdDevSamp" => "$n" },
        n("$firstN"),
        n("$lastN"),
        n("$minN"),
        n("$maxN"),
        top("$top"),
        top("$bottom"),
        top_n("$topN"),
        top_n("$bottomN"),
        doc! { "$percentile" => doc! { "input" => "$n", "p" => p, "method" => "approximate" } },
        doc! { "$median" => doc! { "input" => "$n", "method" => "approximate" } },
    ]
}

fn stages(choice: &Choice) -> Vec<DocBuf> {
    let unwound = choice.below(4) == 0;
    let id: Value<'static> = match choice.below(8) {
        0 => doc! { "a" => "$a", "b" => "$b" }.into(),
        1 => "$b".into(),
        2 => "$items".into(),
        3 => "$pad".into(),
        4 if choice.below(3) == 0 => Value::Null,
        _ => "$a".into(),
    };
    let mut left = accumulators();
    let group = DocBuf::build(|out| {
        out.put_value("_id", &id);
        for n in 0..choice.below(5) {
            let accumulator = left.swap_remove(choice.below(left.len()));
            // Both require arrays.
            let wants_array =
                accumulator.as_doc().first().is_some_and(|e| e.value().as_str() == Some("$items"));
            if !(unwound && wants_array) {
                out.put(&format!("f{n}"), accumulator);
            }
        }
    });
    let mut stages = Vec::new();
    if unwound {
        let preserve = choice.below(2) == 0;
        stages.push(doc! { "$unwind" => doc! { "path" => "$items", "preserveNullAndEmptyArrays" => preserve } });
    }
    stages.push(doc! { "$group" => group });
    stages
}

/// Groups have no defined order.
fn in_order(mut rows: Vec<DocBuf>) -> Vec<DocBuf> {
    rows.sort_by(|a, b| a.as_doc().as_bytes().cmp(b.as_doc().as_bytes()));
    rows
}

#[test]
fn spilled_groups_equal_unspilled_ones() {
    let spilled = std::cell::Cell::new(0);
    cases(800, |seed| {
        let choice = Choice::new(seed);
        let docs = choice.docs(choice.of(&[0, 3, 60, 400, 400]));
        let stages = stages(&choice);
        let bytes_max = choice.of(&[1, 500, 5000, 20_000, 100_000]);
        let place = gives_the_same((seed, &choice), &docs, &stages, bytes_max, in_order);
        let has_spilled = place.is_some_and(|place| place.counters.group.read().spills > 0);
        spilled.set(spilled.get() + u64::from(has_spilled));
    });
    if std::env::var("KAURI_SEED").is_err() {
        assert!(spilled.get() > 300, "{} cases spilled", spilled.get());
    }
}

/// Each accumulator over partitions that are divided repeatedly.
#[test]
fn every_accumulator_continues_from_its_spilled_state() {
    let choice = Choice::new(1);
    let docs = choice.docs(400);
    for accumulator in accumulators() {
        let stages = [doc! { "$group" => doc! { "_id" => "$b", "x" => accumulator } }];
        let (expected, _) = run(&docs, &stages, &Means::ample()).unwrap();
        for bytes_max in [1, 2000, 20_000] {
            let (found, _) = run(&docs, &stages, &Means::in_memory(bytes_max)).unwrap();
            assert_eq!(
                in_order(found),
                in_order(expected.clone()),
                "{} within {bytes_max} bytes",
                show(&stages)
            );
        }
    }
}

fn failed(result: Result<Vec<DocBuf>>) -> Option<ErrorCode> {
    result.err().map(|error| error.code())
}

#[test]
fn groups_that_may_not_spill_are_refused() {
    let docs: Vec<DocBuf> = (0..3000).map(|n| doc! { "_id" => n }).collect();
    let stages = [doc! { "$group" => doc! { "_id" => "$_id", "n" => doc! { "$sum" => 1 } } }];
    let not_allowed = Means { allowed: false, ..Means::in_memory(40_000) };
    let nowhere = Means { place: None, ..Means::in_memory(40_000) };
    for means in [not_allowed, nowhere] {
        let mut executor = executor(&docs, &stages, &means).unwrap();
        let code = failed(rows(&mut executor, usize::MAX));
        assert_eq!(code, Some(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed));
    }
    let means = Means::in_memory(40_000);
    let (found, told) = run(&docs, &stages, &means).unwrap();
    assert_eq!(found.len(), 3000);
    assert_eq!(told.as_doc().value("usedDisk"), Value::Bool(true));
    assert!(told.as_doc().value("spilledRecords").as_i64_exact() >= Some(3000));
}

#[test]
fn files_end_with_the_plan_and_failures_are_reported() {
    let docs: Vec<DocBuf> =
        (0..4000).map(|n| doc! { "_id" => n, "pad" => "z".repeat(50) }).collect();
    let stages = [doc! { "$group" => doc! { "_id" => "$_id", "p" => doc! { "$push" => "$pad" } } }];
    let store = Arc::new(MemoryStore::new());
    let means = Means::little(60_000, store.clone());
    let mut half = executor(&docs, &stages, &means).unwrap();
    assert_eq!(rows(&mut half, 500).unwrap().len(), 500);
    assert!(store.bytes_used() > 0 && store.files() > 0);
    drop(half);
    assert_eq!((store.bytes_used(), store.files()), (0, 0));
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

/// Rows, and the number of requests for them.
struct Asked(Rows, Arc<AtomicUsize>);

impl Stage for Asked {
    fn work<'g>(&mut self, cx: &mut ExecCx<'g>) -> Result<Step<Row<'g>>> {
        self.0.work(cx)
    }

    fn feed(&mut self, cx: &mut ExecCx<'_>, take: &mut Take<'_>) -> Result<Step<()>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.feed(cx, take)
    }

    fn explain(&self, out: &mut DocWriter<'_>, verbosity: Verbosity) {
        self.0.explain(out, verbosity);
    }

    fn add_totals(&self, totals: &mut Totals) {
        self.0.add_totals(totals);
    }
}

/// Such a group would monopolise its worker if each row were requested separately.
#[test]
fn a_single_group_takes_rows_in_their_order() {
    let docs: Vec<DocBuf> = (0..20_000).map(|n| doc! { "_id" => n }).collect();
    let stages = [doc! { "$group" => doc! { "_id" => 1, "p" => doc! { "$push" => "$_id" } } }];
    let asked = Arc::new(AtomicUsize::new(0));
    let source = Asked(Rows::new(docs), asked.clone());
    let mut executor = executor_over(Box::new(source), &stages, &Means::in_memory(100)).unwrap();
    assert_eq!(rows(&mut executor, usize::MAX).unwrap().len(), 1);
    assert!(asked.load(Ordering::Relaxed) < 2000, "asked {asked:?} times");
}

#[test]
fn the_memory_of_one_group_is_bounded() {
    let docs: Vec<DocBuf> =
        (0..20).map(|n| doc! { "_id" => n, "pad" => "z".repeat(1 << 20) }).collect();
    let group = DocBuf::build(|out| {
        out.put("_id", 1);
        (0..8).for_each(|n| out.put(&format!("f{n}"), doc! { "$push" => "$pad" }));
    });
    let stages = [doc! { "$group" => group }];
    let mut executor = executor(&docs, &stages, &Means::in_memory(1000)).unwrap();
    assert_eq!(failed(rows(&mut executor, usize::MAX)), Some(ErrorCode::ExceededMemoryLimit));
}
