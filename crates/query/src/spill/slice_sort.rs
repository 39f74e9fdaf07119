//! Sorts collected rows in place in time slices, for rows that stay in memory: a quicksort whose partitioning
//! (Lomuto) can be suspended, down to ranges that are sorted at once. Rows that are already in order are only
//! compared.
//!
//! If partitions are repeatedly unbalanced (rows may be crafted for that), the rest is sorted at once, so the total
//! time is that of any sort.

use std::cmp::Ordering;
use std::ops::Range;

/// Rows that are sorted at once: it takes less than a slice of time.
const AT_ONCE_ROWS: usize = 8192;
/// Rows of a slice that are only compared with one other.
const SLICE_ROWS: usize = 2 * AT_ONCE_ROWS;

/// See the module's head.
#[derive(Default)]
pub(crate) struct SliceSort {
    /// Rows that came in order, as long as all did.
    in_order: usize,
    has_begun: bool,
    /// What is not sorted yet, and how many partitions of it there may still be.
    ranges: Vec<(Range<usize>, u32)>,
    partition: Option<Partition>,
}

/// A range being parted by the row at its start.
struct Partition {
    range: Range<usize>,
    parts_max: u32,
    /// Behind the rows that come before that one.
    middle: usize,
    /// The next row to look at.
    next: usize,
}

impl SliceSort {
    /// Continues for a time slice. True: all rows are sorted. No two rows may compare as equal, and rows must not
    /// change in between.
    pub fn sort_some<T>(
        &mut self,
        rows: &mut [T],
        compare: impl Fn(&T, &T) -> Ordering + Copy,
    ) -> bool {
        if !self.has_begun {
            let until = rows.len().min(self.in_order + SLICE_ROWS);
            let next = &rows[self.in_order.saturating_sub(1)..until];
            if next.is_sorted_by(|a, b| compare(a, b).is_lt()) {
                self.in_order = until;
                return until == rows.len();
            }
            self.has_begun = true;
            // Twice what it takes if each partition halves its range.
            self.ranges.push((0..rows.len(), 2 * rows.len().max(1).ilog2()));
        }
        match self.partition.take() {
            Some(partition) => self.go_on(partition, rows, compare),
            None => self.begin_next(rows, compare),
        }
        self.partition.is_none() && self.ranges.is_empty()
    }

    fn begin_next<T>(&mut self, rows: &mut [T], compare: impl Fn(&T, &T) -> Ordering + Copy) {
        let Some((range, parts_max)) = self.ranges.pop() else { return };
        if range.len() <= AT_ONCE_ROWS || parts_max == 0 {
            rows[range].sort_unstable_by(compare);
            return;
        }
        let pivot = about_the_middle(&rows[range.clone()], compare);
        rows.swap(range.start, range.start + pivot);
        let (middle, next) = (range.start + 1, range.start + 1);
        self.go_on(Partition { range, parts_max, middle, next }, rows, compare);
    }

    fn go_on<T>(
        &mut self,
        mut partition: Partition,
        rows: &mut [T],
        compare: impl Fn(&T, &T) -> Ordering + Copy,
    ) {
        let Range { start, end } = partition.range;
        let until = end.min(partition.next + SLICE_ROWS);
        for at in partition.next..until {
            // Without a branch that nobody can predict: two rows that come behind change places, too.
            let is_before = compare(&rows[at], &rows[start]).is_lt();
            rows.swap(partition.middle, at);
            partition.middle += usize::from(is_before);
        }
        partition.next = until;
        if until < end {
            self.partition = Some(partition);
            return;
        }
        let pivot = partition.middle - 1;
        rows.swap(start, pivot);
        self.ranges.push((pivot + 1..end, partition.parts_max - 1));
        self.ranges.push((start..pivot, partition.parts_max - 1));
    }
}

/// The place of a row that about as many come before as behind: the median of three medians.
fn about_the_middle<T>(rows: &[T], compare: impl Fn(&T, &T) -> Ordering + Copy) -> usize {
    let median = |[a, b, c]: [usize; 3]| {
        let is_before = |x: usize, y: usize| compare(&rows[x], &rows[y]).is_lt();
        match (is_before(a, b), is_before(b, c), is_before(a, c)) {
            (true, true, _) | (false, false, _) => b,
            (true, false, true) | (false, true, false) => c,
            (true, false, false) | (false, true, true) => a,
        }
    };
    let place = |n: usize| rows.len() / 10 * n;
    median([
        median([place(1), place(2), place(3)]),
        median([place(4), place(5), place(6)]),
        median([place(7), place(8), place(9)]),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Sorts in slices, and answers the most comparisons of one, and all.
    fn sort(rows: &mut [u64]) -> (usize, usize) {
        let (count, mut most, mut all) = (Cell::new(0), 0, 0);
        let by = |a: &u64, b: &u64| {
            count.set(count.get() + 1);
            a.cmp(b)
        };
        let mut sort = SliceSort::default();
        loop {
            let is_sorted = sort.sort_some(rows, by);
            most = most.max(count.get());
            all += count.take();
            if is_sorted {
                return (most, all);
            }
        }
    }

    #[test]
    fn rows_are_sorted_in_slices() {
        let random = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) / 2;
        let orders: [fn(u64) -> u64; 5] = [
            |n| n,
            |n| if n == SLICE_ROWS as u64 { 0 } else { n + 1 },
            |n| u64::MAX - n,
            |n| if n.is_multiple_of(2) { n } else { u64::MAX - n },
            random,
        ];
        for order in orders {
            for count in [0, 1, 2, 8192, 8193, 16_384, 16_385, 40_000, 150_000] {
                let mut rows: Vec<u64> = (0..count).map(order).collect();
                let mut expected = rows.clone();
                expected.sort_unstable();
                let (most, all) = sort(&mut rows);
                assert!(rows == expected, "{count} rows");
                assert!(most <= AT_ONCE_ROWS * 20, "{most} comparisons in a slice");
                assert!(all <= count as usize * 40, "{all} comparisons of {count} rows");
            }
        }
    }

    /// Every row that parts is the least but two of those that are left.
    #[test]
    fn what_splits_badly_is_sorted_all_the_same() {
        let count = 60_000u64;
        // An adversary (McIlroy 1999): what a row is, is decided when it is compared.
        let fixed: Vec<Cell<u64>> = (0..count).map(|_| Cell::new(u64::MAX)).collect();
        // The first two are not in order.
        let (next, candidate) = (Cell::new(0), Cell::new(1));
        let compared = Cell::new(0u64);
        let by = |a: &usize, b: &usize| {
            compared.set(compared.get() + 1);
            let (x, y) = (&fixed[*a], &fixed[*b]);
            if x.get() == u64::MAX && y.get() == u64::MAX && a != b {
                let fix = if *a == candidate.get() { x } else { y };
                fix.set(next.get());
                next.set(next.get() + 1);
            }
            if x.get() == u64::MAX {
                candidate.set(*a);
            } else if y.get() == u64::MAX {
                candidate.set(*b);
            }
            x.get().cmp(&y.get()).then(a.cmp(b))
        };
        let mut rows: Vec<usize> = (0..count as usize).collect();
        let mut sort = SliceSort::default();
        while !sort.sort_some(&mut rows, by) {}
        assert!(rows.is_sorted_by(|a, b| (fixed[*a].get(), a) <= (fixed[*b].get(), b)));
        assert!(compared.get() < count * 100, "{} comparisons", compared.get());
    }
}
