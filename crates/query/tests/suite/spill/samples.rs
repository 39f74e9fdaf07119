//! Spilling of random samples.

use super::run::{Means, executor, gives_the_same, rows, run};
use super::{Choice, cases};
use kauri_base::ErrorCode;
use kauri_bson::{DocBuf, doc};
use std::collections::BTreeSet;

fn sample(size: usize) -> DocBuf {
    doc! { "$sample" => doc! { "size" => size as i64 } }
}

fn id(row: &DocBuf) -> i64 {
    row.as_doc().value("_id").as_i64_exact().expect("a number")
}

fn numbered(count: i32) -> Vec<DocBuf> {
    (0..count).map(|n| doc! { "_id" => n, "pad" => "x".repeat(50) }).collect()
}

#[test]
fn spilled_samples_equal_unspilled_ones() {
    let spilled = std::cell::Cell::new(0);
    cases(200, |seed| {
        let choice = Choice::new(seed);
        let docs = choice.docs(choice.of(&[0, 1, 5, 60, 400]));
        let size = 1 + choice.below(500);
        let bytes_max = choice.of(&[0, 100, 1000, 10_000, 30_000]);
        let place = gives_the_same((seed, &choice), &docs, &[sample(size)], bytes_max, |rows| rows);
        let has_spilled = place.is_some_and(|place| place.counters.sort.read().spills > 1);
        spilled.set(spilled.get() + u64::from(has_spilled));
        let (found, _) = run(&docs, &[sample(size)], &Means::ample()).unwrap();
        let different: BTreeSet<_> = found.iter().map(id).collect();
        assert_eq!((found.len(), different.len()), (size.min(docs.len()), found.len()));
        assert!(found.iter().all(|row| docs.contains(row)), "KAURI_SEED={seed}");
    });
    if std::env::var("KAURI_SEED").is_err() {
        assert!(spilled.get() > 60, "{} cases spilled", spilled.get());
    }
}

/// Tolerance of ten standard deviations on each side.
#[test]
fn all_rows_are_as_likely_and_in_any_order() {
    let docs = numbered(10_000);
    for size in [5_000, 10_000] {
        let (found, _) = run(&docs, &[sample(size)], &Means::ample()).unwrap();
        let ids: Vec<i64> = found.iter().map(id).collect();
        let of_first_half = ids.iter().filter(|id| **id < 5_000).count();
        let ascents = ids.windows(2).filter(|pair| pair[0] < pair[1]).count();
        let about = |count: usize, expected: usize| count.abs_diff(expected) < 350;
        assert!(about(of_first_half, size / 2), "{of_first_half} of {size}");
        assert!(about(ascents, size / 2), "{ascents} of {size}");
    }
}

#[test]
fn a_sample_that_may_not_spill_is_refused() {
    let docs = numbered(5000);
    let means = Means { place: None, ..Means::in_memory(40_000) };
    let mut large = executor(&docs, &[sample(1000)], &means).unwrap();
    let error = rows(&mut large, usize::MAX).unwrap_err();
    assert_eq!(error.code(), ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed);
    assert!(error.message().starts_with("Sort exceeded memory limit of 40000 bytes"), "{error:?}");
    // Independent of the number of documents.
    assert_eq!(run(&docs, &[sample(20)], &means).unwrap().0.len(), 20);
}
