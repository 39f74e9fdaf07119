//! The semantics of filters, case by case.

use kauri_base::Timestamp;
use kauri_base::clock::SystemClock;
use kauri_base::{ErrorCode, OperationContext, work};
use kauri_bson::{Decimal128, DocBuf, Value, array, doc};
use kauri_matcher::{MatchCx, MatchDetails, MatchExpr, Matcher, ParseCx, Place};
use std::sync::Arc;

fn matcher(filter: &DocBuf) -> Matcher {
    Matcher::parse(filter.as_doc(), &ParseCx::new(Place::Find))
        .unwrap_or_else(|e| panic!("{filter:?}: {e:?}"))
}

/// Checks each filter on each document, in every form that a filter can take.
fn check(cases: Vec<(DocBuf, DocBuf, bool)>) {
    let cx = MatchCx::new();
    for (filter, document, expected) in cases {
        let matcher = matcher(&filter);
        let optimized = matcher.expr().clone().optimize();
        let printed = self::matcher(&optimized.to_bson());
        let doc = document.as_doc();
        assert_eq!(matcher.matches(doc, &cx).unwrap(), expected, "{filter:?} on {doc:?}");
        assert_eq!(
            matcher.expr().matches(doc, &cx).unwrap(),
            expected,
            "tree: {filter:?} on {doc:?}"
        );
        assert_eq!(
            optimized.matches(doc, &cx).unwrap(),
            expected,
            "optimised: {filter:?} on {doc:?}"
        );
        assert_eq!(printed.matches(doc, &cx).unwrap(), expected, "printed: {filter:?} on {doc:?}");
    }
}

/// `{key: {operator: operand}}`
fn op<'v>(key: &str, operator: &str, operand: impl Into<Value<'v>>) -> DocBuf {
    let operand = operand.into();
    doc! { key => doc! { operator => operand } }
}

fn decimal(text: &str) -> Value<'static> {
    Value::Decimal128(Decimal128::parse(text).unwrap())
}

fn binary(bytes: &[u8]) -> Value<'_> {
    Value::Binary { subtype: 0, bytes: bytes.into() }
}

fn regex(pattern: &str, options: &str) -> Value<'static> {
    Value::Regex { pattern: pattern.to_owned().into(), options: options.to_owned().into() }
}

#[test]
fn equality_and_arrays() {
    check(vec![
        (doc! {}, doc! { "a" => 1 }, true),
        (doc! { "a" => 1 }, doc! { "a" => 1.0 }, true),
        (doc! { "a" => 1 }, doc! { "a" => decimal("1.0") }, true),
        (doc! { "a" => 1 }, doc! { "a" => true }, false),
        (doc! { "a" => 1 }, doc! { "a" => "1" }, false),
        (doc! { "a" => 1 }, doc! { "a" => array![2, 1] }, true),
        (doc! { "a" => 1 }, doc! { "a" => array![array![1]] }, false),
        (doc! { "a" => array![1, 2] }, doc! { "a" => array![1, 2] }, true),
        (doc! { "a" => array![1, 2] }, doc! { "a" => array![2, 1] }, false),
        (doc! { "a" => array![1, 2] }, doc! { "a" => array![0, array![1, 2]] }, true),
        (doc! { "a" => array![] }, doc! { "a" => array![array![]] }, true),
        (
            doc! { "a" => doc! { "x" => 1, "y" => 2 } },
            doc! { "a" => doc! { "y" => 2, "x" => 1 } },
            false,
        ),
        (doc! { "a" => doc! { "x" => 1 } }, doc! { "a" => doc! { "x" => 1.0 } }, true),
        (
            doc! { "a" => doc! { "b" => 1, "$gt" => 2 } },
            doc! { "a" => doc! { "b" => 1, "$gt" => 2 } },
            true,
        ),
        (doc! { "a" => "x" }, doc! { "a" => Value::Symbol("x".into()) }, true),
        (doc! { "" => 1 }, doc! { "" => 1 }, true),
        (doc! { "" => 1 }, doc! { "a" => 1 }, false),
        (doc! { "a." => 1 }, doc! { "a" => doc! { "" => 1 } }, true),
        (doc! { "a..b" => 1 }, doc! { "a" => doc! { "" => doc! { "b" => 1 } } }, true),
    ]);
}

#[test]
fn paths_through_arrays() {
    let nested = || doc! { "a" => array![doc! { "b" => 1 }, doc! { "b" => array![2, 3] }, 4] };
    check(vec![
        (doc! { "a.b" => 1 }, nested(), true),
        (doc! { "a.b" => 3 }, nested(), true),
        (doc! { "a.b" => 4 }, nested(), false),
        (doc! { "a.0" => doc! { "b" => 1 } }, nested(), true),
        (doc! { "a.0.b" => 1 }, nested(), true),
        (doc! { "a.1.b" => 1 }, nested(), false),
        (doc! { "a.1.b.1" => 3 }, nested(), true),
        (doc! { "a.b.1" => 3 }, nested(), true),
        (doc! { "a.2" => 4 }, nested(), true),
        (doc! { "a.02" => 4 }, nested(), false),
        (doc! { "a.0" => 1 }, doc! { "a" => array![array![1]] }, false),
        (doc! { "a.0.0" => 1 }, doc! { "a" => array![array![1]] }, true),
        (doc! { "a.0" => 1 }, doc! { "a" => doc! { "0" => 1 } }, true),
        (doc! { "a.0" => 1 }, doc! { "a" => array![doc! { "0" => 1 }] }, true),
        (doc! { "a.b" => 1 }, doc! { "a" => array![array![doc! { "b" => 1 }]] }, false),
        (doc! { "a.0.b" => 1 }, doc! { "a" => array![array![doc! { "b" => 1 }]] }, true),
        (doc! { "0" => 1 }, doc! { "0" => 1 }, true),
    ]);
}

#[test]
fn null_and_missing() {
    let null = || doc! { "a" => Value::Null };
    let below = || doc! { "a.b" => Value::Null };
    check(vec![
        (null(), doc! { "a" => Value::Null }, true),
        (null(), doc! {}, true),
        (null(), doc! { "a" => Value::Undefined }, false),
        (null(), doc! { "a" => array![] }, false),
        (null(), doc! { "a" => array![1, Value::Null] }, true),
        (null(), doc! { "a" => 0 }, false),
        (below(), doc! {}, true),
        (below(), doc! { "a" => 1 }, true),
        (below(), doc! { "a" => doc! {} }, true),
        (below(), doc! { "a" => array![] }, false),
        (below(), doc! { "a" => array![1] }, false),
        (below(), doc! { "a" => array![doc! { "b" => 1 }] }, false),
        (below(), doc! { "a" => array![doc! { "b" => 1 }, doc! {}] }, true),
        (op("a", "$ne", Value::Null), doc! {}, false),
        (op("a", "$ne", Value::Null), doc! { "a" => Value::Undefined }, true),
        (op("a", "$gte", Value::Null), doc! {}, true),
        (op("a", "$lte", Value::Null), doc! { "a" => Value::Null }, true),
        (op("a", "$gt", Value::Null), doc! { "a" => 1 }, false),
        (op("a", "$in", array![Value::Null, 3]), doc! {}, true),
        (op("a", "$nin", array![Value::Null]), doc! {}, false),
        (op("a", "$in", array![Value::Null, Value::MinKey]), doc! {}, true),
        (op("a", "$exists", true), doc! { "a" => Value::Null }, true),
        (op("a", "$exists", true), doc! {}, false),
        (op("a", "$exists", 0), doc! {}, true),
        (op("a", "$exists", Value::Null), doc! {}, true),
        (op("a", "$exists", ""), doc! {}, false),
        (op("a.b", "$exists", true), doc! { "a" => array![1, doc! { "b" => 2 }] }, true),
        (op("a.b", "$exists", false), doc! { "a" => array![] }, true),
        (op("a.0", "$exists", true), doc! { "a" => array![1] }, true),
        (op("a.1", "$exists", true), doc! { "a" => array![1] }, false),
        (op("a", "$exists", true), doc! { "a" => array![] }, true),
    ]);
}

#[test]
fn comparisons_stay_within_a_type() {
    let two_53 = 1i64 << 53;
    let nan = || Value::Double(f64::NAN);
    let date = Value::DateTime;
    let time = |seconds| Value::Timestamp(Timestamp { seconds, increment: 0 });
    check(vec![
        (op("a", "$gt", 5), doc! { "a" => "x" }, false),
        (op("a", "$lt", "x"), doc! { "a" => 1 }, false),
        (op("a", "$gt", 5), doc! { "a" => array![1, 9] }, true),
        (doc! { "a" => doc! { "$gt" => 5, "$lt" => 3 } }, doc! { "a" => array![1, 9] }, true),
        (op("a", "$gt", two_53), doc! { "a" => two_53 as f64 }, false),
        (op("a", "$gt", two_53 as f64), doc! { "a" => two_53 + 1 }, true),
        (op("a", "$lt", 0.1), doc! { "a" => decimal("0.1") }, true),
        (op("a", "$gte", nan()), doc! { "a" => nan() }, true),
        (op("a", "$lte", nan()), doc! { "a" => decimal("NaN") }, true),
        (op("a", "$lt", 5), doc! { "a" => nan() }, false),
        (op("a", "$gt", nan()), doc! { "a" => 5 }, false),
        (op("a", "$lt", nan()), doc! { "a" => nan() }, false),
        (doc! { "a" => nan() }, doc! { "a" => nan() }, true),
        (op("a", "$ne", nan()), doc! { "a" => 1 }, true),
        (op("a", "$gt", array![1]), doc! { "a" => array![1, 0] }, true),
        (op("a", "$gt", array![1]), doc! { "a" => array![array![2]] }, true),
        (op("a", "$gt", doc! { "x" => 1 }), doc! { "a" => doc! { "x" => 2 } }, true),
        (op("a", "$gt", false), doc! { "a" => true }, true),
        (op("a", "$gt", date(0)), doc! { "a" => time(9) }, false),
        (op("a", "$gt", date(0)), doc! { "a" => date(1) }, true),
        (op("a", "$gt", time(1)), doc! { "a" => time(2) }, true),
        (op("a", "$gt", Value::MinKey), doc! { "a" => 1 }, true),
        (op("a", "$gte", Value::MinKey), doc! {}, true),
        (op("a", "$lt", Value::MaxKey), doc! {}, true),
        (op("a", "$gt", Value::MaxKey), doc! { "a" => 1 }, false),
        (op("a", "$lt", Value::MinKey), doc! {}, false),
        (op("a", "$lte", Value::MaxKey), doc! { "a" => Value::MaxKey }, true),
        (op("a", "$eq", Value::MinKey), doc! { "a" => 1 }, false),
        (op("a", "$gt", binary(&[9])), doc! { "a" => binary(&[0, 0]) }, true),
        (op("a", "$eq", Value::ObjectId([1; 12])), doc! { "a" => Value::ObjectId([1; 12]) }, true),
        (op("a", "$lt", Value::ObjectId([2; 12])), doc! { "a" => Value::ObjectId([1; 12]) }, true),
    ]);
}

#[test]
fn negations_speak_of_all() {
    check(vec![
        (op("a", "$ne", 1), doc! { "a" => array![1, 2] }, false),
        (op("a", "$ne", 3), doc! { "a" => array![1, 2] }, true),
        (op("a", "$nin", array![3, 1]), doc! { "a" => array![1, 2] }, false),
        (op("a", "$not", doc! { "$gt" => 1 }), doc! { "a" => array![0, 2] }, false),
        (op("a", "$not", doc! { "$gt" => 1 }), doc! {}, true),
        (op("a", "$not", doc! { "$gt" => 1, "$lt" => 3 }), doc! { "a" => 2 }, false),
        (op("a", "$not", doc! { "$gt" => 1, "$lt" => 3 }), doc! { "a" => 5 }, true),
        (op("a", "$not", regex("^x", "")), doc! { "a" => "xy" }, false),
        (op("a", "$not", regex("^x", "")), doc! { "a" => 1 }, true),
        (op("a", "$not", doc! { "$not" => doc! { "$eq" => 1 } }), doc! { "a" => 1 }, true),
        (doc! { "$nor" => array![doc! { "a" => 1 }, doc! { "b" => 1 }] }, doc! { "a" => 2 }, true),
        (doc! { "$nor" => array![doc! { "a" => 1 }, doc! { "b" => 1 }] }, doc! { "b" => 1 }, false),
        (doc! { "$or" => array![doc! { "a" => 1 }, doc! { "b" => 1 }] }, doc! { "b" => 1 }, true),
        (
            doc! { "$and" => array![doc! { "a" => 1 }, doc! { "a" => 2 }] },
            doc! { "a" => array![1, 2] },
            true,
        ),
    ]);
}

#[test]
fn membership() {
    let many: Vec<Value<'_>> = (0..40).map(|n| Value::Int32(n * 3)).collect();
    check(vec![
        (op("a", "$in", array![1, "x"]), doc! { "a" => "x" }, true),
        (op("a", "$in", array![1, "x"]), doc! { "a" => array![7, 1.0] }, true),
        (op("a", "$in", array![]), doc! { "a" => 1 }, false),
        (op("a", "$nin", array![]), doc! { "a" => 1 }, true),
        (op("a", "$in", array![array![1, 2]]), doc! { "a" => array![1, 2] }, true),
        (op("a", "$in", array![regex("^x", "i"), 3]), doc! { "a" => "Xy" }, true),
        (op("a", "$in", array![regex("^x", "")]), doc! { "a" => regex("^x", "") }, true),
        (
            op("a", "$in", array![Value::Double(f64::NAN)]),
            doc! { "a" => Value::Double(f64::NAN) },
            true,
        ),
        (op("a", "$in", Value::array(many.clone())), doc! { "a" => 57 }, true),
        (op("a", "$in", Value::array(many.clone())), doc! { "a" => 58 }, false),
        (op("a", "$in", Value::array(many)), doc! { "a" => 57.0 }, true),
        (op("a", "$in", array![doc! { "x" => 1 }]), doc! { "a" => doc! { "x" => 1 } }, true),
    ]);
}

#[test]
fn arrays() {
    let objects =
        || doc! { "a" => array![doc! { "x" => 1, "y" => 2 }, doc! { "x" => 2, "y" => 1 }] };
    check(vec![
        (op("a", "$size", 2), doc! { "a" => array![1, 2] }, true),
        (op("a", "$size", 2.0), doc! { "a" => array![1, array![1, 2]] }, true),
        (op("a", "$size", 2), doc! { "a" => array![array![1, 2]] }, false),
        (op("a.0", "$size", 2), doc! { "a" => array![array![1, 2]] }, true),
        (op("a.b", "$size", 1), doc! { "a" => array![doc! { "b" => array![9] }] }, true),
        (op("a", "$size", 0), doc! {}, false),
        (op("a", "$all", array![1, 2]), doc! { "a" => array![2, 3, 1] }, true),
        (op("a", "$all", array![1, 2]), doc! { "a" => array![1] }, false),
        (op("a", "$all", array![1]), doc! { "a" => 1 }, true),
        (op("a", "$all", array![]), doc! { "a" => array![] }, false),
        (op("a", "$all", array![Value::Null]), doc! {}, true),
        (op("a", "$all", array![array![1]]), doc! { "a" => array![1] }, true),
        (
            op("a", "$all", array![regex("^x", ""), regex("y$", "")]),
            doc! { "a" => array!["xa", "ay"] },
            true,
        ),
        (
            op(
                "a",
                "$all",
                array![
                    doc! { "$elemMatch" => doc! { "x" => 1 } },
                    doc! { "$elemMatch" => doc! { "x" => 2, "y" => 1 } }
                ],
            ),
            objects(),
            true,
        ),
        (op("a", "$elemMatch", doc! { "x" => 1, "y" => 1 }), objects(), false),
        (op("a", "$elemMatch", doc! { "x" => 1, "y" => 2 }), objects(), true),
        (
            op("a", "$elemMatch", doc! { "$gt" => 1, "$lt" => 3 }),
            doc! { "a" => array![0, 4] },
            false,
        ),
        (
            op("a", "$elemMatch", doc! { "$gt" => 1, "$lt" => 3 }),
            doc! { "a" => array![0, 2] },
            true,
        ),
        (op("a", "$elemMatch", doc! { "$gt" => 1 }), doc! { "a" => 2 }, false),
        (op("a", "$elemMatch", doc! { "$eq" => 1 }), doc! { "a" => array![array![1]] }, false),
        (op("a", "$elemMatch", doc! { "0" => 1 }), doc! { "a" => array![array![1]] }, true),
        (
            op("a", "$elemMatch", doc! { "$elemMatch" => doc! { "$eq" => 1 } }),
            doc! { "a" => array![array![1]] },
            true,
        ),
        (
            op("a", "$elemMatch", doc! { "$not" => doc! { "$gt" => 1 } }),
            doc! { "a" => array![5, 1] },
            true,
        ),
        (
            op("a", "$elemMatch", doc! { "$nin" => array![1, 2] }),
            doc! { "a" => array![1, 2] },
            false,
        ),
        (op("a", "$elemMatch", doc! { "$all" => array![] }), doc! { "a" => array![1] }, false),
        (op("a", "$elemMatch", doc! {}), doc! { "a" => array![1, doc! {}] }, true),
        (op("a", "$elemMatch", doc! {}), doc! { "a" => array![1] }, false),
        (
            op("a", "$elemMatch", doc! { "$or" => array![doc! { "x" => 5 }, doc! { "y" => 1 }] }),
            objects(),
            true,
        ),
        (
            op("a", "$elemMatch", doc! { "b.c" => 1 }),
            doc! { "a" => array![doc! { "b" => array![doc! { "c" => 1 }] }] },
            true,
        ),
    ]);
}

#[test]
fn all_of_a_long_list() {
    let numbers = |range: std::ops::Range<i32>| Value::array(range.map(Value::Int32));
    let with = |extra: Value<'static>| {
        Value::array((0..40).map(Value::Int32).chain(std::iter::once(extra)))
    };
    check(vec![
        (op("a", "$all", numbers(0..40)), doc! { "a" => numbers(0..50) }, true),
        (op("a", "$all", numbers(0..40)), doc! { "a" => numbers(1..50) }, false),
        (op("a", "$all", numbers(0..40)), doc! {}, false),
        (op("a", "$all", with(Value::Null)), doc! { "a" => with(Value::Null) }, true),
        (op("a", "$all", with(numbers(0..50))), doc! { "a" => numbers(0..50) }, true),
        (op("a", "$all", with(5.0.into())), doc! { "a" => numbers(0..40) }, true),
        (
            op("a.b", "$all", with(Value::Null)),
            doc! { "a" => array![doc! { "b" => numbers(0..40) }, doc! {}] },
            true,
        ),
        (
            op("a.b", "$all", with(Value::Null)),
            doc! { "a" => array![doc! { "b" => numbers(0..40) }] },
            false,
        ),
        (
            doc! { "a" => doc! { "$all" => numbers(0..40), "$size" => 41 } },
            doc! { "a" => numbers(0..50) },
            false,
        ),
    ]);
}

#[test]
fn long_matches_can_be_interrupted() {
    let killed = OperationContext::detached(Arc::new(SystemClock::new()));
    killed.state().kill(ErrorCode::Interrupted);
    let (meter, cx) = (killed.meter(), MatchCx::new());
    let long = doc! { "a" => Value::array((0..1000).map(Value::Int32)) };
    let branches = Value::array((0..600).map(|n| Value::from(doc! { "b" => doc! { "$lt" => n } })));
    for filter in [
        doc! { "a" => -1 },
        op("a", "$elemMatch", doc! { "$lt" => 0 }),
        op("a", "$all", Value::array((960..1000).map(Value::Int32))),
        doc! { "$or" => branches },
    ] {
        let tree = matcher(&filter);
        let by_tree = work::with_meter(&meter, || tree.expr().matches(long.as_doc(), &cx));
        let by_plan = work::with_meter(&meter, || tree.matches(long.as_doc(), &cx));
        for result in [by_tree, by_plan] {
            assert_eq!(result.unwrap_err().code().number(), 11601, "{filter:?}");
        }
    }
}

#[test]
fn types() {
    check(vec![
        (op("a", "$type", "number"), doc! { "a" => decimal("1") }, true),
        (op("a", "$type", 16), doc! { "a" => 1 }, true),
        (op("a", "$type", 16.0), doc! { "a" => 1i64 }, false),
        (op("a", "$type", array!["string", 10]), doc! { "a" => Value::Null }, true),
        (op("a", "$type", "array"), doc! { "a" => array![1] }, true),
        (op("a", "$type", "int"), doc! { "a" => array!["x", 1] }, true),
        (op("a", "$type", "null"), doc! {}, false),
        (op("a", "$type", -1), doc! { "a" => Value::MinKey }, true),
        (op("a", "$type", "maxKey"), doc! { "a" => Value::MaxKey }, true),
        (op("a", "$type", 127), doc! { "a" => Value::MaxKey }, true),
        (op("a", "$type", "undefined"), doc! { "a" => Value::Undefined }, true),
    ]);
}

#[test]
fn modulo() {
    check(vec![
        (op("a", "$mod", array![4, 0]), doc! { "a" => 8 }, true),
        (op("a", "$mod", array![4.9, 0.9]), doc! { "a" => 8.7 }, true),
        (op("a", "$mod", array![3, -2]), doc! { "a" => -5 }, true),
        (op("a", "$mod", array![-1, 0]), doc! { "a" => i64::MIN }, true),
        (op("a", "$mod", array![3, 0]), doc! { "a" => decimal("6.9") }, true),
        (op("a", "$mod", array![3, 0]), doc! { "a" => Value::Double(f64::NAN) }, false),
        (op("a", "$mod", array![3, 0]), doc! { "a" => f64::INFINITY }, false),
        (op("a", "$mod", array![3, 0]), doc! { "a" => 1e300 }, false),
        (op("a", "$mod", array![3, 0]), doc! { "a" => "6" }, false),
        (op("a", "$mod", array![3, 0]), doc! {}, false),
        (op("a", "$mod", array![decimal("3.5"), 1i64]), doc! { "a" => array![7, 9] }, true),
        (
            op("a", "$mod", array![decimal("-9223372036854775808"), 0]),
            doc! { "a" => i64::MIN },
            true,
        ),
    ]);
}

#[test]
fn bits() {
    check(vec![
        (op("a", "$bitsAllSet", 5), doc! { "a" => 7 }, true),
        (op("a", "$bitsAllSet", array![0, 2]), doc! { "a" => 3 }, false),
        (op("a", "$bitsAnySet", array![0, 2]), doc! { "a" => 4.0 }, true),
        (op("a", "$bitsAllClear", 5), doc! { "a" => 2i64 }, true),
        (op("a", "$bitsAnyClear", 5), doc! { "a" => 1 }, true),
        (op("a", "$bitsAllSet", array![200]), doc! { "a" => -1 }, true),
        (op("a", "$bitsAllClear", array![64]), doc! { "a" => i64::MAX }, true),
        (op("a", "$bitsAllSet", array![63]), doc! { "a" => i64::MIN }, true),
        (op("a", "$bitsAllSet", 1), doc! { "a" => 1.5 }, false),
        (op("a", "$bitsAllSet", 1), doc! { "a" => decimal("1") }, true),
        (op("a", "$bitsAllSet", 1), doc! { "a" => 1e300 }, false),
        (op("a", "$bitsAllClear", 1), doc! { "a" => "x" }, false),
        (op("a", "$bitsAllClear", 1), doc! {}, false),
        (op("a", "$bitsAllSet", binary(&[0b101])), doc! { "a" => binary(&[0b111, 0]) }, true),
        (op("a", "$bitsAllSet", array![8]), doc! { "a" => binary(&[0, 1]) }, true),
        (op("a", "$bitsAllClear", array![200]), doc! { "a" => binary(&[0xFF]) }, true),
        (op("a", "$bitsAllSet", array![]), doc! { "a" => 1 }, true),
        (op("a", "$bitsAnySet", 0), doc! { "a" => 1 }, false),
    ]);
}

#[test]
fn regexes() {
    check(vec![
        (doc! { "a" => regex("b+", "") }, doc! { "a" => "abbc" }, true),
        (doc! { "a" => regex("B+", "i") }, doc! { "a" => array![1, "abbc"] }, true),
        (op("a", "$regex", "^a"), doc! { "a" => Value::Symbol("ab".into()) }, true),
        (op("a", "$regex", regex("^A", "i")), doc! { "a" => "ab" }, true),
        (doc! { "a" => doc! { "$options" => "i", "$regex" => "^A" } }, doc! { "a" => "ab" }, true),
        (
            doc! { "a" => doc! { "$regex" => regex("^A", ""), "$options" => "i" } },
            doc! { "a" => "ab" },
            true,
        ),
        (doc! { "a" => regex("^a", "") }, doc! { "a" => regex("^a", "") }, true),
        (doc! { "a" => regex("^a", "") }, doc! { "a" => regex("^a", "i") }, false),
        (op("a", "$eq", regex("^a", "")), doc! { "a" => "ab" }, false),
        (op("a", "$eq", regex("^a", "")), doc! { "a" => regex("^a", "") }, true),
        (op("a", "$regex", "x"), doc! { "a" => 1 }, false),
        (op("a", "$regex", "x"), doc! {}, false),
    ]);
}

#[test]
fn the_rest() {
    check(vec![
        (doc! { "$comment" => "why", "a" => 1 }, doc! { "a" => 1 }, true),
        (doc! { "$alwaysTrue" => 1 }, doc! {}, true),
        (doc! { "$alwaysFalse" => 1 }, doc! {}, false),
        (doc! { "$sampleRate" => 1 }, doc! {}, true),
        (doc! { "$sampleRate" => 0.0 }, doc! {}, false),
        (
            doc! { "$expr" => doc! { "$gt" => array!["$a", "$b"] } },
            doc! { "a" => 2, "b" => 1 },
            true,
        ),
        (
            doc! { "$expr" => doc! { "$gt" => array!["$a", "$b"] } },
            doc! { "a" => "x", "b" => 1 },
            true,
        ),
        (doc! { "$expr" => "$a" }, doc! { "a" => 0 }, false),
        (doc! { "$expr" => true }, doc! {}, true),
        (
            doc! { "a" => doc! { "$ref" => "c", "$id" => 1 } },
            doc! { "a" => doc! { "$ref" => "c", "$id" => 1 } },
            true,
        ),
        (
            op("a", "$elemMatch", doc! { "$id" => 1 }),
            doc! { "a" => array![doc! { "$ref" => "c", "$id" => 1 }] },
            true,
        ),
    ]);
}

#[test]
fn variables_reach_expressions() {
    let mut expressions = kauri_expr::ParseCx::default();
    expressions.vars.define("limit");
    let filter = doc! { "$expr" => doc! { "$gt" => array!["$a", "$$limit"] } };
    let parse_cx = ParseCx::new(Place::Find).with_expressions(&expressions);
    let matcher = Matcher::parse(filter.as_doc(), &parse_cx).unwrap();
    for (limit, expected) in [(1, true), (5, false)] {
        let vars = [Value::Int32(limit)];
        let cx = MatchCx::with_eval(kauri_expr::EvalCx { vars: &vars, ..Default::default() });
        assert_eq!(matcher.matches(doc! { "a" => 3 }.as_doc(), &cx).unwrap(), expected);
    }
}

#[test]
fn sampling_takes_its_share() {
    let random = kauri_base::clock::SeededRandom::new(3);
    let eval = kauri_expr::EvalCx { random: Some(&random), ..Default::default() };
    let matcher = matcher(&doc! { "$sampleRate" => 0.25 });
    let empty = doc! {};
    let cx = MatchCx::with_eval(eval);
    let taken = (0..10_000).filter(|_| matcher.matches(empty.as_doc(), &cx).unwrap()).count();
    assert!((2_300..2_700).contains(&taken), "{taken}");
}

#[test]
fn matched_positions() {
    let cases = [
        (doc! { "a" => 2 }, doc! { "a" => array![1, 2, 2] }, Some(1)),
        (doc! { "a" => array![1, 2] }, doc! { "a" => array![1, 2] }, None),
        (
            doc! { "a.b" => 2 },
            doc! { "a" => array![doc! { "b" => 1 }, doc! { "b" => array![0, 2] }] },
            Some(1),
        ),
        (doc! { "a.b" => 2 }, doc! { "a" => doc! { "b" => array![0, 0, 2] } }, Some(2)),
        (
            op("a", "$elemMatch", doc! { "b" => 3 }),
            doc! { "a" => array![1, doc! { "b" => 3 }] },
            Some(1),
        ),
        (
            op("a.c", "$elemMatch", doc! { "$gt" => 3 }),
            doc! { "a" => array![0, doc! { "c" => array![4] }] },
            Some(1),
        ),
        (doc! { "a" => 1, "b" => 5 }, doc! { "a" => array![0, 1], "b" => array![5] }, Some(0)),
        (doc! { "a" => 1, "b" => 5 }, doc! { "a" => array![0, 1], "b" => 5 }, Some(1)),
        // A list of equalities behaves as `$in`; other disjunctions set no position.
        (doc! { "$or" => array![doc! { "a" => 1 }] }, doc! { "a" => array![0, 1] }, Some(1)),
        (
            doc! { "$or" => array![doc! { "a" => 9 }, doc! { "a" => 2 }, doc! { "a" => 1 }] },
            doc! { "a" => array![0, 1, 2] },
            Some(1),
        ),
        (
            doc! { "$or" => array![doc! { "a" => 1 }, doc! { "b" => 1 }] },
            doc! { "a" => array![0, 1] },
            None,
        ),
        // The last condition by kind, not by place, determines the position.
        (
            doc! { "$and" => array![op("a", "$gt", 1), op("a", "$lt", 5)] },
            doc! { "a" => array![0, 1, 2, 3] },
            Some(2),
        ),
        (doc! { "a.1" => 1 }, doc! { "a" => array![0, 1] }, None),
        (op("a", "$not", doc! { "$gt" => 1 }), doc! { "a" => array![0, 1] }, None),
        (op("a", "$size", 2), doc! { "a" => array![0, 1] }, None),
    ];
    let cx = MatchCx::new();
    for (filter, document, expected) in cases {
        let mut details = MatchDetails::new();
        let matcher = matcher(&filter);
        assert!(matcher.matches_with_details(document.as_doc(), &cx, &mut details).unwrap());
        assert_eq!(details.elem_match_key(), expected, "{filter:?} on {document:?}");
    }
}

#[test]
fn filters_of_array_elements() {
    let cx = MatchCx::new();
    let parse_cx = ParseCx::new(Place::Elements);
    let document = doc! { "v" => array![5, doc! { "a" => array![1, 2] }, array![7, 8]] };
    let elems: Vec<_> = document.as_doc().get("v").unwrap().as_doc().unwrap().iter().collect();
    let named = [
        (doc! { "x" => doc! { "$gte" => 5 } }, [true, false, true]),
        (doc! { "x.a" => 2 }, [false, true, false]),
        (doc! { "x.0" => 7 }, [false, false, true]),
        (doc! { "x.a" => Value::Null }, [true, false, false]),
        (doc! { "$or" => array![doc! { "x" => 8 }, doc! { "x.a" => 1 }] }, [false, true, true]),
    ];
    for (filter, expected) in named {
        let expr = MatchExpr::parse(filter.as_doc(), &parse_cx).unwrap();
        let found: Vec<bool> = elems.iter().map(|e| expr.matches_named(*e, &cx).unwrap()).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let predicates = doc! { "$gte" => 5 };
    let expr = MatchExpr::parse_value_predicates(predicates.as_doc(), &parse_cx).unwrap();
    let found: Vec<bool> = elems.iter().map(|e| expr.matches_value(*e, &cx).unwrap()).collect();
    assert_eq!(found, [true, false, false]);
}

#[test]
fn malformed_documents_do_no_harm() {
    let whole = doc! { "a" => array![doc! { "b" => "text" }], "c" => decimal("1.5"), "d" => "x" };
    let filters = [
        doc! { "a.b" => "text", "c" => 1.5, "d" => regex("x", "") },
        op("a", "$elemMatch", doc! { "b" => doc! { "$type" => "string" } }),
        doc! { "$or" => array![op("c", "$mod", array![2, 1]), op("d", "$bitsAnySet", 3)] },
        doc! { "$jsonSchema" => doc! { "properties" => doc! { "a" => doc! { "minItems" => 1 } } } },
    ];
    let cx = MatchCx::new();
    let bytes = whole.as_bytes();
    let mut matched = 0;
    for filter in &filters {
        let matcher = matcher(filter);
        for position in 4..bytes.len() - 1 {
            for byte in [0, 1, 2, 3, 4, 0x13, 0x7F, 0xFF] {
                let mut bytes = bytes.to_vec();
                bytes[position] = byte;
                let broken = DocBuf::from_vec(bytes).unwrap();
                matched += usize::from(matcher.matches(broken.as_doc(), &cx).unwrap());
            }
        }
    }
    assert!(matched > 0);
}

#[test]
fn strings_that_are_not_utf8_compare_by_their_bytes() {
    let string = |bytes: &'static [u8]| Value::string_of_bytes(bytes);
    let one = |bytes: &'static [u8]| doc! { "a" => string(bytes) };
    let raw = [&2i32.to_le_bytes()[..], b"\xFF\0"].concat();
    let symbol = || DocBuf::build(|out| out.put_raw(b"a", kauri_bson::Type::Symbol, &raw));
    let list = || array![string(b"\xFE"), "a", string(b"\xFF")];
    // Longer than the lists that are searched linearly.
    let long = || Value::array((0..20).map(|n| Value::string_of_bytes(vec![b'a', 0x80 + n])));
    check(vec![
        (one(b"\xFF"), one(b"\xFF"), true),
        (one(b"\xFF"), one(b"\xFE"), false),
        (one(b"\xFF"), doc! { "a" => "\u{FFFD}" }, false),
        (doc! { "a" => "\u{FFFD}" }, one(b"\xFF"), false),
        (one(b"\xFF"), symbol(), true),
        (one(b"\xFF"), doc! { "a" => list() }, true),
        (op("a", "$gt", string(b"\xFE")), one(b"\xFF"), true),
        (op("a", "$gt", string(b"\xFE")), doc! { "a" => 5 }, false),
        (op("a", "$gt", string(b"\xFE")), doc! { "a" => doc! {} }, false),
        (op("a", "$lt", string(b"\xFE")), one(b"\xFF"), false),
        (op("a", "$lt", "b"), one(b"a\x80"), true),
        (op("a", "$gte", "a"), one(b"\x80"), true),
        (op("a", "$ne", string(b"\xFF")), one(b"\xFF"), false),
        (op("a", "$in", list()), one(b"\xFF"), true),
        (op("a", "$in", list()), one(b"\xFD"), false),
        (op("a", "$in", long()), one(b"a\x85"), true),
        (op("a", "$in", long()), one(b"a\x95"), false),
        (op("a", "$nin", list()), one(b"\xFE"), false),
        (op("a", "$all", array![string(b"\xFF")]), doc! { "a" => list() }, true),
        (op("a", "$type", "string"), one(b"\xFF"), true),
        (op("a", "$type", 2), one(b"\xFF"), true),
        (op("a", "$type", "symbol"), one(b"\xFF"), false),
        (op("a", "$type", "symbol"), symbol(), true),
        (op("a", "$regex", ".*"), one(b"a\xFF"), false),
        (op("a", "$regex", "\u{FFFD}"), one(b"\xFF"), false),
        (op("a", "$regex", "^$"), symbol(), false),
        (op("a", "$exists", true), one(b"\xFF"), true),
        (doc! { "$expr" => doc! { "$eq" => array!["$a", string(b"\xFF")] } }, one(b"\xFF"), true),
    ]);
    let schema =
        |rule: DocBuf| doc! { "$jsonSchema" => doc! { "properties" => doc! { "a" => rule } } };
    check(vec![
        (schema(doc! { "bsonType" => "string" }), one(b"\xFF"), true),
        (schema(doc! { "bsonType" => "int" }), one(b"\xFF"), false),
        (schema(doc! { "enum" => list() }), one(b"\xFF"), true),
        (schema(doc! { "enum" => array!["\u{FFFD}"] }), one(b"\xFF"), false),
        (schema(doc! { "minLength" => 3 }), one(b"\xC3\xA9\xFFa"), true),
        (schema(doc! { "minLength" => 4 }), one(b"\xC3\xA9\xFFa"), false),
        (schema(doc! { "maxLength" => 2 }), one(b"\xC3\xA9\xFFa"), false),
        (schema(doc! { "pattern" => ".*" }), one(b"\xFF"), false),
    ]);
}

#[test]
fn regular_expressions_have_to_be_utf8() {
    let bad = Value::string_of_bytes(&b"\xFF"[..]);
    let regex = DocBuf::build(|out| out.put_raw(b"a", kauri_bson::Type::Regex, b"\xFF\0\0"));
    let not = doc! { "a" => doc! { "$not" => regex.as_doc().value("a") } };
    let among = doc! { "a" => doc! { "$in" => array![regex.as_doc().value("a")] } };
    let options = doc! { "a" => doc! { "$regex" => "a", "$options" => bad.clone() } };
    for filter in [op("a", "$regex", bad), regex, not, among, options] {
        let error = Matcher::parse(filter.as_doc(), &ParseCx::new(Place::Find)).unwrap_err();
        assert_eq!(error.code().number(), 51091, "{filter:?}: {error:?}");
    }
}
