//! Accumulators over groups of documents.

use crate::shell;
use kauri_bson::{Doc, Value};
use kauri_expr::{AccumulatorSpec, EvalCx, ParseCx, is_accumulator_name};

/// Runs an accumulator over documents; returns the result in debug notation, or the error's code.
fn run(spec: &str, docs: &[&str], in_group: bool) -> Result<Value<'static>, i32> {
    let number = |error: kauri_base::Error| error.code().number();
    let spec = shell::document(&format!("{{f: {spec}}}"));
    let cx = ParseCx { in_group, ..ParseCx::default() };
    let value = spec.as_doc().value("f");
    let spec = AccumulatorSpec::parse_field("f", &value, &cx).map_err(number)?;
    let eval = EvalCx::default();
    let mut state = spec.start(&eval, Doc::EMPTY).map_err(number)?;
    for doc in docs {
        spec.add(&mut state, &eval, shell::document(doc).as_doc()).map_err(number)?;
    }
    spec.result(&state).map_err(number)
}

#[track_caller]
fn check(spec: &str, docs: &[&str], expected: &str) {
    let found = run(spec, docs, true).unwrap_or_else(|code| panic!("{spec}: error {code}"));
    assert_eq!(format!("{found:?}"), format!("{:?}", shell::value(expected)), "{spec} of {docs:?}");
}

#[track_caller]
fn fails(spec: &str, docs: &[&str], code: i32) {
    assert_eq!(run(spec, docs, true), Err(code), "{spec} of {docs:?}");
}

const DOCS: [&str; 5] =
    ["{v: 3, s: 'b'}", "{v: 1, s: 'a'}", "{s: 'c'}", "{v: null}", "{v: 3.0, s: 'a'}"];

#[test]
fn numbers() {
    check("{$sum: '$v'}", &DOCS, "7.0");
    check("{$sum: 1}", &DOCS, "5");
    check("{$sum: '$none'}", &DOCS, "0");
    check("{$sum: '$v'}", &[], "0");
    check("{$sum: '$v'}", &["{v: 2147483647}", "{v: 1}"], "2147483648L");
    check("{$sum: '$v'}", &["{v: 9223372036854775807L}", "{v: 1L}"], "9223372036854775808.0");
    check("{$sum: '$v'}", &["{v: 1}", "{v: 0.5d}"], "1.5d");
    check("{$avg: '$v'}", &["{v: 1}", "{v: 2}", "{v: 'x'}"], "1.5");
    check("{$avg: '$v'}", &["{v: 1d}", "{v: 2}"], "1.5d");
    check("{$avg: '$v'}", &[], "null");
    let ends = ["{v: 9223372036854775807L}", "{v: -9223372036854775808L}"];
    check("{$avg: '$v'}", &ends, "-0.5");
    check("{$stdDevPop: '$v'}", &["{v: 1}", "{v: 3}"], "1.0");
    check("{$stdDevSamp: '$v'}", &["{v: 1}"], "null");
    check("{$count: {}}", &DOCS, "5");
    check("{$median: {input: '$v', method: 'approximate'}}", &DOCS, "3.0");
    check("{$percentile: {input: '$v', p: [0, 1], method: 'approximate'}}", &DOCS, "[1.0, 3.0]");
}

#[test]
fn picks() {
    check("{$min: '$v'}", &DOCS, "1");
    check("{$max: '$v'}", &DOCS, "3");
    check("{$max: '$none'}", &DOCS, "null");
    check("{$first: '$v'}", &DOCS, "3");
    check("{$last: '$v'}", &DOCS, "3.0");
    check("{$first: '$none'}", &DOCS, "null");
    check("{$last: '$v'}", &["{v: 1}", "{}"], "null");
    check("{$firstN: {n: 2, input: '$v'}}", &DOCS, "[3, 1]");
    check("{$firstN: {n: 9, input: '$v'}}", &DOCS, "[3, 1, null, null, 3.0]");
    check("{$lastN: {n: 2, input: '$s'}}", &DOCS, "[null, 'a']");
    check("{$maxN: {n: 2, input: '$s'}}", &DOCS, "['c', 'b']");
    check("{$minN: {n: 3, input: '$v'}}", &DOCS, "[1, 3, 3.0]");
    check("{$top: {sortBy: {s: -1}, output: '$s'}}", &DOCS, "'c'");
    check("{$bottom: {sortBy: {s: -1}, output: '$v'}}", &DOCS, "null");
    check(
        "{$topN: {n: 2, sortBy: {v: 1}, output: ['$v', '$s']}}",
        &DOCS,
        "[[null, 'c'], [null, null]]",
    );
    check("{$bottomN: {n: 2, sortBy: {s: 1, v: 1}, output: '$s'}}", &DOCS, "['b', 'c']");
    // Arrays sort by their least or greatest element.
    check(
        "{$top: {sortBy: {v: 1}, output: '$s'}}",
        &["{v: [9, 1], s: 'x'}", "{v: 2, s: 'y'}"],
        "'x'",
    );
}

#[test]
fn collections() {
    check("{$push: '$v'}", &DOCS, "[3, 1, null, 3.0]");
    check("{$push: {a: '$v'}}", &DOCS[..2], "[{a: 3}, {a: 1}]");
    check("{$addToSet: '$v'}", &DOCS, "[3, 1, null]");
    check("{$setUnion: '$v'}", &["{v: [1, 2]}", "{v: [2, 3]}", "{}"], "[1, 2, 3]");
    check("{$concatArrays: '$v'}", &["{v: [1, 2]}", "{v: [2]}"], "[1, 2, 2]");
    check(
        "{$mergeObjects: '$v'}",
        &["{v: {a: 1, b: 1}}", "{v: null}", "{v: {b: 2}}"],
        "{a: 1, b: 2}",
    );
    fails("{$setUnion: '$v'}", &["{v: 1}"], 14);
    fails("{$concatArrays: '$v'}", &["{v: null}"], 14);
    fails("{$mergeObjects: '$v'}", &["{v: 1}"], 5911200);
    assert_eq!(run("{$mergeObjects: '$v'}", &["{v: 1}"], false), Err(40400));
}

#[test]
fn errors_of_the_parser() {
    fails("1", &[], 40234);
    fails("{}", &[], 40234);
    fails("{a: 1}", &[], 40234);
    fails("{$sum: 1, $avg: 1}", &[], 40238);
    fails("{$nothing: 1}", &[], 15952);
    fails("{$nothing: []}", &[], 40237);
    fails("{$sum: ['$a']}", &[], 40237);
    fails("{$count: 1}", &[], 14);
    fails("{$firstN: {input: '$a'}}", &[], 5787906);
    fails("{$firstN: {n: 1}}", &[], 5787907);
    fails("{$firstN: {n: 0, input: 1}}", &[], 7548606);
    fails("{$topN: {output: 1, sortBy: {a: 1}}}", &[], 5788003);
    fails("{$top: {output: 1, sortBy: {a: 2}}}", &[], 15975);
    fails("{$percentile: {input: 1, p: [2], method: 'approximate'}}", &[], 7750303);
    fails("{$percentile: {input: 1, p: [], method: 'approximate'}}", &[], 7750301);
    fails("{$percentile: {input: 1, p: [1], method: 'x'}}", &[], 2);
    fails("{$percentile: {input: 1, p: [1]}}", &[], 40414);
    fails("{$accumulator: {}}", &[], 31264);
    let field = |name: &str| {
        let spec = shell::value("{$sum: 1}");
        AccumulatorSpec::parse_field(name, &spec, &ParseCx::default()).unwrap_err().code().number()
    };
    assert_eq!((field("a.b"), field("$a")), (40235, 40236));
    assert!(is_accumulator_name("$push") && !is_accumulator_name("$add"));
}

/// Division fails with another code if a `$group` evaluates it, but not in a constant.
#[test]
fn codes_of_a_group() {
    fails("{$sum: {$divide: [1, '$v']}}", &["{v: 0}"], 4848401);
    fails("{$sum: {$mod: [1, '$v']}}", &["{v: 0}"], 4848403);
    fails("{$sum: {$divide: [1, 0]}}", &["{v: 0}"], 2);
    assert_eq!(run("{$sum: {$divide: [1, '$v']}}", &["{v: 0}"], false), Err(2));
}

/// `n` may depend on the group's key.
#[test]
fn n_of_the_group() {
    let value = shell::value("{n: {$cond: [{$eq: ['$k', 'x']}, 1, 2]}, input: '$v'}");
    let spec = AccumulatorSpec::parse("$firstN", &value, &ParseCx::default()).unwrap();
    let cx = EvalCx::default();
    for (key, expected) in [("{k: 'x'}", "[3]"), ("{k: 'y'}", "[3, 1]")] {
        let mut state = spec.start(&cx, shell::document(key).as_doc()).unwrap();
        for doc in DOCS {
            spec.add(&mut state, &cx, shell::document(doc).as_doc()).unwrap();
        }
        assert_eq!(spec.result(&state).unwrap(), shell::value(expected));
    }
}
