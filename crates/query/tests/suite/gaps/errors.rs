//! Rejected specifications, with MongoDB's codes.

use super::{DAY_MS, code, parsed, run};
use kauri_bson::{Decimal128, DocBuf, Value, array, doc};

fn refused(stage: DocBuf) -> i32 {
    parsed(&[stage]).map_or_else(|error| error.code().number(), |_| 0)
}

#[test]
fn wrong_specifications_of_densify() {
    let range =
        |range: DocBuf| refused(doc! { "$densify" => doc! { "field" => "v", "range" => range } });
    let bounds = |bounds: Value<'static>| range(doc! { "step" => 1, "bounds" => bounds });
    let date = |days: i64| Value::DateTime(days * DAY_MS);
    let full = || doc! { "step" => 1, "bounds" => "full" };
    assert_eq!(refused(doc! { "$densify" => 5 }), 9);
    assert_eq!(refused(doc! { "$densify" => doc! { "range" => full() } }), 40414);
    assert_eq!(refused(doc! { "$densify" => doc! { "field" => "v" } }), 40414);
    assert_eq!(refused(doc! { "$densify" => doc! { "field" => 1, "range" => full() } }), 14);
    assert_eq!(
        refused(doc! { "$densify" => doc! { "field" => "v", "range" => full(), "x" => 1 } }),
        40415
    );
    assert_eq!(refused(doc! { "$densify" => doc! { "field" => "$v", "range" => full() } }), 16410);
    let by = |field: &str, by: Value<'static>| {
        refused(
            doc! { "$densify" => doc! { "field" => field, "partitionByFields" => by, "range" => full() } },
        )
    };
    assert_eq!(by("v", "p".into()), 14);
    assert_eq!(by("v", array![1]), 14);
    assert_eq!(by("v", array!["$p"]), 16410);
    assert_eq!(by("v", array!["v"]), 8993000);
    assert_eq!(by("v", array!["v.w"]), 8993000);
    assert_eq!(by("v.w", array!["v"]), 9554500);
    assert_eq!(by("v", array!["vw"]), 0);
    assert_eq!(range(doc! { "step" => 1 }), 40414);
    assert_eq!(range(doc! { "bounds" => "full" }), 40414);
    assert_eq!(range(doc! { "step" => "1", "bounds" => "full" }), 14);
    assert_eq!(range(doc! { "step" => 0, "bounds" => "full" }), 5733401);
    assert_eq!(range(doc! { "step" => -1, "bounds" => array![0, 1] }), 5733401);
    assert_eq!(range(doc! { "step" => 1, "unit" => 1, "bounds" => "full" }), 14);
    assert_eq!(range(doc! { "step" => 1, "unit" => "eon", "bounds" => "full" }), 9);
    assert_eq!(bounds("none".into()), 5946802);
    assert_eq!(bounds("partition".into()), 5733408);
    assert_eq!(bounds(1.into()), 5733402);
    assert_eq!(bounds(array![1]), 5733403);
    assert_eq!(bounds(array![1, 2, 3]), 5733403);
    assert_eq!(bounds(array![2, 1]), 5733402);
    assert_eq!(bounds(array![1, date(1)]), 5733406);
    assert_eq!(bounds(array![date(1), date(2)]), 5733501);
    assert_eq!(bounds(array![Value::Double(1.0), 2]), 5876900);
    assert_eq!(
        bounds(array![
            Value::Decimal128(Decimal128::from(1)),
            Value::Decimal128(Decimal128::from(2))
        ]),
        5876900
    );
    let unit = |step: Value<'static>, bounds: Value<'static>| {
        range(doc! { "step" => step, "unit" => "day", "bounds" => bounds })
    };
    assert_eq!(unit(1.into(), array![1, 2]), 5733409);
    assert_eq!(unit(1.into(), array![date(1), 2]), 5733402);
    assert_eq!(unit(1.into(), array![date(2), date(1)]), 5733402);
    assert_eq!(unit(Value::Double(1.5), array![date(1), date(2)]), 6586400);
    assert_eq!(unit(Value::Double(2.0), array![date(1), date(2)]), 0);
}

#[test]
fn values_that_steps_do_not_lead_to() {
    let number = || doc! { "$densify" => doc! { "field" => "v", "range" => doc! { "step" => 1, "bounds" => "full" } } };
    let time = || {
        let range = doc! { "step" => 1, "unit" => "day", "bounds" => "full" };
        doc! { "$densify" => doc! { "field" => "v", "range" => range } }
    };
    let of = |value: Value<'static>, stage: DocBuf| code(run(&[doc! { "v" => value }], &[stage]));
    assert_eq!(of("x".into(), number()), 5733201);
    assert_eq!(of("x".into(), time()), 5733201);
    assert_eq!(of(1.into(), time()), 6053600);
    assert_eq!(of(Value::DateTime(1), number()), 6053600);
    assert_eq!(of(Value::DateTime(1), time()), 0);
}

#[test]
fn wrong_specifications_of_fill() {
    let fill = |spec: DocBuf| refused(doc! { "$fill" => spec });
    let output = |output: Value<'static>| fill(doc! { "output" => doc! { "v" => output } });
    let locf = || doc! { "v" => doc! { "method" => "locf" } };
    assert_eq!(refused(doc! { "$fill" => "x" }), 9);
    assert_eq!(fill(doc! {}), 40414);
    assert_eq!(fill(doc! { "output" => doc! {} }), 6050203);
    assert_eq!(fill(doc! { "output" => locf(), "x" => 1 }), 40415);
    assert_eq!(output("x".into()), 6050200);
    assert_eq!(output(doc! { "method" => "x" }.into()), 6050202);
    assert_eq!(output(doc! { "method" => 1 }.into()), 14);
    assert_eq!(output(doc! { "method" => "locf", "second" => "locf" }.into()), 40415);
    assert_eq!(output(doc! { "method" => "locf", "value" => 1 }.into()), 6050201);
    assert_eq!(output(doc! {}.into()), 6050201);
    assert_eq!(output(doc! { "method" => "linear" }.into()), 605001);
    let both =
        doc! { "output" => locf(), "partitionBy" => "$p", "partitionByFields" => array!["p"] };
    assert_eq!(fill(both), 6050204);
    assert_eq!(fill(doc! { "output" => locf(), "partitionBy" => 1 }), 14);
    assert_eq!(fill(doc! { "output" => locf(), "partitionByFields" => array!["$p"] }), 16410);
    assert_eq!(fill(doc! { "output" => locf(), "partitionByFields" => array![1] }), 14);
    assert_eq!(fill(doc! { "output" => locf(), "sortBy" => doc! { "v" => 2 } }), 15975);
}

#[test]
fn wrong_window_functions() {
    let sorted = |by: DocBuf, function: DocBuf| {
        refused(
            doc! { "$setWindowFields" => doc! { "sortBy" => by, "output" => doc! { "x" => function } } },
        )
    };
    let alone = |function: DocBuf| {
        refused(doc! { "$setWindowFields" => doc! { "output" => doc! { "x" => function } } })
    };
    let by = || doc! { "x" => 1 };
    let window = || doc! { "documents" => array![-1, 0] };
    for name in ["$derivative", "$integral"] {
        let of = |arguments: DocBuf| doc! { name => arguments, "window" => window() };
        assert_eq!(sorted(by(), of(doc! { "input" => "$y" })), 0);
        assert_eq!(sorted(by(), doc! { name => "$y", "window" => window() }), 9);
        assert_eq!(sorted(by(), of(doc! {})), 9);
        assert_eq!(sorted(by(), of(doc! { "input" => "$y", "z" => 1 })), 9);
        assert_eq!(sorted(by(), of(doc! { "input" => "$y", "unit" => 1 })), 9);
        assert_eq!(sorted(by(), of(doc! { "input" => "$y", "unit" => "eon" })), 9);
        assert_eq!(sorted(by(), of(doc! { "input" => "$y", "unit" => "week" })), 0);
        for unit in ["month", "quarter", "year"] {
            assert_eq!(sorted(by(), of(doc! { "input" => "$y", "unit" => unit })), 5490710);
        }
        assert_eq!(alone(doc! { name => doc! { "input" => "$y" } }), 9);
        assert_eq!(sorted(doc! { "x" => 1, "z" => 1 }, of(doc! { "input" => "$y" })), 9);
    }
    assert_eq!(sorted(by(), doc! { "$derivative" => doc! { "input" => "$y" } }), 9);
    assert_eq!(sorted(by(), doc! { "$integral" => doc! { "input" => "$y" } }), 0);
    assert_eq!(alone(doc! { "$linearFill" => "$y" }), 605001);
    assert_eq!(sorted(doc! { "x" => 1, "z" => 1 }, doc! { "$linearFill" => "$y" }), 605001);
    for name in ["$linearFill", "$locf"] {
        assert_eq!(sorted(by(), doc! { name => "$y", "window" => window() }), 9);
    }
    let average = |arguments: DocBuf| sorted(by(), doc! { "$expMovingAvg" => arguments });
    assert_eq!(average(doc! { "input" => "$y", "N" => 2.0 }), 0);
    assert_eq!(average(doc! { "input" => "$y", "alpha" => 0.5 }), 0);
    for wrong in [
        doc! { "input" => "$y" },
        doc! { "input" => "$y", "N" => 2, "alpha" => 0.5 },
        doc! { "input" => "$y", "M" => 2 },
        doc! { "output" => "$y", "N" => 2 },
        doc! { "input" => "$y", "N" => 0.5 },
        doc! { "input" => "$y", "N" => 0 },
        doc! { "input" => "$y", "N" => "2" },
        doc! { "input" => "$y", "alpha" => 0 },
        doc! { "input" => "$y", "alpha" => 1 },
        doc! { "input" => "$y", "alpha" => "x" },
    ] {
        assert_eq!(average(wrong.clone()), 9, "{wrong:?}");
    }
    let two = || doc! { "$expMovingAvg" => doc! { "input" => "$y", "N" => 2 } };
    assert_eq!(alone(two()), 9);
    let framed =
        doc! { "$expMovingAvg" => doc! { "input" => "$y", "N" => 2 }, "window" => window() };
    assert_eq!(sorted(by(), framed), 9);
    assert_eq!(sorted(by(), doc! { "$expMovingAvg" => "$y" }), 9);
}

#[test]
fn wrong_rows_of_window_functions() {
    let of = |function: DocBuf, rows: &[(Value<'static>, Value<'static>)]| {
        let docs: Vec<DocBuf> =
            rows.iter().map(|(x, y)| doc! { "x" => x.clone(), "y" => y.clone() }).collect();
        let spec = doc! { "sortBy" => doc! { "x" => 1 }, "output" => doc! { "r" => function } };
        code(run(&docs, &[doc! { "$setWindowFields" => spec }]))
    };
    let all = || doc! { "documents" => array!["unbounded", "unbounded"] };
    let derivative = |arguments: DocBuf| doc! { "$derivative" => arguments, "window" => all() };
    let integral = |arguments: DocBuf| doc! { "$integral" => arguments };
    let (plain, timed) =
        (|| doc! { "input" => "$y" }, || doc! { "input" => "$y", "unit" => "day" });
    let numbers = [(1.into(), 1.into()), (2.into(), 2.into())];
    let dates = [(Value::DateTime(1), 1.into()), (Value::DateTime(2), 2.into())];
    assert_eq!(of(derivative(plain()), &dates), 5624901);
    assert_eq!(of(derivative(timed()), &numbers), 5624900);
    assert_eq!(of(derivative(plain()), &[("a".into(), 1.into())]), 5624902);
    assert_eq!(of(derivative(plain()), &[(1.into(), 1.into()), (2.into(), "a".into())]), 14);
    assert_eq!(of(integral(plain()), &dates), 5423902);
    assert_eq!(of(integral(timed()), &numbers), 5423901);
    assert_eq!(of(integral(plain()), &[(1.into(), "a".into())]), 5423900);
    assert_eq!(of(integral(plain()), &[(1.into(), Value::Null)]), 5423900);
    let fill = || doc! { "$linearFill" => "$y" };
    assert_eq!(of(fill(), &[(1.into(), 1.into()), (1.into(), Value::Null)]), 6050106);
    assert_eq!(of(fill(), &[(Value::Null, 1.into())]), 14);
    assert_eq!(of(fill(), &[(1.into(), "a".into())]), 14);
    let mixed = [(1.into(), 1.into()), (2.into(), Value::Null), (Value::DateTime(3), 1.into())];
    assert_eq!(of(fill(), &mixed), 14);
}
