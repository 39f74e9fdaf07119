//! A stable sort that counts its work and can be interrupted, for inputs whose size a client or a stored document
//! controls.
//!
//! Short runs are sorted first and then merged. The standard library's sort takes a comparison that cannot fail, so
//! an interrupted operation could not leave it.

use crate::error::Result;
use crate::work;
use std::cmp::Ordering;

/// Items that are sorted at once.
const RUN_ITEMS: usize = 128;
/// Comparisons that an item takes part in while its run is sorted.
const RUN_STEPS: u32 = RUN_ITEMS.ilog2();

/// Sorts `items`. Fails if the operation is to end; some items are lost then.
pub fn sort_by<T>(items: &mut Vec<T>, compare: impl Fn(&T, &T) -> Ordering + Copy) -> Result<()> {
    if items.len() <= RUN_ITEMS {
        items.sort_by(compare);
        return work::tick(items.len() as u32);
    }
    if is_sorted(items, compare)? {
        return Ok(());
    }
    work::reserve(size_of_val(items.as_slice()))?;
    let mut runs = Vec::with_capacity(items.len().div_ceil(RUN_ITEMS));
    let mut rest = std::mem::take(items).into_iter();
    loop {
        let mut run: Vec<T> = rest.by_ref().take(RUN_ITEMS).collect();
        if run.is_empty() {
            break;
        }
        run.sort_by(compare);
        work::tick(run.len() as u32 * RUN_STEPS)?;
        runs.push(run);
    }
    while runs.len() > 1 {
        let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
        let mut pairs = runs.into_iter();
        while let Some(first) = pairs.next() {
            merged.push(match pairs.next() {
                Some(second) => merge(first, second, compare)?,
                None => first,
            });
        }
        runs = merged;
    }
    *items = runs.pop().unwrap_or_default();
    Ok(())
}

fn is_sorted<T>(items: &[T], compare: impl Fn(&T, &T) -> Ordering) -> Result<bool> {
    for pair in items.windows(2) {
        work::tick(1)?;
        if let [a, b] = pair
            && compare(a, b).is_gt()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn merge<T>(first: Vec<T>, second: Vec<T>, compare: impl Fn(&T, &T) -> Ordering) -> Result<Vec<T>> {
    let mut merged = Vec::with_capacity(first.len() + second.len());
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let (mut left, mut right) = (first.next(), second.next());
    loop {
        work::tick(1)?;
        match (left, right) {
            (Some(a), Some(b)) if compare(&a, &b).is_le() => {
                merged.push(a);
                (left, right) = (first.next(), Some(b));
            }
            (Some(a), Some(b)) => {
                merged.push(b);
                (left, right) = (Some(a), second.next());
            }
            (a, b) => {
                merged.extend(a.into_iter().chain(first).chain(b).chain(second));
                return Ok(merged);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorCode;
    use crate::clock::SystemClock;
    use crate::operation::OperationContext;
    use std::sync::Arc;

    /// Numbers that repeat, in an order that looks like none.
    fn numbers(count: u64) -> Vec<(u64, u64)> {
        (0..count).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54, at)).collect()
    }

    #[test]
    fn sorts_like_the_standard_library() {
        for count in [0, 1, 2, 127, 128, 129, 255, 256, 257, 5000] {
            let mut expected = numbers(count);
            let mut items = expected.clone();
            expected.sort_by_key(|(key, _)| *key);
            sort_by(&mut items, |a, b| a.0.cmp(&b.0)).unwrap();
            assert_eq!(items, expected, "{count}");
            sort_by(&mut items, |a, b| a.0.cmp(&b.0)).unwrap();
            assert_eq!(items, expected, "{count}, sorted before");
            expected.reverse();
            sort_by(&mut items, |a, b| b.1.cmp(&a.1)).unwrap();
            expected.sort_by_key(|item| std::cmp::Reverse(item.1));
            assert_eq!(items, expected, "{count}, descending");
        }
    }

    #[test]
    fn a_killed_operation_ends_the_sort() {
        let op = OperationContext::detached(Arc::new(SystemClock::new()));
        op.state().kill(ErrorCode::Interrupted);
        let sort = || sort_by(&mut numbers(5000), |a, b| a.0.cmp(&b.0));
        let ended = work::with_meter(&op.meter(), sort);
        assert_eq!(ended.map_err(|e| e.code()), Err(ErrorCode::Interrupted));
    }
}
