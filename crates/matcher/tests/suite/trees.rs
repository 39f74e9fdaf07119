//! Match trees as the planner and the catalog use them: optimised, printed, compared, asked for paths.

use kauri_bson::{DocBuf, Value, array, doc};
use kauri_matcher::{MatchExpr, ParseCx, Place, is_subset_of};

fn parse(filter: &DocBuf) -> MatchExpr {
    MatchExpr::parse(filter.as_doc(), &ParseCx::new(Place::Find)).unwrap()
}

fn op<'v>(key: &str, operator: &str, operand: impl Into<Value<'v>>) -> DocBuf {
    let operand = operand.into();
    doc! { key => doc! { operator => operand } }
}

fn regex(pattern: &str) -> Value<'static> {
    Value::Regex { pattern: pattern.to_owned().into(), options: "".into() }
}

#[test]
fn prints_as_explain_does() {
    let cases = [
        (doc! {}, doc! {}),
        (doc! { "a" => 1 }, op("a", "$eq", 1)),
        (
            doc! { "a" => 1, "b" => 2 },
            doc! { "$and" => array![op("a", "$eq", 1), op("b", "$eq", 2)] },
        ),
        (op("a", "$ne", 1), op("a", "$not", doc! { "$eq" => 1 })),
        (op("a", "$nin", array![2, 1]), op("a", "$not", doc! { "$in" => array![1, 2] })),
        (op("a", "$exists", false), op("a", "$not", doc! { "$exists" => true })),
        (
            op("a", "$not", doc! { "$gt" => 1, "$lt" => 5 }),
            doc! { "$nor" => array![doc! { "$and" => array![op("a", "$gt", 1), op("a", "$lt", 5)] }] },
        ),
        (doc! { "a" => regex("^x") }, op("a", "$regex", "^x")),
        (
            op("a", "$all", array![1, 2]),
            doc! { "$and" => array![op("a", "$eq", 1), op("a", "$eq", 2)] },
        ),
        (op("a", "$all", array![]), doc! { "$alwaysFalse" => 1.0 }),
        (
            op("a", "$elemMatch", doc! { "b" => 1 }),
            op("a", "$elemMatch", doc! { "b" => doc! { "$eq" => 1 } }),
        ),
        (
            op("a", "$elemMatch", doc! { "$gt" => 1, "$ne" => 3 }),
            op("a", "$elemMatch", doc! { "$gt" => 1, "$not" => doc! { "$eq" => 3 } }),
        ),
        (op("a", "$type", array!["number", "string"]), op("a", "$type", array!["number", 2])),
        (op("a", "$mod", array![4.5, 1]), op("a", "$mod", array![4i64, 1i64])),
        (op("a", "$bitsAllSet", 5), op("a", "$bitsAllSet", array![0, 2])),
        (op("a", "$in", array![regex("x"), 3, 1, 3.0]), op("a", "$in", array![1, 3, regex("x")])),
    ];
    for (filter, expected) in cases {
        assert_eq!(parse(&filter).to_bson(), expected, "{filter:?}");
    }
}

#[test]
fn optimises() {
    let a = |value: i32| op("a", "$eq", value);
    let cases = [
        (doc! { "$and" => array![doc! { "a" => 1 }] }, a(1)),
        (
            doc! { "$and" => array![doc! { "b" => 1 }, doc! { "$and" => array![doc! { "a" => 1 }] }] },
            doc! { "$and" => array![a(1), op("b", "$eq", 1)] },
        ),
        (doc! { "b" => 1, "a" => 1 }, doc! { "$and" => array![a(1), op("b", "$eq", 1)] }),
        (op("a", "$in", array![1, 1.0]), a(1)),
        (op("a", "$in", array![]), doc! { "$alwaysFalse" => 1.0 }),
        (op("a", "$in", array![regex("x")]), op("a", "$regex", "x")),
        (op("a", "$nin", array![]), doc! { "$alwaysTrue" => 1.0 }),
        (
            doc! { "$or" => array![doc! { "a" => 2 }, doc! { "a" => 1 }] },
            op("a", "$in", array![1, 2]),
        ),
        (
            doc! { "$or" => array![doc! { "a" => 2 }, doc! { "b" => 1 }, op("a", "$in", array![1, 3])] },
            doc! { "$or" => array![op("b", "$eq", 1), op("a", "$in", array![1, 2, 3])] },
        ),
        (
            doc! { "$or" => array![doc! { "a" => regex("x") }, doc! { "a" => 1 }] },
            op("a", "$in", array![1, regex("x")]),
        ),
        (
            doc! { "$or" => array![op("a", "$eq", regex("x")), op("a", "$eq", regex("y"))] },
            doc! { "$or" => array![op("a", "$eq", regex("x")), op("a", "$eq", regex("y"))] },
        ),
        (doc! { "$or" => array![doc! { "$alwaysFalse" => 1 }] }, doc! { "$alwaysFalse" => 1.0 }),
        (doc! { "$or" => array![doc! { "a" => 1 }, doc! {}] }, doc! { "$alwaysTrue" => 1.0 }),
        (doc! { "$nor" => array![doc! {}] }, doc! { "$alwaysFalse" => 1.0 }),
        (doc! { "a" => 1, "$alwaysFalse" => 1 }, doc! { "$alwaysFalse" => 1.0 }),
        (op("a", "$not", doc! { "$not" => doc! { "$eq" => 1 } }), a(1)),
        (op("a", "$elemMatch", doc! { "$in" => array![] }), doc! { "$alwaysFalse" => 1.0 }),
        (doc! { "$expr" => true, "a" => 1 }, a(1)),
        (
            doc! { "$nor" => array![a(1), op("b", "$gt", 2)] },
            doc! { "$nor" => array![a(1), op("b", "$gt", 2)] },
        ),
    ];
    for (filter, expected) in cases {
        assert_eq!(parse(&filter).optimize().to_bson(), expected, "{filter:?}");
    }
}

#[test]
fn subsets() {
    let gt = |v: i32| op("a", "$gt", v);
    let cases = [
        (doc! { "a" => 7 }, gt(5), true),
        (doc! { "a" => 5 }, gt(5), false),
        (doc! { "a" => 5 }, op("a", "$gte", 5), true),
        (gt(7), gt(5), true),
        (gt(5), gt(7), false),
        (op("a", "$gte", 5), gt(5), false),
        (op("a", "$lt", 5), op("a", "$lte", 5), true),
        (op("a", "$lte", 5), op("a", "$lt", 5), false),
        (doc! { "a" => "x" }, gt(5), false),
        (doc! { "b" => 7 }, gt(5), false),
        (doc! { "a" => 7, "b" => 1 }, gt(5), true),
        (doc! { "a" => 7, "b" => 1 }, doc! { "a" => gt(5).as_doc().value("a"), "b" => 1 }, true),
        (doc! { "a" => 7 }, doc! { "a" => 7, "b" => 1 }, false),
        (op("a", "$in", array![6, 7]), gt(5), true),
        (op("a", "$in", array![5, 7]), gt(5), false),
        (doc! { "a" => 6 }, op("a", "$in", array![6, 7]), true),
        (op("a", "$in", array![6]), op("a", "$in", array![6, 7]), true),
        (op("a", "$in", array![6, 8]), op("a", "$in", array![6, 7]), false),
        (doc! { "$or" => array![doc! { "a" => 6 }, doc! { "a" => 9 }] }, gt(5), true),
        (doc! { "$or" => array![doc! { "a" => 6 }, doc! { "b" => 9 }] }, gt(5), false),
        (doc! { "a" => 6 }, doc! { "$or" => array![gt(5), doc! { "b" => 1 }] }, true),
        (doc! { "a" => 6 }, op("a", "$exists", true), true),
        (doc! { "a" => Value::Null }, op("a", "$exists", true), false),
        (op("a", "$gte", Value::MinKey), op("a", "$exists", true), false),
        (op("a", "$in", array![1, Value::Null]), op("a", "$exists", true), false),
        (op("a", "$ne", Value::Null), op("a", "$exists", true), true),
        (op("a.b", "$ne", Value::Null), op("a.b", "$exists", true), false),
        (op("a", "$ne", 1), op("a", "$exists", true), false),
        (op("a", "$type", "string"), op("a", "$exists", true), true),
        (op("a", "$size", 1), op("a", "$exists", true), true),
        (op("a", "$type", "int"), op("a", "$type", "number"), true),
        (op("a", "$type", "number"), op("a", "$type", "int"), false),
        (doc! { "a" => 5 }, op("a", "$type", "number"), true),
        (doc! { "a" => 5 }, op("a", "$type", "int"), false),
        (doc! { "a" => "x" }, op("a", "$type", "string"), false),
        (op("a", "$lt", 5), op("a", "$lt", Value::Double(f64::NAN)), false),
        (op("a", "$lte", Value::Double(f64::NAN)), op("a", "$lt", 5), false),
        (doc! { "a" => regex("^x") }, doc! { "a" => regex("^x") }, true),
        (doc! { "a" => 1 }, doc! {}, true),
        (doc! {}, doc! { "a" => 1 }, false),
        (op("a", "$not", doc! { "$gt" => 5 }), op("a", "$not", doc! { "$gt" => 7 }), true),
        (op("a", "$not", doc! { "$gt" => 7 }), op("a", "$not", doc! { "$gt" => 5 }), false),
    ];
    for (narrow, wide, expected) in cases {
        let found = is_subset_of(&parse(&narrow).optimize(), &parse(&wide).optimize());
        assert_eq!(found, expected, "{narrow:?} in {wide:?}");
    }
}

#[test]
fn paths_and_equalities() {
    let tree = parse(&doc! {
        "a" => 1,
        "$or" => array![doc! { "b.c" => 2 }, op("d", "$elemMatch", doc! { "e" => 1 })],
        "f" => doc! { "$in" => array![3], "$gt" => 0 },
        "$and" => array![doc! { "g" => doc! { "$eq" => "x" } }, op("h", "$ne", 4)],
    });
    let dependencies = tree.dependencies();
    let paths: Vec<&str> = dependencies.paths.iter().map(String::as_str).collect();
    assert_eq!(paths, ["a", "b.c", "d", "f", "g", "h"]);
    assert!(!dependencies.whole_document);
    let equalities: Vec<(&str, Value<'_>)> =
        tree.equalities().into_iter().map(|(p, v)| (p.as_str(), v.borrow())).collect();
    assert_eq!(equalities, [("a", 1.into()), ("f", 3.into()), ("g", "x".into())]);
    let expr = parse(&doc! { "$expr" => "$a" });
    assert!(expr.dependencies().whole_document);
}

#[test]
fn partial_index_filters() {
    let allowed = [
        doc! { "a" => 1, "b" => doc! { "$gt" => 1, "$lte" => 5 } },
        op("a", "$exists", true),
        op("a", "$type", "string"),
        doc! { "$or" => array![doc! { "a" => 1 }, op("b", "$in", array![1, 2])] },
        doc! { "$and" => array![doc! { "a" => 1 }, doc! { "$and" => array![doc! { "b" => 1 }] }] },
    ];
    for filter in allowed {
        parse(&filter).check_partial_filter().unwrap();
    }
    let refused = [
        op("a", "$ne", 1),
        op("a", "$exists", false),
        op("a", "$regex", "^x"),
        op("a", "$size", 1),
        op("a", "$elemMatch", doc! { "x" => 1 }),
        doc! { "$nor" => array![doc! { "a" => 1 }] },
        doc! { "$or" => array![doc! { "a" => 1 }, op("b", "$mod", array![2, 0])] },
    ];
    for filter in refused {
        let error = parse(&filter).check_partial_filter().unwrap_err();
        assert_eq!(error.code().number(), 67, "{filter:?}");
    }
}
