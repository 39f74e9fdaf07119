//! `$derivative`, `$integral`, `$expMovingAvg` and `$linearFill` by examples.

use super::{column, equal, looks, run};
use kauri_bson::{Decimal128, DocBuf, Value, array, doc};

fn of(
    rows: &[(Value<'static>, Value<'static>)],
    direction: i32,
    function: DocBuf,
) -> Vec<Value<'static>> {
    let docs: Vec<DocBuf> =
        rows.iter().map(|(x, y)| doc! { "x" => x.clone(), "y" => y.clone() }).collect();
    let spec = doc! { "sortBy" => doc! { "x" => direction }, "output" => doc! { "r" => function } };
    column(&run(&docs, &[doc! { "$setWindowFields" => spec }]).unwrap(), "r")
}

fn ints(rows: &[(i32, i32)]) -> Vec<(Value<'static>, Value<'static>)> {
    rows.iter().map(|(x, y)| (Value::Int32(*x), Value::Int32(*y))).collect()
}

fn doubles<const COUNT: usize>(of: [f64; COUNT]) -> [Value<'static>; COUNT] {
    of.map(|n| if n.is_nan() { Value::Null } else { Value::Double(n) })
}

fn seconds(rows: &[(i32, i32)]) -> Vec<(Value<'static>, Value<'static>)> {
    let ms = |s: i32| Value::DateTime(1_600_000_000_000 + i64::from(s) * 1000);
    rows.iter().map(|(x, y)| (ms(*x), Value::Int32(*y))).collect()
}

const NULL: f64 = f64::NAN;

#[test]
fn derivatives_of_windows() {
    let rows = [(0, 5), (2, 9), (3, 8), (7, 20)];
    let window =
        |window: DocBuf| doc! { "$derivative" => doc! { "input" => "$y" }, "window" => window };
    let before = || window(doc! { "documents" => array![-1, 0] });
    assert!(equal(&of(&ints(&rows), 1, before()), &doubles([NULL, 2.0, -1.0, 3.0])));
    let after = window(doc! { "documents" => array![0, 1] });
    assert!(equal(&of(&ints(&rows), -1, after), &doubles([3.0, -1.0, 2.0, NULL])));
    let range = window(doc! { "range" => array![-3, 0] });
    assert!(equal(&of(&ints(&rows), 1, range), &doubles([NULL, 2.0, 1.0, NULL])));
    let beyond = window(doc! { "documents" => array![5, 6] });
    assert!(equal(&of(&ints(&rows), 1, beyond), &doubles([NULL; 4])));
    // Rows at the same position, and rows without a value.
    assert!(equal(&of(&ints(&[(1, 5), (1, 9)]), 1, before()), &doubles([NULL, NULL])));
    let gap = [(Value::Int32(1), Value::Int32(5)), (Value::Int32(2), Value::Null)];
    assert!(equal(&of(&gap, 1, before()), &doubles([NULL, NULL])));
    let decimal = [
        (Value::Int32(1), Value::Decimal128(Decimal128::from(5))),
        (Value::Int32(3), Value::Int32(9)),
    ];
    assert_eq!(of(&decimal, 1, before())[1], Value::Decimal128(Decimal128::from(2)));
    let timed = |unit: &str| {
        doc! {
            "$derivative" => doc! { "input" => "$y", "unit" => unit },
            "window" => doc! { "range" => array![-2, 0], "unit" => "second" },
        }
    };
    assert!(equal(&of(&seconds(&rows), 1, timed("second")), &doubles([NULL, 2.0, -1.0, NULL])));
    assert!(equal(&of(&seconds(&rows), 1, timed("minute")), &doubles([NULL, 120.0, -60.0, NULL])));
}

#[test]
fn integrals_of_windows() {
    let rows = [(0, 5), (2, 9), (3, 8), (7, 20)];
    let window =
        |window: DocBuf| doc! { "$integral" => doc! { "input" => "$y" }, "window" => window };
    let before = window(doc! { "documents" => array![-1, 0] });
    assert!(equal(&of(&ints(&rows), 1, before), &doubles([0.0, 14.0, 8.5, 56.0])));
    let all = doc! { "$integral" => doc! { "input" => "$y" } };
    assert!(equal(&of(&ints(&rows), 1, all), &doubles([78.5; 4])));
    let so_far = window(doc! { "range" => array!["unbounded", -1] });
    assert!(equal(&of(&ints(&rows), 1, so_far), &doubles([NULL, 0.0, 14.0, 22.5])));
    let timed = doc! {
        "$integral" => doc! { "input" => "$y", "unit" => "minute" },
        "window" => doc! { "documents" => array!["unbounded", "current"] },
    };
    let minutes = [0.0, 14.0 / 60.0, 22.5 / 60.0, 78.5 / 60.0];
    assert!(equal(&of(&seconds(&rows), 1, timed), &doubles(minutes)));
}

#[test]
fn averages_that_forget() {
    let row = |x: i32, y: Value<'static>| (Value::Int32(x), y);
    let rows = [
        row(1, 8.into()),
        row(2, Value::Null),
        row(3, 16.into()),
        row(4, "x".into()),
        row(5, 4.into()),
    ];
    let half = |rows: &[(Value<'static>, Value<'static>)], how: (&str, Value<'static>)| {
        of(rows, 1, doc! { "$expMovingAvg" => doc! { "input" => "$y", how.0 => how.1 } })
    };
    let expected = doubles([8.0, 8.0, 12.0, 12.0, 8.0]);
    assert!(equal(&half(&rows, ("N", 3.into())), &expected));
    assert_eq!(half(&rows, ("alpha", 0.5.into())), expected);
    assert!(equal(&half(&rows[1..2], ("N", 3.into())), &doubles([NULL])));
    let decimal = [row(1, 8.into()), row(2, Value::Decimal128(Decimal128::from(16)))];
    let found = half(&decimal, ("N", 3.into()));
    assert_eq!(found, [Value::Double(8.0), Value::Decimal128(Decimal128::parse("12.0").unwrap())]);
    let prices = [13.0, 15.4, 12.0, 11.7].iter().enumerate();
    let prices: Vec<_> = prices.map(|(at, y)| row(at as i32, Value::Double(*y))).collect();
    let expected = doubles([13.0, 14.8, 12.7, 11.95]);
    assert_eq!(half(&prices, ("alpha", 0.75.into())), expected);
}

#[test]
fn lines_through_gaps() {
    let row = |x: f64, y: f64| {
        (Value::Double(x), if y.is_nan() { Value::Null } else { Value::Double(y) })
    };
    let fill = || doc! { "$linearFill" => "$y" };
    let rows = [
        row(0.0, NULL),
        row(1.0, 1.0),
        row(2.0, NULL),
        row(4.0, NULL),
        row(5.0, 9.0),
        row(6.0, NULL),
    ];
    assert_eq!(of(&rows, 1, fill()), doubles([NULL, 1.0, 3.0, 7.0, 9.0, NULL]));
    assert_eq!(of(&rows, -1, fill()), doubles([NULL, 9.0, 7.0, 3.0, 1.0, NULL]));
    let dates = [(0, Value::Int32(1)), (10, Value::Null), (40, Value::Int32(9))];
    let dates = dates.map(|(ms, y)| (Value::DateTime(ms), y));
    assert!(equal(&of(&dates, 1, fill()), &doubles([1.0, 3.0, 9.0])));
    let decimals = [
        (Value::Int32(0), Value::Decimal128(Decimal128::from(1))),
        (Value::Int32(1), Value::Null),
        (Value::Int32(4), Value::Int32(9)),
    ];
    assert_eq!(of(&decimals, 1, fill())[1], Value::Decimal128(Decimal128::from(3)));
}

/// The end of a gap is searched once, not for each row in the gap.
#[test]
fn the_work_of_a_line_grows_with_its_rows() {
    let work = |rows: i32| {
        let value = |x: i32| if x == 0 || x == rows - 1 { x.into() } else { Value::Null };
        let docs: Vec<DocBuf> = (0..rows).map(|x| doc! { "x" => x, "y" => value(x) }).collect();
        let output = doc! { "r" => doc! { "$linearFill" => "$y" } };
        let spec = doc! { "sortBy" => doc! { "x" => 1 }, "output" => output };
        looks(&docs, &[doc! { "$setWindowFields" => spec }])
    };
    let (some, more) = (work(2_000), work(8_000));
    assert!(more < 8 * some, "{some} looks for 2000 rows, {more} for 8000");
}

#[test]
fn deviations_of_frames_whose_start_moves() {
    let pop = |lower: Value<'static>| {
        let documents = Value::array([lower, Value::Int32(0)]);
        doc! { "$stdDevPop" => "$y", "window" => doc! { "documents" => documents } }
    };
    let (moving, growing) = (|| pop(Value::Int32(-1)), || pop("unbounded".into()));
    let rows = |ys: &[Value<'static>]| -> Vec<_> {
        ys.iter().enumerate().map(|(x, y)| (Value::Int32(x as i32), y.clone())).collect()
    };
    let numbers = rows(&[1.into(), 3.into(), 3.into(), Value::Null, Value::Null]);
    let [zero, one] = [Value::Double(0.0), Value::Double(1.0)];
    let int = Value::Int32(0);
    // Of one number the result is an int, of none null.
    let expected = [int.clone(), one.clone(), zero.clone(), int, Value::Null];
    let found = of(&numbers, 1, moving());
    assert!(equal(&found, &expected));
    let types = |values: &[Value<'static>]| values.iter().map(Value::ty).collect::<Vec<_>>();
    assert_eq!(types(&found), types(&expected));
    assert_eq!(types(&of(&numbers, 1, growing()))[0], zero.ty());
    // A non-finite value makes the result null while it is in the frame.
    for odd in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let some = rows(&[odd.into(), 1.into(), 3.into()]);
        let expected = [Value::Null, Value::Null, one.clone()];
        assert!(equal(&of(&some, 1, moving()), &expected), "{odd}");
        let grown = of(&some, 1, growing());
        assert!(grown.iter().all(|v| v.as_f64_lossy().is_some_and(f64::is_nan)), "{grown:?}");
        let samp =
            doc! { "$stdDevSamp" => "$y", "window" => doc! { "documents" => array![-1, 0] } };
        let found = of(&some, 1, samp);
        assert!(equal(&found[..2], &[Value::Null, Value::Null]), "{found:?}");
    }
}
