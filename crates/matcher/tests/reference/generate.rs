//! Random documents and filters, over few names and values so that filters often match.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, Regex, Timestamp, doc, oid::ObjectId};
use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use std::cell::RefCell;
use std::collections::VecDeque;

/// A seeded source of documents and filters.
pub struct Generator {
    random: SeededRandom,
    /// Paths and values of the last documents. Filters are made from them so that they often match.
    recent: RefCell<VecDeque<(String, Bson)>>,
    /// The value at the path of the condition under construction.
    hint: RefCell<Option<Bson>>,
}

const PATHS: [&str; 16] = [
    "a", "b", "c", "a", "b", "a.b", "a.b", "b.a", "a.0", "a.1", "a.0.b", "a.b.0", "a.b.c", "a.0.0",
    "c.a.b", "0",
];
const KEYS: [&str; 6] = ["a", "b", "c", "0", "1", "a"];
const TYPES: [&str; 12] = [
    "double", "string", "object", "array", "null", "int", "long", "number", "decimal", "bool",
    "binData", "date",
];

impl Generator {
    pub fn new(seed: u64) -> Generator {
        Generator {
            random: SeededRandom::new(seed),
            recent: RefCell::default(),
            hint: RefCell::default(),
        }
    }

    pub fn below(&self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    pub fn pick<T: Clone>(&self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize].clone()
    }

    /// A document to match.
    pub fn document(&self) -> Document {
        let mut doc = Document::new();
        for key in ["a", "b", "c"] {
            if self.below(5) > 0 {
                let value = match self.below(3) {
                    0 => Bson::Array(self.array(2)),
                    1 => Bson::Document(self.inner(2)),
                    _ => self.value(2),
                };
                self.remember(key, &value);
                doc.insert(key, value);
            }
        }
        doc
    }

    fn remember(&self, path: &str, value: &Bson) {
        let mut recent = self.recent.borrow_mut();
        recent.push_back((path.to_owned(), value.clone()));
        if recent.len() > 24 {
            recent.pop_front();
        }
        drop(recent);
        match value {
            Bson::Document(doc) => {
                doc.iter().for_each(|(key, value)| self.remember(&format!("{path}.{key}"), value));
            }
            Bson::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    // Half of the time as a position, half as an ordinary element.
                    if self.below(2) == 0 {
                        self.remember(&format!("{path}.{i}"), item);
                    } else {
                        self.remember(path, item);
                    }
                }
            }
            _ => {}
        }
    }

    /// A path; sets the hint for its condition.
    fn path(&self) -> String {
        let recent = self.recent.borrow();
        let place = self.below(recent.len().max(1) as u64) as usize;
        let (path, hint) = match recent.get(place) {
            Some((path, value)) if self.below(4) > 0 => (path.clone(), Some(value.clone())),
            _ => (self.pick(&PATHS).to_owned(), None),
        };
        *self.hint.borrow_mut() = hint;
        path
    }

    fn inner(&self, depth: u32) -> Document {
        let mut doc = Document::new();
        for _ in 0..self.below(4) {
            doc.insert(self.pick(&KEYS), self.value(depth));
        }
        doc
    }

    fn array(&self, depth: u32) -> Vec<Bson> {
        (0..self.below(4)).map(|_| self.value(depth)).collect()
    }

    /// A value; documents and arrays nest at most this deep.
    fn value(&self, depth: u32) -> Bson {
        match self.below(if depth == 0 { 14 } else { 22 }) {
            0..=4 => self.number(),
            5..=7 => Bson::String((self.pick(&["", "x", "y", "xy", "yx"])).to_owned()),
            8 | 9 => Bson::Null,
            10 => Bson::Boolean(self.below(2) == 0),
            11 => self.rare(),
            12 => Bson::DateTime(DateTime::from_millis(self.below(3) as i64)),
            13 => Bson::Int32(self.below(4) as i32),
            14..=17 => Bson::Document(self.inner(depth - 1)),
            _ => Bson::Array(self.array(depth - 1)),
        }
    }

    fn number(&self) -> Bson {
        const EDGE: i64 = 1 << 53;
        match self.below(16) {
            0..=5 => Bson::Int32(self.below(5) as i32 - 1),
            6 | 7 => Bson::Int64(self.below(5) as i64 - 1),
            8 => Bson::Int64(self.pick(&[EDGE, EDGE + 1, i64::MAX, i64::MIN])),
            9..=11 => Bson::Double(self.below(8) as f64 / 2.0 - 1.0),
            12 => Bson::Double(self.pick(&[
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                EDGE as f64,
                -0.0,
            ])),
            _ => {
                let texts = ["0", "1", "1.5", "2", "-1", "NaN", "Infinity", "9007199254740993"];
                Bson::Decimal128(self.pick(&texts).parse::<Decimal128>().unwrap())
            }
        }
    }

    fn rare(&self) -> Bson {
        match self.below(9) {
            0 => Bson::MinKey,
            1 => Bson::MaxKey,
            2 => Bson::Timestamp(Timestamp { time: self.below(2) as u32, increment: 1 }),
            3 => Bson::ObjectId(ObjectId::from_bytes([self.below(2) as u8; 12])),
            4 => Bson::Symbol("x".to_owned()),
            5 => Bson::RegularExpression(Regex {
                pattern: "x".try_into().unwrap(),
                options: "".try_into().unwrap(),
            }),
            _ => Bson::Binary(Binary {
                subtype: if self.below(2) == 0 {
                    BinarySubtype::Generic
                } else {
                    BinarySubtype::UserDefined(0x80)
                },
                bytes: (0..self.below(3)).map(|_| self.below(8) as u8).collect(),
            }),
        }
    }

    /// A comparison's operand; a regex would be another operator.
    fn operand(&self) -> Bson {
        loop {
            let hint = self.hint.borrow().clone();
            let value = hint.filter(|_| self.below(2) == 0).unwrap_or_else(|| self.value(2));
            let operators =
                value.as_document().is_some_and(|d| d.keys().any(|k| k.starts_with('$')));
            if !matches!(value, Bson::RegularExpression(_)) && !operators {
                return value;
            }
        }
    }

    /// A valid filter.
    pub fn filter(&self, depth: u32) -> Document {
        let mut filter = Document::new();
        for _ in 0..1 + self.below(4) / 3 {
            if depth > 0 && self.below(5) == 0 {
                let branches: Vec<Bson> =
                    (0..1 + self.below(3)).map(|_| self.filter(depth - 1).into()).collect();
                filter.insert(self.pick(&["$and", "$or", "$nor"]), branches);
            } else {
                let path = self.path();
                filter.insert(path, self.condition(depth));
            }
        }
        filter
    }

    /// A filter of one field with one operator.
    pub fn single(&self) -> Document {
        let path = self.path();
        let mut ops = Document::new();
        let (name, operand) = self.operator(1);
        ops.insert(name, operand);
        doc! { path: ops }
    }

    fn condition(&self, depth: u32) -> Bson {
        if self.below(3) == 0 {
            return self.operand();
        }
        Bson::Document(self.operators(depth))
    }

    fn operators(&self, depth: u32) -> Document {
        let mut ops = Document::new();
        for _ in 0..1 + self.below(4) / 3 {
            let (name, operand) = self.operator(depth);
            ops.insert(name, operand);
        }
        ops
    }

    fn operator(&self, depth: u32) -> (&'static str, Bson) {
        match self.below(if depth == 0 { 18 } else { 24 }) {
            0 => ("$eq", self.operand()),
            1 => ("$ne", self.operand()),
            2 | 3 => ("$lt", self.operand()),
            4 => ("$lte", self.operand()),
            5 => ("$gt", self.operand()),
            6 => ("$gte", self.operand()),
            7 | 8 => (self.pick(&["$in", "$nin"]), self.operands().into()),
            9 => ("$exists", self.pick(&[Bson::Boolean(true), Bson::Boolean(false)])),
            10 | 11 => {
                let types: Vec<Bson> = (0..1 + self.below(2))
                    .map(|_| Bson::String((self.pick(&TYPES)).to_owned()))
                    .collect();
                ("$type", types.into())
            }
            12 => ("$size", Bson::Int32(self.below(4) as i32)),
            13 => {
                let operands = [self.pick(&[-2, -1, 1, 2, 3]), self.pick(&[-1, 0, 1, 2])];
                ("$mod", operands.map(Bson::Int32).to_vec().into())
            }
            14 | 15 => {
                let name =
                    self.pick(&["$bitsAllSet", "$bitsAllClear", "$bitsAnySet", "$bitsAnyClear"]);
                let arg = if self.below(2) == 0 {
                    Bson::Int32(self.below(8) as i32)
                } else {
                    let positions = [0, 1, 2, 8, 63, 64, 200];
                    let chosen: Vec<Bson> =
                        (0..self.below(3)).map(|_| Bson::Int32(self.pick(&positions))).collect();
                    chosen.into()
                };
                (name, arg)
            }
            16 => ("$regex", Bson::String((self.pick(&["x", "^x", "y$", "xy"])).to_owned())),
            17 => ("$all", self.operands().into()),
            18 | 19 => ("$not", Bson::Document(self.operators(depth - 1))),
            20 | 21 => ("$elemMatch", Bson::Document(self.operators_on_values(depth - 1))),
            _ => ("$elemMatch", Bson::Document(self.filter(depth - 1))),
        }
    }

    fn operators_on_values(&self, depth: u32) -> Document {
        let mut ops = self.operators(depth);
        // The reference has no rule for predicates that mix both forms.
        ops.remove("$all");
        if ops.is_empty() {
            ops.insert("$gte", self.operand());
        }
        ops
    }

    fn operands(&self) -> Vec<Bson> {
        (0..self.below(4)).map(|_| self.operand()).collect()
    }
}
