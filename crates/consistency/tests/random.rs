//! The checkers on random histories. A database with one copy and serial transactions has no fault; a planted
//! error is found.

use kauri_consistency::cycles::Promise;
use kauri_consistency::linearizable::{Counter, CounterOperation, Operation, Verdict};
use kauri_consistency::lists::{Outcome, Step, Transaction, check};
use kauri_consistency::{linearizable, lists};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Random numbers from a seed (SplitMix64).
struct Dice(Cell<u64>);

impl Dice {
    fn new(seed: u64) -> Dice {
        Dice(Cell::new(seed))
    }

    fn below(&self, bound: u64) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9E37_79B9_7F4A_7C15));
        let mixed = (self.0.get() ^ (self.0.get() >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// The planted fault of the database.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Planted {
    Nothing,
    /// An acknowledged append is dropped.
    LostAppend,
    /// An append is applied twice.
    AppliedTwice,
    /// A read returns a version from before an earlier acknowledged append.
    StaleRead,
    /// A rejected transaction has an effect.
    AbortedEffect,
    /// Half of a transaction has an effect.
    HalfApplied,
}

/// A history of clients that are serial within the database; their requests overlap outside.
fn history(dice: &Dice, planted: Planted) -> Vec<Transaction> {
    let mut state: BTreeMap<lists::Key, Vec<lists::Value>> = BTreeMap::new();
    let mut history = Vec::new();
    let mut free_at = [0; 6];
    let (mut value, mut now) = (0, 10);
    let bad_one = 30 + dice.below(30);
    for number in 0..100 {
        let bad = number >= bad_one && planted != Planted::Nothing;
        // The transaction takes effect now; its request was sent before, and its reply comes later.
        now += 1 + dice.below(5);
        let client = dice.below(6) as usize;
        // A client has one request at a time.
        let Some(idle) = now.checked_sub(free_at[client] + 1) else { continue };
        let sent = now - dice.below(8).min(idle);
        let answered = now + dice.below(8);
        free_at[client] = answered;
        let before = state.clone();
        let mut steps = Vec::new();
        for _ in 0..1 + dice.below(3) {
            let key = dice.below(4);
            if dice.below(2) == 0 {
                let stale = bad && planted == Planted::StaleRead && number > bad_one + 5;
                let mut list = state.get(&key).cloned().unwrap_or_default();
                if stale && steps.is_empty() {
                    list.truncate(list.len() / 2);
                }
                steps.push(Step::Read(key, Some(list)));
            } else {
                value += 1;
                steps.push(Step::Append(key, value));
                state.entry(key).or_default().push(value);
            }
        }
        let outcome = match dice.below(10) {
            0 => Outcome::Aborted,
            1 => Outcome::Unknown,
            _ => Outcome::Committed(answered),
        };
        let wrote = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::Append(..)));
        match outcome {
            Outcome::Aborted if !(bad && planted == Planted::AbortedEffect) => state = before,
            Outcome::Unknown if dice.below(2) == 0 => state = before,
            Outcome::Committed(_) if bad && wrote(&steps) => match planted {
                Planted::LostAppend => state = before,
                Planted::AppliedTwice => {
                    if let Some(Step::Append(key, value)) =
                        steps.iter().find(|s| matches!(s, Step::Append(..)))
                    {
                        state.entry(*key).or_default().push(*value);
                    }
                }
                Planted::HalfApplied => {
                    if let Some(Step::Append(key, _)) =
                        steps.iter().rev().find(|s| matches!(s, Step::Append(..)))
                    {
                        state.entry(*key).or_default().pop();
                    }
                }
                _ => {}
            },
            _ => {}
        }
        history.push(Transaction { client: client as u64, sent, outcome, steps });
    }
    // At the end each list is read.
    now += 100;
    for key in 0..4 {
        let list = state.get(&key).cloned().unwrap_or_default();
        let steps = vec![Step::Read(key, Some(list))];
        history.push(Transaction {
            client: 100 + key,
            sent: now,
            outcome: Outcome::Committed(now + 1),
            steps,
        });
    }
    history
}

#[test]
fn histories_of_one_copy_have_no_fault() {
    for seed in 0..2000 {
        let found =
            check(&history(&Dice::new(seed), Planted::Nothing), Promise::STRICT_SERIALIZABLE);
        assert!(found.is_empty(), "seed {seed}: {found:?}");
    }
}

#[test]
fn planted_errors_are_found() {
    use Planted::{AbortedEffect, AppliedTwice, HalfApplied, LostAppend, StaleRead};
    for planted in [LostAppend, AppliedTwice, StaleRead, AbortedEffect, HalfApplied] {
        let is_found = |seed: &u64| {
            !check(&history(&Dice::new(*seed), planted), Promise::STRICT_SERIALIZABLE).is_empty()
        };
        let found = (0..200).filter(is_found).count();
        assert!(found >= 190, "{planted:?}: in {found} of 200 histories");
    }
}

/// A counter's history, and whether replies were falsified.
fn counter(dice: &Dice, wrong: bool) -> Vec<Operation<CounterOperation>> {
    let (mut state, mut now, mut operations) = (0, 10, Vec::new());
    for _ in 0..40 {
        now += 1 + dice.below(4);
        let by = 1 + dice.below(5) as i64;
        let known = dice.below(8) > 0;
        let what = match dice.below(3) {
            0 => CounterOperation::Read(state),
            1 if known => CounterOperation::AddAndGet(by, state + by),
            _ => CounterOperation::Add(by),
        };
        let is_read = matches!(what, CounterOperation::Read(_));
        // Without a reply a write may have had no effect; such a read is ignored.
        if !is_read && (known || dice.below(2) == 0) {
            state += by;
        }
        if known || !is_read {
            let answered = known.then(|| now + dice.below(10));
            operations.push(Operation { sent: now - dice.below(10), answered, until: None, what });
        }
    }
    // An acknowledged increment was lost.
    let last = now + 100;
    let end = if wrong { state - 1000 } else { state };
    operations.push(Operation {
        sent: last,
        answered: Some(last),
        until: None,
        what: CounterOperation::Read(end),
    });
    operations
}

#[test]
fn counters_are_linearizable_or_not() {
    for seed in 0..200 {
        let dice = Dice::new(seed);
        let good = linearizable::check(Counter(0), &counter(&dice, false));
        assert_eq!(good, Verdict::Linearizable, "seed {seed}");
        let bad = linearizable::check(Counter(0), &counter(&Dice::new(seed), true));
        assert_eq!(bad, Verdict::Not, "seed {seed}");
    }
}
