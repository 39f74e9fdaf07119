//! `$fill` by examples.

use super::{column, equal, explained, parsed, run};
use kauri_bson::{DocBuf, Value, array, doc};

fn rows() -> Vec<DocBuf> {
    let null = || Value::Null;
    [
        (1, "a", 1.into(), 7.into()),
        (2, "b", 10.into(), null()),
        (3, "a", null(), null()),
        (5, "a", 5.into(), null()),
        (6, "b", null(), 3.into()),
        (8, "b", 16.into(), null()),
    ]
    .map(|(id, p, v, w): (i32, &str, Value<'static>, Value<'static>)| {
        doc! { "_id" => id, "p" => p, "v" => v, "w" => w }
    })
    .to_vec()
}

fn filled(spec: DocBuf, field: &str) -> Vec<Value<'static>> {
    let by_id = doc! { "$sort" => doc! { "_id" => 1 } };
    column(&run(&rows(), &[doc! { "$fill" => spec }, by_id]).unwrap(), field)
}

fn numbers(of: [f64; 6]) -> [Value<'static>; 6] {
    of.map(|n| if n.is_nan() { Value::Null } else { Value::Double(n) })
}

#[test]
fn gaps_take_the_last_value_a_value_between_or_a_given_one() {
    let sort = || doc! { "_id" => 1 };
    let locf = doc! { "sortBy" => sort(), "output" => doc! { "w" => doc! { "method" => "locf" } } };
    assert!(equal(&filled(locf, "w"), &numbers([7.0, 7.0, 7.0, 7.0, 3.0, 3.0])));
    let linear = || doc! { "v" => doc! { "method" => "linear" } };
    let by_field =
        doc! { "partitionByFields" => array!["p"], "sortBy" => sort(), "output" => linear() };
    let expected = numbers([1.0, 10.0, 3.0, 5.0, 14.0, 16.0]);
    assert!(equal(&filled(by_field, "v"), &expected));
    let by_expression = doc! { "partitionBy" => "$p", "sortBy" => sort(), "output" => linear() };
    assert!(equal(&filled(by_expression, "v"), &expected));
    let value = doc! { "output" => doc! { "w" => doc! { "value" => doc! { "$add" => array!["$_id", 100] } } } };
    assert!(equal(&filled(value, "w"), &numbers([7.0, 102.0, 103.0, 105.0, 3.0, 108.0])));
}

#[test]
fn fill_explains_as_windows_and_added_fields() {
    let output = doc! {
        "v" => doc! { "method" => "linear" },
        "w" => doc! { "value" => 5 },
        "u" => doc! { "method" => "locf" },
    };
    let spec = doc! { "partitionByFields" => array!["p"], "sortBy" => doc! { "_id" => 1 }, "output" => output };
    let stage = doc! { "$fill" => spec };
    let windows = doc! { "v" => doc! { "$linearFill" => "$v" }, "u" => doc! { "$locf" => "$u" } };
    let expected = [
        doc! { "$setWindowFields" => doc! {
        "partitionBy" => doc! { "p" => "$p" }, "sortBy" => doc! { "_id" => 1 }, "output" => windows } },
        doc! { "$addFields" => doc! { "w" => doc! { "$ifNull" => array!["$w", 5] } } },
    ];
    assert_eq!(explained(stage.clone()), expected);
    assert_eq!(parsed(&vec![stage.clone(); 500]).unwrap().stages.len(), 1000);
    let error = parsed(&vec![stage; 501]).map(|_| ()).unwrap_err();
    assert_eq!(error.code().number(), 5054701);
    let value = doc! { "$fill" => doc! { "output" => doc! { "w" => doc! { "value" => 5 } } } };
    assert_eq!(explained(value).len(), 1);
}

#[test]
fn rows_made_by_densify_are_filled() {
    let docs = [(0, 10.0), (4, 30.0)].map(|(t, v)| doc! { "t" => t, "v" => Value::Double(v) });
    let stages = [
        doc! { "$densify" => doc! { "field" => "t", "range" => doc! { "step" => 1, "bounds" => "full" } } },
        doc! { "$fill" => doc! { "sortBy" => doc! { "t" => 1 }, "output" => doc! { "v" => doc! { "method" => "linear" } } } },
    ];
    let found = run(&docs, &stages).unwrap();
    assert_eq!(column(&found, "v"), [10.0, 15.0, 20.0, 25.0, 30.0].map(Value::Double));
}
