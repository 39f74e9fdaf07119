//! Random and broken filters for the parser. The parser returns a tree or an error and never panics. An
//! accepted filter can be optimised, printed, parsed again and matched.

use kauri_base::RandomSource;
use kauri_base::clock::SeededRandom;
use kauri_bson::{Decimal128, DocBuf, DocWriter, Value, array, doc};
use kauri_matcher::{MatchCx, MatchExpr, Matcher, ParseCx, Place, is_subset_of};

const SEED: u64 = 20_240_607;

const OPERATORS: [&str; 50] = [
    "$eq",
    "$ne",
    "$gt",
    "$gte",
    "$lt",
    "$lte",
    "$in",
    "$nin",
    "$and",
    "$or",
    "$nor",
    "$not",
    "$exists",
    "$type",
    "$expr",
    "$jsonSchema",
    "$mod",
    "$regex",
    "$options",
    "$text",
    "$where",
    "$geoWithin",
    "$geoIntersects",
    "$near",
    "$nearSphere",
    "$maxDistance",
    "$all",
    "$elemMatch",
    "$size",
    "$bitsAllSet",
    "$bitsAllClear",
    "$bitsAnySet",
    "$bitsAnyClear",
    "$comment",
    "$rand",
    "$sampleRate",
    "$alwaysTrue",
    "$alwaysFalse",
    "$ref",
    "$id",
    "$db",
    "$",
    "$bogus",
    "a",
    "b",
    "a.b",
    "a.0",
    "",
    ".",
    "a..0",
];
const KEYWORDS: [&str; 32] = [
    "type",
    "bsonType",
    "enum",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "title",
    "description",
    "minItems",
    "maxItems",
    "uniqueItems",
    "items",
    "additionalItems",
    "required",
    "minProperties",
    "maxProperties",
    "properties",
    "patternProperties",
    "additionalProperties",
    "dependencies",
    "a",
    "b",
    "$ref",
];

struct Fuzz {
    random: SeededRandom,
}

impl Fuzz {
    fn below(&self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    fn name(&self) -> &'static str {
        let names: &[&str] = if self.below(5) == 0 { &KEYWORDS } else { &OPERATORS };
        names[self.below(names.len() as u64) as usize]
    }

    fn document(&self, out: &mut DocWriter<'_>, depth: u32) {
        for _ in 0..self.below(3) + u64::from(depth > 2) {
            let name = self.name();
            match self.below(if depth == 0 { 4 } else { 10 }) {
                0..=3 => out.put(name, self.scalar()),
                4..=7 => self.document(&mut out.document(name), depth - 1),
                _ => {
                    let mut items = out.array(name);
                    for _ in 0..self.below(4) {
                        if self.below(2) == 0 {
                            self.document(&mut items.document(), depth - 1);
                        } else {
                            items.push(self.scalar());
                        }
                    }
                }
            }
        }
    }

    fn scalar(&self) -> Value<'static> {
        let decimals = ["NaN", "Infinity", "-1", "9223372036854775808", "1E+6144", "1E-6176"];
        let aliases = ["number", "string", "a", "$a", "$$ROOT", "^x", "(", "i", "object", "array"];
        match self.below(18) {
            0..=3 => Value::Int32(self.below(5) as i32 - 2),
            4 => Value::Int64(i64::MIN),
            5 => Value::Int64(i64::MAX),
            6 => Value::Double([f64::NAN, f64::INFINITY, -0.5, 1e300][self.below(4) as usize]),
            7 => Value::Decimal128(Decimal128::parse(decimals[self.below(6) as usize]).unwrap()),
            8..=10 => Value::String(aliases[self.below(10) as usize].into()),
            11 => Value::Null,
            12 => Value::Bool(self.below(2) == 0),
            13 => Value::Regex {
                pattern: ["^x", "(", "a*"][self.below(3) as usize].into(),
                options: ["", "i", "z"][self.below(3) as usize].into(),
            },
            14 => Value::Binary { subtype: 0, bytes: vec![0xA5; self.below(4) as usize].into() },
            15 => Value::Undefined,
            16 => [Value::MinKey, Value::MaxKey][self.below(2) as usize].clone(),
            _ => Value::DateTime(0),
        }
    }
}

const PLACES: [Place; 5] =
    [Place::Find, Place::Aggregation, Place::Validator, Place::PartialIndex, Place::Elements];

/// Parses the filter in every context; returns the tree of the last context that accepts it.
fn survive(filter: &DocBuf, documents: &[DocBuf]) -> Option<MatchExpr> {
    let cx = MatchCx::new();
    let mut taken = None;
    for place in PLACES {
        let parse_cx = ParseCx::new(place);
        let Ok(tree) = MatchExpr::parse(filter.as_doc(), &parse_cx) else { continue };
        let printed = tree.to_bson();
        let optimized = tree.clone().optimize();
        let again = MatchExpr::parse(printed.as_doc(), &parse_cx)
            .unwrap_or_else(|e| panic!("{filter:?} prints as {printed:?}: {e:?}"));
        assert_eq!(again.to_bson(), printed, "printing {filter:?} twice");
        assert!(is_subset_of(&tree, &tree), "{filter:?} is no subset of itself");
        assert_eq!(optimized.clone().optimize().to_bson(), optimized.to_bson(), "{filter:?}");
        let matcher = Matcher::new(optimized);
        for document in documents {
            let plain = tree.matches(document.as_doc(), &cx);
            if let Ok(false) = plain {
                assert!(tree.explain_mismatch(document.as_doc(), &cx).is_ok(), "{filter:?}");
            }
            // Which of several failing branches is looked at may differ, so errors aren't compared.
            if let (Ok(plain), Ok(fast)) = (plain, matcher.matches(document.as_doc(), &cx)) {
                assert_eq!(plain, fast, "{filter:?} on {document:?}");
            }
        }
        taken = Some(tree);
    }
    taken
}

fn documents() -> [DocBuf; 3] {
    [
        doc! {},
        doc! { "a" => array![1, doc! { "b" => "x" }, Value::Null], "b" => -0.5, "" => "a" },
        doc! { "a" => doc! { "b" => array![array![0]], "0" => 1 }, "$id" => 3 },
    ]
}

#[test]
fn random_filters() {
    let fuzz = Fuzz { random: SeededRandom::new(SEED) };
    let documents = documents();
    let mut taken = 0;
    for _ in 0..100_000 {
        let filter = DocBuf::build(|w| fuzz.document(w, 4));
        taken += u32::from(survive(&filter, &documents).is_some());
    }
    assert!(taken > 10_000, "{taken}");
}

#[test]
fn broken_filters() {
    let filters = [
        doc! { "a" => doc! { "$gt" => 1, "$in" => array![1, "x", Value::Null] }, "b.c" => "y" },
        doc! { "$or" => array![doc! { "a" => doc! { "$size" => 2 } }, doc! { "b" => doc! {
        "$elemMatch" => doc! { "c" => doc! { "$type" => array!["int", 2] } } } }] },
        doc! { "$jsonSchema" => doc! { "required" => array!["a"], "properties" => doc! { "a" => doc! {
        "bsonType" => "array", "items" => doc! { "minimum" => 3 } } } } },
        doc! { "a" => doc! { "$regex" => "^x", "$options" => "i" }, "b" => doc! { "$mod" => array![3, 1] } },
        doc! { "$expr" => doc! { "$gt" => array!["$a", "$b"] }, "c" => doc! { "$bitsAllSet" => array![1] } },
    ];
    let documents = documents();
    let random = SeededRandom::new(SEED);
    let mut refused = 0;
    for filter in &filters {
        assert!(survive(filter, &documents).is_some());
        let bytes = filter.as_bytes();
        for _ in 0..3_000 {
            let mut bytes = bytes.to_vec();
            for _ in 0..1 + random.next_u64() % 3 {
                let position = 4 + random.next_u64() as usize % (bytes.len() - 5);
                bytes[position] = random.next_u64() as u8;
            }
            let broken = DocBuf::from_vec(bytes).unwrap();
            let parsed = MatchExpr::parse(broken.as_doc(), &ParseCx::new(Place::Find));
            match parsed {
                Ok(tree) => {
                    for document in &documents {
                        let _ = tree.matches(document.as_doc(), &MatchCx::new());
                    }
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
}
