//! Spilling of `$bucketAuto` and `$setWindowFields`.

use super::run::{Means, executor, gives_the_same, rows, run};
use super::{Choice, cases};
use kauri_base::ErrorCode;
use kauri_bson::{DocBuf, Value, array, doc};
use kauri_query::spill::SpillStats;

fn buckets(choice: &Choice) -> DocBuf {
    let by = choice.of(&["$a", "$b", "$n", "$_id", "$pad"]);
    DocBuf::build(|out| {
        let mut stage = out.document("$bucketAuto");
        stage.put("groupBy", by);
        stage.put("buckets", 1 + choice.below(12) as i32);
        if choice.below(2) == 0 {
            let mut output = stage.document("output");
            output.put("ids", doc! { "$push" => "$_id" });
            output.put("sum", doc! { "$sum" => "$n" });
            output.put("a", doc! { "$addToSet" => "$c" });
        }
        if matches!(by, "$n" | "$b" | "$_id") && choice.below(2) == 0 {
            stage.put("granularity", choice.of(&["R5", "E12", "POWERSOF2", "1-2-5"]));
        }
    })
}

fn windows(choice: &Choice) -> DocBuf {
    let documents =
        |from: Value<'static>, to: Value<'static>| doc! { "documents" => array![from, to] };
    DocBuf::build(|out| {
        let mut stage = out.document("$setWindowFields");
        if choice.below(6) > 0 {
            stage.put("partitionBy", choice.of(&["$a.x", "$b", "$n", "$pad", "$_id"]));
        }
        let by = choice.of(&["n", "_id", "b"]);
        stage.put("sortBy", doc! { by => choice.of(&[1, -1]) });
        let mut output = stage.document("output");
        output.put("rank", doc! { "$rank" => doc! {} });
        output.put("at", doc! { "$documentNumber" => doc! {} });
        output.put(
            "sum",
            doc! { "$sum" => "$n", "window" => documents("unbounded".into(), "current".into()) },
        );
        output
            .put("near", doc! { "$push" => "$_id", "window" => documents((-1).into(), 2.into()) });
        output.put("next", doc! { "$shift" => doc! { "output" => "$_id", "by" => 1 } });
    })
}

fn check(seed: u64, stage: impl Fn(&Choice) -> DocBuf) -> bool {
    let choice = Choice::new(seed);
    let docs = choice.docs(choice.of(&[0, 3, 60, 400]));
    let stages = [stage(&choice)];
    let bytes_max = choice.of(&[1, 500, 5000, 20_000, 100_000]);
    let place = gives_the_same((seed, &choice), &docs, &stages, bytes_max, |rows| rows);
    place.is_some_and(|place| {
        let counters = &place.counters;
        counters.windows.read().spills + counters.bucket_auto.read().spills > 1
    })
}

fn check_all(stage: impl Fn(&Choice) -> DocBuf) {
    let spilled = std::cell::Cell::new(0);
    cases(500, |seed| spilled.set(spilled.get() + i32::from(check(seed, &stage))));
    if std::env::var("KAURI_SEED").is_err() {
        assert!(spilled.get() > 60, "{} cases spilled", spilled.get());
    }
}

#[test]
fn spilled_buckets_equal_unspilled_ones() {
    check_all(buckets);
}

#[test]
fn spilled_windows_equal_unspilled_ones() {
    check_all(windows);
}

#[test]
fn stages_that_may_not_spill_are_refused() {
    let docs = Choice::new(3).docs(500);
    let buckets = doc! { "$bucketAuto" => doc! { "groupBy" => "$_id", "buckets" => 3 } };
    let output = doc! { "at" => doc! { "$documentNumber" => doc! {} } };
    let windows = doc! { "$setWindowFields" => doc! {
    "partitionBy" => "$_id", "sortBy" => doc! { "_id" => 1 }, "output" => output } };
    for stage in [buckets, windows] {
        let means = Means { allowed: false, ..Means::in_memory(5000) };
        let mut executor = executor(&docs, std::slice::from_ref(&stage), &means).unwrap();
        let code = rows(&mut executor, usize::MAX).map_err(|error| error.code());
        assert_eq!(code, Err(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed));
        let (_, told) = run(&docs, &[stage], &Means::in_memory(5000)).unwrap();
        assert_eq!(told.as_doc().value("usedDisk"), Value::Bool(true));
    }
}

#[test]
fn a_partition_that_does_not_fit_is_refused_before_it_is_written() {
    let docs = Choice::new(3).docs(500);
    let output = doc! { "at" => doc! { "$documentNumber" => doc! {} } };
    let by = doc! { "_id" => 1 };
    let all = doc! { "sortBy" => by.clone(), "output" => output.clone() };
    let constant = doc! { "partitionBy" => 1, "sortBy" => by, "output" => output };
    for windows in [all, constant] {
        let means = Means::in_memory(5000);
        let found = run(&docs, &[doc! { "$setWindowFields" => windows }], &means);
        let code = found.map(|_| ()).map_err(|error| error.code());
        assert_eq!(code, Err(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed));
        assert_eq!(means.place.unwrap().counters.windows.read(), SpillStats::default());
    }
}
