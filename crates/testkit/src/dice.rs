//! Seeded choices.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;

/// A seeded source of choices.
pub struct Dice(SeededRandom);

impl Dice {
    /// The choices of this seed.
    pub fn new(seed: u64) -> Self {
        Dice(SeededRandom::new(seed))
    }

    /// Sixty-four random bits.
    pub fn bits(&self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; 0 if `n` is 0.
    pub fn below(&self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// True with this percentage.
    pub fn percent(&self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// One of these, if there are any.
    pub fn pick<'a, T>(&self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len() as u64) as usize)
    }

    /// Another source, whose choices follow from this one's.
    pub fn fork(&self) -> Dice {
        Dice::new(self.bits())
    }
}
