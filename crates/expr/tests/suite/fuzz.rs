//! No expression panics on any values, and its result is always the same.
//!
//! Each operator is called with random arguments from a pool of difficult values: the ends of each type, NaN,
//! deep and empty containers, strings that look like other types. The test is seeded; a failure prints the seed
//! and the expression.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{Decimal128, DocBuf, Value, array, doc};
use kauri_expr::{AccumulatorSpec, EvalCx, Expression, ParseCx, expression_names};

const ROUNDS: u64 = 150_000;

fn pool() -> Vec<Value<'static>> {
    let decimal = |text: &str| Value::Decimal128(Decimal128::parse(text).unwrap());
    let mut pool: Vec<Value<'static>> = vec![
        Value::Missing,
        Value::Null,
        Value::Undefined,
        Value::MinKey,
        Value::MaxKey,
        true.into(),
        false.into(),
        array![],
        array![1, 2, 3],
        array![Value::Null, "a", 2.5],
        array![array!["k", 1], array!["l", 2]],
        array![doc! { "k" => "a", "v" => 1 }],
        doc! {}.into(),
        doc! { "a" => 1, "b" => doc! { "c" => array![1, doc! { "d" => 2 }] } }.into(),
        Value::ObjectId([0xFF; 12]),
        Value::Timestamp(kauri_base::Timestamp { seconds: u32::MAX, increment: 1 }),
        Value::Regex { pattern: "(a)|b".into(), options: "i".into() },
        Value::Regex { pattern: "[".into(), options: "z".into() },
        Value::Code("f()".into()),
        Value::Symbol("s".into()),
        Value::string_of_bytes(&b"a\xFFb"[..]),
        Value::string_of_bytes(&b"$\x80"[..]),
        Value::string_of_bytes(&b"\xC3"[..]),
        Value::string_of_bytes(&b"\xED\xA0\x80\0"[..]),
        Value::DbPointer { namespace: "a.b".into(), id: [1; 12] },
        Value::CodeWithScope { code: "f".into(), scope: doc! { "x" => 1 }.into() },
        Value::Binary { subtype: 0, bytes: vec![1, 2, 3, 4].into() },
        Value::Binary { subtype: 4, bytes: vec![7; 16].into() },
        Value::Binary { subtype: 2, bytes: vec![0, 0, 0, 0].into() },
    ];
    pool.extend([0, 1, -1, 2, 5, -7, 100, 1000, i32::MAX, i32::MIN].map(Value::from));
    pool.extend([0, 1, -1, 1 << 40, i64::MAX, i64::MIN].map(Value::from));
    pool.extend([0, 1, -1, 253_402_300_800_000, i64::MAX, i64::MIN].map(Value::DateTime));
    let doubles = [0.0, -0.0, 0.5, -1.5, 3.0, 1e18, 1e300, f64::MIN, f64::MAX, 5e-324];
    pool.extend(doubles.map(Value::from));
    pool.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Value::from));
    let decimals =
        ["0", "-0", "1.5", "-3", "9E+6144", "1E-6176", "NaN", "Infinity", "-Infinity", "1E+30"];
    pool.extend(decimals.map(decimal));
    let texts = [
        "",
        "a",
        "é",
        "日本",
        "abc abc",
        "$a",
        "$a.b.c",
        "$$ROOT",
        "$$NOW",
        "$list",
        "day",
        "week",
        "year",
        "month",
        "hour",
        "millisecond",
        "monday",
        "UTC",
        "Europe/Berlin",
        "+99:99",
        "2024-02-30",
        "2024-02-29T12:00:00Z",
        "%Y-%m-%d",
        "%G-%V-%u %j%%%z%Z",
        "%",
        "12",
        "1e400",
        "0x1p3",
        "507f1f77bcf86cd799439011",
        "string",
        "int",
        "date",
        "binData",
        "base64",
        "hex",
        "uuid",
        "utf8",
        "big",
        "i",
        "(a",
        "a*",
        "textScore",
        "approximate",
        "continuous",
        "\0",
    ];
    pool.extend(texts.map(Value::from));
    pool
}

/// Argument names of operators, so that random documents pass the parser.
const ARGUMENTS: [&str; 56] = [
    "input",
    "in",
    "as",
    "cond",
    "limit",
    "initialValue",
    "vars",
    "date",
    "timezone",
    "format",
    "onNull",
    "onError",
    "dateString",
    "year",
    "month",
    "day",
    "hour",
    "minute",
    "second",
    "millisecond",
    "isoWeekYear",
    "isoWeek",
    "isoDayOfWeek",
    "iso8601",
    "startDate",
    "endDate",
    "unit",
    "amount",
    "binSize",
    "startOfWeek",
    "to",
    "byteOrder",
    "if",
    "then",
    "else",
    "branches",
    "default",
    "field",
    "value",
    "sortBy",
    "n",
    "p",
    "method",
    "regex",
    "options",
    "find",
    "replacement",
    "chars",
    "inputs",
    "defaults",
    "useLongestLength",
    "output",
    "type",
    "subtype",
    "case",
    "x",
];

/// The names that an operator accepts.
fn names_of(operator: &str) -> &'static [&'static str] {
    match operator {
        "$map" => &["input", "in"],
        "$filter" => &["input", "cond", "limit"],
        "$reduce" => &["input", "initialValue", "in"],
        "$let" => &["vars", "in"],
        "$cond" => &["if", "then", "else"],
        "$switch" => &["branches", "default"],
        "$convert" => &["input", "to", "format", "byteOrder"],
        "$dateToString" => &["date", "format", "timezone"],
        "$dateFromString" => &["dateString", "format", "timezone"],
        "$dateToParts" => &["date", "timezone", "iso8601"],
        "$dateFromParts" => &["year", "month", "day", "hour", "minute", "second", "millisecond"],
        "$dateAdd" | "$dateSubtract" => &["startDate", "unit", "amount", "timezone"],
        "$dateDiff" => &["startDate", "endDate", "unit", "timezone", "startOfWeek"],
        "$dateTrunc" => &["date", "unit", "binSize", "timezone", "startOfWeek"],
        "$regexFind" | "$regexFindAll" | "$regexMatch" => &["input", "regex", "options"],
        "$replaceOne" | "$replaceAll" => &["input", "find", "replacement"],
        "$trim" | "$ltrim" | "$rtrim" => &["input", "chars"],
        "$zip" => &["inputs", "defaults", "useLongestLength"],
        "$sortArray" => &["input", "sortBy"],
        "$getField" => &["field", "input"],
        "$setField" => &["field", "input", "value"],
        "$unsetField" => &["field", "input"],
        "$firstN" | "$lastN" | "$maxN" | "$minN" => &["n", "input"],
        "$percentile" => &["input", "p", "method"],
        "$median" => &["input", "method"],
        _ => &["date", "timezone"],
    }
}

struct Maker {
    random: SeededRandom,
    pool: Vec<Value<'static>>,
    operators: Vec<&'static str>,
}

impl Maker {
    fn below(&self, n: usize) -> usize {
        (self.random.next_u64() % n as u64) as usize
    }

    fn leaf(&self) -> Value<'static> {
        self.pool[self.below(self.pool.len())].clone()
    }

    fn argument(&self, depth: usize) -> Value<'static> {
        if depth > 0 && self.below(3) == 0 { self.call(depth - 1) } else { self.leaf() }
    }

    fn call(&self, depth: usize) -> Value<'static> {
        let operator = self.operators[self.below(self.operators.len())];
        let argument = match self.below(10) {
            0 => self.argument(depth),
            1..6 if names_of(operator).len() != 2 || self.below(2) == 0 => {
                let count = self.below(5);
                Value::array((0..count).map(|_| self.argument(depth)))
            }
            _ => self.named(operator, depth),
        };
        doc! { operator => argument }.into()
    }

    fn named(&self, operator: &str, depth: usize) -> Value<'static> {
        let mut names: Vec<&str> = names_of(operator).to_vec();
        if self.below(8) == 0 {
            names.push(ARGUMENTS[self.below(ARGUMENTS.len())]);
        }
        DocBuf::build(|w| {
            for name in names {
                match name {
                    "vars" => w.put(name, doc! { "v" => self.argument(depth) }),
                    "branches" => w.put(
                        name,
                        array![doc! { "case" => self.argument(depth), "then" => self.leaf() }],
                    ),
                    "in" if self.below(2) == 0 => w.put(name, array!["$$this", self.leaf()]),
                    "inputs" => w.put(name, array![self.argument(depth), self.argument(depth)]),
                    "sortBy" => w.put(name, if self.below(2) == 0 { 1 } else { -1 }),
                    "method" => w.put(name, "approximate"),
                    "p" => w.put(name, array![0.5, 0.9]),
                    _ => w.put_value(name, &self.argument(depth)),
                }
            }
        })
        .into()
    }
}

fn maker(seed: u64) -> Maker {
    // No other operator has random results.
    let operators = expression_names().filter(|name| *name != "$rand").collect();
    Maker { random: SeededRandom::new(seed), pool: pool(), operators }
}

fn document() -> DocBuf {
    doc! {
        "_id" => 1,
        "a" => doc! { "b" => array![doc! { "c" => 1 }, 5, doc! { "c" => "x" }] },
        "list" => array![3, 1, 2, Value::Null, "z"],
    }
}

#[test]
fn no_expression_panics_and_answers_repeat() {
    let (root, cx) = (document(), EvalCx { now_ms: 1_700_000_000_000, ..EvalCx::default() });
    let (mut parsed, mut evaluated) = (0, 0);
    for seed in 0..ROUNDS {
        let spec = maker(seed).call(2);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let expression = Expression::parse(&spec, &ParseCx::default()).ok()?;
            let first = expression.eval(&cx, root.as_doc()).map(Value::into_owned);
            let second = expression.eval(&cx, root.as_doc()).map(Value::into_owned);
            Some((format!("{first:?}"), format!("{second:?}")))
        }));
        let result = result.unwrap_or_else(|_| panic!("seed {seed} panics: {spec:?}"));
        if let Some((first, second)) = result {
            assert_eq!(first, second, "seed {seed}: {spec:?}");
            parsed += 1;
            evaluated += u32::from(first.starts_with("Ok"));
        }
    }
    // The test covers evaluation, not parser errors.
    assert!(parsed > 12_000, "{parsed} parsed");
    assert!(evaluated > 9_000, "{evaluated} evaluated");
}

#[test]
fn no_accumulator_panics_and_merging_agrees() {
    const NAMES: [&str; 13] = [
        "$sum",
        "$avg",
        "$min",
        "$max",
        "$first",
        "$last",
        "$push",
        "$addToSet",
        "$stdDevPop",
        "$stdDevSamp",
        "$mergeObjects",
        "$concatArrays",
        "$setUnion",
    ];
    let cx = EvalCx::default();
    for seed in 0..3_000 {
        let maker = maker(seed);
        let name = NAMES[maker.below(NAMES.len())];
        let spec = AccumulatorSpec::parse(name, &"$v".into(), &ParseCx::default()).unwrap();
        let docs: Vec<DocBuf> = (0..maker.below(6)).map(|_| doc! { "v" => maker.leaf() }).collect();
        let split = maker.below(docs.len() + 1);
        let start = || spec.start(&cx, kauri_bson::Doc::EMPTY).unwrap();
        let (mut whole, mut left, mut right) = (start(), start(), start());
        let mut failed = false;
        for (at, doc) in docs.iter().enumerate() {
            let half = if at < split { &mut left } else { &mut right };
            failed |= spec.add(&mut whole, &cx, doc.as_doc()).is_err();
            failed |= spec.add(half, &cx, doc.as_doc()).is_err();
        }
        if failed {
            continue;
        }
        left.merge(right).unwrap();
        let result = |state| spec.result(state).unwrap();
        let (whole, merged) = (result(&whole), result(&left));
        let close = match (whole.as_f64_lossy(), merged.as_f64_lossy()) {
            // Rounding and overflow depend on the order of addition.
            (Some(a), Some(b)) => {
                !a.is_finite() || !b.is_finite() || (a - b).abs() <= a.abs() * 1e-9
            }
            _ => kauri_bson::equal(&whole, &merged),
        };
        assert!(close, "seed {seed}: {name} of {docs:?}: {whole:?}, merged {merged:?}");
    }
}
