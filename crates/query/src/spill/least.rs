//! The least of several advancing sources: a heap of source numbers, which must not know the sources' contents.

/// See the module's head. Whoever uses it says which of two sources comes first.
#[derive(Default)]
pub(crate) struct Least {
    heap: Vec<usize>,
}

impl Least {
    /// For these sources.
    pub fn of(sources: Vec<usize>, before: impl Fn(usize, usize) -> bool) -> Least {
        let mut least = Least { heap: sources };
        for at in (0..least.heap.len() / 2).rev() {
            least.sink(at, &before);
        }
        least
    }

    /// The source that is first.
    pub fn get(&self) -> Option<usize> {
        self.heap.first().copied()
    }

    /// The first one has moved on.
    pub fn moved(&mut self, before: impl Fn(usize, usize) -> bool) {
        self.sink(0, &before);
    }

    /// The first one has nothing any more.
    pub fn ended(&mut self, before: impl Fn(usize, usize) -> bool) {
        if !self.heap.is_empty() {
            self.heap.swap_remove(0);
            self.sink(0, &before);
        }
    }

    fn sink(&mut self, mut at: usize, before: &impl Fn(usize, usize) -> bool) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            if left >= self.heap.len() {
                return;
            }
            let is_right = right < self.heap.len() && before(self.heap[right], self.heap[left]);
            let child = if is_right { right } else { left };
            if !before(self.heap[child], self.heap[at]) {
                return;
            }
            self.heap.swap(at, child);
            at = child;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_merged_in_order() {
        for count in 0..12 {
            let sources: Vec<Vec<usize>> =
                (0..count).map(|n| (0..n * 3).map(|m| m * 7 % (n + 1) + m * 2).collect()).collect();
            let mut sources: Vec<Vec<usize>> = sources;
            sources.iter_mut().for_each(|source| source.sort_unstable());
            let mut expected: Vec<usize> = sources.concat();
            expected.sort_unstable();
            let mut at = vec![0; count];
            let numbers = (0..count).filter(|n| !sources[*n].is_empty()).collect();
            let mut least = Least::of(numbers, |a, b| (sources[a][0], a) < (sources[b][0], b));
            let mut merged = Vec::new();
            while let Some(source) = least.get() {
                merged.push(sources[source][at[source]]);
                at[source] += 1;
                let before = |a: usize, b: usize| (sources[a][at[a]], a) < (sources[b][at[b]], b);
                match at[source] < sources[source].len() {
                    true => least.moved(before),
                    false => least.ended(before),
                }
            }
            assert_eq!(merged, expected);
        }
    }
}
