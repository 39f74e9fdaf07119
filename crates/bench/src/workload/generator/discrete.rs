//! A weighted choice: `DiscreteGenerator`.
//!
//! Invariant: the arithmetic is YCSB's, with the items in the order in which they were added. This module must not
//! know what they are.

use super::super::random::Random;

/// Draws things by weight.
#[derive(Clone, Debug)]
pub struct Discrete<T> {
    of: Vec<(f64, T)>,
    sum: f64,
}

impl<T: Copy> Discrete<T> {
    /// Of these, those without weight left out; None if that leaves none.
    pub fn new(of: impl IntoIterator<Item = (f64, T)>) -> Option<Discrete<T>> {
        let of: Vec<(f64, T)> = of.into_iter().filter(|(weight, _)| *weight > 0.0).collect();
        let sum = of.iter().fold(0.0, |sum, (weight, _)| sum + weight);
        (!of.is_empty()).then_some(Discrete { of, sum })
    }

    /// The next one.
    pub fn next(&self, random: &mut impl Random) -> Option<T> {
        let mut left = random.unit();
        for (weight, thing) in &self.of {
            let share = weight / self.sum;
            if left < share {
                return Some(*thing);
            }
            left -= share;
        }
        // Rounding has left a rest, for which YCSB ends with an error.
        self.of.last().map(|(_, thing)| *thing)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::random::Seeded;
    use super::*;

    #[test]
    fn weights_are_shares() {
        let discrete = Discrete::new([(1.0, 'a'), (0.0, 'b'), (3.0, 'c')]).expect("weights");
        let mut random = Seeded::new(1);
        let drawn: Vec<char> = (0..40_000).filter_map(|_| discrete.next(&mut random)).collect();
        let of = |letter| drawn.iter().filter(|other| **other == letter).count();
        assert!(of('a').abs_diff(10_000) < 400 && of('b') == 0 && of('a') + of('c') == 40_000);
        assert!(Discrete::new([(0.0, 'a')]).is_none());
    }
}
