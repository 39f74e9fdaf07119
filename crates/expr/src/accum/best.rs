//! `$firstN`, `$lastN`, `$minN`, `$maxN`, `$topN`, `$bottomN` and their like: N values by position or by a sort
//! order.

use super::saved::{array, damaged, int, put};
use crate::ops::compare;
use crate::value::array_of;
use kauri_base::{Result, bail, sort, work};
use kauri_bson::keygen::{KeyPattern, Keys};
use kauri_bson::{Doc, DocWriter, Value};
use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// `n` of these accumulators: a whole number above zero.
pub(crate) fn check_n(value: &Value<'_>) -> Result<usize> {
    if !value.is_number() {
        bail!(
            5787902,
            "Value for 'n' must be of integral type, but found {}",
            crate::numeric::value_text(value)
        );
    }
    let Some(n) = value.as_i64_exact() else {
        bail!(
            5787903,
            "Value for 'n' must be of integral type, but found {}",
            crate::numeric::value_text(value)
        );
    };
    match usize::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => bail!(5787908, "'n' must be greater than 0, found {n}"),
    }
}

/// `$firstN`, `$lastN`.
#[derive(Clone, Debug)]
pub(crate) struct Ends {
    n: usize,
    last: bool,
    values: VecDeque<Value<'static>>,
    bytes: usize,
}

impl Ends {
    pub fn new(n: usize, last: bool) -> Ends {
        Ends { n, last, values: VecDeque::new(), bytes: 0 }
    }

    pub fn add(&mut self, value: &Value<'_>) {
        if self.values.len() == self.n {
            if !self.last {
                return;
            }
            if let Some(oldest) = self.values.pop_front() {
                self.bytes -= super::value_bytes(&oldest);
            }
        }
        // A missing value counts, as null.
        let value = if value.is_missing() { Value::Null } else { value.clone().into_owned() };
        self.bytes += super::value_bytes(&value);
        self.values.push_back(value);
    }

    /// See `saved`.
    pub fn save(&self, out: &mut DocWriter<'_>) -> Result<()> {
        out.put("n", self.n as i64);
        out.put_value("values", &self.value()?);
        Ok(())
    }

    pub fn restore(doc: Doc<'_>, last: bool) -> Result<Ends> {
        let mut ends = Ends::new(int(doc, "n")? as usize, last);
        for elem in array(doc, "values")?.ticked() {
            ends.add(&elem?.value());
        }
        Ok(ends)
    }

    pub fn merge(&mut self, other: Ends) -> Result<()> {
        for value in &other.values {
            work::tick(1)?;
            self.add(value);
        }
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    pub fn value(&self) -> Result<Value<'static>> {
        array_of(self.values.iter())
    }
}

/// A value that orders so that the worst one kept is the greatest.
#[derive(Clone, Debug)]
struct Ranked {
    key: Key,
    /// Which came first, among equals.
    turn: i64,
    value: Value<'static>,
}

#[derive(Clone, Debug)]
enum Key {
    /// The value itself, the least or the greatest wanted.
    Value { greatest: bool },
    /// A sort key's bytes.
    Bytes { bytes: Vec<u8>, reversed: bool },
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let order = match (&self.key, &other.key) {
            (Key::Bytes { bytes: a, reversed }, Key::Bytes { bytes: b, .. }) => {
                if *reversed {
                    b.cmp(a)
                } else {
                    a.cmp(b)
                }
            }
            (Key::Value { greatest: true }, _) => compare::order(&other.value, &self.value),
            _ => compare::order(&self.value, &other.value),
        };
        order.then(self.turn.cmp(&other.turn))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// The N best of what came by: a heap with the worst of them on top.
#[derive(Clone, Debug)]
pub(crate) struct Best {
    n: usize,
    heap: BinaryHeap<Ranked>,
    turn: i64,
    bytes: usize,
}

impl Best {
    pub fn new(n: usize) -> Best {
        Best { n, heap: BinaryHeap::new(), turn: 0, bytes: 0 }
    }

    /// `$minN`, `$maxN`: null and missing values are ignored.
    pub fn add(&mut self, value: &Value<'_>, greatest: bool) {
        if !value.is_nullish() {
            self.turn += 1;
            let value = value.clone().into_owned();
            self.insert(Ranked { key: Key::Value { greatest }, turn: self.turn, value });
        }
    }

    /// `$top`, `$bottom`: the best by a sort key. At the bottom the last of equals is the best.
    pub fn add_keyed(&mut self, key: &[u8], value: Value<'static>, bottom: bool) {
        self.turn += 1;
        let turn = if bottom { -self.turn } else { self.turn };
        let key = Key::Bytes { bytes: key.to_vec(), reversed: bottom };
        self.insert(Ranked { key, turn, value });
    }

    fn insert(&mut self, ranked: Ranked) {
        if self.heap.len() == self.n {
            match self.heap.peek_mut() {
                Some(mut worst) if ranked < *worst => {
                    self.bytes += ranked.bytes();
                    self.bytes = self.bytes.saturating_sub(worst.bytes());
                    *worst = ranked;
                }
                _ => {}
            }
            return;
        }
        self.bytes += ranked.bytes();
        self.heap.push(ranked);
    }

    /// See `saved`.
    pub fn save(&self, out: &mut DocWriter<'_>) -> Result<()> {
        out.put("n", self.n as i64);
        out.put("turn", self.turn);
        let mut kept = out.array("kept");
        for ranked in &self.heap {
            work::tick_bytes(64 + ranked.bytes())?;
            let mut one = kept.document();
            one.put("turn", ranked.turn);
            if let Key::Bytes { bytes, .. } = &ranked.key {
                one.put_value("key", &Value::Binary { subtype: 0, bytes: bytes.as_slice().into() });
            }
            put(&mut one, "v", &ranked.value);
        }
        Ok(())
    }

    /// For `$minN` and `$maxN`.
    pub fn restore_extremes(doc: Doc<'_>, greatest: bool) -> Result<Best> {
        Best::restore(doc, |_| Ok(Key::Value { greatest }))
    }

    /// For `$top` and `$bottom`.
    pub fn restore_keyed(doc: Doc<'_>, reversed: bool) -> Result<Best> {
        Best::restore(doc, |one| match one.value("key") {
            Value::Binary { bytes, .. } => Ok(Key::Bytes { bytes: bytes.into_owned(), reversed }),
            _ => Err(damaged()),
        })
    }

    fn restore(doc: Doc<'_>, key: impl Fn(Doc<'_>) -> Result<Key>) -> Result<Best> {
        let mut best = Best::new(int(doc, "n")? as usize);
        for elem in array(doc, "kept")?.ticked() {
            let one = elem?.as_doc().ok_or_else(damaged)?;
            let value = one.value("v").into_owned();
            best.insert(Ranked { key: key(one)?, turn: int(one, "turn")?, value });
        }
        best.turn = int(doc, "turn")?;
        Ok(best)
    }

    pub fn merge(&mut self, other: Best) -> Result<()> {
        let mut kept = other.heap.into_vec();
        sort::sort_by(&mut kept, Ranked::cmp)?;
        for mut ranked in kept {
            work::tick(1)?;
            // What is merged came later than what is here.
            let later = self.turn.max(other.turn);
            ranked.turn += if ranked.turn < 0 { -later } else { later };
            self.insert(ranked);
        }
        self.turn = self.turn.saturating_add(other.turn);
        Ok(())
    }

    pub fn memory_bytes(&self) -> usize {
        self.bytes
    }

    fn sorted(&self) -> Result<Vec<&Ranked>> {
        let mut sorted: Vec<&Ranked> = self.heap.iter().collect();
        sort::sort_by(&mut sorted, |a, b| a.cmp(b))?;
        Ok(sorted)
    }

    /// The best ones, best first; at the bottom of a sort order, in that order.
    pub fn value(&self, bottom: bool) -> Result<Value<'static>> {
        let mut sorted = self.sorted()?;
        if bottom {
            sorted.reverse();
        }
        array_of(sorted.into_iter().map(|ranked| &ranked.value))
    }

    /// The best one; null if there is none.
    pub fn single(&self) -> Value<'static> {
        self.heap.iter().min().map_or(Value::Null, |ranked| ranked.value.clone())
    }
}

impl Ranked {
    fn bytes(&self) -> usize {
        let key = match &self.key {
            Key::Bytes { bytes, .. } => bytes.len(),
            Key::Value { .. } => 0,
        };
        size_of::<Ranked>() + key + super::value_bytes(&self.value)
    }
}

/// The sort key of a document: its least key by the pattern.
pub(crate) fn sort_key<'k>(
    pattern: &KeyPattern,
    doc: kauri_bson::Doc<'_>,
    keys: &'k mut Keys,
) -> Result<&'k [u8]> {
    pattern.generate(doc, false, keys)?;
    Ok(keys.first().map_or(&[], |key| key.bytes))
}
