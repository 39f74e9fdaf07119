//! Stages that need more memory than they may use. They give the same result as with enough memory, and leave
//! no files. `KAURI_SEED` repeats one case.

mod groups;
mod others;
mod run;
mod samples;
mod sorts;
mod stores;

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_base::temporary::TemporaryStore;
use kauri_bson::{Decimal128, DocBuf, Value, array, doc};
use std::time::{Duration, Instant};

/// Random choices for a case.
pub struct Choice(SeededRandom);

impl Choice {
    fn new(seed: u64) -> Choice {
        Choice(SeededRandom::new(seed))
    }

    fn below(&self, limit: usize) -> usize {
        (self.0.next_u64() % limit as u64) as usize
    }

    fn of<T: Copy>(&self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A number of any type; many are equal.
    fn number(&self, most: usize) -> Value<'static> {
        let n = self.below(most) as i32;
        match self.below(5) {
            0 => Value::Int64(i64::from(n)),
            1 => Value::Double(f64::from(n)),
            2 => Value::Double(f64::from(n) + 0.1 * self.below(10) as f64),
            3 => Value::Decimal128(Decimal128::from(i64::from(n))),
            _ => Value::Int32(n),
        }
    }

    /// A value of any kind.
    fn value(&self, most: usize) -> Value<'static> {
        match self.below(9) {
            0 => Value::Null,
            1 => Value::from("text".repeat(self.below(4)) + &self.below(most).to_string()),
            2 => array![self.number(most), self.number(most)],
            3 => doc! { "x" => self.number(most), "y" => self.below(2) as i32 }.into(),
            4 => Value::Bool(self.below(2) == 0),
            _ => self.number(most),
        }
    }

    /// Documents with ties, gaps and values of all kinds; some are long.
    fn docs(&self, count: usize) -> Vec<DocBuf> {
        let most = 1 + self.below(count.max(1));
        let longest = self.of(&[1, 30, 300]);
        let one = |id: usize| {
            DocBuf::build(|out| {
                out.put("_id", id as i32);
                if self.below(10) > 0 {
                    out.put("a", self.value(most));
                }
                out.put("b", self.number(4));
                if self.below(5) > 0 {
                    out.put("c", self.value(3));
                }
                out.put("n", self.number(100));
                let items = (0..self.below(4)).map(|_| self.value(5));
                out.put("items", Value::array(items));
                out.put("pad", "x".repeat(self.below(longest)).as_str());
            })
        };
        (0..count).map(one).collect()
    }
}

fn show(docs: &[DocBuf]) -> String {
    docs.iter().map(|doc| kauri_bson::shell_text(doc.as_doc())).collect::<Vec<_>>().join("\n  ")
}

/// Checks this many cases, or only the one that `KAURI_SEED` names.
fn cases(count: u64, check: impl Fn(u64)) {
    if let Ok(seed) = std::env::var("KAURI_SEED") {
        return check(seed.parse().expect("KAURI_SEED is a number"));
    }
    (1..=count).for_each(check);
}

/// Fails unless all files are gone; an abandoned transfer may still hold one for a while.
fn no_files(store: &dyn TemporaryStore, seed: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while store.bytes_used() > 0 {
        assert!(Instant::now() < deadline, "KAURI_SEED={seed} leaves files");
        std::thread::yield_now();
    }
}
