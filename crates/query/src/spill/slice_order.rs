//! Sorts collected rows in time slices, for rows that go into a run: blocks are sorted, one per call, and then
//! merged while they are taken.
//!
//! For rows that stay in memory, [`super::SliceSort`] is cheaper.

use super::Least;
use std::cmp::Ordering;
use std::ops::Range;

/// Rows of a block: sorting it takes less than a slice of time.
const BLOCK_ROWS: usize = 4096;

/// See the module's head. No two rows may compare as equal.
#[derive(Default)]
pub(crate) struct SliceOrder {
    /// What is left of each block that has been sorted.
    blocks: Vec<Range<usize>>,
    least: Option<Least>,
}

impl SliceOrder {
    /// Sorts a block. True: all are.
    pub fn sort_some<T>(
        &mut self,
        rows: &mut [T],
        compare: impl Fn(&T, &T) -> Ordering + Copy,
    ) -> bool {
        if self.least.is_some() {
            return true;
        }
        let start = self.blocks.last().map_or(0, |block| block.end);
        let end = (start + BLOCK_ROWS).min(rows.len());
        rows[start..end].sort_unstable_by(compare);
        if start < end {
            self.blocks.push(start..end);
        }
        if end < rows.len() {
            return false;
        }
        let numbers = (0..self.blocks.len()).collect();
        self.least = Some(Least::of(numbers, is_before(&self.blocks, rows, compare)));
        true
    }

    /// Takes the next row's place.
    pub fn next<T>(
        &mut self,
        rows: &[T],
        compare: impl Fn(&T, &T) -> Ordering + Copy,
    ) -> Option<usize> {
        let least = self.least.as_mut()?;
        let block = least.get()?;
        let at = self.blocks[block].start;
        self.blocks[block].start += 1;
        let before = is_before(&self.blocks, rows, compare);
        match self.blocks[block].is_empty() {
            true => least.ended(before),
            false => least.moved(before),
        }
        Some(at)
    }
}

/// Which of two blocks has the row that comes first.
fn is_before<'r, T>(
    blocks: &'r [Range<usize>],
    rows: &'r [T],
    compare: impl Fn(&T, &T) -> Ordering,
) -> impl Fn(usize, usize) -> bool {
    move |a, b| compare(&rows[blocks[a].start], &rows[blocks[b].start]).then(a.cmp(&b)).is_lt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_sorted_and_merged() {
        for count in [0, 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS + 7] {
            let mut rows: Vec<(usize, usize)> = (0..count).map(|n| (n * 7919 % 100, n)).collect();
            let by = |a: &(usize, usize), b: &(usize, usize)| a.cmp(b);
            let mut order = SliceOrder::default();
            let mut calls = 1;
            while !order.sort_some(&mut rows, by) {
                calls += 1;
            }
            assert_eq!(calls, count.div_ceil(BLOCK_ROWS).max(1));
            let mut taken = Vec::new();
            while let Some(at) = order.next(&rows, by) {
                taken.push(rows[at]);
            }
            rows.sort_unstable();
            assert_eq!(taken, rows);
        }
    }
}
