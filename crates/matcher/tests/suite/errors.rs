//! Rejected filters: the error codes, and the messages that tools show.

use kauri_bson::{Decimal128, DocBuf, Value, array, doc};
use kauri_matcher::{MatchExpr, ParseCx, Place};

fn op<'v>(operator: &str, operand: impl Into<Value<'v>>) -> DocBuf {
    let operand = operand.into();
    doc! { "a" => doc! { operator => operand } }
}

fn check_at(place: Place, cases: Vec<(DocBuf, i32, &str)>) {
    for (filter, code, message) in cases {
        match MatchExpr::parse(filter.as_doc(), &ParseCx::new(place)) {
            Ok(tree) => panic!("{filter:?} parses to {tree:?}"),
            Err(e) => {
                assert_eq!(e.code().number(), code, "{filter:?}: {e:?}");
                assert!(e.message().contains(message), "{filter:?}: {e:?}, not {message:?}");
            }
        }
    }
}

fn check(cases: Vec<(DocBuf, i32, &str)>) {
    check_at(Place::Find, cases);
}

fn regex(options: &str) -> Value<'static> {
    Value::Regex { pattern: "x".into(), options: options.to_owned().into() }
}

fn decimal(text: &str) -> Value<'static> {
    Value::Decimal128(Decimal128::parse(text).unwrap())
}

#[test]
fn unknown_operators() {
    check(vec![
        (op("$foo", 1), 2, "unknown operator: $foo"),
        (doc! { "a" => doc! { "$gt" => 1, "b" => 2 } }, 2, "unknown operator: b"),
        (
            doc! { "$foo" => 1 },
            2,
            "unknown top level operator: $foo. If you have a field name that starts with a '$' symbol, consider using $getField or $setField.",
        ),
        (
            doc! { "$not" => doc! { "a" => 1 } },
            2,
            "unknown top level operator: $not. If you are trying to negate an entire expression, use $nor.",
        ),
        (op("$expr", 1), 2, "unknown operator: $expr"),
        (op("$and", array![]), 2, "unknown operator: $and"),
        (op("$where", "x"), 2, "$where cannot be applied to a field"),
        (op("$not", doc! { "$foo" => 1 }), 2, "unknown operator: $foo"),
    ]);
}

#[test]
fn logical_operators() {
    let nonempty = "$and/$or/$nor must be a nonempty array";
    let entries = "$or/$and/$nor entries need to be full objects";
    check(vec![
        (doc! { "$and" => 1 }, 2, "$and argument must be an array"),
        (doc! { "$or" => doc! {} }, 2, "$or argument must be an array"),
        (doc! { "$nor" => array![] }, 2, nonempty),
        (doc! { "$and" => array![1] }, 2, entries),
        (doc! { "$or" => array![doc! {}, array![]] }, 2, entries),
        (op("$not", 1), 2, "$not needs a regex or a document"),
        (op("$not", doc! {}), 2, "$not cannot be empty"),
    ]);
}

#[test]
fn comparisons_and_lists() {
    check(vec![
        (op("$gt", regex("")), 2, "Can't have RegEx as arg to predicate over field 'a'."),
        (op("$ne", regex("")), 2, "Can't have regex as arg to $ne."),
        (op("$eq", Value::Undefined), 2, "cannot compare to undefined"),
        (op("$in", 1), 2, "$in needs an array"),
        (op("$nin", "x"), 2, "$nin needs an array"),
        (op("$in", array![doc! { "$gt" => 1 }]), 2, "cannot nest $ under $in"),
        (op("$in", array![regex("z")]), 51108, "invalid flag in regex options: z"),
        (op("$all", 1), 2, "$all needs an array"),
        (op("$all", array![doc! { "$gt" => 1 }]), 2, "no $ expressions in $all"),
        (
            op("$all", array![doc! { "$elemMatch" => doc! {} }, 1]),
            2,
            "$all/$elemMatch has to be consistent",
        ),
        (op("$all", array![1, doc! { "$elemMatch" => doc! {} }]), 2, "no $ expressions in $all"),
        (op("$elemMatch", 1), 2, "$elemMatch needs an Object"),
        (op("$elemMatch", array![]), 2, "$elemMatch needs an Object"),
        (op("$elemMatch", doc! { "$foo" => 1 }), 2, "unknown operator: $foo"),
        (
            op("$elemMatch", doc! { "$where" => "1" }),
            2,
            "$where can only be applied to the top-level document",
        ),
        (
            op("$elemMatch", doc! { "$expr" => 1 }),
            2,
            "$expr can only be applied to the top-level document",
        ),
        (op("$elemMatch", doc! { "$text" => doc! { "$search" => "x" } }), 2, "$text can only be"),
    ]);
}

#[test]
fn operands() {
    check(vec![
        (op("$size", -1), 2, "Failed to parse $size. Expected a non-negative number in: $size: -1"),
        (op("$size", 1.5), 2, "Failed to parse $size. Expected an integer: $size: 1.5"),
        (op("$size", "1"), 2, "Failed to parse $size. Expected a number in: $size: \"1\""),
        (op("$size", i64::MAX), 2, "Failed to parse $size. "),
        (op("$type", true), 14, "type must be represented as a number or a string"),
        (op("$type", "foo"), 2, "Unknown type name alias: foo"),
        (op("$type", 0), 2, "Invalid numerical type code: 0. Instead use {$exists:false}."),
        (op("$type", 20), 2, "Invalid numerical type code: 20"),
        (op("$type", 1.5), 2, "Invalid numerical type code: 1.5"),
        (op("$type", array![]), 9, "must match at least one type"),
        (op("$type", array![array![1]]), 14, "type must be represented"),
        (op("$mod", 1), 2, "malformed mod, needs to be an array"),
        (op("$mod", array![1]), 2, "malformed mod, not enough elements"),
        (op("$mod", array![1, 2, 3]), 2, "malformed mod, too many elements"),
        (op("$mod", array!["1", 2]), 2, "malformed mod, divisor not a number"),
        (op("$mod", array![1, "2"]), 2, "malformed mod, remainder not a number"),
        (op("$mod", array![0.5, 0]), 2, "divisor cannot be 0"),
        (
            op("$mod", array![f64::NAN, 0]),
            2,
            "malformed mod, divisor value is invalid :: caused by :: Unable to coerce NaN/Inf to integral type",
        ),
        (
            op("$mod", array![1, 1e19]),
            2,
            "malformed mod, remainder value is invalid :: caused by :: Out of bounds coercing to integral value",
        ),
        (op("$mod", array![decimal("9223372036854775808"), 1]), 2, "Out of bounds"),
        (op("$mod", array![decimal("Infinity"), 1]), 2, "Unable to coerce NaN/Inf"),
        (op("$bitsAllSet", -1.0), 9, "Expected a non-negative number in: $bitsAllSet: -1.0"),
        (op("$bitsAnySet", 1.2), 9, "Expected an integer: $bitsAnySet: 1.2"),
        (op("$bitsAnyClear", 1e19), 9, "Cannot represent as a 64-bit integer"),
        (
            op("$bitsAllClear", "123"),
            2,
            "a takes an Array, a number, or a BinData but received: $bitsAllClear: \"123\"",
        ),
        (
            op("$bitsAllSet", array![-1]),
            2,
            "Failed to parse bit position. Expected a non-negative number in: 0: -1",
        ),
        (
            op("$bitsAllSet", array![1.2]),
            2,
            "Failed to parse bit position. Expected an integer: 0: 1.2",
        ),
        (
            op("$bitsAllSet", array!["123"]),
            2,
            "Failed to parse bit position. Expected a number in: 0: \"123\"",
        ),
        (op("$bitsAllSet", array![1i64 << 31]), 2, "Failed to parse bit position. "),
    ]);
}

#[test]
fn regexes() {
    let both = |first: (&str, Value<'_>), second: (&str, Value<'_>)| {
        doc! { "a" => doc! { first.0 => first.1, second.0 => second.1 } }
    };
    check(vec![
        (op("$regex", 1), 2, "$regex has to be a string"),
        (op("$options", "i"), 2, "$options needs a $regex"),
        (both(("$regex", "x".into()), ("$options", 1.into())), 2, "$options has to be a string"),
        (
            both(("$regex", "x".into()), ("$options", "g".into())),
            51108,
            "invalid flag in regex options: g",
        ),
        (
            both(("$regex", regex("i")), ("$options", "m".into())),
            51075,
            "options set in both $regex and $options",
        ),
        (
            both(("$options", "m".into()), ("$regex", regex("i"))),
            51074,
            "options set in both $regex and $options",
        ),
        (op("$regex", "[x"), 51091, "Regular expression is invalid"),
        (op("$regex", "a\0b"), 2, "Regular expression cannot contain an embedded null byte"),
        (op("$regex", "a".repeat(16_385)), 51091, "Regular expression is invalid"),
        (doc! { "a" => regex("q") }, 51108, "invalid flag in regex options: q"),
    ]);
}

#[test]
fn operators_that_need_more_than_documents() {
    check(vec![
        (doc! { "$where" => "true" }, 2, "no globalScriptEngine in $where parsing"),
        (doc! { "$where" => 1 }, 2, "$where got bad type"),
        (doc! { "$text" => doc! { "$search" => "x" } }, 27, "text index required for $text query"),
        (doc! { "$text" => doc! {} }, 4, "Missing expected field \"$search\""),
        (doc! { "$text" => doc! { "$search" => "x", "b" => 1 } }, 2, "extra fields in $text"),
        (doc! { "$text" => doc! { "$search" => "x", "$language" => "French" } }, 27, "text index"),
        (
            doc! { "$text" => doc! { "$search" => "x", "$language" => "klingon" } },
            2,
            "unsupported language: \"klingon\"",
        ),
        (doc! { "$text" => "x" }, 14, "$text expects an object"),
        (doc! { "$alwaysTrue" => 2 }, 9, "$alwaysTrue must be an integer value of 1"),
        (doc! { "$sampleRate" => 2 }, 2, "numeric argument to $sampleRate must be in [0, 1]"),
        (doc! { "$sampleRate" => "x" }, 2, "argument to $sampleRate must be a numeric type"),
    ]);
}

#[test]
fn geospatial_operators() {
    let point = |x: f64, y: f64| doc! { "type" => "Point", "coordinates" => array![x, y] };
    let near = |argument: DocBuf| op("$near", argument);
    let geometry = |geometry: DocBuf| near(doc! { "$geometry" => geometry });
    let no_index = "unable to find index for $geoNear query";
    let text = || doc! { "$search" => "x" };
    check(vec![
        (op("$geoWithin", doc! {}), 2, "geospatial operator $geoWithin is not supported"),
        (op("$geoIntersects", doc! {}), 2, "$geoIntersects is not supported"),
        (op("$maxDistance", 1), 2, "$maxDistance is not supported"),
        (op("$near", array![0, 0]), 291, no_index),
        (geometry(point(180.0, -90.0)), 291, no_index),
        (near(doc! { "$geometry" => point(1.0, 2.0), "$maxDistance" => 5 }), 291, no_index),
        (doc! { "a" => doc! { "$near" => array![0, 0], "$maxDistance" => 5 } }, 291, no_index),
        (
            doc! { "a" => doc! { "$near" => array![0, 0], "$maxDistance" => "5" } },
            16895,
            "must be a number",
        ),
        (
            doc! { "a" => doc! { "$near" => array![0, 0], "$minDistance" => -1 } },
            16894,
            "non-negative",
        ),
        (
            doc! { "a" => doc! { "$near" => array![0, 0], "$eq" => 1 } },
            34413,
            "invalid argument in geo near query: $eq",
        ),
        (op("$near", array![0]), 2, "invalid argument in geo near query"),
        (op("$near", 1), 2, "near must be first"),
        (near(doc! { "$maxDistance" => 1, "$minDistance" => 2 }), 2, "$geometry is required"),
        (near(doc! {}), 2, "$geometry is required for geo near query"),
        (near(doc! { "$geometry" => 1 }), 2, "$geometry must be an object"),
        (geometry(point(180.1, 0.0)), 2, "longitude/latitude is out of bounds"),
        (geometry(point(0.0, f64::NAN)), 2, "invalid point"),
        (geometry(doc! { "type" => "Polygon", "coordinates" => array![0, 0] }), 2, "invalid point"),
        (
            near(doc! { "$geometry" => point(0.0, 0.0), "$maxDistance" => -1 }),
            2,
            "$maxDistance must be",
        ),
        (near(doc! { "$geometry" => point(0.0, 0.0), "$foo" => 1 }), 2, "$foo"),
        (
            doc! { "$or" => array![op("$near", array![0, 0]), doc! { "b" => 1 }] },
            2,
            "geo $near must be top-level expr",
        ),
        (op("$not", doc! { "$near" => array![0, 0] }), 2, "geo $near must be top-level expr"),
        (
            doc! { "$and" => array![op("$near", array![0, 0]), op("$near", array![1, 1])] },
            2,
            "Too many geoNear expressions",
        ),
        (doc! { "$and" => array![op("$near", array![0, 0])] }, 291, no_index),
        (
            doc! { "a" => doc! { "$near" => array![0, 0] }, "$text" => text() },
            2,
            "text and geoNear not allowed in same query",
        ),
        (
            doc! { "$and" => array![doc! { "$text" => text() }, doc! { "$text" => text() }] },
            2,
            "Too many text expressions",
        ),
        (
            doc! { "$nor" => array![doc! { "$text" => text() }] },
            2,
            "text expression not allowed in nor",
        ),
    ]);
}

#[test]
fn operators_forbidden_in_a_context() {
    let expr = || doc! { "$expr" => doc! { "$gt" => array!["$a", 1] } };
    let schema = || doc! { "$jsonSchema" => doc! { "required" => array!["a"] } };
    let text = || doc! { "$text" => doc! { "$search" => "x" } };
    let not_here = "is not allowed in this context";
    let near = "$geoNear, $near, and $nearSphere are not allowed in this context";
    check_at(
        Place::Aggregation,
        vec![(doc! { "$where" => "1" }, 2, not_here), (op("$near", array![0, 0]), 5_626_500, near)],
    );
    check_at(
        Place::Validator,
        vec![
            (doc! { "$where" => "1" }, 2, not_here),
            (text(), 2, not_here),
            (op("$nearSphere", array![0, 0]), 5_626_500, near),
        ],
    );
    for place in [Place::PartialIndex, Place::Elements] {
        check_at(
            place,
            vec![
                (expr(), 224, not_here),
                (schema(), 224, not_here),
                (doc! { "$where" => "1" }, 2, not_here),
                (text(), 2, not_here),
                (op("$near", array![0, 0]), 5_626_500, near),
            ],
        );
    }
    for place in [Place::Aggregation, Place::Validator] {
        assert!(MatchExpr::parse(expr().as_doc(), &ParseCx::new(place)).is_ok());
        assert!(MatchExpr::parse(schema().as_doc(), &ParseCx::new(place)).is_ok());
    }
}

#[test]
fn depth_and_size_are_bounded() {
    let nested = |levels: usize| {
        (0..levels).fold(doc! { "a" => 1 }, |inner, _| doc! { "$and" => array![inner] })
    };
    let cx = ParseCx::new(Place::Find);
    assert!(MatchExpr::parse(nested(100).as_doc(), &cx).is_ok());
    check(vec![(nested(101), 2, "exceeded maximum query tree depth of 100")]);
    let nots = (0..5_000).fold(doc! { "$eq" => 1 }, |inner, _| doc! { "$not" => inner });
    check(vec![(doc! { "a" => nots }, 2, "exceeded maximum query tree depth of 100")]);
    let schemas = (0..5_000).fold(doc! {}, |inner, _| doc! { "not" => inner });
    check(vec![(doc! { "$jsonSchema" => schemas }, 2, "exceeded maximum query tree depth of 100")]);
    let many = Value::array((0..1_000_001).map(Value::Int32));
    check(vec![(op("$in", many), 2, "more than 1000000 predicates")]);
}
