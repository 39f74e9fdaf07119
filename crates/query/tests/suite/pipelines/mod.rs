//! Random pipelines over random documents agree with a naive reference. Each pipeline runs optimised and as
//! written, at once and row by row, over a catalog and over rows from a remote source. `KAURI_SEED` repeats one
//! case.

mod generate;
mod naive;
mod remote;
mod runner;
mod shrink;
mod work;

use generate::Case;
use runner::Mode;
use std::panic::{AssertUnwindSafe, catch_unwind};

const CASES: u64 = 40_000;
const SEED: u64 = 0x7069_7065_6c69_6e65;

/// The difference between the result and the reference, if any.
fn difference(case: &Case) -> Option<String> {
    // Sorting by two arrays is an error that depends on the order of stages.
    let expected = naive::run(case, &case.pipeline, case.docs.clone()).ok()?;
    let expected: Vec<_> = expected.iter().map(runner::raw).collect();
    for mode in [Mode::AsWritten, Mode::Optimized, Mode::RowByRow, Mode::Remote] {
        let found = catch_unwind(AssertUnwindSafe(|| runner::run(case, mode)));
        match found {
            Ok(Ok(found)) if found == expected => {}
            Ok(Ok(found)) => {
                return Some(format!(
                    "{mode:?} gave\n  {}\nnot\n  {}",
                    runner::show(&found),
                    runner::show(&expected)
                ));
            }
            Ok(Err(error)) => return Some(format!("{mode:?} failed: {error:?}")),
            Err(_) => return Some(format!("{mode:?} panicked")),
        }
    }
    None
}

fn check(seed: u64) {
    let case = generate::case(seed);
    if difference(&case).is_some() {
        let least = shrink::shrink(case, |case| difference(case).is_some());
        let what = difference(&least).unwrap_or_default();
        panic!("KAURI_SEED={seed} repeats it. The least that fails:\n{least}\n{what}");
    }
}

fn run(part: u64) {
    if let Ok(seed) = std::env::var("KAURI_SEED") {
        return check(seed.parse().expect("KAURI_SEED is a number"));
    }
    let count = CASES / 2;
    (part * count..(part + 1) * count).for_each(|n| check(SEED.wrapping_add(n)));
}

#[test]
fn agree_with_the_reference() {
    run(0);
}

#[test]
fn agree_with_the_reference_on_more() {
    run(1);
}

/// Cases without rows, or that fail in the reference, prove nothing.
#[test]
fn the_generated_cases_are_significant() {
    let (mut some, mut errors, mut stages) = (0, 0, std::collections::BTreeMap::new());
    for n in 0..2000 {
        let case = generate::case(SEED.wrapping_add(n));
        match naive::run(&case, &case.pipeline, case.docs.clone()) {
            Ok(docs) => some += u32::from(!docs.is_empty()),
            Err(_) => errors += 1,
        }
        for stage in &case.pipeline {
            *stages.entry(stage.keys().next().cloned().unwrap_or_default()).or_insert(0) += 1;
        }
    }
    assert!(some > 1200 && errors < 200, "{some} give something, {errors} fail");
    let rare: Vec<_> = stages.iter().filter(|(_, count)| **count < 60).collect();
    assert!(stages.len() >= 16 && rare.is_empty(), "{stages:?}");
}
