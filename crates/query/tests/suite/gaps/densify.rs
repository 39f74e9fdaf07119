//! `$densify` by examples.

use super::{DAY_MS, code, column, equal, explained, parsed, run, run_within};
use kauri_bson::{Decimal128, DocBuf, Value, array, doc};
use kauri_query::exec::Flow;

fn densify(range: DocBuf) -> DocBuf {
    doc! { "$densify" => doc! { "field" => "v", "range" => range } }
}

fn of_partitions(range: DocBuf) -> DocBuf {
    doc! { "$densify" => doc! { "field" => "v", "partitionByFields" => array!["p"], "range" => range } }
}

fn values(of: impl IntoIterator<Item = i32>) -> Vec<Value<'static>> {
    of.into_iter().map(Value::Int32).collect()
}

fn docs(of: &[i32]) -> Vec<DocBuf> {
    of.iter().map(|v| doc! { "_id" => *v, "v" => *v }).collect()
}

#[test]
fn the_full_range_is_filled_between_the_least_and_the_greatest_value() {
    let found =
        run(&docs(&[4, 0, 7]), &[densify(doc! { "step" => 2, "bounds" => "full" })]).unwrap();
    assert_eq!(column(&found, "v"), values([0, 2, 4, 6, 7]));
    assert_eq!(found[1], doc! { "v" => 2 });
    assert!(run(&[], &[densify(doc! { "step" => 2, "bounds" => "full" })]).unwrap().is_empty());
}

#[test]
fn explicit_bounds_leave_out_the_upper_one_and_make_documents_without_input() {
    let range = || doc! { "step" => 2, "bounds" => array![0, 6] };
    assert_eq!(column(&run(&[], &[densify(range())]).unwrap(), "v"), values([0, 2, 4]));
    let found = run(&docs(&[-3, 1, 4, 11]), &[densify(range())]).unwrap();
    assert_eq!(column(&found, "v"), values([-3, 0, 1, 2, 4, 11]));
    // Without documents there are no partitions.
    assert!(run(&[], &[of_partitions(range())]).unwrap().is_empty());
}

#[test]
fn partitions_have_bounds_of_their_own_or_those_of_all() {
    let docs = [("a", 1), ("b", 5), ("a", 3), ("b", 8)].map(|(p, v)| doc! { "p" => p, "v" => v });
    let pairs = |found: Vec<DocBuf>| {
        let mut pairs: Vec<(String, i64)> = (found.iter().map(|doc| doc.as_doc()))
            .map(|doc| {
                let v = doc.value("v").as_i64_exact().unwrap();
                (doc.value("p").as_str().unwrap_or_default().to_owned(), v)
            })
            .collect();
        pairs.sort();
        pairs
    };
    let expected = |a: &[i64], b: &[i64]| {
        let of = |p: &str, all: &[i64]| all.iter().map(|v| (p.to_owned(), *v)).collect::<Vec<_>>();
        [of("a", a), of("b", b)].concat()
    };
    let own = of_partitions(doc! { "step" => 1, "bounds" => "partition" });
    assert_eq!(pairs(run(&docs, &[own]).unwrap()), expected(&[1, 2, 3], &[5, 6, 7, 8]));
    let full = of_partitions(doc! { "step" => 3, "bounds" => "full" });
    assert_eq!(pairs(run(&docs, &[full]).unwrap()), expected(&[1, 3, 4, 7], &[1, 4, 5, 7, 8]));
    let explicit = of_partitions(doc! { "step" => 2, "bounds" => array![2, 6] });
    assert_eq!(pairs(run(&docs, &[explicit]).unwrap()), expected(&[1, 2, 3, 4], &[2, 4, 5, 8]));
}

#[test]
fn documents_without_a_value_pass() {
    let docs =
        [doc! { "v" => 1 }, doc! { "v" => Value::Null }, doc! { "x" => 1 }, doc! { "v" => 3 }];
    let found = run(&docs, &[densify(doc! { "step" => 1, "bounds" => "full" })]).unwrap();
    assert_eq!(found.len(), 5);
    assert_eq!(column(&found[2..], "v"), values([1, 2, 3]));
    let range = doc! { "step" => 1, "bounds" => array![5, 7] };
    let found = run(&docs[1..2], &[densify(range)]).unwrap();
    assert!(equal(&column(&found, "v"), &[Value::Null, Value::Int32(5), Value::Int32(6)]));
}

#[test]
fn dates_step_by_units_and_months_keep_their_ends() {
    let date = |days: i64| Value::DateTime(days * DAY_MS);
    let docs = [doc! { "v" => date(0) }, doc! { "v" => date(3) }];
    let days = doc! { "step" => 1, "unit" => "day", "bounds" => "full" };
    let found = run(&docs, &[densify(days)]).unwrap();
    assert_eq!(column(&found, "v"), [0, 1, 2, 3].map(date));
    // From January 31st: February 28th, and then March 28th.
    let months = doc! { "step" => 1, "unit" => "month", "bounds" => array![date(30), date(100)] };
    let found = run(&[], &[densify(months)]).unwrap();
    assert_eq!(column(&found, "v"), [30, 58, 86].map(date));
}

#[test]
fn the_last_document_that_is_met_gives_the_type() {
    let decimal = |v: i32| Value::Decimal128(Decimal128::from(v));
    let docs = [doc! { "v" => decimal(0) }, doc! { "v" => 2.0 }, doc! { "v" => decimal(4) }];
    let found = run(&docs, &[densify(doc! { "step" => 1, "bounds" => "full" })]).unwrap();
    let types: Vec<_> = column(&found, "v").iter().map(Value::type_name).collect();
    assert_eq!(types, ["decimal", "decimal", "double", "double", "decimal"]);
    // A sum of tenths misses a half slightly; no row is generated beside the existing document.
    let docs = [0.0, 0.5, 0.8].map(|v| doc! { "v" => Value::Double(v) });
    let tenths = Value::Decimal128(Decimal128::parse("0.1").unwrap());
    let found = run(&docs, &[densify(doc! { "step" => tenths, "bounds" => "full" })]).unwrap();
    assert_eq!(found.len(), 9);
}

#[test]
fn fields_within_fields_are_made() {
    let docs = [1, 3].map(|v| doc! { "at" => doc! { "p" => 7, "v" => v } });
    let stage = doc! { "$densify" => doc! {
    "field" => "at.v", "partitionByFields" => array!["at.p"], "range" => doc! { "step" => 1, "bounds" => "partition" } } };
    let found = run(&docs, &[stage]).unwrap();
    assert_eq!(found[1], doc! { "at" => doc! { "p" => 7, "v" => 2 } });
}

#[test]
fn densify_explains_as_a_sort_and_itself() {
    let range = doc! { "step" => 1, "bounds" => "partition" };
    let expected = [
        doc! { "$sort" => doc! { "sortKey" => doc! { "p" => 1, "v" => 1 } } },
        doc! { "$_internalDensify" => doc! {
        "field" => "v", "partitionByFields" => array!["p"], "range" => range.clone() } },
    ];
    assert_eq!(explained(of_partitions(range.clone())), expected);
    let full = explained(of_partitions(doc! { "step" => 1, "bounds" => "full" }));
    assert_eq!(full[0], doc! { "$sort" => doc! { "sortKey" => doc! { "v" => 1 } } });
    let many = vec![of_partitions(range); 501];
    assert_eq!(parsed(&many[..500]).unwrap().stages.len(), 1000);
    assert_eq!(parsed(&many).map(|_| ()).unwrap_err().code().number(), 5054701);
}

#[test]
fn documents_and_memory_are_bounded() {
    let range = |upper: i32| doc! { "step" => 1, "bounds" => array![0, upper] };
    let made = |docs: &[DocBuf], stage: DocBuf, most: u64| {
        code(run_within(docs, &[stage], |limits| limits.densify_docs_max = most, Flow::Continue))
    };
    assert_eq!(made(&[], densify(range(11)), 10), 5897900);
    assert_eq!(made(&[], densify(range(10)), 10), 0);
    // All partitions count together; existing documents do not count.
    let docs = [("a", 0), ("b", 0), ("a", 5)].map(|(p, v)| doc! { "p" => p, "v" => v });
    assert_eq!(made(&docs, of_partitions(range(10)), 17), 0);
    assert_eq!(made(&docs, of_partitions(range(10)), 16), 5897900);
    let default = run_within(&[], &[densify(range(500_001))], |_| {}, Flow::Continue);
    assert_eq!(code(default), 5897900);
    // A step that does not change the value ends, too.
    let docs = [1e300, 2e300].map(|v| doc! { "v" => Value::Double(v) });
    assert_eq!(
        code(run_within(
            &docs,
            &[densify(doc! { "step" => 1, "bounds" => "full" })],
            |_| {},
            Flow::Continue
        )),
        5897900
    );
    let docs: Vec<DocBuf> =
        (0..10).map(|v| doc! { "v" => v, "p" => format!("{v}{}", "x".repeat(200)) }).collect();
    let own = of_partitions(doc! { "step" => 1, "bounds" => "partition" });
    let within = |bytes: usize| {
        code(run_within(
            &docs,
            std::slice::from_ref(&own),
            |limits| limits.densify_bytes_max = bytes,
            Flow::Continue,
        ))
    };
    assert_eq!((within(1000), within(10_000)), (6007200, 0));
}
